"""A member that is made anew after its siblings have done their part."""

import asyncio
from typing import Any

import pytest

from scheduler.model.gang import GangKey
from tests.unit.scheduler.bench import Bench

pytestmark = pytest.mark.timeout(30)


async def ended(bench: Bench, *phases: str) -> None:
    """A gang of as many members, bound whole, each in its phase now."""
    bench.node("a")
    for number in range(len(phases)):
        bench.pod(f"g-{number}", gang=("g", len(phases)), owner="job-1")
    await bench.settle()
    for number, phase in enumerate(phases):
        bench.api.pods[f"g-{number}"]["status"]["phase"] = phase
    bench.show_all()


@pytest.mark.parametrize(
    ("phases", "owner", "want"),
    [
        pytest.param(("Succeeded", "Succeeded", "Failed"), "job-1", "a", id="all others succeeded"),
        pytest.param(("Running", "Succeeded", "Failed"), "job-1", "a", id="one still runs"),
        pytest.param(
            ("Failed", "Failed", "Failed"), "job-1", "", id="all failed: a new gang forms"
        ),
        pytest.param(
            ("Succeeded", "Succeeded", "Succeeded"),
            "job-2",
            "",
            id="another job of the same gang name is another gang's beginning",
        ),
    ],
)
def test_a_retry(phases: tuple[str, ...], owner: str, want: str) -> None:
    async def story() -> tuple[str, int]:
        bench = Bench()
        await ended(bench, *phases)
        bench.pod("again", gang=("g", len(phases)), owner=owner)
        await bench.settle(60.0)
        bench.show_all()
        await bench.settle(60.0)
        return bench.api.nodes()["again"], len(bench.scheduler.partial_gangs)

    assert asyncio.run(story()) == (want, 0)


def test_a_retry_does_not_make_the_gang_partial() -> None:
    async def story() -> tuple[Any, bool]:
        bench = Bench()
        await ended(bench, "Succeeded", "Succeeded", "Failed")
        bench.pod("again", gang=("g", 3), owner="job-1")
        await bench.settle(60.0)
        bench.show_all()
        half = bench.scheduler.partial_gangs.is_partial(GangKey("ns", "g"))
        await bench.settle(600.0)
        return sorted(bench.api.pods), half

    assert asyncio.run(story()) == (["again", "g-0", "g-1", "g-2"], False)
