"""
What happens in virtual time, as values: the work that comes, and what became of it.

    Job ──arrived──▶ waits ──started──▶ runs ──ended──▶
                      ▲  │                │
                      │  └ promised,      └ preempted: its controller makes its pods anew
                      │    moved,                │
                      └────held back ◀───────────┘ waits again, and starts from nought

Times are seconds from the beginning. A run is a value: the same work and the same way of deciding
give the same history, whatever the machine; only `cpu` is measured.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.model.pod import Pod
from scheduler.model.unit import UnitKey, key_of


@dataclass(frozen=True, slots=True)
class Job:
    """
    A pod or a gang: its pods come together and end together.

    `lasts` is the truth, infinite for what nobody ends; what its pods say of it may be wrong.
    """

    pods: tuple[Pod, ...]
    arrives: float
    lasts: float

    @property
    def key(self) -> UnitKey:
        return key_of(self.pods[0])

    @property
    def tenant(self) -> str:
        return self.pods[0].attributes.tenant

    @property
    def gpus(self) -> int:
        return sum(pod.spec.host_request.gpus for pod in self.pods)


class ChangeKind(StrEnum):
    ARRIVED = "arrived"
    STARTED = "started"
    ENDED = "ended"
    PROMISED = "promised"
    MOVED = "promise moved"
    HELD_BACK = "held back"
    PREEMPTED = "preempted"
    WAITS_AGAIN = "waits again"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    at: float
    what: ChangeKind
    key: UnitKey
    tenant: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Something of a tenant's that went on for a while: amounts in use, or asked for in vain."""

    key: UnitKey
    tenant: str
    begin: float
    end: float
    gpus: int
    cpu: int = 0
    """Thousandths of a CPU."""
    lost: bool = False
    """The work was evicted, and starts from nought."""


@dataclass(slots=True)
class Run:
    """What became of the work."""

    starts: dict[UnitKey, float] = field(default_factory=dict)
    """When each unit started first."""
    used: list[Span] = field(default_factory=list)
    """One for each pod that had a node; without an end where it has it still."""
    waits: list[Span] = field(default_factory=list)
    """One for each time that a unit waited; without an end where it waits still."""
    stuck: dict[UnitKey, str] = field(default_factory=dict)
    """Why each unit waits that waits still, as far as anybody has looked at it."""
    happened: list[TimelineEntry] = field(default_factory=list)
    """In the order of time."""
    decisions: int = 0
    """Plans made for a unit that was next."""
    cpu: float = 0.0
    """Seconds spent deciding."""
