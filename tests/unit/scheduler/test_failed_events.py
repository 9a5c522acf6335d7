"""A watched object that cannot be read or applied loses no other object, and is tried again."""

import asyncio
from typing import Any

import pytest

from cluster import resources
from cluster.informer import EventKind, WatchEvent
from scheduler.failed_events import FailedEvents
from scheduler.feed import Feed
from scheduler.isolation import Isolation
from scheduler.model.pod import Pod
from scheduler.queueing.entry import QueueState
from scheduler.report.metrics import Metrics
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import pod_json
from tests.unit.scheduler.faults import Bug, Faults, broken_nodes


class Handler:
    """Remembers what it applied; raises while it is `broken`."""

    def __init__(self) -> None:
        self.applied: list[tuple[EventKind, str]] = []
        self.broken = True

    def __call__(self, event: WatchEvent[str]) -> None:
        if self.broken:
            raise Bug
        self.applied.append((event.kind, event.object))


def event(kind: EventKind, value: str, name: str = "x") -> WatchEvent[str]:
    return WatchEvent(kind, ("ns", name), value, None)


ADDED, MODIFIED, DELETED = EventKind.ADDED, EventKind.MODIFIED, EventKind.DELETED


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param([(ADDED, "1")], [], [(ADDED, "1")], id="the event is tried again"),
        pytest.param(
            [(ADDED, "1"), (MODIFIED, "2")], [], [(MODIFIED, "2")], id="only the newest is"
        ),
        pytest.param(
            [(ADDED, "1")], [(MODIFIED, "2")], [(MODIFIED, "2")], id="a newer one that succeeds"
        ),
        pytest.param(
            [(ADDED, "1"), (DELETED, "1")], [], [(DELETED, "1")], id="a deletion takes its place"
        ),
    ],
)
def test_what_is_applied_in_the_end(
    before: list[tuple[EventKind, str]],
    after: list[tuple[EventKind, str]],
    want: list[tuple[EventKind, str]],
) -> None:
    now, handler = [100.0], Handler()
    failed = FailedEvents(Isolation(Metrics()), now=lambda: now[0], wake=lambda: None)
    apply = failed.guard("Thing", handler)
    for kind, value in before:
        apply(event(kind, value))
    assert len(failed) == 1
    handler.broken = False
    for kind, value in after:
        apply(event(kind, value))
    now[0] += 300.0
    failed.tick()
    assert (handler.applied, len(failed), failed.next_at()) == (want, 0, None)


def test_retries_come_later_each_time() -> None:
    now, handler, due = [100.0], Handler(), []
    failed = FailedEvents(Isolation(Metrics()), now=lambda: now[0], wake=lambda: None)
    failed.guard("Thing", handler)(event(ADDED, "1"))
    for _ in range(8):
        at = failed.next_at()
        assert at is not None
        due.append(at - now[0])
        now[0] = at
        failed.tick()
    assert due == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


# --- the scheduler's own handlers ---


def test_a_bound_pod_that_cannot_be_counted_loses_no_other() -> None:
    async def story() -> None:
        faults = Faults("charge")
        bench = faults.bench()
        bench.node("a", cpu="3")
        for name in ("r-0", "bad", "r-1"):
            bench.pod(name, node="a")
        bench.pod("p")
        await bench.settle()
        assert len(bench.scheduler.failed_events) == 1
        assert {name: bench.api.nodes()[name] for name in ("r-0", "r-1", "p")} == {
            "r-0": "a",
            "r-1": "a",
            "p": "a",
        }
        assert broken_nodes(bench) == []
        faults.armed.clear()
        await bench.settle(5.0)
        assert len(bench.scheduler.failed_events) == 0
        assert bench.scheduler.cache.get("uid-bad") is not None
        assert not bench.scheduler.cache_mismatches()

    asyncio.run(story())


def test_a_bound_pod_whose_new_state_cannot_be_counted_counts_as_before() -> None:
    async def story() -> list[Any]:
        faults = Faults()
        bench = faults.bench()
        bench.node("a", cpu="4")
        bench.pod("bad", node="a", cpu="3")
        faults.armed.add("charge 2000")
        bench.pod("bad", node="a", cpu="2")
        free = bench.scheduler.cache.snapshot.table.free_at(0, "cpu")
        faults.armed.clear()
        await bench.settle(5.0)
        return [free, bench.scheduler.cache.snapshot.table.free_at(0, "cpu"), broken_nodes(bench)]

    assert asyncio.run(story()) == [1000, 2000, []]


def test_a_deleted_pod_is_gone_even_if_a_plugin_fails() -> None:
    async def story() -> None:
        bench = Faults("uncharge").bench()
        bench.node("a", cpu="1")
        bench.pod("bad", node="a")
        bench.delete("bad")
        bench.pod("p")
        await bench.settle()
        assert bench.api.nodes() == {"p": "a"}
        assert len(bench.scheduler.failed_events) == 0
        assert broken_nodes(bench) == []

    asyncio.run(story())


