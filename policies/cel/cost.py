"""
What an expression may cost: a bound by the size of its inputs, and a meter for what exceeds it.

    program ──profile──▶ bound for these inputs ──within BUDGET──▶ evaluate as it is
                                                └─above──────────▶ evaluate with a meter
    meter ──more than BUDGET units──▶ EvaluationError of kind `budget`, an error of its rule

An engine limits the steps of loops. It does not limit what a step does: `contains` over an
annotation of 200 KB in a loop over thousands of containers is seconds of CPU that nothing can
interrupt. So the cost of a call counts, in the units of Kubernetes' own policies: one for ten
characters that a call may visit, and a search costs the product of both texts. Most objects are
so small that no expression can reach the budget; these are evaluated without a meter.

`policies.cel.metering` changes trees so that they report to the meter.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from policies.cel.functions.overload import Function, FunctionError, Overload

BUDGET: Final = 10_000_000
"""Units of one evaluation; ValidatingAdmissionPolicy has as many for one policy."""
CHARACTERS: Final = 10
"""Characters for one unit."""
MAX_STEPS: Final = 10_000
"""Loop steps of one evaluation; the engine's own limit."""
SPEND: Final = "cel.@spend"
GO_ON: Final = "cel.@goOn"
"""What metered trees call; authors cannot spell these names."""

_LARGEST: Final = 1 << 32  # characters; no request has as many
_SMALLEST_ITEM: Final = 8  # characters of JSON that an item takes that is worth a look
_NODES: Final = 4  # characters for one unit where lists and maps are visited item by item
_COMPARED: Final = 1_000  # characters for one unit where two texts are compared
_RESULT: Final = 200  # units for an item of a list that Python returns


class CallCost(IntEnum):
    """How the cost of a call follows from the sizes of its arguments."""

    LINEAR = 0  # the sum
    TEXT = 1  # the sum of texts; lists and maps know their size
    SHORTER = 2  # comparing: texts of different lengths differ at once
    SEARCH = 3  # the product of the first and the rest
    MEMBER = 4  # the first argument against every item of the second
    PAIRS = 5  # every item against every other
    WHOLE = 6  # all inputs, with any arguments
    COLLECT = 7  # two for each item collected so far


@dataclass(frozen=True, slots=True)
class Site:
    """A call whose cost depends on the size of its arguments."""

    cost: CallCost
    depth: int = 0
    """How many loops it is in."""
    factor: int = 1
    """How much more it costs than a visit of its arguments."""
    result: int = 1
    """How much more its result may cost; a meter charges it when it is known."""
    is_made: bool = False
    """Whether an argument is a list that the expression has made itself."""
    variable: int = 1
    """How many of the arguments are no constants."""


@dataclass(frozen=True, slots=True)
class CostProfile:
    """The calls of an expression that cost by size."""

    sites: tuple[Site, ...] = ()

    @property
    def needs_whole_objects(self) -> bool:
        """Whether a function reads objects by itself, beyond what the expression reaches."""
        return any(site.cost is CallCost.WHOLE for site in self.sites)

    def free_volume(self) -> int:
        """The largest inputs whose bound is within the budget: they need no meter."""
        if self.needs_whole_objects or self.bound(_LARGEST) <= BUDGET:
            return -1 if self.needs_whole_objects else _LARGEST
        return bisect_right(range(_LARGEST), BUDGET, key=self.bound) - 1

    def bound(self, volume: int) -> int:
        """Units that an evaluation cannot exceed with inputs of so many characters."""
        items = min(MAX_STEPS, volume // _SMALLEST_ITEM + 1)
        units = volume // CHARACTERS + 1
        total = 0
        for site in self.sites:
            steps = min(MAX_STEPS, items ** min(site.depth, 5))
            if site.cost is CallCost.COLLECT:
                total += steps * 2 * items
                continue
            each = units * site.factor * site.result
            if site.is_made or site.cost is CallCost.PAIRS:
                each *= items
            if site.cost is CallCost.SEARCH and site.variable > 1:
                each *= units
            total += steps * each
        return total


class Meter(threading.local):
    """Counts the units of the evaluation under way on this thread."""

    volume: int = 0
    spent: int = 0
    active: bool = False

    def start(self, volume: int) -> None:
        """Begin an evaluation with inputs of so many characters."""
        self.volume, self.spent, self.active = volume, 0, True

    def stop(self) -> None:
        self.active = False

    @property
    def exceeded(self) -> bool:
        return self.spent > BUDGET

    def charge(self, units: int) -> None:
        """Raises beyond the budget."""
        if self.active:
            self.spent += units
            if self.exceeded:
                raise FunctionError(MESSAGE, kind="budget")

    def spend(self, cost: int, factor: int, made: int, sizes: Sequence[int]) -> bool:
        """
        Charge a call.

        A size is the length of a text, or below zero -1 less the items of a list or map. Bits of
        `made` are set for arguments that the expression has made itself: each of their items may
        be as large as all inputs.
        """
        self.charge(0)
        self.charge(factor * self._units(CallCost(cost), made, sizes))
        return True

    def _units(self, cost: CallCost, made: int, sizes: Sequence[int]) -> int:
        match cost:
            case CallCost.TEXT:
                return sum(max(0, size) for size in sizes) // CHARACTERS + 1
            case CallCost.SHORTER if max(sizes) >= 0:
                return self.volume // _COMPARED + 1
            case CallCost.COLLECT:
                return 2 * _items(sizes[0])
            case CallCost.WHOLE:
                return self.volume // _NODES + 1
        weights = [
            self._weight(size, is_made=bool(made >> index & 1)) for index, size in enumerate(sizes)
        ]
        match cost:
            case CallCost.SHORTER:
                return min(weights)
            case CallCost.SEARCH:
                return weights[0] * sum(weights[1:])
            case CallCost.MEMBER:
                return _items(sizes[-1]) * weights[0]
            case CallCost.PAIRS:
                return max(map(_items, sizes)) * sum(weights)
        return sum(weights)

    def _weight(self, size: int, *, is_made: bool) -> int:
        if size >= 0:
            return size // CHARACTERS + 1
        items = _items(size)
        return items + (items if is_made else 1) * (self.volume // _NODES)


def _items(size: int) -> int:
    return -1 - size if size < 0 else 1


MESSAGE: Final = (
    f"the expression exceeds its cost budget of {BUDGET:,} units with an object of this size;"
    " search shorter texts, or in fewer of them"
)


def charged(function: Function, meter: Meter) -> Function:
    """A function in Python whose lists cost by their length: engines convert each item."""

    def over(call: Callable[..., object]) -> Callable[..., object]:
        def charging(*arguments: object) -> object:
            try:
                result = call(*arguments)
            except FunctionError as error:
                if error.kind == "budget":
                    meter.charge(BUDGET)
                raise
            if meter.active and isinstance(result, list):
                meter.charge(_RESULT * len(result))
            return result

        return charging

    return Function(
        function.name, tuple(replace(row, call=over(row.call)) for row in function.overloads)
    )


def functions(meter: Meter) -> tuple[Function, Function]:
    """The meter as functions of CEL."""
    parameters = ("int", "int", "int", "list<dyn>")
    return (
        Function(SPEND, (Overload(parameters, "bool", meter.spend),)),
        # A function of CEL needs a parameter.
        Function(GO_ON, (Overload(("int",), "bool", lambda _: not meter.exceeded),)),
    )
