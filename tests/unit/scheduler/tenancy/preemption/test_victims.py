"""The smallest sufficient set of victims, and none where evictions do not help."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placed, Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, units
from scheduler.plan import planner
from scheduler.tenancy.preemption.victims import (
    PreemptionPlan,
    VictimGroup,
    VictimSearch,
    within_guarantees,
)
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import TenantNode, TenantTree
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

GPU = "nvidia.com/gpu"


def occupant(pod: Pod, node: str) -> Placement:
    return Placement(pod, node, NO_ASSIGNMENT)


def single(name: str, node: str, *, gpus: int = 1, **more: Any) -> VictimGroup:
    return VictimGroup(name, (occupant(a_pod(name, gpus=gpus, cpu="0"), node),), **more)


def gang(
    name: str, nodes: list[str], *, size: int, gpus: int = 1, **more: Any
) -> list[VictimGroup]:
    """The gang's surplus, one by one, and what keeps it alive."""
    pods = a_gang(len(nodes), size=size, name=name, gpus=gpus, cpu="0")
    held = [occupant(pod, node) for pod, node in zip(pods, nodes, strict=True)]
    key = GangKey("ns", name)
    surplus = [
        VictimGroup(f"{name}+{i}", (one,), gang=key, **more) for i, one in enumerate(held[size:])
    ]
    return [*surplus, VictimGroup(name, tuple(held[:size]), gang=key, core=True, **more)]


def search(
    nodes: dict[str, int], groups: list[VictimGroup], unit: Unit
) -> tuple[Snapshot, VictimSearch]:
    snapshot = Snapshot.of(
        [a_node(name, gpus=gpus) for name, gpus in nodes.items()],
        [(one.pod, one.node) for group in groups for one in group.pods],
    )
    plan = lambda memo: planner.plan(unit, snapshot, memo=memo)  # noqa: E731 (bound to the unit)
    return snapshot, VictimSearch(snapshot, plan, unit.need)


def preemptor(count: int, gpus: int) -> Unit:
    found = units(a_gang(count, name="new", gpus=gpus, cpu="0"))
    return found[0]


@pytest.mark.parametrize(
    ("nodes", "groups", "unit", "gone"),
    [
        pytest.param(
            {"n1": 2, "n2": 2},
            [single("a", "n1", gpus=2), single("b", "n2", gpus=2, priority=5)],
            preemptor(1, 2),
            ["a"],
            id="the cheapest that suffices",
        ),
        pytest.param(
            {"n1": 2, "n2": 2},
            [single("a", "n1"), single("b", "n1"), single("c", "n2", gpus=2, priority=5)],
            preemptor(1, 2),
            ["a", "b"],
            id="two of low priority rather than one of higher",
        ),
        pytest.param(
            {"n1": 4},
            gang("g", ["n1"] * 4, size=2),
            preemptor(1, 2),
            ["g+0", "g+1"],
            id="the surplus of a gang first",
        ),
        pytest.param(
            {"n1": 4},
            gang("g", ["n1"] * 4, size=2),
            preemptor(1, 3),
            ["g", "g+0", "g+1"],
            id="a whole gang where it would fall below its minimum",
        ),
        pytest.param(
            {"n1": 4, "n2": 1},
            [*gang("g", ["n1"] * 4, size=4), single("a", "n2", priority=9, tier=2)],
            preemptor(1, 1),
            ["a"],
            id="no gang is disrupted while a single pod will do",
        ),
        pytest.param(
            {"n1": 4},
            [single("a", "n1", gpus=4)],
            preemptor(2, 4),
            None,
            id="no victims where the whole gang does not fit",
        ),
        pytest.param({"n1": 1}, [], preemptor(1, 2), None, id="no candidates"),
    ],
)
def test_victims(
    nodes: dict[str, int], groups: list[VictimGroup], unit: Unit, gone: list[str] | None
) -> None:
    snapshot, found = search(nodes, groups, unit)
    before = snapshot.state()
    plan = found.run(groups)
    assert snapshot.state() == before
    assert (plan and sorted(group.key for group in plan.groups)) == gone


