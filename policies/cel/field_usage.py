"""
The parts of its objects that an expression can reach, so that an engine gets no more than these.

    tree --reads--> object -> metadata -> labels, spec -> containers -> each -> image
    several --together--> the fields that all expressions of one activation reach
    object --trim--> the same object without what no expression reaches

An engine converts a whole object before the first rule runs, and rules never read most of it: the
environment of containers, their mounts, tokens. A part is reached as a whole as soon as an
expression uses its value and not only a field of it. A trimmed object has the same shape: a map
stays a map, a list keeps its length where a loop visits its items, and a missing field is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from policies.cel import checked_expr
from policies.cel.checked_expr import Expr

Parts = dict[str, Any]
"""Field -> the parts of it that are reached, or `ALL` of it; `EACH`: of every item or value."""

ALL: Final = None
EACH: Final = "[]"  # no field is called so where expressions spell it

OBJECTS: Final = ("object", "oldObject")
"""The variables that are large."""

_INDEX: Final = "_[_]"


@dataclass(frozen=True, slots=True, eq=False)
class ReachableFields:
    """What is reached of each variable; one that is not named is needed as it is."""

    parts: Mapping[str, Parts | None]


EVERYTHING: Final = ReachableFields({})
"""No variable is trimmed."""
WHOLE: Final = ReachableFields(dict.fromkeys(OBJECTS, ALL))
"""All of every object is reached, also beside expressions that reach less."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Somewhere in a variable: the way there, field by field."""

    root: str
    way: tuple[str, ...] = ()

    def step(self, name: str) -> _Place:
        return _Place(self.root, (*self.way, name))


Scope = Mapping[str, "_Place | None"]


@dataclass(slots=True)
class _Reader:
    found: dict[str, Parts | None] = field(default_factory=dict)

    def value(self, node: Expr, scope: Scope) -> None:
        """An expression that reads the value of a place may read any part of it."""
        place = self.place(node, scope)
        if place is not None:
            self._reach(place, whole=True)

    def place(self, node: Expr, scope: Scope) -> _Place | None:
        """The place that an expression stands for, or None once all that it reads is noted."""
        match node.WhichOneof("expr_kind"):
            case "ident_expr":
                return scope.get(node.ident_expr.name)
            case "select_expr":
                return self._select(node.select_expr, scope)
            case "comprehension_expr":
                self._loop(node.comprehension_expr, scope)
            case "call_expr" if _is_index(node.call_expr):
                return self._index(node, scope)
            case _:
                self._each(node, scope)
        return None

    def _each(self, node: Expr, scope: Scope) -> None:
        for child in checked_expr.children(node):
            self.value(child, scope)

    def _select(self, select: Expr.Select, scope: Scope) -> _Place | None:
        above = self.place(select.operand, scope)
        if above is None:
            return None
        here = above.step(select.field)
        if select.test_only:  # `has`: whether it is there, not what it is
            self._reach(here, whole=False)
            return None
        return here

    def _index(self, node: Expr, scope: Scope) -> _Place | None:
        arguments = node.call_expr.args
        key = arguments[1].const_expr.string_value if len(arguments) == 2 else ""
        if not key or key == EACH:
            self._each(node, scope)
            return None
        above = self.place(arguments[0], scope)
        return above.step(key) if above is not None else None

    def _loop(self, loop: Expr.Comprehension, scope: Scope) -> None:
        place = self.place(loop.iter_range, scope)
        self.value(loop.accu_init, scope)
        item = None
        if place is not None:
            item = place.step(EACH)
            self._reach(item, whole=False)
        inside = {**scope, loop.iter_var: item, loop.accu_var: None}
        if loop.iter_var2:  # first comes the index or the key, which is no part of the object
            inside |= {loop.iter_var: None, loop.iter_var2: item}
        for part in (loop.loop_condition, loop.loop_step, loop.result):
            self.value(part, inside)

    def _reach(self, place: _Place, *, whole: bool) -> None:
        steps = place.way
        if place.root not in self.found:
            self.found[place.root] = {} if steps or not whole else ALL
        here = self.found[place.root]
        for index, step in enumerate(steps):
            if here is ALL:
                return
            last = index == len(steps) - 1
            if last and whole:
                here[step] = ALL
            here = here.setdefault(step, {})
        if not steps and whole:
            self.found[place.root] = ALL


def reads(data: bytes, references: Collection[str]) -> ReachableFields:
    """What a serialized tree reaches of the variables that are objects, among those it reads."""
    objects = {name: _Place(name) for name in OBJECTS if name in references}
    if not objects:
        return EVERYTHING
    try:
        checked = checked_expr.decode(data)
    except checked_expr.DecodeError:
        return WHOLE
    reader = _Reader()
    reader.value(checked.expr, objects)
    return ReachableFields(reader.found)


def _is_index(call: Expr.Call) -> bool:
    return call.function == _INDEX and not call.HasField("target")


@lru_cache(maxsize=4096)  # as many sets of policies as namespaces may have
def together(views: tuple[ReachableFields, ...]) -> ReachableFields:
    """What several expressions reach."""
    merged: dict[str, Parts | None] = {}
    for view in views:
        for name, parts in view.parts.items():
            merged[name] = _merged(merged[name], parts) if name in merged else parts
    return ReachableFields(merged)


def _merged(first: Parts | None, other: Parts | None) -> Parts | None:
    if first is ALL or other is ALL:
        return ALL
    merged = dict(first)
    for name, parts in other.items():
        merged[name] = _merged(merged[name], parts) if name in merged else parts
    return merged


def trim(value: Any, parts: Parts | None) -> Any:
    """The value without what is not reached."""
    if parts is ALL:
        return value
    if isinstance(value, dict):
        every = parts.get(EACH, parts)
        if every is not parts:
            named = parts.keys() - {EACH}
            return {
                key: trim(item, _merged(every, parts[key]) if key in named else every)
                for key, item in value.items()
            }
        return {key: trim(value[key], below) for key, below in parts.items() if key in value}
    if isinstance(value, list):
        return [trim(item, parts[EACH]) for item in value] if EACH in parts else []
    return value
