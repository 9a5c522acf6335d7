"""
Changes to a checked tree, so that the run time can do what the checker has accepted.

    transformMap, transformMapEntry   the wheel has no map insertion: collect small maps in a list,
                                      and join them once at the end
    format.named, validate            Python cannot make an optional: an empty answer becomes none
    requests(object, …)               the name of the variable instead of the whole object
    type(ip(…)) == net.IP             types of our own do not exist at run time: their names do
    matches('…')                      the engine compiles the pattern at each call: keep it compiled
    lists.range(n)                    the engine makes any length: no more than a program may visit

Also says which variables an expression reads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from policies.cel import checked_expr, optional_guard, pod_types
from policies.cel.checked_expr import ExprNode, message
from policies.cel.functions import format, lists, pod
from policies.cel.functions.overload import Function, FunctionError, Overload

_INSERT: Final = "cel.@mapInsert"
_JOIN: Final = "cel.@joinMaps"
_MATCHES: Final = "cel.@matches"
_RANGE: Final = "cel.@range"
_CALL, _LIST, _STRUCT, _COMPREHENSION = 6, 7, 8, 9


def _join(maps: list[dict[object, object]]) -> dict[object, object]:
    joined: dict[object, object] = {}
    for one in maps:
        for key, value in one.items():
            if key in joined:
                raise FunctionError(f"insert failed: key {key!r} already exists")
            joined[key] = value
    return joined


FUNCTIONS: Final = (
    Function(_JOIN, (Overload(("list<dyn>",), "map<dyn,dyn>", _join),)),
    Function(_RANGE, (Overload(("int",), "list<int>", lists.bounded_range),)),
    Function(_MATCHES, (Overload(("string", "string"), "bool", lists.matches),)),
)
"""What rewritten trees call; authors cannot spell these names."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A tree ready for the run time, the variables it reads, and what is wrong with it."""

    data: bytes
    references: frozenset[str]
    asks: bool = False
    """Whether it calls a function that asks for the activation."""
    fault: optional_guard.OptionalRefused | None = None


