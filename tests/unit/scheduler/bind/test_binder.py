"""Binds against faults: what counts as bound, and when it is given up."""

import asyncio
from typing import Any

import pytest

from cluster import errors
from policies import vocabulary
from scheduler.bind.binder import Binder
from scheduler.model.assignment import Assignment, NumaShare
from scheduler.model.plan import Bound, Result, Unbound
from scheduler.model.pod import Pod
from tests.unit.scheduler.builders import a_pod, placed, pod_json
from tests.unit.scheduler.fake_api import FakeApiServer, LostResponse


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def bind(api: FakeApiServer, *pods: Pod, node: str = "n") -> tuple[list[Result], float]:
    clock = Clock()
    binder = Binder(api, now=lambda: clock.now, sleep=clock.sleep, random=lambda: 0.5)
    results = asyncio.run(binder.bind([placed(pod, node) for pod in pods], deadline=5.0))
    return results, clock.now


NO_RIGHT = (
    'bind pod ns/p to n: 403 pods "p" is forbidden: User "kubenexus-scheduler" cannot create '
    'resource "pods/binding" in API group "" in the namespace "ns"'
)


def slow_down(seconds: float) -> errors.Retry:
    error = errors.Retry("too many requests")
    error.retry_after = seconds
    return error


@pytest.mark.parametrize(
    ("there", "faults", "want"),
    [
        pytest.param(pod_json(), [], "bound", id="at once"),
        pytest.param(
            pod_json(), [errors.Retry("503"), errors.Retry("503")], "bound", id="at the third try"
        ),
        pytest.param(pod_json(), [LostResponse("timeout")], "bound", id="its answer was lost"),
        pytest.param(
            pod_json(node="n"), [], "bound", id="an earlier try, or a life before, succeeded"
        ),
        pytest.param(
            pod_json(node="other"),
            [],
            "already assigned; the pod is on other",
            id="bound to another node by another client",
        ),
        pytest.param(
            pod_json(uid="another"),
            [],
            "the uid is another; another pod has its name",
            id="a namesake took its place",
        ),
        pytest.param(
            pod_json(),
            [errors.Conflict("terminating")],
            "terminating",
            id="the server will not bind it",
        ),
        pytest.param(
            pod_json(), [errors.Refused("forbidden")], "forbidden", id="the right is missing"
        ),
        pytest.param(pod_json("gone"), [], "not found", id="the pod is gone"),
        pytest.param(
            pod_json(), [errors.Retry("503")] * 100, "503", id="no success until the deadline"
        ),
        pytest.param(
            pod_json(),
            [errors.Refused(NO_RIGHT, status=403), errors.Refused("expired", status=401)],
            "bound",
            id="a server that has not read its roles yet",
        ),
        pytest.param(
            pod_json(), [slow_down(60)], "too many requests", id="the server requires a long pause"
        ),
        pytest.param(
            pod_json(),
            [*[errors.Retry("503")] * 4, *[LostResponse("timeout")] * 20],
            "bound",
            id="the last lost answer was a success",
        ),
    ],
)
def test_binding(there: dict[str, Any], faults: list[Exception], want: str) -> None:
    api = FakeApiServer(there)
    api.faults.extend(faults)
    (result,), took = bind(api, a_pod())
    assert ("bound" if isinstance(result, Bound) else result.why) == want
    assert took <= 5.0


def test_members_are_bound_together_and_fail_alone() -> None:
    api = FakeApiServer(pod_json("a"), pod_json("b", node="other"), pod_json("c"))
    results, _ = bind(api, a_pod("a"), a_pod("b"), a_pod("c"))
    assert [isinstance(one, Bound) for one in results] == [True, False, True]
    assert api.nodes() == {"a": "n", "b": "other", "c": "n"}


def test_the_binding_carries_the_assignment() -> None:
    api = FakeApiServer(pod_json())
    clock = Clock()
    binder = Binder(api, now=lambda: clock.now, sleep=clock.sleep, random=lambda: 0.5)
    held = Assignment((NumaShare(0, 1000, 0),), (1,))
    asyncio.run(binder.bind([placed(a_pod(), "n", held)], deadline=5.0))
    stamp = api.pods["p"]["metadata"]["annotations"][vocabulary.NUMA_ASSIGNED_ANNOTATION]
    assert stamp == held.render()


@pytest.mark.parametrize(
    ("text", "status", "permanent"),
    [
        pytest.param("denied the request", 403, True, id="a policy forbids it"),
        pytest.param("is invalid", 422, True, id="the object is not valid"),
        pytest.param("moved", 301, False, id="anything else"),
        pytest.param("no", None, False, id="no status"),
    ],
)
def test_permanent_rejections(text: str, status: int | None, permanent: bool) -> None:
    api = FakeApiServer(pod_json())
    api.faults.append(errors.Refused(text, status=status))
    (result,), _ = bind(api, a_pod())
    assert isinstance(result, Unbound)
    assert result.permanent is permanent


def test_pods_that_were_rejected_before_are_tried_before_the_others() -> None:
    async def run(*faults: Exception | None) -> tuple[list[str], int]:
        api = FakeApiServer(*(pod_json(name) for name in "abc"))
        api.faults.extend(faults)
        clock = Clock()
        binder = Binder(api, now=lambda: clock.now, sleep=clock.sleep, random=lambda: 0.5)
        plan = [placed(a_pod(name), "n") for name in "abc"]
        results = await binder.bind(plan, deadline=5.0, first={"uid-b"})
        return ["bound" if isinstance(one, Bound) else one.why for one in results], api.binds

    why = "not tried, because ns/b was not bound"
    assert asyncio.run(run()) == (["bound"] * 3, 3)
    assert asyncio.run(run(errors.Refused("no", status=403))) == ([why, "no", why], 1)


def test_a_bind_that_may_have_succeeded_counts_until_the_api_shows_otherwise() -> None:
    class Silent(FakeApiServer):
        silence = 50

        async def get(self, *args: Any, **more: Any) -> dict[str, Any]:
            self.silence -= 1
            if self.silence > 0:
                raise errors.Retry("no answer")
            return await super().get(*args, **more)

    api = Silent(pod_json())
    api.faults.extend([LostResponse("timeout"), *[errors.Retry("503")] * 100])
    (result,), took = bind(api, a_pod())
    assert (isinstance(result, Bound), api.silence, took > 5.0) == (True, 0, True)


def test_a_former_leader_posts_nothing() -> None:
    api = FakeApiServer(pod_json())
    clock = Clock()
    binder = Binder(
        api, now=lambda: clock.now, sleep=clock.sleep, random=lambda: 0.5, may_write=lambda: False
    )
    results = asyncio.run(binder.bind([placed(a_pod(), "n")], deadline=5.0))
    assert (results, api.binds) == (
        [Unbound(placed(a_pod(), "n"), "this process is no longer the leader")],
        0,
    )
