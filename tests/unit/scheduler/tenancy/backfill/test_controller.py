"""Start reservations and backfill, in the whole cycle."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from policies.documents.tenancy import Quota
from policies.engine.policyset import PolicyTables as PolicyTables
from scheduler import fork
from scheduler.fork import ForkPolicy
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.forks import ALWAYS, EVERYTHING_IN_FORKS
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import STARTED, backfill, pending_pod, running_pod

pytestmark = pytest.mark.timeout(30)

T = TypeVar("T")
Story = Callable[[Bench], Awaitable[None]]


async def scene(bench: Bench, *, policy: PlacementTables | None = None) -> None:
    """Two nodes of two GPUs, half of each in use; a gang that needs both nodes whole waits."""
    bench.scheduler.adopt(policy or backfill())
    bench.node("n1", gpus=2)
    bench.node("n2", gpus=2)
    running_pod(bench, "r1", "n1", "300s")
    running_pod(bench, "r2", "n2", "200s")
    for i in range(2):
        pending_pod(bench, f"g{i}", "1h", gpus=2, gang=("g", 2))
    await bench.settle()
    await bench.settle(1.5)


WAITING = {"r1": "n1", "r2": "n2", "g0": "", "g1": ""}

ESTIMATED = (
    "StartEstimated",
    "pod group ns/g is expected to start by 1970-01-01T00:06:40Z, when ns/r1, ns/r2 have ended",
)


def delayed(when: str, why: str) -> tuple[str, str]:
    return "StartDelayed", f"pod group ns/g is expected to start {when}: {why}"


story = Stories()


@story(WAITING, [ESTIMATED], id="the start is estimated")
async def start_is_estimated(bench: Bench) -> None:
    await scene(bench)


@story({**WAITING, "short": "n1"}, [ESTIMATED], id="a pod that ends before backfills")
async def short_pod_backfills(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "short", "250s")
    await bench.settle()


@story({**WAITING, "long": ""}, [ESTIMATED], id="a pod that ends later waits")
async def long_pod_waits(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "long", "400s")
    await bench.settle()


@story(
    {**WAITING, "first": "n1", "second": ""},
    [ESTIMATED],
    id="a guarantee takes precedence over a start reservation",
)
async def guarantee_before_a_start_reservation(bench: Bench) -> None:
    quota = Quota.model_validate({"guaranteed": {"nvidia.com/gpu": 1}})
    policy = PolicyTables({}, {}, {}, (), quotas={"t": quota})
    await scene(bench, policy=PlacementTables(policy=policy))
    for name in ("first", "second"):
        pending_pod(bench, name, "400s", labels={"tenant.kubenexus.io/name": "t"})
        await bench.settle()


@story({**WAITING, "unknown": ""}, [ESTIMATED], id="a pod without a duration waits")
async def pod_without_a_duration_waits(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "unknown")
    await bench.settle()


@story({**WAITING, "long": "n3"}, [ESTIMATED], id="other nodes are open to all pods")
async def long_pod_on_another_node(bench: Bench) -> None:
    await scene(bench)
    bench.node("n3", gpus=1)
    pending_pod(bench, "long", "400s")
    await bench.settle()


@story(
    {"r1": "n1", "r2": "n1", "p": "", "long": "n1"},
    [
        (
            "StartEstimated",
            "pod ns/p is expected to start by 1970-01-01T00:06:40Z, when ns/r2, ns/r1 have ended",
        )
    ],
    id="capacity on its nodes that it does not need is open",
)
async def capacity_that_the_unit_does_not_need(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    bench.node("n1", gpus=3)
    running_pod(bench, "r1", "n1", "300s")
    running_pod(bench, "r2", "n1", "300s")
    pending_pod(bench, "p", "1h", gpus=2)
    await bench.settle()
    await bench.settle(1.5)
    pending_pod(bench, "long", "900s")
    await bench.settle()


@story({**WAITING, "typed": "n1"}, [ESTIMATED], id="the policy has a duration for the type")
async def duration_from_the_policy(bench: Bench) -> None:
    await scene(bench, policy=backfill(durations=[{"type": "batch", "duration": "60s"}]))
    pending_pod(bench, "typed", labels={"workload.kubenexus.io/type": "batch"})
    await bench.settle()


@story({"g0": "n1", "g1": "n2", "long": ""}, [ESTIMATED], id="the unit starts in time")
async def the_unit_starts_in_time(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "long", "400s")
    await bench.settle()
    bench.delete("r2")
    await bench.settle(150)
    bench.delete("r1")
    await bench.settle(20)


@story(
    {"r1": "n1", "g0": "", "g1": ""},
    [
        ESTIMATED,
        delayed("by 1970-01-01T00:07:53Z", "ns/r1 overran its expected duration"),
    ],
    id="an overrun delays it",
)
async def overrun_delays_it(bench: Bench) -> None:
    await scene(bench)
    bench.delete("r2")
    await bench.settle(312)


@story(
    {"g0": "n1", "g1": "n2"},
    [
        ESTIMATED,
        delayed(
            "at a time not known yet",
            "ns/filler overran its expected duration and is evicted",
        ),
    ],
    id="a backfill pod that overruns is evicted if the policy says so",
)
async def overrun_is_evicted(bench: Bench) -> None:
    await scene(bench, policy=backfill(overrun="preempt"))
    bench.delete("r2")
    mark = {"scheduling.kubenexus.io/backfill": "true"}
    pending_pod(bench, "filler", "100s", labels=mark, owner="job")
    await bench.settle()
    bench.api.pods["filler"]["status"] = STARTED
    bench.show("filler")
    bench.delete("r1")
    await bench.settle(312)
    assert bench.api.evicted == ["filler"]
    [(_, note)] = bench.events("Preempted")
    assert note.endswith(": this pod overran its expected duration")
    bench.delete("filler")
    await bench.settle()


@story(
    {**WAITING, "r3": "n3"},
    [ESTIMATED, delayed("by 1970-01-01T00:16:40Z", "node n2 was deleted")],
    id="a deleted node delays it",
)
async def deleted_node_delays_it(bench: Bench) -> None:
    await scene(bench)
    bench.node("n3", gpus=2)
    running_pod(bench, "r3", "n3", "900s")
    bench.drop_node("n2")
    await bench.settle(2)


@story(
    {**WAITING, "urgent": "n1"},
    [
        ESTIMATED,
        delayed("by 1970-01-01T00:10:03Z", "ns/urgent, which has precedence, took its capacity"),
    ],
    id="a higher priority delays it",
)
async def higher_priority_delays_it(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "urgent", "500s", priority=10, preemptionPolicy="Never")
    await bench.settle()
    await bench.settle(2)


@story({"r1": "n1", "p": ""}, [], id="no start is estimated from unknown durations")
async def no_duration_is_known(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    bench.node("n1", gpus=2)
    running_pod(bench, "r1", "n1")
    pending_pod(bench, "p", "1h", gpus=2)
    await bench.settle()
    await bench.settle(2)


@pytest.mark.parametrize(
    "fork",
    [pytest.param(None, id="in the event loop"), pytest.param(EVERYTHING_IN_FORKS, id="in forks")],
)
@pytest.mark.parametrize(
    ("story", "nodes", "events"),
    story.rows,
)
def test_stories(
    story: Story, nodes: dict[str, str], events: list[tuple[str, str]], fork: ForkPolicy | None
) -> None:
    bench = play(story, fork)
    assert (bench.api.nodes(), start_events(bench)) == (nodes, events)


def play(story: Story, fork: ForkPolicy | None = None) -> Bench:
    async def run() -> Bench:
        bench = Bench(fork=fork)
        await story(bench)
        return bench

    return asyncio.run(run())


def start_events(bench: Bench) -> list[tuple[str, str]]:
    kinds = ("StartEstimated", "StartDelayed")
    return [(one.reason, one.note) for one in bench.reports if one.reason in kinds]


def test_explain_shows_the_start_and_the_units_ahead() -> None:
    bench = play(long_pod_waits)
    gang, other = bench.scheduler.explain("ns", "g0"), bench.scheduler.explain("ns", "long")
    assert gang is not None
    assert other is not None
    assert (gang["start"], other["start"]) == (
        {"expected": "1970-01-01T00:06:40Z", "waits_for": ["ns/r1", "ns/r2"], "ahead": []},
        {"expected": None, "waits_for": [], "ahead": ["ns/g"]},
    )


@pytest.mark.parametrize(
    ("change", "reserved"),
    [
        pytest.param(lambda bench: None, True, id="nothing changed"),
        pytest.param(lambda bench: bench.drop_node("n1"), False, id="a node is gone"),
        pytest.param(
            lambda bench: running_pod(bench, "endless", "n2"),
            False,
            id="a pod without a known end took the capacity",
        ),
    ],
)
def test_an_estimate_of_a_fork_is_confirmed_on_the_present_cluster(
    change: Callable[[Bench], None], reserved: bool
) -> None:
    async def run() -> bool:
        release = asyncio.Event()

        async def held(work: Callable[[], T], *, seconds: float) -> T:
            result = await fork.run(work, seconds=seconds)
            await release.wait()
            return result

        bench = Bench(fork=ForkPolicy(held, pods_in_loop=ALWAYS))
        bench.scheduler.adopt(backfill())
        for node in ("n1", "n2"):
            bench.node(node, gpus=2)
        running_pod(bench, "r1", "n1", "300s")
        running_pod(bench, "r2", "n2", "200s")
        for number in range(2):
            pending_pod(bench, f"g{number}", "1h", gpus=2, gang=("g", 2))
        await bench.scheduler.drain()
        bench.now += 1.5
        await bench.scheduler.drain()
        controller = bench.scheduler.tenancy.backfill
        assert controller.estimating
        await asyncio.sleep(0)  # the process is forked
        change(bench)
        release.set()
        while controller.estimating:
            await asyncio.sleep(0.001)
        return bool(controller.start_reservations())

    assert asyncio.run(run()) is reserved
