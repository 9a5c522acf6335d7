"""
One unit in the queue: its pods, where it stands, and how long it has been waiting.

Pods wait (`pods`) or have been given a node while the bind is in flight (`flying`). Values only:
`queueing` moves entries between states, and nobody else holds one.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod, held_by_our_gate_only
from scheduler.model.unit import Unit, UnitKey, order


class QueueState(StrEnum):
    FORMING = "forming"
    GATED = "gated"
    ACTIVE = "active"
    BACKOFF = "backoff"
    PARKED = "parked"
    PLANNING = "planning"
    BINDING = "binding"
    REFUSED = "refused"
    SUSPENDED = "suspended"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class UnitView:
    """A unit as it stands at one moment."""

    unit: Unit
    state: QueueState
    attempts: int
    since: float
    """When the unit came, by the scheduler's clock."""
    waiting_since: float | None
    """Since when it could have been placed; None while it forms."""
    why: NoFit | None
    """What the last plan said, where it found no place."""


@dataclass(slots=True)
class QueuedUnit:
    key: UnitKey
    since: float
    pods: dict[str, Pod] = field(default_factory=dict)  # uid -> pod that waits
    flying: set[str] = field(default_factory=set)  # uids of pods whose bind is in flight
    state: QueueState = QueueState.FORMING
    attempts: int = 0
    ready_at: float = 0.0
    forming_since: float = 0.0
    waiting_since: float | None = None  # since when it could have been placed
    token: int = -1  # the latest timer or heap item of this entry; older ones are void
    signature: tuple[object, ...] | None = None  # the one it was last parked under
    woken: tuple[object, ...] | None = None  # the one it was woken for and answers for now
    suspended: bool = False
    still: bool = False  # nobody has come for a while
    why: NoFit | None = None
    refusals: dict[str, tuple[int, float]] = field(default_factory=dict)
    """uid -> how often its bind was refused for good, and until when it is left alone; 0: no more
    """
    sizes: Counter[int | None] = field(default_factory=Counter)
    """What the pods that wait state as the size of their gang -> how many of them"""
    asked: dict[str, int] = field(default_factory=dict)
    """What its pods ask for, each name once, with the amount of one that asks for it"""
    _first: tuple[int, float, str] | None = None

    def __post_init__(self) -> None:
        self.forming_since = self.since

    def put(self, pod: Pod) -> None:
        old = self._take_out(pod.uid)
        self.pods[pod.uid] = pod
        self.asked.update(pod.spec.requests)
        self.flying.discard(pod.uid)
        if pod.gang is not None:
            self.sizes[pod.gang.min_available] += 1
        if old is not None and matters(old) != matters(pod):
            self.refusals.pop(pod.uid, None)
            self._first = None
        if self._first is not None:
            self._first = min(self._first, order(pod))

    def fly(self, uid: str) -> None:
        if self._take_out(uid) is not None:
            self.flying.add(uid)
            self._first = None

    def drop(self, uid: str) -> None:
        self.flying.discard(uid)
        self.refusals.pop(uid, None)
        if self._take_out(uid) is not None:
            self._first = None

    def _take_out(self, uid: str) -> Pod | None:
        pod = self.pods.pop(uid, None)
        if pod is not None and pod.gang is not None:
            self.sizes[pod.gang.min_available] -= 1
            self.sizes = +self.sizes
        return pod

    @property
    def tenant(self) -> str:
        """A unit lives in one namespace, and a namespace has one tenant."""
        return next((pod.attributes.tenant for pod in self.pods.values()), "")

    @property
    def tier(self) -> str:
        """Its pods are of one tier, as a rule."""
        return next((pod.attributes.tier for pod in self.pods.values()), "")

    def first(self) -> tuple[int, float, str]:
        """The order of the first of its pods."""
        if self._first is None:
            self._first = min(order(pod) for pod in self.pods.values())
        return self._first

    def split(self) -> tuple[tuple[Pod, ...], tuple[Pod, ...], int]:
        """Who may be planned and who is behind the gang gate, each in order; how many refused."""
        left_alone = {
            uid for uid, (_, until) in self.refusals.items() if until and uid in self.pods
        }
        members = sorted(
            (pod for uid, pod in self.pods.items() if uid not in left_alone), key=order
        )
        return (
            tuple(pod for pod in members if not pod.gates),
            tuple(pod for pod in members if held_by_our_gate_only(pod)),
            len(left_alone),
        )

    def pardon(self, now: float) -> None:
        """Those whose time is up may be tried again; how often they were refused is kept."""
        for uid, (times, until) in self.refusals.items():
            if until and until <= now:
                self.refusals[uid] = (times, 0.0)

    def pardoned_at(self) -> float:
        return min((until for _, until in self.refusals.values() if until), default=float("inf"))


def matters(pod: Pod) -> tuple[object, ...]:
    """What can change where or when a pending pod is tried."""
    return pod.spec, pod.priority, pod.gang, pod.gates, pod.claims
