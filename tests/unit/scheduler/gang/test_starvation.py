"""Which nodes are held for a gang, against which pods, and for how long."""

from typing import Any

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.gang.starvation import StarvationProtection, choose
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of, order
from tests.unit.scheduler.builders import a_gang, a_node, a_pod


def a_unit(pods: list[Pod]) -> Unit:
    return Unit(key_of(pods[0]), tuple(sorted(pods, key=order)))


def nodes(**cpus: int) -> list[Node]:
    return [a_node(name, cpu=str(cpu)) for name, cpu in cpus.items()]


def busy(node: str, cpu: int) -> tuple[Pod, str]:
    return a_pod(f"on-{node}", cpu=str(cpu)), node


@pytest.mark.parametrize(
    ("there", "on_them", "stay", "want"),
    [
        pytest.param(
            nodes(a=4, b=4, c=4),
            [busy("a", 3), busy("b", 1), busy("c", 4)],
            [],
            {"b"},
            id="the one with most capacity, if one suffices",
        ),
        pytest.param(
            nodes(a=2, b=2, c=2),
            [busy("a", 2), busy("b", 1), busy("c", 1)],
            [],
            {"b", "c"},
            id="the fewest that suffice",
        ),
        pytest.param(
            nodes(a=4, b=4),
            [busy("a", 3), busy("b", 1)],
            [busy("b", 1)],
            {"a"},
            id="not where a pod stays for good",
        ),
        pytest.param(nodes(a=3, b=0), [], [], set(), id="no place even if all were empty"),
        pytest.param([], [], [], set(), id="no nodes"),
    ],
)
def test_choice(
    there: list[Node], on_them: list[tuple[Pod, str]], stay: list[tuple[Pod, str]], want: set[str]
) -> None:
    unit = a_unit(a_gang(2, cpu="2"))
    assert choose(unit, Snapshot.of(there, on_them), stay) == want


GANG = a_unit(a_gang(2, priority=5))


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({"priority": 5}, {"n"}, id="of the same priority"),
        pytest.param({"priority": 4}, {"n"}, id="less important"),
        pytest.param({"priority": 6}, set(), id="more important"),
        pytest.param({"priority": 5, "gang": ("g", 1)}, set(), id="the gang itself"),
    ],
)
def test_held_nodes_are_closed_to_units_of_no_higher_priority(
    pod: dict[str, Any], want: set[str]
) -> None:
    holding = StarvationProtection(seconds=100.0)
    holding.begin(GANG, frozenset({"n"}), 0.0)
    assert holding.closed_to(a_unit([a_pod(**pod)])) == want


def test_one_hold_at_a_time_and_the_next_only_after_as_long_again() -> None:
    holding = StarvationProtection(seconds=100.0)
    other = a_unit(a_gang(2, name="h"))
    wanted = [holding.may_hold(GANG, 0.0), holding.may_hold(a_unit([a_pod()]), 0.0)]
    holding.begin(GANG, frozenset({"n"}), 0.0)
    wanted += [holding.may_hold(other, 50.0)]
    ended = [holding.expire(99.0), holding.expire(100.0), holding.expire(101.0)]
    wanted += [holding.may_hold(other, 100.0), holding.may_hold(GANG, 199.0)]
    wanted += [holding.may_hold(GANG, 200.0)]
    assert (wanted, ended) == (
        [True, False, False, True, False, True],
        [frozenset(), frozenset({"n"}), frozenset()],
    )


def test_a_search_without_a_result_is_not_repeated_at_once() -> None:
    holding = StarvationProtection(seconds=100.0)
    holding.begin(GANG, frozenset(), 0.0)
    assert (holding.hold, holding.may_hold(GANG, 150.0), holding.may_hold(GANG, 200.0)) == (
        None,
        False,
        True,
    )


def test_many_starving_gangs_do_not_end_the_pause_of_the_first() -> None:
    holding = StarvationProtection(seconds=100.0)
    for number in range(5_000):
        holding.begin(a_unit(a_gang(1, name=f"g{number}")), frozenset(), number / 100)
    first = a_unit(a_gang(1, name="g0"))
    assert (holding.may_hold(first, 199.0), holding.may_hold(first, 200.0)) == (False, True)


def test_pauses_that_are_over_are_not_kept() -> None:
    holding = StarvationProtection(seconds=100.0)
    for number in range(2_000):
        holding.begin(a_unit(a_gang(1, name=f"g{number}")), frozenset(), 10.0 * number)
    assert len(holding.__dict__["_not_before"]) <= 22