CASES = st.fixed_dictionaries(
    {
        "nodes": st.lists(st.integers(1, 4), min_size=1, max_size=4),
        "singles": st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 3)), max_size=6
        ),
        "gang": st.one_of(
            st.none(), st.tuples(st.lists(st.integers(0, 3), min_size=2, max_size=4), st.just(2))
        ),
        "unit": st.tuples(st.integers(1, 3), st.integers(1, 3)),
    }
)


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_no_eviction_without_a_place_and_no_victim_too_many(case: dict[str, Any]) -> None:
    names = [f"n{i}" for i in range(len(case["nodes"]))]
    free = dict(zip(names, case["nodes"], strict=True))
    groups: list[VictimGroup] = []
    for i, (at, gpus, priority) in enumerate(case["singles"]):
        node = names[at % len(names)]
        if free[node] >= gpus:
            free[node] -= gpus
            groups.append(single(f"s{i}", node, gpus=gpus, priority=priority))
    if case["gang"] is not None:
        nodes = [names[at % len(names)] for at in case["gang"][0]]
        if all(free[node] >= nodes.count(node) for node in nodes):
            groups += gang("g", nodes, size=2)
    unit = preemptor(*case["unit"])
    _, one = search(dict(zip(names, case["nodes"], strict=True)), groups, unit)
    plan = one.run(groups)
    if plan is None:
        return
    assert len(plan.plan.placements) >= unit.need
    keys = {group.key for group in plan.groups}
    for group in plan.groups:
        rest = [b for b in plan.groups if b.key != group.key]
        if group.key.startswith("g+") and "g" in keys:
            continue  # is evicted with its gang
        assert not isinstance(one._try(rest), Placed), f"{group.key} is evicted needlessly"


def test_no_group_within_a_guarantee_is_a_candidate() -> None:
    ledger = Ledger(TenantTree([TenantNode("a", guaranteed=((GPU, 2),)), TenantNode("b")]))
    groups = []
    for name, tenant in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("own", "me")):
        pod = a_pod(name, gpus=1, labels={"tenant.kubenexus.io/name": tenant})
        ledger.charge(tenant, [(GPU, 1)])
        groups.append(VictimGroup(name, (occupant(pod, "n"),), other_tenant=tenant != "me"))
    before = ledger.state()
    kept = within_guarantees(groups, ledger, lambda one: {GPU: 1})
    assert ([group.key for group in kept], ledger.state()) == (["a1", "b1", "own"], before)


def test_a_plan_lists_its_pods() -> None:
    groups = gang("g", ["n1", "n1"], size=1)
    plan = PreemptionPlan(tuple(groups), Placed(()))
    assert sorted(one.pod.key.name for one in plan.victims) == ["g-0", "g-1"]


@pytest.mark.parametrize(
    ("nodes", "groups", "unit", "gone"),
    [
        pytest.param(
            {"n1": 4},
            [*gang("g", ["n1"] * 3, size=3), *gang("h", ["elsewhere", "n1"], size=1)[:1]],
            preemptor(1, 3),
            ["g"],
            id="surplus of a gang beside the core of another",
        ),
        pytest.param(
            {"n1": 3, "n2": 1},
            [
                *gang("g", ["n2", "n1"], size=1),
                single("s", "n1", gpus=2, priority=5),
            ],
            preemptor(1, 2),
            ["s"],
            id="surplus of a gang whose core stays",
        ),
        pytest.param(
            {"n1": 3},
            [single("a", "n1"), single("s", "n1", gpus=2, priority=5)],
            preemptor(1, 2),
            ["s"],
            id="a single pod",
        ),
        pytest.param(
            {"n1": 4},
            [*gang("g", ["n1"] * 3, size=2), single("a", "n1")],
            preemptor(1, 3),
            ["g", "g+0"],
            id="not the surplus of a gang whose core is evicted",
        ),
    ],
)
def test_a_group_that_is_not_needed_is_reprieved(
    nodes: dict[str, int], groups: list[VictimGroup], unit: Unit, gone: list[str]
) -> None:
    """Every cheaper group is in the shortest sufficient prefix; the search drops it again."""
    _, found = search(nodes, groups, unit)
    plan = found.run(groups)
    assert plan is not None
    assert sorted(group.key for group in plan.groups) == gone
