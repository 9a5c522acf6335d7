"""Which pods a release evicts, and when the API shows that a gang was complete."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster import errors
from cluster.events import correlator
from scheduler.gang.stale_gang_eviction import (
    EvictionOutcome,
    MemberFate,
    StaleGangEvictor,
    bind_time,
    fate,
    was_complete,
)
from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod
from scheduler.model.unit import PartialGang
from scheduler.options import StaleGangPolicy
from tests.unit.scheduler.bench import NAME, an_owner, clock
from tests.unit.scheduler.builders import a_pod, pod_json
from tests.unit.scheduler.fake_api import FakeApiServer

AT = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC).timestamp()


def member(name: str, *, owned: bool = True, **more: Any) -> dict[str, Any]:
    obj = pod_json(name, **{"node": "n", "gang": ("g", 3), **more})
    if owned:
        obj["metadata"]["ownerReferences"] = [an_owner()]
    return obj


@pytest.mark.parametrize(
    ("obj", "policy", "want"),
    [
        pytest.param(
            member("p"), StaleGangPolicy.EVICT, MemberFate.EVICTED, id="a controller recreates it"
        ),
        pytest.param(
            member("p"), StaleGangPolicy.HOLD, MemberFate.RETAINED, id="the policy says hold"
        ),
        pytest.param(
            member("p", owned=False),
            StaleGangPolicy.EVICT,
            MemberFate.BARE,
            id="no controller recreates it",
        ),
        pytest.param(
            member("p", schedulerName="other"),
            StaleGangPolicy.EVICT,
            MemberFate.FOREIGN,
            id="not ours",
        ),
    ],
)
def test_fates(obj: dict[str, Any], policy: StaleGangPolicy, want: MemberFate) -> None:
    assert fate(Pod.read(obj), policy=policy, scheduler=NAME) is want


def born(second: int) -> Pod:
    return a_pod("w", created=f"2026-01-01T00:00:{second:02}Z")


@pytest.mark.parametrize(
    ("bound", "waiting", "want"),
    [
        pytest.param([AT - 1, AT], [born(6), born(9)], True, id="all came after the last bind"),
        pytest.param([AT - 1, AT], [born(5)], False, id="in the same second"),
        pytest.param([AT - 1, AT], [born(6), born(1)], False, id="one was left out of the plan"),
        pytest.param([AT, None], [born(9)], False, id="a bind whose time is not known"),
        pytest.param([AT], [], False, id="no member waits"),
    ],
)
def test_was_complete(bound: Sequence[float | None], waiting: Sequence[Pod], want: bool) -> None:
    assert was_complete(bound, waiting) is want


def conditions(**row: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready"}, {"type": "PodScheduled", **row}]}}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(
            conditions(status="True", lastTransitionTime="2026-01-01T00:00:05Z"),
            AT,
            id="the time of the condition",
        ),
        pytest.param(
            conditions(status="False", lastTransitionTime="2026-01-01T00:00:05Z"),
            None,
            id="not bound",
        ),
        pytest.param(conditions(status="True"), None, id="without a time"),
        pytest.param({"status": {}}, None, id="nothing"),
    ],
)
def test_bind_time(pod: dict[str, Any], want: float | None) -> None:
    assert bind_time(pod) == want


def release(
    api: FakeApiServer, *pods: dict[str, Any], may_write: bool = True
) -> tuple[EvictionOutcome, list[str]]:
    reports: list[correlator.EventReport] = []

    async def sleep(_: float) -> None: ...

    releaser = StaleGangEvictor(
        api,
        scheduler=NAME,
        policy=StaleGangPolicy.EVICT,
        record=reports.append,
        may_write=lambda: may_write,
        clock=clock,
        sleep=sleep,
    )
    live = tuple(Pod.read(pod) for pod in pods)
    half = PartialGang(GangKey("ns", "g"), live, 3, 10.0, witnessed=True)
    return asyncio.run(releaser.evict(half, ())), [report.reason for report in reports]


def test_a_pod_is_marked_as_disrupted_and_then_deleted_by_its_uid() -> None:
    api = FakeApiServer(member("a"), member("b"))
    outcome, reported = release(api, member("a"), member("b"))
    rows = {name: body["status"]["conditions"][0] for name, body in api.patches}
    assert (outcome.evicted, sorted(api.deletes), reported) == (2, ["a", "b"], ["GangReleased"] * 2)
    assert rows["a"] == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "GangReleased",
        "message": (
            "pod group g had 2 of 3 members bound for 10s; evicted, so that the gang can start complete"
        ),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    ("there", "faults", "want"),
    [
        pytest.param([], [], MemberFate.EVICTED, id="it is gone already"),
        pytest.param(
            [member("a", uid="another")], [], MemberFate.EVICTED, id="a namesake came after"
        ),
        pytest.param(
            [member("a")], [errors.Retry("503")] * 2, MemberFate.EVICTED, id="at the third try"
        ),
        pytest.param(
            [member("a")], [errors.Retry("503")] * 9, MemberFate.UNREACHED, id="no answer"
        ),
        pytest.param(
            [member("a")], [errors.Refused("no", status=403)], MemberFate.UNREACHED, id="no right"
        ),
    ],
)
def test_eviction_errors(
    there: list[dict[str, Any]], faults: list[Exception], want: MemberFate
) -> None:
    api = FakeApiServer(*there)
    api.delete_faults.extend(faults)
    outcome, _ = release(api, member("a"))
    assert outcome.fates == (("uid-a", want),)
    assert [pod["metadata"]["uid"] for pod in api.pods.values()] in ([], ["another"], ["uid-a"])


def test_a_former_leader_deletes_nothing() -> None:
    api = FakeApiServer(member("a"))
    outcome, reported = release(api, member("a"), may_write=False)
    assert (outcome.fates, api.deletes, reported) == ((("uid-a", MemberFate.UNREACHED),), [], [])


@pytest.mark.parametrize(
    ("failures", "want"),
    [
        pytest.param(4, MemberFate.EVICTED, id="the fifth attempt succeeds"),
        pytest.param(5, MemberFate.UNREACHED, id="there is no sixth attempt"),
    ],
)
def test_an_eviction_is_attempted_five_times(failures: int, want: MemberFate) -> None:
    api = FakeApiServer(member("a"))
    api.delete_faults.extend([errors.Retry("503")] * failures)
    outcome, _ = release(api, member("a"))
    assert (outcome.fates, len(api.delete_faults)) == ((("uid-a", want),), 0)
