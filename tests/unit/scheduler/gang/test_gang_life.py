"""The life of gangs through the whole cycle: gates, objects, forming, leadership."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster import errors
from cluster.informer import EventKind, WatchEvent
from policies import vocabulary
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.pod import PodKey
from scheduler.queueing.entry import QueueState
from tests.unit.scheduler.bench import Bench

pytestmark = pytest.mark.timeout(30)

G = GangKey("ns", "g")
OURS = {"name": vocabulary.GANG_GATE}
FOREIGN = {"name": "example.io/quota"}

Story = Callable[[Bench], Awaitable[Any]]


def play(story: Story, **options: Any) -> Any:
    async def run() -> Any:
        return await story(Bench(**options))

    return asyncio.run(run())


def gang(bench: Bench, count: int, *, size: int | None = None, **more: Any) -> None:
    for i in range(count):
        bench.pod(f"g-{i}", gang=("g", size or count), **more)


# --- gates ---


def test_the_gang_gate_is_removed_when_the_gang_is_complete_and_not_before() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        gang(bench, 2, size=3, schedulingGates=[OURS])
        await bench.settle(1.0)
        await bench.remove_gates()
        early = list(bench.api.removed_gates)
        bench.pod("g-2", gang=("g", 3))
        await bench.settle()
        while_gated = bench.api.nodes(), bench.scheduler.queue.state(G)
        await bench.remove_gates()
        await bench.settle()
        return early, while_gated, sorted(bench.api.removed_gates), bench.api.nodes()

    none = {f"g-{i}": "" for i in range(3)}
    assert play(story) == (
        [],
        (none, QueueState.GATED),
        ["g-0", "g-1"],
        {f"g-{i}": "a" for i in range(3)},
    )


def test_a_pod_with_another_gate_is_no_member_and_keeps_that_gate() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        gang(bench, 1, size=2)
        bench.pod("g-1", gang=("g", 2), schedulingGates=[OURS, FOREIGN])
        await bench.settle(1.0)
        await bench.remove_gates()
        gates = bench.api.pods["g-1"]["spec"]["schedulingGates"]
        kept = list(gates), bench.scheduler.queue.state(G)
        del gates[1]
        bench.show("g-1")
        await bench.settle()
        await bench.remove_gates()
        await bench.settle()
        return kept, bench.api.nodes()

    assert play(story) == (([OURS, FOREIGN], QueueState.FORMING), {"g-0": "a", "g-1": "a"})


def test_a_gated_pod_has_events_and_keeps_its_condition() -> None:
    async def story(bench: Bench) -> Any:
        gang(bench, 1, size=2, schedulingGates=[OURS])
        await bench.settle(1.0)
        return bench.events("GangWaiting"), await bench.write_conditions()

    assert play(story) == ([("g-0", "waiting for pod group g: 1/2 pods exist")], [])


def test_members_above_the_size_are_planned_while_the_gate_of_another_is_removed() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="9")
        gang(bench, 2)
        bench.pod("g-2", gang=("g", 2), schedulingGates=[OURS])
        await bench.settle()
        first = bench.api.nodes()
        await bench.remove_gates()
        await bench.settle()
        return first, bench.api.nodes()

    assert play(story) == (
        {"g-0": "a", "g-1": "a", "g-2": ""},
        {"g-0": "a", "g-1": "a", "g-2": "a"},
    )


def test_a_gate_that_cannot_be_removed_is_reported_and_retried() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        gang(bench, 1, schedulingGates=[OURS])
        bench.api.gate_faults.append(errors.Refused("no right to patch", status=403))
        await bench.settle()
        await bench.remove_gates()
        await bench.settle(30.0)
        await bench.remove_gates()
        await bench.settle()
        return bench.events("FailedScheduling"), bench.api.nodes()

    note = "the gang is complete, but its scheduling gate was not removed: no right to patch"
    assert play(story) == ([("g-0", note)], {"g-0": "a"})


# --- PodGroup objects ---


def x_group(bench: Bench, size: int) -> None:
    bench.scheduler.groups.on_x(WatchEvent(EventKind.ADDED, ("ns", "g"), PodGroup(size), None))


def test_a_gang_waits_for_its_object_and_follows_its_size() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="9")
        label = {vocabulary.X_K8S_POD_GROUP: "g"}
        for i in range(2):
            bench.pod(f"g-{i}", labels=label)
        await bench.settle(1.0)
        waiting = await bench.write_conditions()
        x_group(bench, 3)
        await bench.settle(1.0)
        too_few = bench.api.nodes(), bench.events("GangWaiting")[-1][1]
        x_group(bench, 2)
        await bench.settle()
        return waiting[0], too_few, bench.api.nodes()

    text = "waiting for pod group g: its PodGroup object does not exist"
    assert play(story) == (
        ("g-0", "WaitingForPodGroup", text),
        ({"g-0": "", "g-1": ""}, "waiting for pod group g: 2/3 pods exist"),
        {"g-0": "a", "g-1": "a"},
    )


def test_a_bare_driver_and_pods_of_a_controller_are_one_gang() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="4")
        bench.pod("driver", gang=("g", 3), cpu="2")
        for i in range(2):
            bench.pod(f"executor-{i}", gang=("g", 3), owner="replicas")
        await bench.settle()
        return bench.api.nodes()

    assert play(story) == {"driver": "a", "executor-0": "a", "executor-1": "a"}


# --- forming for too long ---


def test_a_gang_that_forms_past_its_timeout_is_reported_and_never_unschedulable() -> None:
    async def story(bench: Bench) -> Any:
        gang(bench, 1, size=2)
        await bench.settle(1.0)
        await bench.settle(10.0)
        await bench.settle(100.0)
        return bench.events("GangTimedOut"), await bench.write_conditions()

    text = "waiting for pod group g: 1/2 pods exist, timed out after 10.1s"
    assert play(story) == ([("g-0", text)], [("g-0", "WaitingForPodGroup", text)])


def test_all_missing_members_of_an_unschedulable_gang_are_marked_together() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="1")
        gang(bench, 3, size=2)
        await bench.settle()
        return [(name, reason) for name, reason, _ in await bench.write_conditions()]

    assert play(story) == [(f"g-{i}", "Unschedulable") for i in range(3)]


# --- leadership ---


def test_a_standby_decides_and_writes_nothing() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        bench.leading = False
        bench.pod("p")
        gang(bench, 1, schedulingGates=[OURS])
        await bench.settle(1.0)
        await bench.remove_gates()
        idle = bench.api.nodes(), bench.api.removed_gates
        bench.leading = True
        await bench.settle()
        return idle, bench.api.nodes()["p"]

    assert play(story) == (({"p": "", "g-0": ""}, []), "a")


def test_a_leader_that_was_frozen_binds_nothing_when_it_resumes() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        bench.pod("p")
        planning = asyncio.create_task(bench.scheduler.drain())
        bench.leading = True
        bench.api.faults.append(errors.Retry("503"))
        await asyncio.sleep(0)
        bench.leading = False
        await planning
        while bench.scheduler.binding:
            await asyncio.sleep(0)
        return bench.api.nodes()

    assert play(story) == {"p": ""}


# --- looking in ---


def test_a_waiting_pod_can_be_inspected_by_uid_and_by_key() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="1")
        bench.pod("g-0", gang=("g", 2), node="a")
        bench.pod("g-1", gang=("g", 2))
        await bench.settle()
        found = bench.scheduler.inspect("uid-g-1")
        assert found is not None
        assert found.queued is not None
        assert found.queued.why is not None
        same = found == bench.scheduler.inspect(PodKey("ns", "g-1"))
        other = bench.scheduler.inspect(PodKey("ns", "g-0"))
        assert other is not None
        return (
            same,
            (found.queued.state, found.queued.attempts, found.queued.since, found.bound),
            found.queued.why.text,
            (other.queued, other.node, other.is_partial),
            bench.scheduler.inspect("unknown"),
        )

    text = "0/1 nodes are available: 1 Insufficient cpu. waiting for pod group g: 1/2 members fit"
    assert play(story) == (
        True,
        (QueueState.UNSCHEDULABLE, 1, 100.0, 1),
        text,
        (None, "a", True),
        None,
    )


def test_the_cache_agrees_with_the_pods() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="8", zones=2)
        bench.node("b", cpu="2")
        gang(bench, 3, numa="single-numa", owner="job-1")
        bench.pod("foreign", node="b", schedulerName="other")
        await bench.settle()
        bench.show_all()
        bench.delete("g-1")
        whole = len(bench.scheduler.cache_mismatches())
        snapshot = bench.scheduler.cache.snapshot
        snapshot.table.use(snapshot.table.rows["b"], (("cpu", 1),), 1)
        return whole, bench.scheduler.cache_mismatches().nodes

    assert play(story) == (0, ("b",))
