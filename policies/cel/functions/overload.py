"""
A function of CEL as data: its name, the types it accepts, what it gives, and plain Python to call.

    check time   overloads as written here, with types of their own such as `kubernetes.Quantity`
    run time     those types are small tagged maps; overloads that then look alike become one,
                 which picks by tag (`merged`)

A parameter of type `dyn` becomes one run-time overload for each concrete type: an optional must not
reach Python, as no engine can convert it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies.cel import error_kinds
from policies.cel.protocol import ErrorKind

TAG: Final = "cel.type"
"""The key with the type of our own that a map stands for; `value` holds its canonical text."""

CONCRETE: Final = (
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "null",
    "timestamp",
    "duration",
    "list<dyn>",
    "map<dyn,dyn>",
)


class FunctionError(Exception):
    """A function has no answer for these arguments."""

    def __init__(self, message: str, *, kind: ErrorKind = "function") -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature. For a member, the receiver is the first parameter."""

    parameters: tuple[str, ...]
    result: str
    call: Callable[..., object]
    member: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A name and its signatures."""

    name: str
    overloads: tuple[Overload, ...]


def opaque(kind: str, value: str) -> dict[str, object]:
    """The run-time form of a value whose type CEL does not have. Equal values, equal texts."""
    return {TAG: kind, "value": value}


def text_of(value: object, kind: str) -> str | None:
    """The canonical text of a value of that type, or None where it is something else."""
    if isinstance(value, Mapping) and value.get(TAG) == kind:
        text = value.get("value")
        return text if isinstance(text, str) else None
    return None


def is_opaque(type_name: str) -> bool:
    """Whether a type is one of our own rather than CEL's."""
    return "." in type_name and "<" not in type_name


def runtime_type(type_name: str) -> str:
    """What a declared type is once programs run."""
    if type_name.startswith("optional_type<"):
        type_name = type_name.removeprefix("optional_type<")[:-1]
    if is_opaque(type_name):
        return "map<dyn,dyn>"
    if type_name.startswith("~"):
        return "dyn"
    if type_name.startswith("list<"):
        return "list<dyn>"
    if type_name.startswith("map<"):
        return "map<dyn,dyn>"
    return type_name


def merged(functions: Iterable[Function]) -> list[Function]:
    """The functions as they are at run time: concrete parameters, no two overloads alike."""
    return [Function(f.name, tuple(_merged_overloads(f))) for f in functions]


def _merged_overloads(function: Function) -> Iterable[Overload]:
    groups: dict[tuple[bool, tuple[str, ...]], list[Overload]] = {}  # signature -> candidates
    for overload in function.overloads:
        choices = [_choices(parameter) for parameter in overload.parameters]
        for signature in itertools.product(*choices):
            groups.setdefault((overload.member, signature), []).append(overload)
    for (member, signature), candidates in groups.items():
        call = dispatch(function.name, candidates)
        results = {runtime_type(candidate.result) for candidate in candidates}
        result = results.pop() if len(results) == 1 else "dyn"
        yield Overload(signature, result, call, member)


def _choices(parameter: str) -> Sequence[str]:
    known = runtime_type(parameter)
    return CONCRETE if known == "dyn" else (known,)


def dispatch(name: str, candidates: Sequence[Overload]) -> Callable[..., object]:
    """One callable for signatures that look alike: the first whose tags fit is called."""

    def call(*arguments: object) -> object:
        for candidate in candidates:
            if _fits(candidate, arguments):
                return _guarded(candidate.call, arguments)
        raise RuntimeError(error_kinds.tagged("no-overload", f"no matching overload for {name!r}"))

    return call


def _fits(overload: Overload, arguments: Sequence[object]) -> bool:
    return all(
        not is_opaque(parameter) or text_of(argument, parameter) is not None
        for parameter, argument in zip(overload.parameters, arguments, strict=True)
    )


def _guarded(call: Callable[..., object], arguments: Sequence[object]) -> object:
    try:
        return call(*arguments)
    except FunctionError as error:
        raise RuntimeError(error_kinds.tagged(error.kind, str(error))) from error
    except Exception as error:
        # An exception of a function is an error of its rule, never of the process.
        raise RuntimeError(
            error_kinds.tagged("function", f"{type(error).__name__}: {error}")
        ) from error
