"""
Changes a checked tree so that calls report their cost to a meter before they run.

    f(a, b)   becomes   bind x = a, y = b:
                        goOn() && spend(cost, [size of x, size of y]) ? f(x, y) : false

The tree gives the same values as before, and the meter's error where the budget is spent. What has
a constant cost is left as it is: logic, fields, arithmetic, comparing with a constant. A function
that no table here names counts as linear in its arguments, so that a new one is metered too.

Each step of a macro that collects (`map`, `filter`) costs the items collected so far: the engine
copies them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from policies.cel import checked_expr
from policies.cel.checked_expr import CheckedExpr, Expr
from policies.cel.cost import GO_ON, SPEND, CallCost, CostProfile, Site
from policies.cel.functions import pod

FREE: Final = frozenset(
    {
        "_&&_",
        "_||_",
        "!_",
        "_?_:_",
        "@not_strictly_false",
        "_[_]",
        "_[?_]",
        "_?._",
        "-_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
        "type",
        "dyn",
        "optional.of",
        "optional.none",
        "optional.ofNonZeroValue",
        "hasValue",
        "value",
        "or",
        "orValue",
        "first",
        "last",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
        "cel.@range",
        "bool",
    }
)
"""Functions whose cost does not depend on the size of their arguments."""
COSTS: Final = {
    name: cost
    for cost, names in {
        CallCost.TEXT: "size",
        CallCost.SHORTER: "_==_ _!=_ _<_ _<=_ _>_ _>=_ startsWith endsWith",
        CallCost.SEARCH: "contains indexOf lastIndexOf includes split replace matches cel.@matches"
        " find findAll regex.extract regex.extractAll regex.replace",
        CallCost.MEMBER: "@in _in_ in",
        CallCost.PAIRS: "distinct sets.contains sets.equivalent sets.intersects",
        CallCost.WHOLE: "containers",
    }.items()
    for name in names.split()
}
_MATH: Final = "math."
_PYTHON: Final = 4  # the factor of functions in Python: their arguments are converted
_FACTORS: Final = {"split": 20, "replace": 2, "regex.extractAll": 40, "regex.replace": 10}
_RESULTS: Final = {"findAll": 100}  # and the factor of those whose result costs more
_PATTERN: Final = 100  # the factor of a pattern that is no constant: each is compiled
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
_MEMOIZED: Final = pod.NAMES - {"containers"}  # with the name of a variable: computed once


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a call stands: the loops around it, and their variables that expressions have made."""

    depth: int = 0
    made: frozenset[str] = frozenset()
    accumulator: str = ""

    def inside(self, loop: Expr.Comprehension, *, made: Collection[str]) -> _Scope:
        names = {loop.iter_var, loop.iter_var2, loop.accu_var}
        return _Scope(
            self.depth + (0 if _is_bind(loop) else 1),
            (self.made - names) | frozenset(made),
            loop.accu_var,
        )