@dataclass(slots=True)
class _Rewriter:
    checked: ExprNode
    variables: Collection[str]
    opaque: Collection[str]
    tree: ExprNode
    found: set[str] = field(default_factory=set)
    stale: dict[int, ExprNode | None] = field(
        default_factory=dict
    )  # expression id -> its new reference
    last_id: int = 0
    changed: bool = False
    asks: bool = False
    fault: tuple[int, str] | None = None  # (expression id, message)

    def expression(self, node: ExprNode, hidden: frozenset[str]) -> None:
        """Rewrite in place, children first; `hidden` are names that loops have taken."""
        inner = next((c for c in node.children() if c.kind != "Constant"), None)
        if inner is None:
            return
        match inner.kind:
            case "Comprehension":
                self._comprehension(node, inner, hidden)
            case "Ident":
                self._ident(node, inner, hidden)
            case "Call":
                self._each(inner, hidden)
                self._call(node, inner, hidden)
            case "Struct" if _is_schema_type(inner.text(1)):
                why = f"an object of type {inner.text(1)} cannot be made; write a map"
                self._wrong(node, why)
            case _:
                self._each(inner, hidden)

    def _each(self, node: ExprNode, hidden: frozenset[str]) -> None:
        for child in node.children():
            if child.kind == "Expr":
                self.expression(child, hidden)
            else:
                self._each(child, hidden)

    def _comprehension(self, node: ExprNode, fold: ExprNode, hidden: frozenset[str]) -> None:
        taken = hidden | {fold.text(1), fold.text(3), fold.text(8)}
        for number, _, value in fold.fields:
            if isinstance(value, ExprNode):
                # The range and the start are outside of the loop.
                self.expression(value, hidden if number in (2, 4) else taken)
        step = fold.node(6)
        insert = _insertion(step) if step else None
        if insert is None:
            return
        self.changed = True
        self._collect(insert)
        start, result = fold.node(4), fold.node(7)
        assert start is not None
        assert result is not None
        start.fields = [(2, 0, start.number(2)), (_LIST, 2, message("List"))]
        outer = message("Expr", (2, self._id()), (_CALL, message("Call", (2, _JOIN), (3, result))))
        fold.fields = [(n, w, outer if n == 7 else v) for n, w, v in fold.fields]

    def _collect(self, insert: ExprNode) -> None:
        """`insert(acc, k, v)` becomes `acc + [{k: v}]`."""
        call = insert.node(_CALL)
        assert call is not None
        accumulator, *rest = call.nodes(3)
        entry = rest[0]
        if len(rest) == 2:
            pair = message("Entry", (1, self._id()), (3, rest[0]), (4, rest[1]))
            entry = message("Expr", (2, self._id()), (_STRUCT, message("Struct", (2, pair))))
        items = message("Expr", (2, self._id()), (_LIST, message("List", (1, entry))))
        call.fields = [(2, 2, b"_+_"), (3, 2, accumulator), (3, 2, items)]
        self._refer(insert.number(2), "_+_", "add_list")

    def _ident(self, node: ExprNode, ident: ExprNode, hidden: frozenset[str]) -> None:
        name = ident.text(1)
        if name in self.variables and name not in hidden:
            self.found.add(name)
        elif name in self.opaque:
            self._constant(node, name)
        elif _is_schema_type(name) and name not in hidden:
            self._wrong(node, f"{name} is no type at run time; objects are maps")

    def _call(self, node: ExprNode, call: ExprNode, hidden: frozenset[str]) -> None:
        name = call.text(2)
        arguments = call.nodes(3)
        if name in format.OPTIONAL:
            self._optional(node, call)
        elif name == "type" and len(arguments) == 1:
            kind = checked_expr.types(self.checked).get(arguments[0].number(2))
            if kind is not None and kind.text(9) in self.opaque:
                self._constant(node, kind.text(9))
        elif name in pod.NAMES and arguments:
            ident = arguments[0].node(4)
            known = ident.text(1) if ident else ""
            if known in self.variables and known not in hidden:
                self.asks = True
                self._constant(arguments[0], known)
        elif name == "matches":
            self._matches(node, call, arguments)
        elif name == "lists.range":
            self._range(node, call, arguments)

    def _range(self, node: ExprNode, call: ExprNode, arguments: list[ExprNode]) -> None:
        self.changed = True
        call.fields = [(2, 2, _RANGE.encode()), *((3, 2, part) for part in arguments)]
        self._forget(node.number(2))

    def _matches(self, node: ExprNode, call: ExprNode, arguments: list[ExprNode]) -> None:
        constant = arguments[-1].node(3) if arguments else None
        if constant is None:
            return
        self.changed = True
        wrong = lists.pattern_fault(constant.text(6))
        if wrong is not None:
            self._wrong(arguments[-1], wrong)
        target = call.node(1)
        parts = [*([target] if target else []), *arguments]
        call.fields = [(2, 2, _MATCHES.encode()), *((3, 2, part) for part in parts)]
        self._forget(node.number(2))

    def _optional(self, node: ExprNode, call: ExprNode) -> None:
        self.changed = True
        inner = message("Expr", (2, self._id()), (_CALL, call))
        outer = message("Call", (2, "optional.ofNonZeroValue"), (3, inner))
        node.fields = [(2, 0, node.number(2)), (_CALL, 2, outer)]
        self._refer(node.number(2), "optional.ofNonZeroValue", "optional_ofNonZeroValue")

    def _constant(self, node: ExprNode, text: str) -> None:
        self.changed = True
        node.fields = [(2, 0, node.number(2)), (3, 2, message("Constant", (6, text)))]
        self._forget(node.number(2))

    def _wrong(self, node: ExprNode, why: str) -> None:
        self.fault = self.fault or (node.number(2), why)

    def _id(self) -> int:
        """An id that no expression has; entries of a map literal have theirs in field 1."""
        self.last_id = (self.last_id or _largest_id(self.tree)) + 1
        return self.last_id

    def _forget(self, expression: int) -> None:
        """Take back what the checker found about a call that is now another."""
        self.stale[expression] = None

    def _refer(self, expression: int, name: str, overload: str) -> None:
        reference = message("Reference", (1, name), (3, overload))
        self.stale[expression] = message("ReferenceEntry", (1, expression), (2, reference))

    def apply(self) -> None:
        """Bring the table of references in line with the tree."""
        kept = [f for f in self.checked.fields if not (f[0] == 2 and self._is_stale(f[2]))]
        kept += [(2, 2, entry) for entry in self.stale.values() if entry is not None]
        self.checked.fields = kept

    def _is_stale(self, row: int | bytes | ExprNode) -> bool:
        return isinstance(row, bytes) and (
            checked_expr.decode(row, "ReferenceEntry").number(1) in self.stale
        )


def _is_schema_type(name: str) -> bool:
    """Whether the checker alone knows the type."""
    return name.startswith((f"{pod_types.PACKAGE}.", "net."))


def _insertion(step: ExprNode) -> ExprNode | None:
    """The expression in a loop's step that inserts into the map being built."""
    call = step.node(_CALL)
    if call is None:
        return None
    if call.text(2) == _INSERT:
        return step
    if call.text(2) == "_?_:_":
        return _insertion(call.nodes(3)[1])
    return None


def _largest_id(node: ExprNode) -> int:
    largest = max(node.number(1), node.number(2))
    return max([largest, *(_largest_id(child) for child in node.children())])


def rewrite(data: bytes, *, variables: Collection[str], opaque: Collection[str]) -> Rewritten:
    """The serialized tree as the run time wants it."""
    root = checked_expr.decode(data, "Any")
    checked = root.node(2)
    expression = checked.node(4) if checked else None
    if checked is None or expression is None:
        return Rewritten(data, frozenset())
    rewriter = _Rewriter(checked, variables, opaque, expression)
    rewriter.expression(expression, frozenset())
    written = data
    if rewriter.changed:
        rewriter.apply()
        written = checked_expr.encode(root)
    fault = None
    if rewriter.fault is not None:
        where, why = rewriter.fault
        fault = optional_guard.OptionalRefused(optional_guard.offset(checked, where), why)
    return Rewritten(written, frozenset(rewriter.found), rewriter.asks, fault)
