"""
Preemption over random clusters and histories, checked by `oracles`: no eviction is wasted, no
victim is needless, and a tenant gets its guarantee in time.
"""

import asyncio

import pytest
from hypothesis import example, given, settings

from scheduler.model.gang import GangKey
from scheduler.model.pod import PodKey
from scheduler.model.unit import Unit
from tests.unit.scheduler.tenancy import oracles
from tests.unit.scheduler.tenancy.histories import Story
from tests.unit.scheduler.tenancy.random_clusters import (
    GANG_TIMEOUT,
    Create,
    Delete,
    End,
    Restart,
    Scenario,
    Workload,
    deletions,
    ends,
    examples,
    node_losses,
    restarts,
    scenarios,
)

pytestmark = pytest.mark.timeout(300)

A, B, C = (Create(Workload(tenant)) for tenant in ("a", "b", "c"))

HELD_FOR_ANOTHER = Scenario(
    nodes=(2,),
    steps=(
        *((0, A) for _ in range(5)),
        (0, Create(Workload("b", size=2, priority=5))),
        (40, End(0)),
        (0, A),
        (40, End(0)),
        (0, Create(Workload("a", gpus=2, priority=5))),
    ),
    guarantees={"a": 1},
)
"""Nodes are held for a starving gang, and a pod of another tenant preempts on them."""
THE_QUOTA_IS_KEPT_TOO = Scenario(
    nodes=(3, 4),
    steps=(
        (0, Create(Workload("a", size=2))),
        (0, Create(Workload("a", gpus=2))),
        (0, End(0)),
        (0, A),
        *((0, Create(Workload("a", gpus=2))) for _ in range(2)),
        (0, End(0)),
        (0, Create(Workload("a", gpus=3, priority=5))),
        (0, End(0)),
    ),
    limits={"a": 6},
)
"""While one unit preempts, another of its tenant could use up their quota on another node."""


@settings(max_examples=examples(40))
@given(scenarios(ends))
@example(HELD_FOR_ANOTHER)
@example(THE_QUOTA_IS_KEPT_TOO)
def test_no_eviction_is_wasted(scenario: Scenario) -> None:
    """Without faults every preemptor is placed, and every victim has an Event that names it."""
    story = asyncio.run(Story(scenario).play(longer=200.0))
    helped = story.evicted_for()
    assert (helped.keys() - story.starts.keys(), story.steps("wasted")) == (set(), 0)
    assert sum(helped.values()) == story.steps("evicted") == len(story.api.evicted)


@settings(max_examples=examples(40))
@given(scenarios(ends, deletions, node_losses))
def test_wasted_evictions_are_counted(scenario: Scenario) -> None:
    """Only where the preemptor was deleted, or a node was lost."""
    story = asyncio.run(Story(scenario).play(longer=200.0))
    wasted = {u: n for u, n in story.evicted_for().items() if u not in story.starts}
    assert story.lost or wasted.keys() <= story.cancelled
    assert sum(wasted.values()) <= story.steps("wasted")


BOTH_OF_WHOM_ONE_MUST_STAY = Scenario(
    nodes=(2,),
    steps=((0, A), (0, A), (0, Create(Workload("b", gpus=2)))),
    guarantees={"a": 1, "b": 2},
)
OTHERS_ARE_GOING = Scenario(
    nodes=(3, 3, 3),
    steps=(
        (0, Create(Workload("c", size=2, more=1, gpus=2))),
        (0, Create(Workload("b", size=2, more=1, gpus=2, priority=10, preemptible=True))),
        (0, Create(Workload("b", size=2))),
        (0, Create(Workload("b", size=2, more=1, gpus=2, priority=10, preemptible=True))),
    ),
    limits={"b": 4},
    guarantees={"b": 4},
    grouped=True,
    grace=5,
)
"""The victims of one preemptor are still terminating when the next one is planned."""
ROOM_FOR_ONE_MORE = Scenario(
    nodes=(2, 2),
    steps=(
        *((0, Create(Workload("a", gpus=2))) for _ in range(2)),
        *((1, Create(Workload("a", priority=10))) for _ in range(2)),
    ),
    grace=5,
)
"""The victim of one preemptor frees enough for the next: no further victim is needed."""


@settings(max_examples=examples(40))
@given(scenarios(ends))
@example(BOTH_OF_WHOM_ONE_MUST_STAY)
@example(OTHERS_ARE_GOING)
@example(ROOM_FOR_ONE_MORE)
def test_no_needless_victim(scenario: Scenario) -> None:
    """For every preemption: the plan fails without the eviction of any one victim, and no other
    tenant is left below its guarantee."""
    story = Story(scenario)
    begun = oracles.record(story)
    asyncio.run(story.play(longer=200.0))
    judged = [
        (
            str(one.unit.key),
            oracles.needless_victims(one.state, one.unit, one.victims, one.displaced),
            oracles.breached_guarantees(story, one),
        )
        for one in oracles.victims(story, begun)
    ]
    assert [row for row in judged if row[1] or row[2]] == []


