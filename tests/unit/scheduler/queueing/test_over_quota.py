"""Units over quota by limit: which a pass inspects, in which order, and that none is left out."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.pod import PodKey
from scheduler.model.unit import UnitKey
from scheduler.queueing.entry import Rank
from scheduler.queueing.over_quota import Limit, OverQuotaUnits

CPU: Limit = ("a", "cpu")
GPU: Limit = ("a", "gpu")
GROUP: Limit = ("group", "cpu")


def key(name: str) -> PodKey:
    return PodKey("ns", name)


def rank(age: float, name: str = "") -> Rank:
    return (1, 0, 1, age, name)


def by_name(tenant: str, _: Rank, __: UnitKey) -> str:
    return tenant


def names(units: OverQuotaUnits, limit: Limit) -> str:
    return " ".join(each.name for each in units.in_order(limit))


def some_units() -> OverQuotaUnits:
    units = OverQuotaUnits(by_name)
    units.add(key("a2"), "a", rank(2), CPU, 2)
    units.add(key("a1"), "a", rank(1), CPU, 4)
    units.add(key("g"), "a", rank(0), GPU, 1)
    for tenant in "cb":
        for age in (1, 2):
            units.add(key(f"{tenant}{age}"), tenant, rank(age), GROUP, 1)
    units.add(key("u"), "a", rank(0), None, 0)
    return units


def test_a_limit_that_nothing_released_has_no_pass() -> None:
    units = some_units()
    units.released(("b", "cpu"))
    assert (units.passes(), list(units.unknown())) == ([], [])


@pytest.mark.parametrize(
    ("limit", "order"),
    [
        pytest.param(CPU, "a1 a2", id="by rank"),
        pytest.param(GROUP, "b1 c1 b2 c2", id="the first of each tenant, then the second"),
    ],
)
def test_a_pass_inspects_the_units_of_its_limit_in_planning_order(limit: Limit, order: str) -> None:
    units = some_units()
    units.released(limit)
    assert (units.passes(), names(units, limit), names(units, limit)) == ([limit], order, "")


def test_a_second_release_begins_the_pass_again() -> None:
    units = some_units()
    units.released(CPU)
    next(units.in_order(CPU))
    units.released(CPU)
    assert names(units, CPU) == "a1 a2"


def test_the_pass_goes_on_when_the_units_that_it_activated_have_been_planned() -> None:
    units, planned = some_units(), set[UnitKey]()
    units.released(CPU)
    first = next(units.in_order(CPU))
    assert units.activate(CPU, first) == 4
    units.discard(first)
    waits = units.visit(CPU, planned.__contains__)
    planned.add(first)
    assert (waits, units.visit(CPU, planned.__contains__)) == (False, True)
    assert names(units, CPU) == "a2"


def test_the_smallest_request_of_a_limit() -> None:
    units = some_units()
    least = [units.least(CPU)]
    units.discard(key("a2"))
    least.append(units.least(CPU))
    units.discard(key("a1"))
    assert [*least, units.least(CPU)] == [2, 4, None]


def test_units_of_the_unknown_kind_are_inspected_after_any_change_each_once() -> None:
    units = some_units()
    units.add(key("v"), "b", rank(0), None, 0)
    units.any_released()
    assert [each.name for each in units.unknown()] == ["u", "v"]
    assert list(units.unknown()) == []


def test_other_policies_make_every_limit_unknown() -> None:
    units = some_units()
    units.released(CPU)
    units.limits_changed()
    assert (units.passes(), len(list(units.unknown()))) == ([], 8)


def test_a_unit_that_exceeds_another_limit_waits_for_that_one() -> None:
    units = some_units()
    units.move(key("a1"), GPU, 1)
    units.released(GPU)
    assert names(units, GPU) == "g a1"


@dataclass
class Model:
    """Which units wait for which limit, and which of them the next pass has to inspect."""

    limit: dict[UnitKey, Limit | None] = field(default_factory=dict)
    due: set[UnitKey] = field(default_factory=set)


LIMITS = (CPU, GPU, GROUP, None)
KEYS = [key(str(number)) for number in range(6)]
STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(KEYS), st.sampled_from(LIMITS)),
    st.tuples(st.just("discard"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("release"), st.none(), st.sampled_from(LIMITS)),
    st.tuples(st.just("inspect"), st.none(), st.sampled_from(LIMITS)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_every_unit_of_a_released_limit_is_inspected_and_nothing_is_kept(
    steps: list[tuple[str, UnitKey | None, Limit | None]],
) -> None:
    units, model = OverQuotaUnits(by_name), Model()
    for number, (what, unit, limit) in enumerate(steps):
        if what == "add" and unit is not None:
            units.add(unit, str(number % 2), rank(number), limit, 1)
            model.limit[unit] = limit
            model.due.discard(unit)
        elif what == "discard" and unit is not None:
            units.discard(unit)
            model.limit.pop(unit, None)
            model.due.discard(unit)
        elif what == "release":
            units.any_released() if limit is None else units.released(limit)
            model.due |= {each for each, own in model.limit.items() if own == limit}
        elif what == "inspect":
            drawn = units.unknown() if limit is None else iter(())
            if limit in units.passes() and limit is not None:
                drawn = units.in_order(limit)
            seen = Counter(drawn)
            expected = {each for each in model.due if model.limit[each] == limit}
            assert expected <= set(seen)
            assert max(seen.values(), default=1) == 1
            model.due -= expected
            if limit is not None:
                units.end_pass(limit)
    for unit in KEYS:
        units.discard(unit)
    assert (len(units), units.passes(), units.__dict__["_limits"], list(units.unknown())) == (
        0,
        [],
        {},
        [],
    )


def test_the_heaps_of_a_limit_stay_as_small_as_its_units() -> None:
    units = some_units()
    for number in range(5_000):
        units.add(key("a1"), "a", rank(number), CPU, number)
    kept = units.__dict__["_limits"][CPU]
    assert len(kept.amounts) + sum(map(len, kept.seen.values())) < 300
