"""What the conditions of pods without a node tell autoscalers: who is helped by another one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scheduler.model.gang import GangKey
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.unit import Unit
from scheduler.report import conditions, events
from tests.pages import ROOT
from tests.unit.scheduler.builders import a_gang
from tests.unit.scheduler.provisioning.fake_requests import TENANT, Scene, all_of, quota

pytestmark = pytest.mark.timeout(30)


async def nothing_is_asked_for(scene: Scene) -> None:
    scene.gang(3)


async def half_of_it_is_bound(scene: Scene) -> None:
    scene.bench.pod("g-0", gang=("g", 3), node="n")
    for number in (1, 2, 3):
        scene.bench.pod(f"g-{number}", gang=("g", 3))


async def members_come_later(scene: Scene) -> None:
    scene.gang(2)
    await scene.bench.settle(1.0)
    await scene.bench.written()
    scene.bench.pod("g-2", gang=("g", 2))
    scene.bench.pod("g-3", gang=("g", 2))
    await scene.bench.settle(10.0)


async def members_above_the_minimum(scene: Scene) -> None:
    scene.bench.node("m", cpu="2")
    scene.gang(4, size=2)


async def one_asks_in_vain(scene: Scene) -> None:
    scene.gang(1, size=2)
    scene.bench.pod("g-1", gang=("g", 2), numa="sideways")


async def one_above_the_minimum_asks_in_vain(scene: Scene) -> None:
    scene.gang(2)
    scene.bench.pod("g-2", gang=("g", 2), numa="sideways")


async def the_quota_goes_not_all_the_way(scene: Scene) -> None:
    scene.bench.scheduler.adopt(quota(cpu="3"))
    scene.gang(4, size=2, labels=TENANT)


async def the_quota_goes_nowhere(scene: Scene) -> None:
    scene.bench.scheduler.adopt(quota(cpu="1"))
    scene.gang(2, labels=TENANT)


@pytest.mark.parametrize(
    ("story", "want"),
    [
        pytest.param(nothing_is_asked_for, all_of(3, "Unschedulable"), id="all at once"),
        pytest.param(
            half_of_it_is_bound,
            {f"g-{i}": "Unschedulable" for i in (1, 2, 3)},
            id="all that are missing of a gang that is half bound",
        ),
        pytest.param(members_come_later, all_of(4, "Unschedulable"), id="those that come later"),
        pytest.param(
            members_above_the_minimum,
            {"g-2": "Unschedulable", "g-3": "Unschedulable"},
            id="those above the minimum that find no room",
        ),
        pytest.param(
            one_asks_in_vain, all_of(2, "InvalidRequest"), id="nobody where no node would help"
        ),
        pytest.param(
            one_above_the_minimum_asks_in_vain,
            {**all_of(2, "Unschedulable"), "g-2": "InvalidRequest"},
            id="not the member above the minimum that no node would help",
        ),
        pytest.param(
            the_quota_goes_not_all_the_way,
            {**all_of(3, "Unschedulable"), "g-3": "QuotaExceeded"},
            id="not the member for which the quota has no room",
        ),
        pytest.param(the_quota_goes_nowhere, all_of(2, "QuotaExceeded"), id="nobody over quota"),
    ],
)
@pytest.mark.parametrize("asking", [False, True], ids=["seen as pods", "asked for"])
def test_who_wants_another_node(
    story: Callable[[Scene], Awaitable[None]], want: dict[str, str], asking: bool
) -> None:
    async def run() -> dict[str, str]:
        scene = Scene(served=asking)
        scene.bench.node("n", cpu="0")
        await story(scene)
        await scene.bench.settle()
        return await scene.reasons()

    if asking and story is not members_above_the_minimum:
        want = {
            name: "WaitingForProvisioning" if reason == "Unschedulable" else reason
            for name, reason in want.items()
        }
    assert asyncio.run(run()) == want


def test_the_member_beyond_the_quota_is_told_how_far_it_goes() -> None:
    async def run() -> Scene:
        scene = Scene()
        await the_quota_goes_not_all_the_way(scene)
        await scene.bench.settle()
        return scene

    scene = asyncio.run(run())
    assert scene.bench.told("QuotaExceeded") == [
        (
            "g-3",
            "tenant a requests cpu 4: quota of tenant a exceeded (used 0, max 3);"
            " the quota allows 3 of 4 pods of pod group g",
        )
    ]
    assert [pod for pod, _ in scene.bench.told("FailedScheduling")] == ["g-0", "g-1", "g-2"]


PAGE = " ".join((ROOT / "docs/troubleshooting.md").read_text().split())
TRAIN = Unit(GangKey("team-a", "train"), tuple(a_gang(4, name="train", labels=TENANT)))
REQUEST = "train-0123456789-1"


@pytest.mark.parametrize(
    "text",
    [
        OverQuota(
            "vision",
            Excess("vision", "cpu", 4000, 0, 3000),
            within="3 of 4 pods of pod group train",
        ).text,
        events.provisioning_requested(TRAIN, REQUEST, 4, "NAME").note,
        events.provisioned(TRAIN, REQUEST, "WORDS").note,
        events.provisioning_failed(TRAIN, REQUEST, "WORDS", 1767225660.0).note,
        events.provisioning_request_failed(TRAIN, "REASON").note,
        f"`{conditions.INVALID}`",
        f"`{conditions.PROVISIONING}`",
    ],
)
def test_what_is_said_is_on_the_page_about_troubleshooting(text: str) -> None:
    assert text in PAGE
