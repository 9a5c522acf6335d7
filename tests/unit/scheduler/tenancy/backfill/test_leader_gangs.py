"""The estimated start of a leader includes the members that it will create."""

import asyncio
from typing import Any

import pytest

from tests.unit.scheduler.tenancy.builders import STARTED, backfill, leader, settle_gang
from tests.unit.scheduler.tenancy.leader_gang import Scene

pytestmark = pytest.mark.timeout(30)

LASTS = "scheduling.kubenexus.io/expected-duration"


def lasting(seconds: str) -> dict[str, Any]:
    return {"annotations": {LASTS: seconds}}


async def story(scene: Scene) -> None:
    """Three of four CPUs are in use for a while; a gang needs all four."""
    bench = scene.bench
    bench.scheduler.adopt(backfill())
    bench.pod("runs", node="n", cpu="3", owner="job", status=STARTED, **lasting("300s"))
    leader(bench, "a", 4, **lasting("1h"))
    await settle_gang(bench)
    await bench.settle(2.0)
    bench.pod("long", cpu="1", **lasting("1h"))
    bench.pod("short", cpu="1", **lasting("60s"))
    await bench.settle()


async def play() -> tuple[list[str], str, str]:
    scene = Scene()
    await story(scene)
    bench = scene.bench
    before = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    estimates = [text for _, text in bench.events("StartEstimated")]
    bench.now = 400.0
    for name in ("runs", "short"):
        bench.delete(name)
    await bench.settle(1.0)
    after = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    return estimates, before, after


def test_the_start_of_a_leader_includes_its_members_and_only_short_pods_backfill() -> None:
    estimates, before, after = asyncio.run(play())
    assert (estimates, before, after) == (
        ["pod group ns/a is expected to start by 1970-01-01T00:06:40Z, when ns/runs have ended"],
        "runs short",
        "a-driver",
    )