def test_a_node_that_cannot_be_put_takes_no_pod_until_it_can() -> None:
    async def story() -> list[dict[str, str]]:
        faults = Faults("put node")
        bench = faults.bench()
        seen = []
        for name in ("bad-node", "b"):
            bench.node(name, cpu="1")
        for name in ("p", "q"):
            bench.pod(name)
        await bench.settle()
        seen.append(bench.api.nodes())
        faults.armed.clear()
        await bench.settle(5.0)
        seen.append(bench.api.nodes())
        return seen

    assert asyncio.run(story()) == [{"p": "b", "q": ""}, {"p": "b", "q": "bad-node"}]


def test_an_object_of_a_plugin_that_cannot_be_applied_is_tried_again() -> None:
    put: list[str] = []

    def fragile(name: str) -> bool:
        if name == "bad" and not put.count("good"):
            put.append("tried")
            raise Bug
        put.append(name)
        return True

    bench = Bench()
    feed = Feed(resources.NAMESPACES, str, fragile, fragile)
    for name in ("bad", "good"):
        bench.scheduler.on_feed(feed, WatchEvent(ADDED, ("", name), name, None))
    asyncio.run(bench.settle(5.0))
    assert put == ["tried", "good", "bad"]


# --- unreadable objects ---


def unreadable(obj: dict[str, Any]) -> Pod:
    if obj["metadata"]["name"].startswith("bad"):
        raise OverflowError("year 11409972 is out of range")
    return Pod.read(obj)


def test_an_object_that_cannot_be_read_is_skipped_and_reported() -> None:
    metrics, heard = Metrics(), []
    read = Isolation(metrics).reader(
        unreadable, lambda obj, error: heard.append((obj["metadata"]["name"], str(error)))
    )
    pods = [read(pod_json(name)) for name in ("p", "bad", "q")]
    assert [pod and pod.key.name for pod in pods] == ["p", None, "q"]
    assert heard == [("bad", "year 11409972 is out of range")]
    assert b'kubenexus_scheduler_errors_total{step="decode"} 1.0' in metrics.render()


Steps = list[tuple[EventKind, Pod | None, Pod | None]]
HERE = Pod.read(pod_json("p", node="a", cpu="3"))
WAITS = Pod.read(pod_json("p", cpu="3"))


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        pytest.param([(ADDED, HERE, None), (MODIFIED, None, HERE)], 1000, id="counts as before"),
        pytest.param(
            [(ADDED, HERE, None), (MODIFIED, None, HERE), (MODIFIED, None, None)],
            1000,
            id="also after the second time",
        ),
        pytest.param(
            [(ADDED, HERE, None), (MODIFIED, None, HERE), (DELETED, None, None)],
            4000,
            id="is gone when it is deleted",
        ),
        pytest.param(
            [(ADDED, HERE, None), (MODIFIED, None, HERE), (MODIFIED, HERE, None)],
            1000,
            id="readable again",
        ),
        pytest.param([(ADDED, None, None), (DELETED, None, None)], 4000, id="never readable"),
        pytest.param(
            [(ADDED, WAITS, None), (MODIFIED, None, WAITS)], 4000, id="a waiting pod is left alone"
        ),
    ],
)
def test_a_pod_that_becomes_unreadable(steps: Steps, want: int) -> None:
    async def story() -> tuple[int, int]:
        bench = Bench()
        bench.node("a", cpu="4")
        for kind, new, old in steps:
            bench.scheduler.on_pod(WatchEvent(kind, ("ns", "p"), new, old))
        await bench.settle()
        return bench.scheduler.cache.snapshot.table.free_at(0, "cpu"), len(bench.scheduler.queue)

    assert asyncio.run(story()) == (want, 0)


def test_a_waiting_pod_that_cannot_be_queued_is_quarantined() -> None:
    async def story() -> None:
        faults = Faults("unready")
        bench = faults.bench()
        hold = bench.scheduler._unready.hold_unready  # no other seam lies between watch and queue

        def holds(pod: Pod) -> bool:
            faults.check("unready", pod.key.name)
            return hold(pod)

        bench.scheduler._unready.hold_unready = holds  # type: ignore[method-assign]  # the same
        bench.node("a")
        for name in ("p", "bad", "q"):
            bench.pod(name)
        await bench.settle()
        assert bench.api.nodes() == {"p": "a", "bad": "", "q": "a"}
        key = bench.scheduler.queue.key("uid-bad")
        assert key is not None
        assert bench.scheduler.queue.state(key) is QueueState.QUARANTINED
        await bench.settle(5.0)
        assert bench.api.nodes()["bad"] == "a"

    asyncio.run(story())
