"""
An oracle of start reservations: checks each delay against the history of the cluster, independent of
the scheduler's own reasons.

    reserved ──▶ the unit started, or was deleted                     met; `late` by so many seconds
             └─▶ delayed, or removed while the unit waits             one of these must have happened:
                   overrun     a pod on its nodes outlived its expected duration
                   lost        one of its nodes was deleted
                   priority    a unit of higher priority took its capacity or quota, or got a start
                               reservation in its place; or a partial gang did, which the scheduler
                               completes before it places other units
                   guarantee   a unit within its tenant's guarantee took its capacity or quota
"""

from dataclasses import dataclass

from scheduler.model.unit import StartReservation
from scheduler.report import events
from tests.unit.scheduler.tenancy.histories import Story
from tests.unit.scheduler.tenancy.random_clusters import Workload, unit_of

CAUSE_OF_TEXT = (
    ("overran its expected duration", "overrun"),
    ("was deleted", "lost"),
    ("has higher priority", "priority"),
    ("which has precedence, took its capacity", "priority"),
    ("within its tenant's guarantee, took its capacity", "guarantee"),
)
"""Text of the Event, and the cause that must have happened."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A start reservation that was moved or removed; `text` is empty without an Event."""

    at: float
    unit: str
    text: str
    causes: frozenset[str]

    @property
    def agrees(self) -> bool:
        return any(words in self.text and cause in self.causes for words, cause in CAUSE_OF_TEXT)


@dataclass(frozen=True, slots=True)
class MetStart:
    unit: str
    late: float
    """Seconds; negative: it started earlier."""


class StartOracle:
    """Call `observe` whenever the scheduler is idle."""

    def __init__(self) -> None:
        self.delays: list[Delay] = []
        self.met: list[MetStart] = []
        self._reserved: dict[str, tuple[float, StartReservation]] = {}
        self._events_seen = 0
        self._placed: dict[str, tuple[float, str]] = {}  # pod -> when, and its node

    def observe(self, story: Story) -> None:
        for name, node in story.api.nodes().items():
            if node:
                self._placed.setdefault(name, (story.bench.now, node))
        delayed = self._read_events(story)
        live = {
            unit_of(one.key.name): one
            for one in story.bench.scheduler.tenancy.backfill.start_reservations()
        }
        for unit in [unit for unit in self._reserved if unit not in live]:
            self._ended(story, unit, delayed)
        for unit, reservation in live.items():
            if unit not in self._reserved or self._reserved[unit][1] != reservation:
                self._reserved[unit] = (story.bench.now, reservation)

    def _read_events(self, story: Story) -> set[str]:
        delays = story.events_of(events.START_DELAYED)
        fresh, self._events_seen = delays[self._events_seen :], len(delays)
        for name, note in fresh:
            text = note.partition(": ")[2]
            self.delays.append(
                Delay(story.bench.now, unit_of(name), text, self._causes(story, name))
            )
        return {unit_of(name) for name, _ in fresh}

    def _ended(self, story: Story, unit: str, delayed: set[str]) -> None:
        _, reservation = self._reserved.pop(unit)
        if unit in story.starts:
            self.met.append(MetStart(unit, story.starts[unit] - reservation.start))
        elif unit not in delayed and unit not in story.cancelled:
            self.delays.append(Delay(story.bench.now, unit, "", frozenset()))

    def _causes(self, story: Story, name: str) -> frozenset[str]:
        known = self._reserved.get(unit_of(name))
        if known is None:
            return frozenset()
        since, reservation = known
        found = (
            {"lost"} if any(story.lost.get(n, -1.0) >= since for n in reservation.nodes) else set()
        )
        for pod, (when, node) in self._placed.items():
            found |= self._caused(
                story, pod, when, since, reservation, near=node in reservation.nodes
            )
        rivals = story.bench.scheduler.tenancy.backfill.start_reservations()
        if any(rival.priority > reservation.priority for rival in rivals):
            found.add("priority")
        return frozenset(found)

    def _caused(
        self,
        story: Story,
        pod: str,
        when: float,
        since: float,
        reservation: StartReservation,
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
        if when >= since and (near or shares_quota(story, workload, reservation)):
            first = workload.priority > reservation.priority or self._lost_a_member(
                story, unit_of(pod)
            )
            found |= {"priority"} if first else set()
            found |= {"guarantee"} if unit_of(pod) in story.api.entitled else set()
        return found

    def _lost_a_member(self, story: Story, unit: str) -> bool:
        placed = self._placed.items()
        return any(unit_of(pod) == unit and node in story.lost for pod, (_, node) in placed)


def shares_quota(story: Story, workload: Workload, reservation: StartReservation) -> bool:
    other = story.workloads[unit_of(reservation.key.name)]
    paths = (set(story.scenario.path(one.tenant)) for one in (workload, other))
    return bool(set.intersection(*paths) & story.scenario.limits.keys())