@dataclass(slots=True)
class _Meterer:
    in_python: Collection[str]
    ids: Iterator[int]
    rewrites: bool
    sites: list[Site] = field(default_factory=list)

    def expression(self, node: Expr, scope: _Scope) -> None:
        """Meter the calls in a tree, children first."""
        match node.WhichOneof("expr_kind"):
            case "comprehension_expr":
                self._loop(node.comprehension_expr, scope)
            case "call_expr" if _collects(node.call_expr, scope):
                self.expression(node.call_expr.args[1], scope)
                site = Site(CallCost.COLLECT, scope.depth)
                self.sites.append(site)
                if self.rewrites:
                    self._report(node, [node.call_expr.args[0]], scope, site)
            case "call_expr":
                for child in checked_expr.children(node):
                    self.expression(child, scope)
                self._call(node, scope)
            case _:
                for child in checked_expr.children(node):
                    self.expression(child, scope)

    def _loop(self, loop: Expr.Comprehension, scope: _Scope) -> None:
        is_made = _is_made(loop.iter_range, scope)
        made = {loop.iter_var, loop.iter_var2} if is_made else set()
        # What a loop collects is made; a bound name stands for its value.
        if not _is_bind(loop) or _is_made(loop.accu_init, scope):
            made.add(loop.accu_var)
        for outside in (loop.iter_range, loop.accu_init):
            self.expression(outside, scope)
        inside = scope.inside(loop, made=made)
        for part in (loop.loop_condition, loop.loop_step):
            self.expression(part, inside)
        # The result is computed once, after the loop.
        self.expression(loop.result, _Scope(scope.depth, inside.made, ""))

    def _call(self, node: Expr, scope: _Scope) -> None:
        name, arguments = node.call_expr.function, checked_expr.arguments(node.call_expr)
        cost = COSTS.get(name, CallCost.LINEAR)
        if name in FREE or name.startswith(_MATH) or _is_small(name, cost, arguments):
            return
        factor = _FACTORS.get(name, _PYTHON if name in self.in_python else 1)
        if name in _PATTERNS and _literal_size(arguments[-1]) is None:
            factor = _PATTERN
        self.sites.append(
            Site(
                cost,
                scope.depth,
                factor,
                _RESULTS.get(name, 1),
                any(_is_made(argument, scope) for argument in arguments),
                sum(_literal_size(argument) is None for argument in arguments),
            )
        )
        if self.rewrites:
            self._report(node, arguments, scope, self.sites[-1])

    def _report(self, node: Expr, arguments: list[Expr], scope: _Scope, site: Site) -> None:
        bound: list[tuple[str, Expr]] = []
        sizes: list[Expr] = []
        made = 0
        for index, argument in enumerate(arguments):
            made |= _is_made(argument, scope) << index
            known = Expr()
            known.CopyFrom(argument)
            literal = _literal_size(argument)
            if literal is not None:
                sizes.append(self._integer(literal))
                continue
            if not argument.HasField("ident_expr"):
                bound.append((f"@meter{next(self.ids)}", known))
                known = self._ident(bound[-1][0])
                argument.CopyFrom(known)
            sizes.append(self._size(known, measured=site.cost is not CallCost.SHORTER))
        call = Expr()
        call.CopyFrom(node)
        spend = self._new_call(
            SPEND,
            self._integer(site.cost),
            self._integer(site.factor),
            self._integer(made),
            Expr(id=next(self.ids), list_expr=Expr.CreateList(elements=sizes)),
        )
        never = Expr(id=next(self.ids))
        never.const_expr.bool_value = False
        # Once the budget is spent, the rest of a loop costs a question for each call.
        going_on = self._new_call(GO_ON, self._integer(0))
        allowed = self._new_call("_&&_", going_on, spend)
        result = self._new_call("_?_:_", allowed, call, never)
        for name, value in reversed(bound):
            result = self._bind(name, value, result)
        node.CopyFrom(result)

    # --- parts of a tree ---

    def _new_call(self, function: str, *arguments: Expr) -> Expr:
        call = Expr.Call(function=function, args=arguments)
        return Expr(id=next(self.ids), call_expr=call)

    def _integer(self, value: int) -> Expr:
        node = Expr(id=next(self.ids))
        node.const_expr.int64_value = value
        return node

    def _ident(self, name: str) -> Expr:
        return Expr(id=next(self.ids), ident_expr=Expr.Ident(name=name))

    def _size(self, value: Expr, *, measured: bool) -> Expr:
        """
        The length of a text, -1 less the items of a list or map, and 0 for all else.

        The length of a text costs a visit of it. Not `measured`, it is 0: comparing costs less.
        """
        items = Expr(id=next(self.ids), list_expr=Expr.CreateList())
        entries = Expr(id=next(self.ids), struct_expr=Expr.CreateStruct())
        size = self._new_call("size", value)
        holds = self._new_call("_||_", self._has_type(value, items), self._has_type(value, entries))
        below = self._new_call("_-_", self._integer(-1), size)
        otherwise = self._new_call("_?_:_", holds, below, self._integer(0))
        if not measured:
            return otherwise
        text, octets = Expr(id=next(self.ids)), Expr(id=next(self.ids))
        text.const_expr.string_value = ""
        octets.const_expr.bytes_value = b""
        is_text = self._new_call("_||_", self._has_type(value, text), self._has_type(value, octets))
        return self._new_call("_?_:_", is_text, size, otherwise)

    def _has_type(self, value: Expr, example: Expr) -> Expr:
        """By an example: the name of a type may be the name of a loop's variable."""
        types = (self._new_call("type", value), self._new_call("type", example))
        return self._new_call("_==_", *types)

    def _bind(self, name: str, value: Expr, result: Expr) -> Expr:
        """What the macro `cel.bind` makes: a loop over nothing."""
        node = Expr(id=next(self.ids))
        loop = node.comprehension_expr
        loop.iter_var, loop.accu_var = "#unused", name
        loop.iter_range.id = next(self.ids)
        loop.iter_range.list_expr.SetInParent()
        loop.accu_init.CopyFrom(value)
        loop.loop_condition.id = next(self.ids)
        loop.loop_condition.const_expr.bool_value = False
        loop.loop_step.CopyFrom(self._ident(name))
        loop.result.CopyFrom(result)
        return node


