"""Start times promised to those that wait, and who may go ahead, in the whole cycle."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from policies.documents.tenancy import Quota
from policies.engine.policyset import PolicyTables as PolicyTables
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import STARTED, backfill, pending_pod, running_pod

pytestmark = pytest.mark.timeout(30)

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

PROMISED = (
    "StartEstimated",
    "pod group ns/g is expected to start by 1970-01-01T00:06:40Z, when ns/r1, ns/r2 have ended",
)


def moved(when: str, why: str) -> tuple[str, str]:
    return "StartDelayed", f"pod group ns/g is expected to start {when}: {why}"


story = Stories()


@story(WAITING, [PROMISED], id="the time is told")
async def the_time_is_told(bench: Bench) -> None:
    await scene(bench)


@story({**WAITING, "short": "n1"}, [PROMISED], id="work that ends before goes ahead")
async def short_work_goes_ahead(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "short", "250s")
    await bench.settle()


@story({**WAITING, "long": ""}, [PROMISED], id="work that ends later waits")
async def long_work_waits(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "long", "400s")
    await bench.settle()


@story(
    {**WAITING, "first": "n1", "second": ""},
    [PROMISED],
    id="a guarantee goes before a promise, as far as it goes",
)
async def a_guarantee_goes_before_a_promise(bench: Bench) -> None:
    quota = Quota.model_validate({"guaranteed": {"nvidia.com/gpu": 1}})
    said = PolicyTables({}, {}, {}, (), quotas={"t": quota})
    await scene(bench, policy=PlacementTables(policy=said))
    for name in ("first", "second"):
        pending_pod(bench, name, "400s", labels={"tenant.kubenexus.io/name": "t"})
        await bench.settle()


@story({**WAITING, "unknown": ""}, [PROMISED], id="work of unknown length waits")
async def work_of_unknown_length_waits(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "unknown")
    await bench.settle()


@story({**WAITING, "long": "n3"}, [PROMISED], id="other room is open to everybody")
async def long_work_goes_elsewhere(bench: Bench) -> None:
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
    id="room on its nodes that it will not need is open",
)
async def room_to_spare_is_open(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    bench.node("n1", gpus=3)
    running_pod(bench, "r1", "n1", "300s")
    running_pod(bench, "r2", "n1", "300s")
    pending_pod(bench, "p", "1h", gpus=2)
    await bench.settle()
    await bench.settle(1.5)
    pending_pod(bench, "long", "900s")
    await bench.settle()


@story({**WAITING, "typed": "n1"}, [PROMISED], id="the policy knows how long work of a type runs")
async def a_type_says_how_long(bench: Bench) -> None:
    await scene(bench, policy=backfill(durations=[{"type": "batch", "duration": "60s"}]))
    pending_pod(bench, "typed", labels={"workload.kubenexus.io/type": "batch"})
    await bench.settle()


@story({"g0": "n1", "g1": "n2", "long": ""}, [PROMISED], id="the unit starts in time")
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
        PROMISED,
        moved("by 1970-01-01T00:07:53Z", "ns/r1 overran its expected duration"),
    ],
    id="work that overruns moves it",
)
async def an_overrun_moves_it(bench: Bench) -> None:
    await scene(bench)
    bench.delete("r2")
    await bench.settle(312)


@story(
    {"g0": "n1", "g1": "n2"},
    [
        PROMISED,
        moved(
            "at a time not known yet",
            "ns/filler overran its expected duration and is evicted",
        ),
    ],
    id="backfill that overruns is ended where the policy says so",
)
async def an_overrun_is_ended(bench: Bench) -> None:
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
    [PROMISED, moved("by 1970-01-01T00:16:40Z", "node n2 was deleted")],
    id="a lost node moves it",
)
async def a_lost_node_moves_it(bench: Bench) -> None:
    await scene(bench)
    bench.node("n3", gpus=2)
    running_pod(bench, "r3", "n3", "900s")
    bench.drop_node("n2")
    await bench.settle(2)


@story(
    {**WAITING, "urgent": "n1"},
    [
        PROMISED,
        moved("by 1970-01-01T00:10:03Z", "ns/urgent, which has precedence, took its capacity"),
    ],
    id="a higher priority moves it",
)
async def a_higher_priority_goes_first(bench: Bench) -> None:
    await scene(bench)
    pending_pod(bench, "urgent", "500s", priority=10, preemptionPolicy="Never")
    await bench.settle()
    await bench.settle(2)


@story({"r1": "n1", "p": ""}, [], id="nothing is promised on the unknown")
async def nobody_says_how_long(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    bench.node("n1", gpus=2)
    running_pod(bench, "r1", "n1")
    pending_pod(bench, "p", "1h", gpus=2)
    await bench.settle()
    await bench.settle(2)


@pytest.mark.parametrize(
    ("story", "nodes", "told"),
    story.rows,
)
def test_stories(story: Story, nodes: dict[str, str], told: list[tuple[str, str]]) -> None:
    bench = play(story)
    assert (bench.api.nodes(), promises(bench)) == (nodes, told)


def play(story: Story) -> Bench:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    return asyncio.run(run())


def promises(bench: Bench) -> list[tuple[str, str]]:
    kinds = ("StartEstimated", "StartDelayed")
    return [(one.reason, one.note) for one in bench.reports if one.reason in kinds]


def test_why_tells_the_start_and_who_is_ahead() -> None:
    bench = play(long_work_waits)
    gang, other = bench.scheduler.explain("ns", "g0"), bench.scheduler.explain("ns", "long")
    assert gang is not None
    assert other is not None
    assert (gang["start"], other["start"]) == (
        {"expected": "1970-01-01T00:06:40Z", "waits_for": ["ns/r1", "ns/r2"], "ahead": []},
        {"expected": None, "waits_for": [], "ahead": ["ns/g"]},
    )
