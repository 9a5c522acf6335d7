"""
Changes to a checked tree, so that the run time can evaluate what the checker accepts.

    transformMap, transformMapEntry   the wheel has no map insertion: collect small maps in a list,
                                      and join them once at the end
    format.named, validate            Python cannot make an optional: an empty answer becomes none
    requests(object, …)               the name of the variable instead of the whole object
    type(ip(…)) == net.IP             types of our own do not exist at run time: their names do
    matches('…')                      the engine compiles the pattern at each call: keep it compiled
    lists.range(n)                    the engine makes any length: no more than a program may visit

It also finds the variables that an expression reads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from policies.cel import checked_expr, pod_types
from policies.cel.checked_expr import CheckedExpr, Expr, Reference
from policies.cel.functions import format, lists, pod
from policies.cel.functions.overload import Function, FunctionError, Overload
from policies.cel.optional_guard import RejectedExpression

_INSERT: Final = "cel.@mapInsert"
_JOIN: Final = "cel.@joinMaps"
_MATCHES: Final = "cel.@matches"
_RANGE: Final = "cel.@range"


def _join(maps: list[dict[object, object]]) -> dict[object, object]:
    joined: dict[object, object] = {}
    for part in maps:
        for key, value in part.items():
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
    """A tree ready for the run time, the variables it reads, and its fault."""

    data: bytes
    references: frozenset[str]
    needs_activation: bool = False
    """Whether it calls a function that reads the activation."""
    fault: RejectedExpression | None = None


@dataclass(slots=True)
class _Rewriter:
    checked: CheckedExpr
    variables: Collection[str]
    opaque: Collection[str]
    references: set[str] = field(default_factory=set)
    stale: dict[int, Reference | None] = field(default_factory=dict)
    """Expression id -> its new reference."""
    last_id: int = 0
    changed: bool = False
    needs_activation: bool = False
    fault: tuple[int, str] | None = None  # (expression id, message)

    def expression(self, node: Expr, hidden: frozenset[str]) -> None:
        """Rewrite in place, children first; `hidden` are names that loops have taken."""
        match node.WhichOneof("expr_kind"):
            case "comprehension_expr":
                self._comprehension(node.comprehension_expr, hidden)
            case "ident_expr":
                self._ident(node, hidden)
            case "call_expr":
                self._each(node, hidden)
                self._call(node, hidden)
            case "struct_expr" if _is_schema_type(node.struct_expr.message_name):
                name = node.struct_expr.message_name
                self._wrong(node, f"an object of type {name} cannot be made; write a map")
            case _:
                self._each(node, hidden)

    def _each(self, node: Expr, hidden: frozenset[str]) -> None:
        for child in checked_expr.children(node):
            self.expression(child, hidden)

    def _comprehension(self, loop: Expr.Comprehension, hidden: frozenset[str]) -> None:
        taken = hidden | {loop.iter_var, loop.accu_var, loop.iter_var2}
        # The range and the start are outside of the loop.
        for outside in (loop.iter_range, loop.accu_init):
            self.expression(outside, hidden)
        for inside in (loop.loop_condition, loop.loop_step, loop.result):
            self.expression(inside, taken)
        insertion = _insertion(loop.loop_step)
        if insertion is None:
            return
        self.changed = True
        self._collect(insertion)
        loop.accu_init.list_expr.SetInParent()
        joined = Expr.Call(function=_JOIN, args=[loop.result])
        loop.result.CopyFrom(Expr(id=self._id(), call_expr=joined))

    def _collect(self, insertion: Expr) -> None:
        """`insert(acc, k, v)` becomes `acc + [{k: v}]`."""
        accumulator, *rest = insertion.call_expr.args
        entry = rest[0]
        if len(rest) == 2:
            pair = Expr.CreateStruct.Entry(id=self._id(), map_key=rest[0], value=rest[1])
            entry = Expr(id=self._id(), struct_expr=Expr.CreateStruct(entries=[pair]))
        items = Expr(id=self._id(), list_expr=Expr.CreateList(elements=[entry]))
        insertion.call_expr.CopyFrom(Expr.Call(function="_+_", args=[accumulator, items]))
        self._refer(insertion.id, "_+_", "add_list")

    def _ident(self, node: Expr, hidden: frozenset[str]) -> None:
        name = node.ident_expr.name
        if name in self.variables and name not in hidden:
            self.references.add(name)
        elif name in self.opaque:
            self._constant(node, name)
        elif _is_schema_type(name) and name not in hidden:
            self._wrong(node, f"{name} is no type at run time; objects are maps")

    def _call(self, node: Expr, hidden: frozenset[str]) -> None:
        name = node.call_expr.function
        arguments = node.call_expr.args
        if name in format.OPTIONAL:
            self._optional(node)
        elif name == "type" and len(arguments) == 1:
            known = self.checked.type_map.get(arguments[0].id)
            if known is not None and known.message_type in self.opaque:
                self._constant(node, known.message_type)
        elif name in pod.NAMES and arguments:
            variable = arguments[0].ident_expr.name
            if variable in self.variables and variable not in hidden:
                self.needs_activation = True
                self._constant(arguments[0], variable)
        elif name == "matches":
            self._matches(node)
        elif name == "lists.range":
            self._replace(node, _RANGE)

    def _matches(self, node: Expr) -> None:
        arguments = node.call_expr.args
        if not arguments or not arguments[-1].HasField("const_expr"):
            return
        wrong = lists.pattern_fault(arguments[-1].const_expr.string_value)
        if wrong is not None:
            self._wrong(arguments[-1], wrong)
        self._replace(node, _MATCHES)

    def _replace(self, node: Expr, function: str) -> None:
        """Call a function of our own with the same arguments."""
        self.changed = True
        arguments = checked_expr.arguments(node.call_expr)
        node.call_expr.CopyFrom(Expr.Call(function=function, args=arguments))
        self._forget(node.id)

    def _optional(self, node: Expr) -> None:
        self.changed = True
        inner = Expr(id=self._id(), call_expr=node.call_expr)
        name = "optional.ofNonZeroValue"
        node.call_expr.CopyFrom(Expr.Call(function=name, args=[inner]))
        self._refer(node.id, name, "optional_ofNonZeroValue")

    def _constant(self, node: Expr, text: str) -> None:
        self.changed = True
        node.const_expr.string_value = text
        self._forget(node.id)

    def _wrong(self, node: Expr, why: str) -> None:
        self.fault = self.fault or (node.id, why)

    def _id(self) -> int:
        """An id that no expression has."""
        self.last_id = (self.last_id or _largest_id(self.checked.expr)) + 1
        return self.last_id

    def _forget(self, expression_id: int) -> None:
        """Drop the checker's reference of a call that is now another."""
        self.stale[expression_id] = None

    def _refer(self, expression_id: int, name: str, overload: str) -> None:
        self.stale[expression_id] = Reference(name=name, overload_id=[overload])

    def apply(self) -> None:
        """Bring the table of references in line with the tree."""
        references = self.checked.reference_map
        for expression_id, reference in self.stale.items():
            if reference is not None:
                references[expression_id].CopyFrom(reference)
            elif expression_id in references:
                del references[expression_id]


def _is_schema_type(name: str) -> bool:
    """Whether the checker alone knows the type."""
    return name.startswith((f"{pod_types.PACKAGE}.", "net."))


def _insertion(step: Expr) -> Expr | None:
    """The expression in a loop's step that inserts into the map being built."""
    call = step.call_expr
    if call.function == _INSERT:
        return step
    if call.function == "_?_:_":
        return _insertion(call.args[1])
    return None


def _largest_id(node: Expr) -> int:
    entries = [entry.id for entry in node.struct_expr.entries]
    return max(node.id, *entries, *map(_largest_id, checked_expr.children(node)), 0)


def rewrite(data: bytes, *, variables: Collection[str], opaque: Collection[str]) -> Rewritten:
    """The serialized tree as the run time wants it."""
    checked = checked_expr.decode(data)
    rewriter = _Rewriter(checked, variables, opaque)
    rewriter.expression(checked.expr, frozenset())
    written = data
    if rewriter.changed:
        rewriter.apply()
        written = checked_expr.encode(checked)
    fault = None
    if rewriter.fault is not None:
        where, why = rewriter.fault
        fault = RejectedExpression(checked_expr.offset(checked, where), why)
    return Rewritten(written, frozenset(rewriter.references), rewriter.needs_activation, fault)
