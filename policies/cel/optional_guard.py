"""
Keeps optionals away from Python: an optional inside a map that reaches Python ends the whole
process.

Optionals come from expressions, never from JSON, so that their types show where they go. The guard
rejects an expression where an optional would become `dyn`, and so be untraceable, or where a value
with optionals inside is an argument of one of our own functions. The usual forms (`?.`, `orValue`,
`optMap`, `[?x]`) pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policies.cel import checked_expr
from policies.cel.checked_expr import Expr, Type

_MARKS: Final = (b"optional", b"[?")
_UNWRAPPING: Final = frozenset({"value", "orValue", "hasValue"})
_OPTIONAL: Final = "optional_type"
_UNKNOWN: Final = Type()

ADVICE: Final = "an optional must be unwrapped first: use .orValue(…) or .value()"


@dataclass(frozen=True, slots=True)
class RejectedExpression:
    """Where an expression is at fault, as an offset in code points, and why."""

    offset: int
    message: str


def lost_optional(data: bytes, own: Collection[str]) -> RejectedExpression | None:
    """The first place of a serialized tree where an optional may reach Python, or None."""
    if not any(mark in data for mark in _MARKS):
        return None
    checked = checked_expr.decode(data)
    guard = _Guard(checked.type_map, own)
    lost = next((node for node in _expressions(checked.expr) if guard.loses(node)), None)
    if lost is None and guard.hidden(checked.expr):
        lost = checked.expr
    return (
        RejectedExpression(checked_expr.offset(checked, lost.id), ADVICE)
        if lost is not None
        else None
    )


def _expressions(node: Expr) -> Iterator[Expr]:
    yield node
    for child in checked_expr.children(node):
        yield from _expressions(child)


@dataclass(frozen=True, slots=True)
class _Guard:
    types: Mapping[int, Type]  # expression id -> its type
    own: Collection[str]

    def loses(self, node: Expr) -> bool:
        """Whether an optional goes in and the type of what comes out does not show it."""
        match node.WhichOneof("expr_kind"):
            case "call_expr":
                return self._call_loses(node, node.call_expr)
            case "list_expr":
                skipped = frozenset(node.list_expr.optional_indices)
                parts = [e for i, e in enumerate(node.list_expr.elements) if i not in skipped]
                return self._hides(node, parts)
            case "struct_expr":
                entries = node.struct_expr.entries
                return self._hides(node, [e.value for e in entries if not e.optional_entry])
            case "comprehension_expr":
                # The range, the start, the step and the result; a loop's variables have its type.
                return any(map(self.hidden, checked_expr.children(node)))
        return False

    def _call_loses(self, node: Expr, call: Expr.Call) -> bool:
        if call.function in _UNWRAPPING:
            return False
        if not any(map(self.optional, checked_expr.arguments(call))):
            return False
        if call.function in self.own or call.function == "cel.@mapInsert":
            return True
        return _has_dyn(self._type(node)) and not self.optional(node)

    def _hides(self, node: Expr, parts: Collection[Expr]) -> bool:
        inside = any(map(self.optional, parts))
        return inside and (any(map(self.hidden, parts)) or not _has_optional(self._type(node)))

    def optional(self, node: Expr) -> bool:
        """Whether the value is an optional or has one inside, as far as can be known."""
        return _has_optional(self._type(node)) or self.hidden(node)

    def hidden(self, node: Expr) -> bool:
        """Whether the value is an optional although its type is `dyn`: `object.list[?0]`."""
        kind = node.WhichOneof("expr_kind")
        if kind not in ("select_expr", "call_expr") or _has_optional(self._type(node)):
            return False
        if kind == "select_expr":
            select = node.select_expr
            return not select.test_only and self.optional(select.operand)
        call = node.call_expr
        if call.function == "_[?_]":
            return True
        arguments = checked_expr.arguments(call)
        return call.function == "_[_]" and bool(arguments) and self._is_optional(arguments[0])

    def _is_optional(self, node: Expr) -> bool:
        """Whether the value itself, not a part of it, is an optional."""
        return self._type(node).abstract_type.name == _OPTIONAL or self.hidden(node)

    def _type(self, node: Expr) -> Type:
        return self.types.get(node.id, _UNKNOWN)


def _parameters(kind: Type) -> Iterator[Type]:
    match kind.WhichOneof("type_kind"):
        case "list_type":
            yield kind.list_type.elem_type
        case "map_type":
            yield kind.map_type.key_type
            yield kind.map_type.value_type
        case "abstract_type":
            yield from kind.abstract_type.parameter_types


def _has_optional(kind: Type) -> bool:
    if kind.abstract_type.name == _OPTIONAL:
        return True
    return any(map(_has_optional, _parameters(kind)))


def _has_dyn(kind: Type) -> bool:
    return kind.HasField("dyn") or any(map(_has_dyn, _parameters(kind)))
