"""
Which parts of its objects an expression can reach, so that an engine is handed no more than these.

    tree --reads--> View: object -> metadata -> labels, spec -> containers -> each -> image
    Views --together--> the View of all expressions that share an activation
    object --kept--> the same object without what nobody reaches

An engine converts a whole object before the first rule looks at it, and most of it is never looked
at: the environment of containers, their mounts, tokens. A part counts as reached as a whole as soon
as anything else than a field of it is asked for. What is kept is of the same shape: a map stays a
map, a list keeps its length wherever its items are visited, and what is missing is missing still.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from policies.cel import checked_expr
from policies.cel.checked_expr import ExprNode

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
"""All of every object is reached, and stays so beside whoever reaches less."""


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

    def value(self, node: ExprNode, scope: Scope) -> None:
        """Whoever asks for the value of a place may ask for anything in it."""
        place = self.place(node, scope)
        if place is not None:
            self._reach(place, whole=True)

    def place(self, node: ExprNode, scope: Scope) -> _Place | None:
        """The place that an expression stands for, or None once all that it reads is noted."""
        inner = next((c for c in node.children() if c.kind != "Constant"), None)
        if inner is None:
            return None
        match inner.kind:
            case "Ident":
                return scope.get(inner.text(1))
            case "Select":
                return self._select(inner, scope)
            case "Comprehension":
                self._loop(inner, scope)
            case "Call" if inner.text(2) == _INDEX and inner.node(1) is None:
                return self._index(inner, scope)
            case _:
                self._each(inner, scope)
        return None

    def _each(self, node: ExprNode, scope: Scope) -> None:
        for child in node.children():
            if child.kind == "Expr":
                self.value(child, scope)
            else:
                self._each(child, scope)

    def _select(self, select: ExprNode, scope: Scope) -> _Place | None:
        operand = select.node(1)
        above = self.place(operand, scope) if operand is not None else None
        if above is None:
            return None
        here = above.step(select.text(2))
        if select.number(3):  # `has`: whether it is there, not what it is
            self._reach(here, whole=False)
            return None
        return here

    def _index(self, call: ExprNode, scope: Scope) -> _Place | None:
        arguments = call.nodes(3)
        constant = arguments[1].node(3) if len(arguments) == 2 else None
        key = constant.text(6) if constant is not None else ""
        if not key or key == EACH:
            self._each(call, scope)
            return None
        above = self.place(arguments[0], scope)
        return above.step(key) if above is not None else None

    def _loop(self, fold: ExprNode, scope: Scope) -> None:
        over, start = fold.node(2), fold.node(4)
        place = self.place(over, scope) if over is not None else None
        if start is not None:
            self.value(start, scope)
        item = None
        if place is not None:
            item = place.step(EACH)
            self._reach(item, whole=False)
        first, second = fold.text(1), fold.text(8)
        inside = {**scope, first: item, fold.text(3): None}
        if second:  # first comes the index or the key, which is no part of the object
            inside |= {first: None, second: item}
        for number in (5, 6, 7):
            part = fold.node(number)
            if part is not None:
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
    checked = checked_expr.decode(data, "Any").node(2)
    expression = checked.node(4) if checked is not None else None
    if expression is None:
        return WHOLE
    reader = _Reader()
    reader.value(expression, objects)
    return ReachableFields(reader.found)


@lru_cache(maxsize=4096)  # as many sets of policies as namespaces may have
def together(views: tuple[ReachableFields, ...]) -> ReachableFields:
    """What several expressions reach."""
    found: dict[str, Parts | None] = {}
    for view in views:
        for name, parts in view.parts.items():
            found[name] = _merged(found[name], parts) if name in found else parts
    return ReachableFields(found)


def _merged(one: Parts | None, other: Parts | None) -> Parts | None:
    if one is ALL or other is ALL:
        return ALL
    found = dict(one)
    for name, parts in other.items():
        found[name] = _merged(found[name], parts) if name in found else parts
    return found


def kept(value: Any, parts: Parts | None) -> Any:
    """The value without what is not reached."""
    if parts is ALL:
        return value
    if isinstance(value, dict):
        every = parts.get(EACH, parts)
        if every is not parts:
            named = parts.keys() - {EACH}
            return {
                key: kept(item, _merged(every, parts[key]) if key in named else every)
                for key, item in value.items()
            }
        return {key: kept(value[key], below) for key, below in parts.items() if key in value}
    if isinstance(value, list):
        return [kept(item, parts[EACH]) for item in value] if EACH in parts else []
    return value
