"""
Keeps optionals away from Python: an optional inside a map that reaches Python ends the whole
process.

Optionals come from expressions alone, never from JSON, so their way can be followed by type.
An expression is refused where an optional would become `dyn` and so be lost from sight, or where a
value with optionals inside is handed to one of our own functions. What people write with optionals
(`?.`, `orValue`, `optMap`, `[?x]`) passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from policies.cel import checked_expr
from policies.cel.checked_expr import ExprNode

_MARKS: Final = (b"optional", b"[?")
_UNWRAPPING: Final = frozenset({"value", "orValue", "hasValue"})
_DYN, _ABSTRACT = 1, 14

ADVICE: Final = "an optional must be unwrapped first: use .orValue(…) or .value()"


@dataclass(frozen=True, slots=True)
class OptionalRefused:
    """Where an optional would get lost, as an offset in code points, and why that is refused."""

    offset: int
    message: str


def lost_optional(data: bytes, own: Collection[str]) -> OptionalRefused | None:
    """The first place of a serialized tree where an optional may reach Python, or None."""
    if not any(mark in data for mark in _MARKS):
        return None
    checked = checked_expr.decode(data, "Any").node(2)
    expression = checked.node(4) if checked else None
    if checked is None or expression is None:
        return None
    guard = _Guard(checked_expr.types(checked), own)
    lost = next((node for node in _expressions(expression) if guard.loses(node)), None)
    if lost is None and guard.hidden(expression):
        lost = expression
    return OptionalRefused(offset(checked, lost.number(2)), ADVICE) if lost else None


def _expressions(node: ExprNode) -> Iterator[ExprNode]:
    if node.kind == "Expr":
        yield node
    for child in node.children():
        yield from _expressions(child)


@dataclass(frozen=True, slots=True)
class _Guard:
    types: dict[int, ExprNode]  # expression id -> its type
    own: Collection[str]

    def loses(self, node: ExprNode) -> bool:
        """Whether an optional goes in and something comes out whose type does not tell."""
        inner = next(node.children(), None)
        if inner is None:
            return False
        match inner.kind:
            case "Call":
                return self._call_loses(node, inner)
            case "List":
                skipped = _numbers(inner, 2)
                parts = [e for i, e in enumerate(inner.nodes(1)) if i not in skipped]
                return self._hides(node, parts)
            case "Struct":
                values = [e.node(4) for e in inner.nodes(2) if not e.number(5)]
                return self._hides(node, [value for value in values if value is not None])
            case "Comprehension":
                # The range, the start, the step and the result; a loop's variables have its type.
                return any(self.hidden(part) for part in inner.children())
        return False

    def _call_loses(self, node: ExprNode, call: ExprNode) -> bool:
        name = call.text(2)
        arguments = _arguments(call)
        if name in _UNWRAPPING or not any(map(self.optional, arguments)):
            return False
        if name in self.own or name == "cel.@mapInsert":
            return True
        return _has(self._type(node), _DYN) and not self.optional(node)

    def _hides(self, node: ExprNode, parts: Collection[ExprNode]) -> bool:
        inside = any(map(self.optional, parts))
        return inside and (any(map(self.hidden, parts)) or not _has_optional(self._type(node)))

    def optional(self, node: ExprNode) -> bool:
        """Whether the value is an optional or has one inside, as far as can be known."""
        return _has_optional(self._type(node)) or self.hidden(node)

    def hidden(self, node: ExprNode) -> bool:
        """Whether the value is an optional although its type is `dyn`: `object.list[?0]`."""
        inner = next(node.children(), None)
        if inner is None or _has_optional(self._type(node)):
            return False
        if inner.kind == "Select":
            operand = inner.node(1)
            return operand is not None and not inner.number(3) and self.optional(operand)
        if inner.kind != "Call":
            return False
        if inner.text(2) == "_[?_]":
            return True
        arguments = _arguments(inner)
        return inner.text(2) == "_[_]" and bool(arguments) and self._is_optional(arguments[0])

    def _is_optional(self, node: ExprNode) -> bool:
        """Whether the value itself, not something inside, is an optional."""
        known = self._type(node).node(_ABSTRACT)
        return (known is not None and known.text(1) == "optional_type") or self.hidden(node)

    def _type(self, node: ExprNode) -> ExprNode:
        return self.types.get(node.number(2)) or ExprNode("Type")


def _arguments(call: ExprNode) -> list[ExprNode]:
    target = call.node(1)
    return [*([target] if target else []), *call.nodes(3)]


def _has_optional(kind: ExprNode) -> bool:
    if any(part.text(1) == "optional_type" for part in kind.nodes(_ABSTRACT)):
        return True
    return any(_has_optional(child) for child in kind.children())


def _has(kind: ExprNode, number: int) -> bool:
    if kind.kind == "Type" and any(n == number for n, _, _ in kind.fields):
        return True
    return any(_has(child, number) for child in kind.children())


def _numbers(node: ExprNode, number: int) -> frozenset[int]:
    """The integers of a repeated field, packed or not."""
    found: set[int] = set()
    for n, _, value in node.fields:
        if n == number and isinstance(value, int):
            found.add(value)
        elif n == number and isinstance(value, bytes):
            found.update(value)
    return frozenset(found)


def offset(checked: ExprNode, expression: int) -> int:
    """Where an expression stands in its source, in code points."""
    for source in checked_expr.entries(checked, 5, "SourceInfo"):
        for entry in source.nodes(4):
            if entry.number(1) == expression:
                return entry.number(2)
    return 0
