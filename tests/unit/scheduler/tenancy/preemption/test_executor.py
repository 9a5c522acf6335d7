"""
Evictions as they are asked for, one server in memory: before each call the watch and the lease are
asked, so that nobody is asked twice who is going, nor by a scheduler that leads no more.
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
from tests.unit.scheduler.fake_api import FarSide, Lost

LOST = Lost("no answer")
BROKEN = errors.Retry("internal error", status=500)
ALWAYS = 99


class Counting(FarSide):
    """Knows every call, whatever became of it; the lease ends after so many."""

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
        assert self.slept < ALWAYS, "asked for ever"

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
        pytest.param([], ALWAYS, True, "v w", "", id="each is asked once"),
        pytest.param([BROKEN], ALWAYS, True, "v v w", "", id="one that stays is asked again"),
        pytest.param(
            [LOST], ALWAYS, True, "v w", "", id="one that goes, as the watch says, is not"
        ),
        pytest.param([], 0, True, "", "v", id="another scheduler leads: nobody is asked"),
        pytest.param([], 1, True, "v", "w", id="another leads after the first: the second stays"),
        pytest.param([BROKEN], 1, True, "v", "v", id="another leads meanwhile: not asked again"),
        pytest.param([], ALWAYS, False, "", "v", id="nobody has to go any more: nobody is asked"),
    ],
)
def test_evictions(
    answers: list[Exception], leads: int, needed: bool, calls: str, staying: str
) -> None:
    api = Counting("v w", leads=leads)
    api.in_earnest["v"] = deque(answers)
    progress = EvictionProgress(is_needed=lambda: needed, is_leaving=api.is_leaving)
    new = a_pod("new")
    found = asyncio.run(api.evictor().evict(Unit(new.key, (new,)), api.victims(), progress))
    assert (" ".join(api.calls), names(found)) == (calls, staying)


@pytest.mark.parametrize(
    ("leads", "calls", "staying"),
    [
        pytest.param(ALWAYS, "v w", "", id="all may go"),
        pytest.param(1, "v", "w", id="another scheduler leads after the first"),
    ],
)
def test_dry_runs(leads: int, calls: str, staying: str) -> None:
    api = Counting("v w", leads=leads)
    found = asyncio.run(api.evictor().dry_run(api.victims()))
    assert (" ".join(api.calls), names(found), api.evicted) == (calls, staying, [])


@pytest.mark.parametrize(
    ("leads", "calls", "told"),
    [
        pytest.param(ALWAYS, "v v", True, id="told again where the answer was an error"),
        pytest.param(1, "v", False, id="not by a scheduler that leads no more"),
    ],
)
def test_pods_are_told_their_nodes(leads: int, calls: str, told: bool) -> None:
    api = Counting("v", leads=leads)
    api.patch_faults.append(BROKEN)
    places = [(pod, "n") for pod in api.victims()]
    found = asyncio.run(api.evictor().nominate(places, is_needed=lambda: True))
    assert (" ".join(api.calls), found) == (calls, told)
