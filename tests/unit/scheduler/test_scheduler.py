"""The cycle as a whole, against an API server in memory and a clock that stands still."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster import errors
from scheduler.options import CycleSettings
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.fake_api import FakeApiServer, LostResponse

pytestmark = pytest.mark.timeout(30)


Story = Callable[[Bench], Awaitable[None]]


def play(story: Story) -> Bench:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    return asyncio.run(run())


async def one_pod(bench: Bench) -> None:
    bench.node("a")
    bench.pod("p")
    await bench.settle()


async def strangers_and_gated_pods_are_left_alone(bench: Bench) -> None:
    bench.node("a")
    bench.pod("p", schedulerName="other")
    bench.pod("q", schedulingGates=[{"name": "g"}])
    await bench.settle()


async def a_lifted_gate(bench: Bench) -> None:
    bench.node("a")
    bench.pod("p", schedulingGates=[{"name": "g"}])
    await bench.settle()
    del bench.api.pods["p"]["spec"]["schedulingGates"]
    bench.show("p")
    await bench.settle()


async def capacity_appears_with_a_node(bench: Bench) -> None:
    bench.node("a", cpu="1")
    bench.pod("p", cpu="2")
    await bench.settle()
    bench.node("b", cpu="2")
    await bench.settle(1.0)


async def capacity_appears_when_a_pod_is_deleted(bench: Bench) -> None:
    bench.node("a", cpu="1")
    bench.pod("old", node="a", schedulerName="other")
    bench.pod("p")
    await bench.settle()
    bench.delete("old")
    await bench.settle(1.0)


async def a_bind_refused_once(bench: Bench) -> None:
    bench.node("a")
    bench.api.faults.append(errors.Refused("not now"))
    bench.pod("p")
    await bench.settle()
    await bench.settle(1.0)


async def an_answer_that_was_lost(bench: Bench) -> None:
    bench.node("a")
    bench.api.faults.append(LostResponse("timeout"))
    bench.pod("p")
    await bench.settle()


async def a_gang_short_by_one_node(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.node(name, cpu="1")
    for i in range(4):
        bench.pod(f"g-{i}", gang=("g", 4))
    await bench.settle()
    assert set(bench.api.nodes().values()) == {""}
    bench.node("d", cpu="1")
    await bench.settle(1.0)


async def a_gang_of_which_one_bind_fails(bench: Bench) -> None:
    bench.node("a", cpu="2")
    bench.api.faults.extend([errors.Refused("not now"), None])
    for i in range(2):
        bench.pod(f"g-{i}", gang=("g", 2))
    await bench.settle()


async def the_chosen_node_is_gone_before_the_next_pod(bench: Bench) -> None:
    bench.node("a", cpu="1")
    bench.node("b", cpu="4")
    bench.drop_node("a")
    bench.pod("p")
    await bench.settle()


@pytest.mark.parametrize(
    ("story", "want"),
    [
        pytest.param(one_pod, {"p": "a"}, id="one pod"),
        pytest.param(
            strangers_and_gated_pods_are_left_alone, {"p": "", "q": ""}, id="not ours to place"
        ),
        pytest.param(a_lifted_gate, {"p": "a"}, id="a lifted gate"),
        pytest.param(capacity_appears_with_a_node, {"p": "b"}, id="capacity appears with a node"),
        pytest.param(
            capacity_appears_when_a_pod_is_deleted,
            {"p": "a"},
            id="capacity appears when a pod is deleted",
        ),
        pytest.param(a_bind_refused_once, {"p": "a"}, id="a bind refused once"),
        pytest.param(an_answer_that_was_lost, {"p": "a"}, id="an answer that was lost"),
        pytest.param(
            a_gang_short_by_one_node,
            {"g-0": "a", "g-1": "b", "g-2": "c", "g-3": "d"},
            id="a gang short by one node",
        ),
        pytest.param(
            a_gang_of_which_one_bind_fails, {"g-0": "a", "g-1": "a"}, id="a gang with a bad bind"
        ),
        pytest.param(
            the_chosen_node_is_gone_before_the_next_pod, {"p": "b"}, id="a node that was deleted"
        ),
    ],
)
def test_stories(story: Story, want: dict[str, str]) -> None:
    assert play(story).api.nodes() == want


def test_a_bound_pod_is_reported_and_counted() -> None:
    bench = play(one_pod)
    assert bench.events("Scheduled") == [("p", "Successfully assigned ns/p to a")]
    assert b"kubenexus_scheduler_scheduled_total 1.0" in bench.metrics.render()
    assert b'kubenexus_scheduler_attempts_total{result="placed"} 1.0' in bench.metrics.render()


def test_a_gang_is_reported_once_as_a_whole() -> None:
    bench = play(a_gang_short_by_one_node)
    assert bench.events("GangScheduled") == [("g-0", "pod group g: 4 pods assigned to 4 nodes")]
    assert [name for name, _ in bench.events("FailedScheduling")] == ["g-0", "g-1", "g-2", "g-3"]


def test_a_refusal_is_written_once_and_again_only_when_it_changes() -> None:
    async def story() -> list[tuple[str, str, str]]:
        bench = Bench()
        bench.node("a", cpu="1")
        bench.pod("p", cpu="4")
        await bench.settle()
        await bench.write_conditions()
        bench.node("c", cpu="1", memory="1Gi", pods="0")
        await bench.settle(400.0)
        await bench.write_conditions()
        await bench.settle(400.0)
        return await bench.write_conditions()

    assert asyncio.run(story()) == [
        ("p", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."),
        (
            "p",
            "Unschedulable",
            "0/2 nodes are available: 1 Too many pods, 2 Insufficient cpu.",
        ),
    ]


def test_a_forming_gang_is_not_called_unschedulable() -> None:
    async def story() -> tuple[Bench, list[tuple[str, str, str]]]:
        bench = Bench()
        bench.node("a")
        bench.pod("g-0", gang=("g", 3))
        bench.pod("g-1", gang=("g", 3))
        await bench.settle(1.0)
        return bench, await bench.write_conditions()

    bench, written = asyncio.run(story())
    text = "waiting for pod group g: 2/3 pods exist"
    assert written == [
        ("g-0", "WaitingForPodGroup", text),
        ("g-1", "WaitingForPodGroup", text),
    ]
    assert bench.events("GangWaiting") == [("g-0", text), ("g-1", text)]
    assert bench.events("FailedScheduling") == []


class Slow(FakeApiServer):
    """Answers no bind before `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def bind(self, namespace: str, pod: str, node: str, **more: Any) -> None:
        await self.gate.wait()
        await super().bind(namespace, pod, node, **more)


def test_planning_goes_on_while_a_bind_is_in_flight() -> None:
    async def story() -> tuple[int, int, dict[str, str]]:
        slow = Slow()
        bench = Bench(slow)
        bench.node("a", cpu="2")
        bench.pod("p")
        bench.pod("q")
        await bench.scheduler.drain()
        in_flight, assumed = bench.scheduler.binding, bench.scheduler.cache.assumed()
        slow.gate.set()
        await bench.settle()
        return in_flight, assumed, slow.nodes()

    assert asyncio.run(story()) == (2, 2, {"p": "a", "q": "a"})


def test_planning_waits_when_binds_do_not_keep_up_and_gangs_stay_whole() -> None:
    async def story() -> tuple[int, int, set[str]]:
        slow = Slow()
        bench = Bench(slow, settings=CycleSettings(max_in_flight=2))
        bench.node("a", cpu="9")
        bench.pod("p", priority=9)
        for i in range(4):
            bench.pod(f"g-{i}", gang=("g", 4))
        for i in range(4):
            bench.pod(f"x-{i}")
        await bench.scheduler.drain()
        assumed = bench.scheduler.cache.assumed()
        slow.gate.set()
        running = asyncio.create_task(bench.scheduler.run())
        while len(bench.scheduler.queue) or bench.scheduler.binding:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return assumed, slow.binds, set(slow.nodes().values())

    assert asyncio.run(story()) == (5, 9, {"a"})


def test_a_pod_deleted_while_its_bind_is_in_flight_leaves_nothing_behind() -> None:
    async def story() -> tuple[int, int, int]:
        bench = Bench()
        bench.node("a")
        bench.pod("p")
        draining = asyncio.create_task(bench.scheduler.drain())
        await asyncio.sleep(0)
        bench.delete("p")
        await draining
        await bench.settle()
        return len(bench.scheduler.cache), len(bench.scheduler.queue), bench.scheduler.binding

    assert asyncio.run(story()) == (0, 0, 0)


def test_a_status_write_is_tried_again_until_the_server_answers() -> None:
    async def story() -> list[tuple[str, str, str]]:
        bench = Bench()
        bench.api.patch_faults.extend([errors.Retry("503"), errors.Retry("503")])
        bench.node("a", cpu="1")
        bench.pod("p", cpu="4")
        await bench.settle()
        return await bench.write_conditions()

    text = "0/1 nodes are available: 1 Insufficient cpu."
    assert asyncio.run(story()) == [("p", "Unschedulable", text)]


def test_a_condition_that_is_current_is_not_written_again() -> None:
    async def story() -> list[tuple[str, str, str]]:
        bench = Bench()
        bench.node("a", cpu="1")
        row = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }
        bench.pod("p", cpu="4", status={"phase": "Pending", "conditions": [row]})
        await bench.settle()
        return await bench.write_conditions()

    assert asyncio.run(story()) == []


def a_node_comes(bench: Bench) -> None:
    bench.node("b")


def a_pod_is_deleted(bench: Bench) -> None:
    bench.delete("bound")


def a_smaller_pod_comes(bench: Bench) -> None:
    bench.delete("pending")
    bench.pod("pending", cpu="0")


@pytest.mark.parametrize("event", [a_node_comes, a_pod_is_deleted, a_smaller_pod_comes])
def test_an_event_wakes_an_idle_scheduler(event: Callable[[Bench], None]) -> None:
    async def story() -> None:
        bench = Bench()
        bench.node("a", cpu="1")
        bench.pod("bound", cpu="1")
        running = asyncio.create_task(bench.scheduler.run())
        await until(lambda: bench.api.nodes()["bound"] == "a")
        bench.pod("pending", cpu="1")
        await until(lambda: bench.events("FailedScheduling") != [])
        bench.now += 2.0  # beyond its backoff
        event(bench)
        await until(lambda: bool(bench.api.nodes().get("pending")))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.001)

    asyncio.run(story())
