"""Partial gangs through the whole cycle: repair, release, refusals, starvation protection."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster import errors
from scheduler.model.gang import GangKey
from scheduler.model.pod import PodKey
from scheduler.options import CycleSettings, StaleGangPolicy
from scheduler.queueing.entry import QueueState
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.fake_api import FakeApiServer

pytestmark = pytest.mark.timeout(30)

G = GangKey("ns", "g")

Story = Callable[[Bench], Awaitable[Any]]


def play(story: Story, **options: Any) -> Any:
    async def run() -> Any:
        return await story(Bench(**options))

    return asyncio.run(run())


def gang(bench: Bench, count: int, *, size: int | None = None, **more: Any) -> None:
    for i in range(count):
        bench.pod(f"g-{i}", gang=("g", size or count), **more)


def refusal() -> errors.Refused:
    return errors.Refused("admission webhook denied the request", status=403)


# --- repair and release ---


async def make_partial(bench: Bench, *, owner: str | None = "job-1") -> None:
    """Two of three members are bound; the bind of the third fails, and another pod takes its capacity."""
    bench.node("a", cpu="3")
    bench.api.faults.extend([None, None, errors.Conflict("not now")])
    gang(bench, 3, owner=owner)
    await bench.scheduler.drain()
    bench.pod("thief", priority=9, node="a", schedulerName="other")
    await bench.settle()
    bench.show_all()


def test_a_member_whose_bind_failed_is_planned_again_before_anything_else() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="2")
        bench.api.faults.extend([None, errors.Conflict("not now")])
        gang(bench, 2)
        await bench.scheduler.drain()
        bench.pod("urgent", priority=1000)
        await bench.settle()
        return bench.api.nodes()

    assert play(story) == {"g-0": "a", "g-1": "a", "urgent": ""}


def test_a_gang_that_stays_partial_past_its_timeout_is_evicted_and_starts_complete() -> None:
    async def story(bench: Bench) -> Any:
        await make_partial(bench)
        before = bench.api.nodes(), len(bench.scheduler.partial_gangs)
        await bench.settle(10.2)
        bench.show_all()
        released = sorted(bench.api.deletes), bench.events("GangReleased")
        for name in released[0]:
            bench.pod(f"{name}-again", gang=("g", 3), owner="job-1")
        await bench.settle(2.0)
        waiting = set(bench.api.nodes().values()) - {"a"}
        bench.node("b", cpu="3")
        await bench.settle(10.0)
        return before, released, waiting, sorted(bench.api.nodes().values())

    note = "pod group g had 2 of 3 members bound for 10.15s; evicted, so that the gang can start complete"
    assert play(story) == (
        ({"g-0": "a", "g-1": "a", "g-2": "", "thief": "a"}, 1),
        (["g-0", "g-1"], [("g-0", note), ("g-1", note)]),
        {""},
        ["a", "b", "b", "b"],
    )


def test_capacity_that_becomes_free_in_time_completes_the_gang_instead() -> None:
    async def story(bench: Bench) -> Any:
        await make_partial(bench)
        bench.node("b", cpu="1")
        await bench.settle(5.0)
        bench.show_all()
        await bench.settle(60.0)
        nodes = bench.api.nodes()
        return bench.api.deletes, nodes["g-2"], len(bench.scheduler.partial_gangs)

    assert play(story) == ([], "b", 0)


@pytest.mark.parametrize(
    ("owner", "policy", "why"),
    [
        pytest.param(
            None, StaleGangPolicy.EVICT, "no controller would recreate it", id="bare pods"
        ),
        pytest.param(
            "job-1",
            StaleGangPolicy.HOLD,
            "eviction of partial gangs is off",
            id="the policy holds them",
        ),
    ],
)
def test_retained_members_are_reported_once(
    owner: str | None, policy: StaleGangPolicy, why: str
) -> None:
    async def story(bench: Bench) -> Any:
        await make_partial(bench, owner=owner)
        for _ in range(4):
            await bench.settle(11.0)
        return bench.api.deletes, bench.events("GangTimedOut"), len(bench.scheduler.partial_gangs)

    note = (
        "pod group g had 2 of 3 members bound for 10.15s; "
        f"this pod stays because {why}: delete it to free its node"
    )
    assert play(story, policy=policy) == ([], [("g-0", note), ("g-1", note)], 1)


def scheduled_at(time: str) -> dict[str, Any]:
    row = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
    return {"phase": "Running", "conditions": [row]}


@pytest.mark.parametrize(
    ("created", "want"),
    [
        pytest.param("2026-01-01T00:00:00Z", ["g-0", "g-1"], id="it was left out of a plan"),
        pytest.param("2026-01-01T00:00:05Z", ["g-0", "g-1"], id="in the same second as the bind"),
        pytest.param("2026-01-01T01:00:00Z", [], id="it replaces a member that was lost"),
    ],
)
def test_a_gang_found_partial_is_evicted_if_waiting_members_are_older_than_its_binds(
    created: str, want: list[str]
) -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="2")
        for i in range(2):
            status = scheduled_at("2026-01-01T00:00:05Z")
            bench.pod(f"g-{i}", gang=("g", 3), owner="job-1", node="a", status=status)
        bench.pod("g-2", gang=("g", 3), owner="job-1", created=created)
        await bench.settle()
        for _ in range(3):
            await bench.settle(11.0)
        return sorted(bench.api.deletes)

    assert play(story) == want


def test_a_gang_found_partial_is_completed_first_if_capacity_is_free() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="3")
        for i in range(2):
            bench.pod(f"g-{i}", gang=("g", 3), owner="job-1", node="a")
        bench.pod("urgent", priority=1000)
        bench.pod("g-2", gang=("g", 3), owner="job-1")
        await bench.settle()
        await bench.settle(60.0)
        return bench.api.nodes()["g-2"], bench.api.nodes()["urgent"], bench.api.deletes

    assert play(story) == ("a", "", [])


def test_a_gang_found_partial_without_waiting_members_is_not_evicted() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        bench.pod("g-0", gang=("g", 3), owner="job-1", node="a")
        for _ in range(5):
            await bench.settle(30.0)
        return bench.api.deletes

    assert play(story) == []


def test_a_gang_whose_pods_finish_one_by_one_is_never_evicted() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        gang(bench, 3, owner="job-1")
        await bench.settle()
        bench.show_all()
        for i in range(3):
            bench.api.pods[f"g-{i}"]["status"] = {"phase": "Succeeded"}
            bench.show(f"g-{i}")
            await bench.settle(60.0)
        return bench.api.deletes, len(bench.scheduler.partial_gangs)

    assert play(story) == ([], 0)


def test_an_eviction_without_a_response_is_retried() -> None:
    async def story(bench: Bench) -> Any:
        await make_partial(bench)
        bench.api.delete_faults.extend([errors.Retry("503")] * 3)
        await bench.settle(10.2)
        return sorted(bench.api.deletes)

    assert play(story) == ["g-0", "g-1"]


class Slow(FakeApiServer):
    """Answers no delete before `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def delete(self, *args: Any, **more: Any) -> None:
        await self.gate.wait()
        await super().delete(*args, **more)


def test_a_gang_is_not_planned_while_its_members_are_evicted() -> None:
    async def story() -> Any:
        api = Slow()
        bench = Bench(api)
        await make_partial(bench)
        bench.now += 10.2
        await bench.scheduler.drain()
        bench.node("b", cpu="3")
        for _ in range(10):
            await bench.scheduler.drain()
        state, meanwhile = bench.scheduler.queue.state(G), api.nodes()["g-2"]
        api.gate.set()
        await bench.settle()
        return state, meanwhile, sorted(api.deletes), api.nodes()["g-2"]

    assert asyncio.run(story()) == (QueueState.SUSPENDED, "", ["g-0", "g-1"], "")


# --- refused for good ---


def test_a_pod_whose_binding_is_rejected_is_retried_after_minutes_and_reported() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a")
        bench.api.faults.append(refusal())
        bench.pod("p")
        await bench.settle()
        for _ in range(5):
            await bench.settle(30.0)
        state, binds = bench.scheduler.queue.state(PodKey("ns", "p")), bench.api.binds
        written = await bench.write_conditions()
        await bench.settle(200.0)
        return state, binds, written, bench.api.nodes()

    text = "API server rejected the binding: admission webhook denied the request"
    assert play(story) == (QueueState.REFUSED, 1, [("p", "BindingRefused", text)], {"p": "a"})


def test_a_gang_with_a_rejected_member_is_evicted_once_and_then_tried_by_that_member_first() -> (
    None
):
    async def story(bench: Bench) -> Any:
        bench.node("a")
        bench.api.faults.extend([None, refusal()])
        gang(bench, 2, owner="job-1")
        await bench.settle()
        bench.show_all()
        await bench.settle(10.2)
        bench.show_all()
        bench.pod("g-9", gang=("g", 2), owner="job-1")
        binds = bench.api.binds
        for _ in range(30):
            bench.api.faults.clear()
            bench.api.faults.append(refusal())
            await bench.settle(30.0)
        tried = bench.api.binds - binds
        bench.api.faults.clear()
        await bench.settle(3600.0)
        return bench.api.deletes, tried, bench.api.nodes()

    assert play(story) == (["g-0"], 2, {"g-1": "a", "g-9": "a"})


# --- starvation protection ---


def test_nodes_are_held_for_a_starving_gang_against_small_pods() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="2")
        bench.node("b", cpu="2")
        for node in ("a", "b"):
            for i in range(2):
                bench.pod(f"{node}{i}", node=node, schedulerName="other")
        gang(bench, 2, cpu="2", created="2025-01-01T00:00:00Z")
        await bench.settle()
        await bench.settle(61.0)
        bench.delete("a0")
        await bench.settle(10.0)  # the gang is tried, does not fit, and has waited too long
        held = sorted(bench.scheduler.recovery.held_nodes)
        bench.pod("small")
        await bench.settle()
        kept_out = bench.api.nodes()["small"]
        bench.pod("urgent", priority=1)
        await bench.settle()
        let_in = bench.api.nodes()["urgent"]
        bench.delete("urgent")
        for name in ("a1", "b0", "b1"):
            bench.delete(name)
        await bench.settle(10.0)
        return (
            held,
            kept_out,
            let_in,
            bench.api.nodes(),
            sorted(bench.scheduler.recovery.held_nodes),
        )

    assert play(story) == (
        ["a", "b"],
        "",
        "a",
        {"g-0": "a", "g-1": "b", "small": ""},
        [],
    )


def test_a_hold_expires_and_others_are_planned() -> None:
    async def story(bench: Bench) -> Any:
        bench.node("a", cpu="2")
        bench.pod("old", node="a", schedulerName="other")
        gang(bench, 2, created="2025-01-01T00:00:00Z")
        await bench.settle()
        bench.node("b", cpu="1", unschedulable=True)
        await bench.settle(301.0)
        held = sorted(bench.scheduler.recovery.held_nodes)
        bench.pod("small")
        await bench.settle()
        early = bench.api.nodes()["small"]
        await bench.settle(50.0)
        await bench.settle(10.0)
        return held, early, sorted(bench.scheduler.recovery.held_nodes), bench.api.nodes()["small"]

    options = CycleSettings(hold_seconds=50.0)
    assert play(story, settings=options) == (["a"], "", [], "a")
