"""
Values of virtual time: the jobs that arrive, and the timeline of what became of them.

    Job ──arrived──▶ waits ──started──▶ runs ──ended──▶
                      ▲  │                │
                      │  └ start          └ preempted: its controller recreates its pods
                      │    estimated,            │
                      │    delayed,              │
                      └────over quota ◀──────────┘ requeued, and starts from the beginning

Times are seconds from the beginning. A run is a value: the same jobs and the same strategy give the
same timeline on every machine; only `cpu` is measured.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.model.pod import Pod
from scheduler.model.unit import UnitKey, key_of


@dataclass(frozen=True, slots=True)
class Job:
    """
    A pod or a gang: its pods arrive together and end together.

    `run_time` is the real one, infinite for services; the expected duration of its pods may differ.
    """

    pods: tuple[Pod, ...]
    arrives: float
    run_time: float

    @property
    def key(self) -> UnitKey:
        return key_of(self.pods[0])

    @property
    def tenant(self) -> str:
        return self.pods[0].attributes.tenant

    @property
    def gpus(self) -> int:
        return sum(pod.spec.host_request.gpus for pod in self.pods)


class EntryKind(StrEnum):
    ARRIVED = "arrived"
    STARTED = "started"
    ENDED = "ended"
    ESTIMATED = "start estimated"
    DELAYED = "start delayed"
    OVER_QUOTA = "over quota"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    at: float
    kind: EntryKind
    key: UnitKey
    tenant: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A while in which a unit of a tenant used, or waited for, these amounts."""

    key: UnitKey
    tenant: str
    begin: float
    end: float
    gpus: int
    cpu: int = 0
    """Thousandths of a CPU."""
    lost: bool = False
    """The pod was evicted, and its work is lost."""


@dataclass(slots=True)
class Run:
    """What became of the jobs."""

    starts: dict[UnitKey, float] = field(default_factory=dict)
    """When each unit first started."""
    used: list[Span] = field(default_factory=list)
    """One for each bound pod; endless where it still runs."""
    waits: list[Span] = field(default_factory=list)
    """One for each time that a unit waited; endless where it still waits."""
    stuck: dict[UnitKey, str] = field(default_factory=dict)
    """Why each unit that never started is pending, where a strategy tried it."""
    timeline: list[TimelineEntry] = field(default_factory=list)
    """In the order of time."""
    decisions: int = 0
    """Units taken from the queue and planned."""
    cpu: float = 0.0
    """CPU seconds that the strategy used."""
