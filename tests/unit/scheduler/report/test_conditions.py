"""What the conditions of pods without a node tell autoscalers: which pods another node helps."""

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


async def no_provisioning(scene: Scene) -> None:
    scene.gang(3)


async def the_gang_is_partial(scene: Scene) -> None:
    scene.bench.pod("g-0", gang=("g", 3), node="n")
    for number in (1, 2, 3):
        scene.bench.pod(f"g-{number}", gang=("g", 3))


async def members_are_created_later(scene: Scene) -> None:
    scene.gang(2)
    await scene.bench.settle(1.0)
    await scene.bench.write_conditions()
    scene.bench.pod("g-2", gang=("g", 2))
    scene.bench.pod("g-3", gang=("g", 2))
    await scene.bench.settle(10.0)


async def members_above_the_minimum(scene: Scene) -> None:
    scene.bench.node("m", cpu="2")
    scene.gang(4, size=2)


async def one_has_an_unsupported_request(scene: Scene) -> None:
    scene.gang(1, size=2)
    scene.bench.pod("g-1", gang=("g", 2), numa="sideways")


async def one_above_the_minimum_has_an_unsupported_request(scene: Scene) -> None:
    scene.gang(2)
    scene.bench.pod("g-2", gang=("g", 2), numa="sideways")


async def the_quota_covers_some(scene: Scene) -> None:
    scene.bench.scheduler.adopt(quota(cpu="3"))
    scene.gang(4, size=2, labels=TENANT)


async def the_quota_covers_none(scene: Scene) -> None:
    scene.bench.scheduler.adopt(quota(cpu="1"))
    scene.gang(2, labels=TENANT)


@pytest.mark.parametrize(
    ("story", "want"),
    [
        pytest.param(no_provisioning, all_of(3, "Unschedulable"), id="all at once"),
        pytest.param(
            the_gang_is_partial,
            {f"g-{i}": "Unschedulable" for i in (1, 2, 3)},
            id="all missing members of a partial gang",
        ),
        pytest.param(
            members_are_created_later, all_of(4, "Unschedulable"), id="those that come later"
        ),
        pytest.param(
            members_above_the_minimum,
            {"g-2": "Unschedulable", "g-3": "Unschedulable"},
            id="members above the minimum that do not fit",
        ),
        pytest.param(
            one_has_an_unsupported_request,
            all_of(2, "InvalidRequest"),
            id="no member if no node would help",
        ),
        pytest.param(
            one_above_the_minimum_has_an_unsupported_request,
            {**all_of(2, "Unschedulable"), "g-2": "InvalidRequest"},
            id="not the member above the minimum that no node would help",
        ),
        pytest.param(
            the_quota_covers_some,
            {**all_of(3, "Unschedulable"), "g-3": "QuotaExceeded"},
            id="not the member that the quota does not cover",
        ),
        pytest.param(the_quota_covers_none, all_of(2, "QuotaExceeded"), id="no member over quota"),
    ],
)
@pytest.mark.parametrize("provisioning", [False, True], ids=["seen as pods", "requested"])
def test_which_members_are_unschedulable(
    story: Callable[[Scene], Awaitable[None]], want: dict[str, str], provisioning: bool
) -> None:
    async def run() -> dict[str, str]:
        scene = Scene(served=provisioning)
        scene.bench.node("n", cpu="0")
        await story(scene)
        await scene.bench.settle()
        return await scene.reasons()

    if provisioning and story is not members_above_the_minimum:
        want = {
            name: "WaitingForProvisioning" if reason == "Unschedulable" else reason
            for name, reason in want.items()
        }
    assert asyncio.run(run()) == want


def test_the_member_over_quota_gets_the_covered_number() -> None:
    async def run() -> Scene:
        scene = Scene()
        await the_quota_covers_some(scene)
        await scene.bench.settle()
        return scene

    scene = asyncio.run(run())
    assert scene.bench.events("QuotaExceeded") == [
        (
            "g-3",
            "tenant a requests cpu 4: quota of tenant a exceeded (used 0, max 3);"
            " the quota allows 3 of 4 pods of pod group g",
        )
    ]
    assert [pod for pod, _ in scene.bench.events("FailedScheduling")] == ["g-0", "g-1", "g-2"]


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
def test_messages_are_on_the_troubleshooting_page(text: str) -> None:
    assert text in PAGE
