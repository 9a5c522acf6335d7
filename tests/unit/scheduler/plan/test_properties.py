"""What holds for every cluster and every sequence of units, not only for chosen ones."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from policies import vocabulary
from scheduler.cache.cache import Cache
from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import parse
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed, Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, order, units
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_node, a_pod

FEW = settings(max_examples=60, deadline=None)

LABELS = st.sampled_from([{}, {"disk": "ssd"}])
TAINTS = st.sampled_from([[], [{"key": "only", "effect": "NoSchedule"}]])
POLICIES = st.sampled_from([None, None, *vocabulary.NUMA_POLICIES])


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    return [
        a_node(
            f"n{i}",
            cpu=str(draw(st.sampled_from([2, 4, 8]))),
            pods=str(draw(st.integers(1, 6))),
            gpus=draw(st.sampled_from([0, 0, 2, 4])),
            zones=draw(st.sampled_from([0, 2])),
            labels=draw(LABELS),
            taints=draw(TAINTS),
        )
        for i in range(draw(st.integers(0, 4)))
    ]


@st.composite
def workloads(draw: st.DrawFn) -> list[Pod]:
    pods: list[Pod] = []
    for index in range(draw(st.integers(1, 6))):
        count = draw(st.integers(1, 4))
        size = draw(st.integers(1, count))
        alone = count == 1 and draw(st.booleans())
        for member in range(count):
            pods.append(
                a_pod(
                    f"p{index}-{member}",
                    cpu=f"{draw(st.sampled_from([250, 1000, 2000, 3000]))}m",
                    gpus=draw(st.sampled_from([0, 0, 1, 2])),
                    numa=draw(POLICIES),
                    gang=None if alone else (f"g{index}", size),
                    priority=draw(st.integers(0, 2)),
                    nodeSelector=draw(LABELS),
                    tolerations=draw(st.sampled_from([[], [{"operator": "Exists"}]])),
                )
            )
    return pods


def checked_plan(unit: Unit, snapshot: Snapshot, memo: planner.Memo) -> Placed | NoFit:
    """Plan, and see that planning left the snapshot as it was and repeats exactly."""
    before = snapshot.state()
    plan = planner.plan(unit, snapshot, memo=memo)
    assert snapshot.state() == before
    assert planner.plan(unit, snapshot) == plan
    return plan


@FEW
@given(clusters(), workloads())
def test_no_sequence_of_plans_overcommits_anything(nodes: list[Node], pods: list[Pod]) -> None:
    snapshot, memo = Snapshot.of(nodes), planner.Memo()
    done: list[Placement] = []
    for unit in units(pods):
        plan = checked_plan(unit, snapshot, memo)
        if isinstance(plan, NoFit):
            continue
        assert len(plan.placements) >= unit.need
        placed = [one.pod.uid for one in plan.placements]
        assert sorted([*placed, *(pod.uid for pod in plan.unplaced)]) == sorted(
            pod.uid for pod in unit.pods
        )
        for one in plan.placements:
            snapshot.place(one.pod, one.node, one.assignment)
        done += plan.placements
    check(nodes, done)


def check(nodes: list[Node], done: list[Placement]) -> None:
    """Recount from the placements alone, without the scheduler's own state."""
    for node in nodes:
        here = [one for one in done if one.node == node.name]
        used: Counter[str] = Counter()
        for one in here:
            used.update(dict(one.pod.spec.requests))
            assert dict(one.pod.spec.selector).items() <= dict(node.labels).items()
            assert not node.taints or one.pod.spec.tolerations
        assert all(count <= dict(node.allocatable).get(name, 0) for name, count in used.items())
        check_inside(node, here)


def check_inside(node: Node, here: list[Placement]) -> None:
    gpus = [index for one in here for index in one.assignment.gpus]
    assert len(gpus) == len(set(gpus))
    zones = {zone.id: zone for zone in node.topology.zones} if node.topology else {}
    cpu: Counter[int] = Counter()
    tenants: dict[int, list[bool]] = {}
    for one in here:
        request, numa = one.pod.spec.host_request, one.assignment.numa
        if request.policy == "single-numa":
            assert len(numa) == 1
        if request.strict:
            assert sum(share.cpu for share in one.assignment.shares) == request.cpu
            assert len(one.assignment.gpus) == request.gpus
        for share in one.assignment.shares:
            cpu[share.zone] += share.cpu
            tenants.setdefault(share.zone, []).append(request.isolated)
    assert all(count <= zones[zone].cpu for zone, count in cpu.items())
    assert all(len(pods) == 1 for pods in tenants.values() if any(pods))


@FEW
@given(clusters(), workloads())
def test_a_restart_builds_the_same_snapshot(nodes: list[Node], pods: list[Pod]) -> None:
    """Everything that counts can be rebuilt from the nodes and the bound pods alone."""
    cache, memo = Cache(), planner.Memo()
    for node in nodes:
        cache.put_node(node)
    done: list[Placement] = []
    for unit in units(pods):
        plan = planner.plan(unit, cache.snapshot, memo=memo)
        for one in plan.placements if isinstance(plan, Placed) else ():
            cache.assume(one)
            done.append(one)
    reborn = Cache()
    for one in done:
        reborn.put_pod(as_bound(one))
    for node in reversed(nodes):
        reborn.put_node(node)
    assert reborn.snapshot.state() == cache.snapshot.state()


def as_bound(one: Placement) -> Pod:
    """The pod as the API server shows it after the bind."""
    stamp = parse(one.assignment.render()) if one.assignment else None
    pod = one.pod
    return Pod(
        pod.key,
        pod.uid,
        pod.spec,
        labels=pod.labels,
        node=one.node,
        gang=pod.gang,
        assignment=stamp,
        phase="Running",
    )


@FEW
@given(clusters(), workloads())
def test_a_trial_is_undone_exactly(nodes: list[Node], pods: list[Pod]) -> None:
    snapshot = Snapshot.of(nodes)
    empty = snapshot.state()
    with snapshot.trial():
        for unit in units(pods):
            plan = planner.plan(unit, snapshot)
            for one in plan.placements if isinstance(plan, Placed) else ():
                snapshot.place(one.pod, one.node, one.assignment)
    assert snapshot.state() == empty


@FEW
@given(workloads())
def test_orders_are_total(pods: list[Pod]) -> None:
    assert len({order(pod) for pod in pods}) == len(pods)
    assert [unit.key for unit in units(pods)] == [unit.key for unit in units(pods[::-1])]
