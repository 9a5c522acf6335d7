"""
Preemption over random clusters and histories, judged by `oracles`: who goes goes for somebody who
is placed, nobody goes who need not, and what a tenant was promised is had or taken back in time.
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
    Cancel,
    Come,
    End,
    Restart,
    Wish,
    World,
    cancels,
    ends,
    examples,
    loses,
    restarts,
    worlds,
)

pytestmark = pytest.mark.timeout(300)

A, B, C = (Come(Wish(tenant)) for tenant in ("a", "b", "c"))

HELD_FOR_ANOTHER = World(
    nodes=(2,),
    steps=(
        *((0, A) for _ in range(5)),
        (0, Come(Wish("b", size=2, priority=5))),
        (40, End(0)),
        (0, A),
        (40, End(0)),
        (0, Come(Wish("a", gpus=2, priority=5))),
    ),
    promises={"a": 1},
)
"""Nodes are held for a gang that starves, and a pod of another tenant makes room on them."""
THE_QUOTA_IS_KEPT_TOO = World(
    nodes=(3, 4),
    steps=(
        (0, Come(Wish("a", size=2))),
        (0, Come(Wish("a", gpus=2))),
        (0, End(0)),
        (0, A),
        *((0, Come(Wish("a", gpus=2))) for _ in range(2)),
        (0, End(0)),
        (0, Come(Wish("a", gpus=3, priority=5))),
        (0, End(0)),
    ),
    limits={"a": 6},
)
"""While one makes room, another of its tenant could use up their quota elsewhere."""


@settings(max_examples=examples(40))
@given(worlds(ends))
@example(HELD_FOR_ANOTHER)
@example(THE_QUOTA_IS_KEPT_TOO)
def test_nobody_goes_in_vain(world: World) -> None:
    """Without faults all are placed for whom somebody goes, and all who go are told for whom."""
    story = asyncio.run(Story(world).play(longer=200.0))
    helped = story.evicted_for()
    assert (helped.keys() - story.starts.keys(), story.steps("wasted")) == (set(), 0)
    assert sum(helped.values()) == story.steps("evicted") == len(story.api.evicted)


@settings(max_examples=examples(40))
@given(worlds(ends, cancels, loses))
def test_who_goes_in_vain_is_counted(world: World) -> None:
    """Only where the unit was taken back, or a node was lost on the way."""
    story = asyncio.run(Story(world).play(longer=200.0))
    vain = {u: n for u, n in story.evicted_for().items() if u not in story.starts}
    assert story.lost or vain.keys() <= story.cancelled
    assert sum(vain.values()) <= story.steps("wasted")


BOTH_OF_WHOM_ONE_MUST_STAY = World(
    nodes=(2,), steps=((0, A), (0, A), (0, Come(Wish("b", gpus=2)))), promises={"a": 1, "b": 2}
)
OTHERS_ARE_GOING = World(
    nodes=(3, 3, 3),
    steps=(
        (0, Come(Wish("c", size=2, more=1, gpus=2))),
        (0, Come(Wish("b", size=2, more=1, gpus=2, priority=10, preemptible=True))),
        (0, Come(Wish("b", size=2))),
        (0, Come(Wish("b", size=2, more=1, gpus=2, priority=10, preemptible=True))),
    ),
    limits={"b": 4},
    promises={"b": 4},
    grouped=True,
    grace=5,
)
"""Those who go for one unit are still there when the next one is looked after."""
ROOM_FOR_ONE_MORE = World(
    nodes=(2, 2),
    steps=(
        *((0, Come(Wish("a", gpus=2))) for _ in range(2)),
        *((1, Come(Wish("a", priority=10))) for _ in range(2)),
    ),
    grace=5,
)
"""Whoever goes for one unit leaves enough for the next, and nobody else has to go."""


@settings(max_examples=examples(40))
@given(worlds(ends))
@example(BOTH_OF_WHOM_ONE_MUST_STAY)
@example(OTHERS_ARE_GOING)
@example(ROOM_FOR_ONE_MORE)
def test_no_victim_too_many(world: World) -> None:
    """For every preemption that begins: putting back any one of them makes the plan fail, and
    nobody else is left with less than it was promised."""
    story = Story(world)
    begun = oracles.record(story)
    asyncio.run(story.play(longer=200.0))
    judged = [
        (
            str(one.unit.key),
            oracles.needless(one.picture, one.unit, one.victims),
            oracles.robbed(story, one),
        )
        for one in oracles.victims(story, begun)
    ]
    assert [row for row in judged if row[1] or row[2]] == []


ONLY_SOME_IN_THE_WAY = World(
    nodes=(2, 3),
    steps=((0, A), (0, A), (0, A), (0, Come(Wish("b", gpus=3)))),
    promises={"a": 1, "b": 3},
)
"""The borrower can spare two of its three pods, and one of them is in the way."""
POSSIBLE_LATER = World(
    nodes=(2,),
    steps=(
        *((0, A) for _ in range(5)),
        (0, C),
        (0, End(0)),
        (0, A),
        (0, Come(Wish("b", size=2))),
        (40, End(0)),
    ),
    promises={"b": 2, "c": 1},
)
"""Who has the room changes from somebody who may keep it to somebody who may not."""
KEPT_OUT = World(
    nodes=(2, 2),
    steps=(
        (0, A),
        *((0, B) for _ in range(3)),
        (0, Come(Wish("a", size=2))),
        (0, End(0)),
        (0, Come(Wish("a", gpus=2))),
        (40, Come(Wish("a", gpus=2))),
        (40, A),
    ),
    promises={"a": 1},
)
"""Nodes are held for a gang that starves, and somebody within a promise comes."""
WITHIN_LATER = World(
    nodes=(2,),
    steps=(
        (0, Come(Wish("b", preemptible=True))),
        *((0, A) for _ in range(4)),
        (1, B),
        (40, A),
        (0, End(0)),
    ),
    promises={"b": 1},
)
"""The unit is beyond the promise at first, and looks for room by another right."""
NO_NODE_CALLS = World(
    nodes=(2, 2),
    steps=(
        (0, Come(Wish("c", size=2))),
        *((0, A) for _ in range(6)),
        (0, Come(Wish("c", gpus=2))),
        (0, End(0)),
    ),
    promises={"c": 3},
)
"""The unit comes to be within the promise by a pod that leaves too little room for it."""
WITHIN_A_GROUP = World(
    nodes=(4,),
    steps=(*((0, B) for _ in range(4)), (0, Come(Wish("a", gpus=2)))),
    promises={"a": 2, "g": 4},
    grouped=True,
)
"""The group uses what it was promised: what goes from one of its tenants to another stays in it."""
TWO_ON_ONE_NODE = World(
    nodes=(3,),
    steps=(
        (0, A),
        (0, Come(Wish("b", gpus=2, preemptible=True))),
        (0, C),
        (0, Restart(Wish("b"), turns=0)),
        (1, Come(Wish("a", size=2))),
    ),
    promises={"c": 1},
    grace=5,
)
"""Two units wait for victims of both, and the first to have its own gone does not fit yet."""


class Wanted:
    """For how long units have waited that are within a promise, and for which there is a way."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.late: list[str] = []

    def look(self, story: Story) -> None:
        now, waiting = story.bench.now, set(story.waiting())
        for name in sorted(waiting | self._since.keys()):
            if name not in waiting or not self._is_wanted(story, name):
                self._since.pop(name, None)
            elif now - self._since.setdefault(name, now) > GANG_TIMEOUT + story.world.grace:
                self.late.append(f"{name} at {now:g}")

    def _is_wanted(self, story: Story, name: str) -> bool:
        wish, unit = story.wishes[name], waits(story, name)
        if unit is None or not (story.api.allowed(wish) and story.api.within(wish)):
            return False
        return oracles.possible(story, name, unit)