ONLY_SOME_IN_THE_WAY = Scenario(
    nodes=(2, 3),
    steps=((0, A), (0, A), (0, A), (0, Create(Workload("b", gpus=3)))),
    guarantees={"a": 1, "b": 3},
)
"""The borrower may lose two of its three pods, and one of them is in the way."""
POSSIBLE_LATER = Scenario(
    nodes=(2,),
    steps=(
        *((0, A) for _ in range(5)),
        (0, C),
        (0, End(0)),
        (0, A),
        (0, Create(Workload("b", size=2))),
        (40, End(0)),
    ),
    guarantees={"b": 2, "c": 1},
)
"""The capacity moves from a tenant within its guarantee to a borrower."""
KEPT_OUT = Scenario(
    nodes=(2, 2),
    steps=(
        (0, A),
        *((0, B) for _ in range(3)),
        (0, Create(Workload("a", size=2))),
        (0, End(0)),
        (0, Create(Workload("a", gpus=2))),
        (40, Create(Workload("a", gpus=2))),
        (40, A),
    ),
    guarantees={"a": 1},
)
"""Nodes are held for a starving gang, and a unit within a guarantee is created."""
WITHIN_LATER = Scenario(
    nodes=(2,),
    steps=(
        (0, Create(Workload("b", preemptible=True))),
        *((0, A) for _ in range(4)),
        (1, B),
        (40, A),
        (0, End(0)),
    ),
    guarantees={"b": 1},
)
"""The unit is beyond the guarantee at first, and searches victims by another rule."""
NO_NODE_CALLS = Scenario(
    nodes=(2, 2),
    steps=(
        (0, Create(Workload("c", size=2))),
        *((0, A) for _ in range(6)),
        (0, Create(Workload("c", gpus=2))),
        (0, End(0)),
    ),
    guarantees={"c": 3},
)
"""The unit comes within the guarantee by a pod that frees too little capacity for it."""
WITHIN_A_GROUP = Scenario(
    nodes=(4,),
    steps=(*((0, B) for _ in range(4)), (0, Create(Workload("a", gpus=2)))),
    guarantees={"a": 2, "g": 4},
    grouped=True,
)
"""The group is at its guarantee: capacity that moves between its tenants stays in the group."""
TWO_ON_ONE_NODE = Scenario(
    nodes=(3,),
    steps=(
        (0, A),
        (0, Create(Workload("b", gpus=2, preemptible=True))),
        (0, C),
        (0, Restart(Workload("b"), turns=0)),
        (1, Create(Workload("a", size=2))),
    ),
    guarantees={"c": 1},
    grace=5,
)
"""Two units wait for victims of both, and the first to have its own gone does not fit yet."""


class Wanted:
    """How long units wait that are within a guarantee and possible to place."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.late: list[str] = []

    def check(self, story: Story) -> None:
        now, waiting = story.bench.now, set(story.waiting())
        for name in sorted(waiting | self._since.keys()):
            if name not in waiting or not self._is_wanted(story, name):
                self._since.pop(name, None)
            elif now - self._since.setdefault(name, now) > GANG_TIMEOUT + story.scenario.grace:
                self.late.append(f"{name} at {now:g}")

    def _is_wanted(self, story: Story, name: str) -> bool:
        workload, unit = story.workloads[name], waits(story, name)
        if unit is None or not (story.api.allowed(workload) and story.api.within(workload)):
            return False
        return oracles.possible(story, name, unit)


def waits(story: Story, name: str) -> Unit | None:
    """The unit, if none of it runs."""
    queue = story.bench.scheduler.queue
    found = (queue.unit(key) for key in (GangKey("ns", name), PodKey("ns", f"{name}-0")))
    unit = next((one for one in found if one is not None), None)
    return None if story.runs(name) else unit


@settings(max_examples=examples(40))
@given(scenarios(ends, deletions, node_losses, restarts))
@example(ONLY_SOME_IN_THE_WAY)
@example(POSSIBLE_LATER)
@example(KEPT_OUT)
@example(WITHIN_LATER)
@example(NO_NODE_CALLS)
@example(WITHIN_A_GROUP)
@example(TWO_ON_ONE_NODE)
def test_a_tenant_gets_its_guarantee_in_time(scenario: Scenario) -> None:
    """
    No unit within its tenant's guarantee waits longer than a gang's timeout while it is possible
    to place it: on free capacity, or with some choice of victims.
    """
    wanted = Wanted()
    asyncio.run(Story(scenario, rest=wanted.check).play(longer=100.0))
    assert wanted.late == []


def test_the_oracle_sees_needless_victims() -> None:
    """Two victims on one node for a unit that needs the capacity of one."""
    story = asyncio.run(Story(Scenario(nodes=(2,), steps=((0, A), (0, A)))).play())
    state = oracles.ClusterState.of(story)
    story.come(Workload("b"))
    unit = waits(story, "u2")
    assert unit is not None
    uids = [pod.uid for pod, _ in state.pods]
    found = (
        oracles.needless_victims(state, unit, uids),
        oracles.needless_victims(state, unit, uids[:1]),
        oracles.needless_victims(state, unit, ()),
    )
    assert found == (["u0-0", "u1-0"], [], ["?"])


def test_a_deleted_unit_is_not_overdue() -> None:
    steps = ((0, A), (0, A), (0, Delete(0)))
    story = asyncio.run(Story(Scenario(nodes=(1,), steps=steps)).play())
    assert (story.waiting(), waits(story, "u1"), story.cancelled) == ([], None, {"u1"})
