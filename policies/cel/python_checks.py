"""
What cel-python lacks: checks before a program runs, and our functions over plain values.

cel-python has no checker, so this module walks the tree once and rejects what would fail only while
a request waits: undeclared names, functions that it lacks, macros with two variables. Trees are
lark's, known here by their shape alone (`data`, `children`).
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from policies.cel import error_kinds
from policies.cel.functions import lists
from policies.cel.functions.overload import Function, Overload
from policies.cel.protocol import CompileError, EvaluationError

MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_TYPES: Final = frozenset(
    [
        "bool",
        "bytes",
        "double",
        "duration",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "timestamp",
        "type",
        "uint",
        "google",
    ]
)
_CALLS: Final = frozenset({"has", "dyn"})
_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (type(None), "null"),
    (datetime.datetime, "timestamp"),
    (datetime.timedelta, "duration"),
    (list, "list<dyn>"),
    (dict, "map<dyn,dyn>"),
)


@dataclass(frozen=True, slots=True)
class Survey:
    """Checks one tree; `declared` are the variables, `functions` the names that can be called."""

    declared: Collection[str]
    functions: Collection[str]

    def references(self, tree: Any) -> frozenset[str]:
        """The variables that the tree reads. Raises CompileError."""
        return frozenset(self._walk(tree, frozenset()))

    def _walk(self, tree: Any, local: frozenset[str]) -> Iterator[str]:
        data = getattr(tree, "data", None)
        if data == "ident":
            yield from self._name(tree.children[0], str(tree.children[0]), local)
            return
        if data == "member_dot":
            path = _path(tree)
            if path and path.partition(".")[0] not in local and self._declares(path):
                yield from self._name(tree.children[1], path, local)
                return
        if data == "member_dot_arg":
            yield from self._member_call(tree, local)
            return
        if data == "ident_arg":
            self._known(tree.children[0])
        for child in getattr(tree, "children", ()):
            yield from self._walk(child, local)

    def _member_call(self, tree: Any, local: frozenset[str]) -> Iterator[str]:
        receiver, name, *rest = tree.children
        path = _path(receiver)
        if path and not self._declares(path) and path.partition(".")[0] not in local:
            raise _rejected(name, f"{path}.{name} is not a function that cel-python has")
        yield from self._walk(receiver, local)
        arguments = list(rest[0].children) if rest and rest[0] is not None else []
        if str(name) not in MACROS:
            self._known(name)
            for argument in arguments:
                yield from self._walk(argument, local)
            return
        variable = _path(arguments[0]) if arguments else ""
        if len(arguments) != 2 or not variable:
            raise _rejected(name, f"{name} takes one variable and one expression in cel-python")
        yield from self._walk(arguments[1], local | {variable})

    def _name(self, token: Any, name: str, local: frozenset[str]) -> Iterator[str]:
        first = name.partition(".")[0]
        if first in local or name in _TYPES:
            return
        for declared in self.declared:
            if name == declared or name.startswith(f"{declared}."):
                yield declared
                return
        raise _rejected(token, f"undeclared reference to {name!r}")

    def _declares(self, path: str) -> bool:
        first = path.partition(".")[0]
        return any(d == first or path == d or path.startswith(f"{d}.") for d in self.declared)

    def _known(self, token: Any) -> None:
        if str(token) not in self.functions and str(token) not in _CALLS:
            raise _rejected(token, f"{token} is not a function that cel-python has")


def _rejected(token: Any, message: str) -> CompileError:
    line, column = getattr(token, "line", None), getattr(token, "column", None)
    return CompileError(message, line=line or 1, column=column or 1)


def _path(tree: Any) -> str:
    """`a.b.c` when the tree is nothing but that, else nothing."""
    while hasattr(tree, "children"):
        if tree.data == "ident":
            return str(tree.children[0])
        if tree.data == "member_dot":
            before = _path(tree.children[0])
            return f"{before}.{tree.children[1]}" if before else ""
        if len(tree.children) != 1 or tree.data in ("list_lit", "map_lit", "literal"):
            return ""
        tree = tree.children[0]
    return ""


def callables(functions: Iterable[Function]) -> dict[str, Callable[..., object]]:
    """One callable per name, over plain values, and the operators that CEL defines across types."""
    made = {function.name: _chosen(function.name, function.overloads) for function in functions}
    return {
        **made,
        "_==_": lists.equal,
        "_!=_": lambda left, right: not lists.equal(left, right),
        "_<_": _over_numbers(operator.lt),
        "_<=_": _over_numbers(operator.le),
        "_>_": _over_numbers(operator.gt),
        "_>=_": _over_numbers(operator.ge),
    }


def _over_numbers(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    """Python compares int with float exactly, as CEL requires; the engine does the rest."""

    def call(left: object, right: object) -> bool:
        for value in (left, right):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise RuntimeError(error_kinds.tagged("no-overload", "no such overload"))
        return compare(left, right)

    return call


def _chosen(name: str, overloads: tuple[Overload, ...]) -> Callable[..., object]:
    known = {overload.parameters: overload.call for overload in overloads}

    def call(*arguments: object) -> object:
        overload = known.get(tuple(_kind(argument) for argument in arguments))
        if overload is None:
            raise RuntimeError(
                error_kinds.tagged("no-overload", f"no matching overload for {name!r}")
            )
        return overload(*arguments)

    return call


def _kind(value: object) -> str:
    return next((kind for python, kind in _KINDS if isinstance(value, python)), "")


class Values:
    """Plain values to cel-python's and back; its types (`celpy.celtypes`) are handed in."""

    def __init__(self, types: Any, error: type[Exception]) -> None:
        self._types, self._error = types, error
        # CEL's name, cel-python's type, the plain type: the first that fits.
        self._scalars: tuple[tuple[str, Any, type], ...] = (
            ("bool", types.BoolType, bool),
            ("uint", types.UintType, types.UintType),
            ("int", types.IntType, int),
            ("double", types.DoubleType, float),
            ("string", types.StringType, str),
            ("bytes", types.BytesType, bytes),
            ("timestamp", types.TimestampType, datetime.datetime),
            ("duration", types.DurationType, datetime.timedelta),
        )

    def to_cel(self, value: object) -> Any:
        """A plain value in cel-python's types."""
        if value is None:
            return None
        if isinstance(value, list):
            return self._types.ListType([self.to_cel(item) for item in value])
        if isinstance(value, dict):
            pairs = {self.to_cel(key): self.to_cel(item) for key, item in value.items()}
            return self._types.MapType(pairs)
        for _, made, plain in self._scalars:
            if isinstance(value, plain):
                return made(value)
        raise EvaluationError("type", f"a value of type {type(value).__name__} is not JSON")

    def from_cel(self, value: object) -> tuple[str, object]:
        """CEL's name of the type and the plain value; an error leaves as an EvaluationError."""
        if isinstance(value, self._error):
            raise error_kinds.evaluation_error(str(value.args[0] if value.args else value))
        if value is None:
            return "null", None
        if isinstance(value, list):
            return "list", [self.from_cel(item)[1] for item in value]
        if isinstance(value, dict):
            pairs = {self.from_cel(k)[1]: self.from_cel(v)[1] for k, v in value.items()}
            return "map", pairs
        return self._scalar(value)

    def _scalar(self, value: object) -> tuple[str, object]:
        for name, made, plain in self._scalars:
            if isinstance(value, made | plain):
                whole = name in ("timestamp", "duration")
                return name, value if whole else (int if name == "uint" else plain)(value)
        if isinstance(value, type):
            known = (name for name, made, _ in self._scalars if issubclass(value, made))
            other = value.__name__.removesuffix("Type").lower().replace("none", "null")
            return "type", next(known, other)
        raise EvaluationError("type", f"a value of type {type(value).__name__} is none of CEL's")