def waits(story: Story, name: str) -> Unit | None:
    """The unit, if none of it runs."""
    queue = story.bench.scheduler.queue
    found = (queue.unit(key) for key in (GangKey("ns", name), PodKey("ns", f"{name}-0")))
    unit = next((one for one in found if one is not None), None)
    return None if story.runs(name) else unit


@settings(max_examples=examples(40))
@given(worlds(ends, cancels, loses, restarts))
@example(ONLY_SOME_IN_THE_WAY)
@example(POSSIBLE_LATER)
@example(KEPT_OUT)
@example(WITHIN_LATER)
@example(NO_NODE_CALLS)
@example(WITHIN_A_GROUP)
@example(TWO_ON_ONE_NODE)
def test_what_was_promised_is_had_or_taken_back_in_time(world: World) -> None:
    """
    No unit within its tenant's promise waits for longer than a gang's timeout while there is a way
    to place it: with what is free, or with some choice of those who may go.
    """
    wanted = Wanted()
    asyncio.run(Story(world, rest=wanted.look).play(longer=100.0))
    assert wanted.late == []


def test_the_oracle_sees_who_is_needless() -> None:
    """Two pods on one node go for a unit that needs the room of one."""
    story = asyncio.run(Story(World(nodes=(2,), steps=((0, A), (0, A)))).play())
    picture = oracles.Picture.of(story)
    story.come(Wish("b"))
    unit = waits(story, "u2")
    assert unit is not None
    uids = [pod.uid for pod, _ in picture.pods]
    found = (
        oracles.needless(picture, unit, uids),
        oracles.needless(picture, unit, uids[:1]),
        oracles.needless(picture, unit, ()),
    )
    assert found == (["u0-0", "u1-0"], [], ["?"])


def test_a_unit_taken_back_is_not_wanted() -> None:
    steps = ((0, A), (0, A), (0, Cancel(0)))
    story = asyncio.run(Story(World(nodes=(1,), steps=steps)).play())
    assert (story.waiting(), waits(story, "u1"), story.cancelled) == ([], None, {"u1"})
