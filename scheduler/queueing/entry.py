"""
One unit in the queue: its pods, its state, and how long it has been waiting.

A pod of the unit waits (`pods`), or has a node while its bind is in flight (`binding`). Values
only: `scheduling_queue` owns the entries and moves them between states.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from cluster import backoff
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod, gated_by_gang_only
from scheduler.model.unit import Unit, UnitKey, order

INITIAL_BACKOFF: Final = 1.0
MAX_BACKOFF: Final = 10.0
INITIAL_REJECTION_DELAY: Final = 300.0  # seconds until a pod is tried whose bind was rejected
MAX_REJECTION_DELAY: Final = 3600.0
INITIAL_QUARANTINE: Final = 5.0  # seconds
MAX_QUARANTINE: Final = 300.0

Rank = tuple[int, int, int, float, str]
"""The order of units of one tenant, the first to be planned first."""

Signature = tuple[object, ...]
"""Equal for interchangeable units (`unschedulable`)."""


class QueueState(StrEnum):
    FORMING = "forming"
    GATED = "gated"
    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    PLANNING = "planning"
    BINDING = "binding"
    REFUSED = "refused"
    SUSPENDED = "suspended"
    OVER_QUOTA = "over_quota"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class UnitView:
    """A unit and its queue state at one moment."""

    unit: Unit
    state: QueueState
    attempts: int
    since: float
    """When the unit was first queued, by the scheduler's clock."""
    waiting_since: float | None
    """Since when the unit is complete; None while it forms."""
    why: NoFit | None
    """Why the last plan found no nodes for it."""
    error: str = ""
    """The error for which it is quarantined."""
    retry_at: float = 0.0
    """When a quarantined unit is tried again."""


@dataclass(slots=True)
class QueuedUnit:
    key: UnitKey
    since: float
    pods: dict[str, Pod] = field(default_factory=dict)  # uid -> pod that waits
    binding: set[str] = field(default_factory=set)  # uids of pods whose bind is in flight
    state: QueueState = QueueState.FORMING
    attempts: int = 0
    ready_at: float = 0.0  # end of the backoff
    forming_since: float = 0.0
    waiting_since: float | None = None  # since when the unit is complete
    token: int = -1  # of the latest timer or heap item of this entry; older ones are stale
    signature: tuple[object, ...] | None = None  # under which it was last unschedulable
    probes: tuple[object, ...] | None = None  # the signature for which it is being tried
    suspended: bool = False
    error: str = ""  # the last error of the scheduler itself about this unit
    errors: int = 0  # such errors since the unit was last tried without one
    quarantined_until: float = 0.0
    settled: bool = False  # no member was added for `SETTLED_AFTER` seconds
    why: NoFit | None = None
    rejections: dict[str, tuple[int, float]] = field(default_factory=dict)
    """uid -> how often the API server rejected its bind, and when it is tried again; 0: now"""
    stated_sizes: Counter[int | None] = field(default_factory=Counter)
    """gang size as pods that wait state it -> how many of them do"""
    requests: dict[str, int] = field(default_factory=dict)
    """Each resource that its pods request, with the amount of one pod that requests it"""
    _order: tuple[int, float, str] | None = None

    def __post_init__(self) -> None:
        self.forming_since = self.since

    def put(self, pod: Pod) -> None:
        old = self._take_out(pod.uid)
        self.pods[pod.uid] = pod
        self.requests.update(pod.spec.requests)
        self.binding.discard(pod.uid)
        if pod.gang is not None:
            self.stated_sizes[pod.gang.min_available] += 1
        if old is not None and scheduling_fields(old) != scheduling_fields(pod):
            self.rejections.pop(pod.uid, None)
            self._order = None
        if self._order is not None:
            self._order = min(self._order, order(pod))

    def start_binding(self, uid: str) -> None:
        if self._take_out(uid) is not None:
            self.binding.add(uid)
            self._order = None

    def drop(self, uid: str) -> None:
        self.binding.discard(uid)
        self.rejections.pop(uid, None)
        if self._take_out(uid) is not None:
            self._order = None

    def _take_out(self, uid: str) -> Pod | None:
        pod = self.pods.pop(uid, None)
        if pod is not None and pod.gang is not None:
            self.stated_sizes[pod.gang.min_available] -= 1
            self.stated_sizes = +self.stated_sizes
        return pod

    def back_off(self, now: float) -> None:
        """The unit was tried, or what it was tried for failed."""
        delay = backoff.exponential(self.attempts, first=INITIAL_BACKOFF, most=MAX_BACKOFF)
        self.attempts += 1
        self.ready_at = now + delay

    def quarantine(self, now: float, error: str) -> float:
        """Returns the seconds until it is tried again; if it changes, its backoff counts."""
        delay = backoff.exponential(self.errors, first=INITIAL_QUARANTINE, most=MAX_QUARANTINE)
        self.errors += 1
        self.error = error
        self.quarantined_until = now + delay
        self.back_off(now)
        return delay

    def reject(self, uid: str, now: float) -> None:
        """The API server rejected the bind of the pod."""
        until = now + self.rejection_delay(uid)
        self.rejections[uid] = (self._times_rejected(uid) + 1, until)

    def rejection_delay(self, uid: str) -> float:
        """Seconds until the pod is tried again if its bind is rejected now."""
        return rejection_delay(self._times_rejected(uid))

    def _times_rejected(self, uid: str) -> int:
        return self.rejections.get(uid, (0, 0.0))[0]

    @property
    def tenant(self) -> str:
        """All pods of a unit are in one namespace, and a namespace has one tenant."""
        return next((pod.attributes.tenant for pod in self.pods.values()), "")

    @property
    def tier(self) -> str:
        """The tier of its first pod; as a rule all have the same."""
        return next((pod.attributes.tier for pod in self.pods.values()), "")

    def order(self) -> tuple[int, float, str]:
        """The lowest order of its pods."""
        if self._order is None:
            self._order = min(order(pod) for pod in self.pods.values())
        return self._order

    def members(self) -> tuple[tuple[Pod, ...], tuple[Pod, ...], int]:
        """Plannable pods and pods behind the gang gate, each in order; how many are rejected."""
        rejected = {
            uid for uid, (_, until) in self.rejections.items() if until and uid in self.pods
        }
        pods = sorted((pod for uid, pod in self.pods.items() if uid not in rejected), key=order)
        return (
            tuple(pod for pod in pods if not pod.gates),
            tuple(pod for pod in pods if gated_by_gang_only(pod)),
            len(rejected),
        )

    def expire_rejections(self, now: float) -> None:
        """Let rejected pods whose delay is over be tried again; the counts stay."""
        for uid, (times, until) in self.rejections.items():
            if until and until <= now:
                self.rejections[uid] = (times, 0.0)

    def rejections_expire_at(self) -> float:
        return min((until for _, until in self.rejections.values() if until), default=float("inf"))


def rejection_delay(times: int) -> float:
    """Seconds until a pod is tried again whose bind was rejected so often before."""
    return backoff.exponential(times, first=INITIAL_REJECTION_DELAY, most=MAX_REJECTION_DELAY)


def scheduling_fields(pod: Pod) -> tuple[object, ...]:
    """The fields whose change can make a pending pod schedulable."""
    return pod.spec, pod.priority, pod.gang, pod.gates, pod.resource_claims


def differs_by_user(old: Pod, new: Pod) -> bool:
    """Whether fields changed that this scheduler does not write itself on a waiting pod."""
    return replace(old, condition=new.condition, nominated=new.nominated) != new
