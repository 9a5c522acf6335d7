"""
A witness of promised starts: what was promised to whom, what became of it, and why, as the history
of the cluster shows it and whatever the scheduler says.

    given ──▶ the unit started, or was taken back                     kept; `late` by so many seconds
          └─▶ moved, or gone with the unit still waiting              one of these must have happened:
                overrun     work on its nodes outlived what it said
                lost        a node of it went
                priority    somebody of a higher priority took room or quota of it, or was promised
                            a start in its place; or a gang that a lost node left short did, which
                            is made whole before anybody else is placed
                guarantee   somebody within a tenant's promise took room or quota of it
"""

from dataclasses import dataclass

from scheduler.model.unit import StartReservation
from scheduler.report import events
from tests.unit.scheduler.tenancy.histories import Story
from tests.unit.scheduler.tenancy.random_clusters import Workload, unit_of

SAID = (
    ("overran its expected duration", "overrun"),
    ("was deleted", "lost"),
    ("has higher priority", "priority"),
    ("which has precedence, took its capacity", "priority"),
    ("within its tenant's guarantee, took its capacity", "guarantee"),
)
"""Words of the Event, and what must have happened."""


@dataclass(frozen=True, slots=True)
class Move:
    """A promise that is not what it was; nothing is said where no Event tells it."""

    at: float
    unit: str
    said: str
    causes: frozenset[str]

    @property
    def agrees(self) -> bool:
        return any(words in self.said and cause in self.causes for words, cause in SAID)


@dataclass(frozen=True, slots=True)
class Kept:
    unit: str
    late: float
    """Seconds; less than nothing: it started earlier."""


class Witness:
    """`look` whenever the scheduler is at rest."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self.kept: list[Kept] = []
        self._given: dict[str, tuple[float, StartReservation]] = {}
        self._told = 0
        self._placed: dict[str, tuple[float, str]] = {}  # pod -> when, and its node

    def look(self, story: Story) -> None:
        for name, node in story.api.nodes().items():
            if node:
                self._placed.setdefault(name, (story.bench.now, node))
        moved = self._look_at_events(story)
        live = {
            unit_of(one.key.name): one
            for one in story.bench.scheduler.tenancy.backfill.start_reservations()
        }
        for unit in [unit for unit in self._given if unit not in live]:
            self._over(story, unit, moved)
        for unit, promise in live.items():
            if unit not in self._given or self._given[unit][1] != promise:
                self._given[unit] = (story.bench.now, promise)

    def _look_at_events(self, story: Story) -> set[str]:
        told = story.told(events.START_DELAYED)
        fresh, self._told = told[self._told :], len(told)
        for name, note in fresh:
            said = note.partition(": ")[2]
            self.moves.append(Move(story.bench.now, unit_of(name), said, self._causes(story, name)))
        return {unit_of(name) for name, _ in fresh}

    def _over(self, story: Story, unit: str, moved: set[str]) -> None:
        _, promise = self._given.pop(unit)
        if unit in story.starts:
            self.kept.append(Kept(unit, story.starts[unit] - promise.start))
        elif unit not in moved and unit not in story.cancelled:
            self.moves.append(Move(story.bench.now, unit, "", frozenset()))

    def _causes(self, story: Story, name: str) -> frozenset[str]:
        known = self._given.get(unit_of(name))
        if known is None:
            return frozenset()
        since, promise = known
        found = {"lost"} if any(story.lost.get(n, -1.0) >= since for n in promise.nodes) else set()
        for pod, (when, node) in self._placed.items():
            found |= self._caused(story, pod, when, since, promise, near=node in promise.nodes)
        rivals = story.bench.scheduler.tenancy.backfill.start_reservations()
        if any(rival.priority > promise.priority for rival in rivals):
            found.add("priority")
        return frozenset(found)

    def _caused(
        self,
        story: Story,
        pod: str,
        when: float,
        since: float,
        promise: StartReservation,
        *,
        near: bool,
    ) -> set[str]:
        workload, now, found = story.workloads[unit_of(pod)], story.bench.now, set()
        stays = story.ended.get(pod, now) >= now
        if (
            near
            and stays
            and workload.expected_duration is not None
            and int(when) + workload.expected_duration <= now
        ):
            found.add("overrun")
        if when >= since and (near or shares_quota(story, workload, promise)):
            first = workload.priority > promise.priority or self._lost_a_member(story, unit_of(pod))
            found |= {"priority"} if first else set()
            found |= {"guarantee"} if unit_of(pod) in story.api.entitled else set()
        return found

    def _lost_a_member(self, story: Story, unit: str) -> bool:
        placed = self._placed.items()
        return any(unit_of(pod) == unit and node in story.lost for pod, (_, node) in placed)


def shares_quota(story: Story, workload: Workload, promise: StartReservation) -> bool:
    other = story.workloads[unit_of(promise.key.name)]
    paths = (set(story.scenario.path(one.tenant)) for one in (workload, other))
    return bool(set.intersection(*paths) & story.scenario.limits.keys())