def _is_bind(loop: Expr.Comprehension) -> bool:
    """Whether the loop visits nothing, as `cel.bind` and `optMap` write it."""
    return loop.iter_range.HasField("list_expr") and not loop.iter_range.list_expr.elements


def _is_made(node: Expr, scope: _Scope) -> bool:
    """Whether an expression has made the value; otherwise it is a part of an input."""
    match node.WhichOneof("expr_kind"):
        case "ident_expr":
            return node.ident_expr.name in scope.made
        case "select_expr":
            return _is_made(node.select_expr.operand, scope)
        case "call_expr" if node.call_expr.function in ("_[_]", "orValue", "value", "_[?_]"):
            return _is_made(checked_expr.arguments(node.call_expr)[0], scope)
        case "const_expr":
            return False
    return True


def _collects(call: Expr.Call, scope: _Scope) -> bool:
    """Whether it is `accumulator + [item]`, the step of `map` and `filter`."""
    return (
        call.function == "_+_"
        and len(call.args) == 2
        and call.args[0].ident_expr.name == scope.accumulator != ""
        and call.args[1].HasField("list_expr")
    )


def _literal_size(node: Expr) -> int | None:
    """The characters of a constant, or of a list or map of constants; None: it is no constant."""
    match node.WhichOneof("expr_kind"):
        case "const_expr":
            return len(node.const_expr.string_value) + len(node.const_expr.bytes_value)
        case "list_expr" | "struct_expr":
            sizes = [_literal_size(child) for child in checked_expr.children(node)]
            known = [size for size in sizes if size is not None]
            return sum(known) + len(known) if len(known) == len(sizes) else None
    return None


def _is_small(name: str, cost: CallCost, arguments: list[Expr]) -> bool:
    """Whether constants among the arguments bound the cost of the call."""
    literal = [_literal_size(argument) is not None for argument in arguments]
    match cost:
        case CallCost.WHOLE:
            return False
        case CallCost.SHORTER:  # texts of different lengths differ at once
            return any(literal)
        case CallCost.MEMBER:
            return literal[-1]
    if name in _MEMOIZED:
        return literal[0]
    if name == "_+_":  # a number is added to numbers alone
        return all(literal) or any(
            argument.HasField("const_expr") and _literal_size(argument) == 0
            for argument in arguments
        )
    return all(literal)


def profile(data: bytes, *, in_python: Collection[str]) -> CostProfile:
    """The calls of a serialized tree that cost by size."""
    meterer = _Meterer(in_python, count(), rewrites=False)
    meterer.expression(checked_expr.decode(data).expr, _Scope())
    return CostProfile(tuple(meterer.sites))


def metered(data: bytes, *, in_python: Collection[str]) -> bytes:
    """The serialized tree with every such call metered."""
    checked = checked_expr.decode(data)
    meterer = _Meterer(in_python, count(_first_free_id(checked)), rewrites=True)
    meterer.expression(checked.expr, _Scope())
    return checked_expr.encode(checked)


def _first_free_id(checked: CheckedExpr) -> int:
    return 1 + max((_largest_id(checked.expr), *checked.reference_map, *checked.type_map))


def _largest_id(node: Expr) -> int:
    entries = [entry.id for entry in node.struct_expr.entries]
    return max(node.id, *entries, *map(_largest_id, checked_expr.children(node)), 0)
