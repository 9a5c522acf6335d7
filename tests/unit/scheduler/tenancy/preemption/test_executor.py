"""
Evictions as the executor requests them, one server in memory: before each call it checks the watch
and the lease, so that no terminating pod is evicted again, and no former leader evicts.
"""

import asyncio
from collections import deque
from typing import Any

import pytest

from cluster import errors
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.tenancy.preemption.executor import EvictionProgress, Evictor
from tests.unit.scheduler.builders import a_pod, pod_json
from tests.unit.scheduler.fake_api import FakeApiServer, LostResponse

LOST = LostResponse("no answer")
BROKEN = errors.Retry("internal error", status=500)
ALWAYS = 99


class Counting(FakeApiServer):
    """Records every call, also failed ones; the lease ends after `leads` calls."""

    def __init__(self, names: str, *, leads: int) -> None:
        super().__init__(*(pod_json(name, node="n") for name in names.split()))
        self.calls: list[str] = []
        self.leads = leads
        self.slept = 0

    async def evict(self, namespace: str, pod: str, **more: Any) -> None:
        self.calls.append(pod)
        await super().evict(namespace, pod, **more)

    async def patch_status(self, resource: Any, name: str, body: Any, **more: Any) -> Any:
        self.calls.append(name)
        return await super().patch_status(resource, name, body, **more)

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        assert self.slept < ALWAYS, "retried for ever"

    def evictor(self) -> Evictor:
        return Evictor(
            self,
            record=lambda report: None,
            may_write=lambda: len(self.calls) < self.leads,
            sleep=self.sleep,
        )

    def victims(self) -> list[Pod]:
        return [Pod.read(pod) for pod in self.pods.values()]

    def is_leaving(self, pod: Pod) -> bool:
        return "deletionTimestamp" in self.pods[pod.key.name]["metadata"]


def names(pods: tuple[Pod, ...]) -> str:
    return " ".join(pod.key.name for pod in pods)


@pytest.mark.parametrize(
    ("answers", "leads", "needed", "calls", "staying"),
    [
        pytest.param([], ALWAYS, True, "v w", "", id="one call per victim"),
        pytest.param([BROKEN], ALWAYS, True, "v v w", "", id="a failed call is retried"),
        pytest.param([LOST], ALWAYS, True, "v w", "", id="no retry for a terminating pod"),
        pytest.param([], 0, True, "", "v", id="another scheduler is the leader: no call"),
        pytest.param([], 1, True, "v", "w", id="the lease ends after the first: the second stays"),
        pytest.param([BROKEN], 1, True, "v", "v", id="the lease ends meanwhile: no retry"),
        pytest.param([], ALWAYS, False, "", "v", id="victims are no longer needed: no call"),
    ],
)
def test_evictions(
    answers: list[Exception], leads: int, needed: bool, calls: str, staying: str
) -> None:
    api = Counting("v w", leads=leads)
    api.eviction_faults["v"] = deque(answers)
    progress = EvictionProgress(is_needed=lambda: needed, is_leaving=api.is_leaving)
    new = a_pod("new")
    found = asyncio.run(api.evictor().evict(Unit(new.key, (new,)), api.victims(), progress))
    assert (" ".join(api.calls), names(found)) == (calls, staying)


@pytest.mark.parametrize(
    ("leads", "calls", "staying"),
    [
        pytest.param(ALWAYS, "v w", "", id="all can be evicted"),
        pytest.param(1, "v", "w", id="the lease ends after the first"),
    ],
)
def test_dry_runs(leads: int, calls: str, staying: str) -> None:
    api = Counting("v w", leads=leads)
    found = asyncio.run(api.evictor().dry_run(api.victims()))
    assert (" ".join(api.calls), names(found), api.evicted) == (calls, staying, [])


@pytest.mark.parametrize(
    ("leads", "calls", "nominated"),
    [
        pytest.param(ALWAYS, "v v", True, id="a failed write is retried"),
        pytest.param(1, "v", False, id="no retry after the lease has ended"),
    ],
)
def test_nominations(leads: int, calls: str, nominated: bool) -> None:
    api = Counting("v", leads=leads)
    api.patch_faults.append(BROKEN)
    places = [(pod, "n") for pod in api.victims()]
    found = asyncio.run(api.evictor().nominate(places, is_needed=lambda: True))
    assert (" ".join(api.calls), found) == (calls, nominated)
