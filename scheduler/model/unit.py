"""
The unit of planning: one pod, or one whole gang.

A gang's unit holds its pending members and the number of members that already have a node. It is
forming while fewer members exist than the gang needs; the scheduler does not plan a forming unit.
Members behind the gang gate exist, but the scheduler plans them only after it has removed the gate.
A member whose Binding the API server rejects for good does not count until it is retried. When
members disagree on the gang's size, the largest size counts, so that no member is bound too early.
A size that a PodGroup object gives is unknown until that object exists, and the gang forms until
then.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from policies import vocabulary
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import GangCount
from scheduler.model.pod import Pod, PodKey

_TIMEOUT: Final = 10.0
_TIMEOUT_PER_MEMBER: Final = 0.05

UnitKey = GangKey | PodKey


@dataclass(frozen=True, slots=True)
class Unit:
    """Pending pods, in `order`, that are placed in one plan."""

    key: UnitKey
    pods: tuple[Pod, ...]
    bound: int = 0
    """Members of the gang that already have a node, neither finished nor terminating."""
    gated: tuple[Pod, ...] = ()
    """Members that exist behind the gang gate, which the scheduler removes."""
    bind_rejected: int = 0
    """Pending members whose Binding the API server rejected; they are retried later."""
    group: PodGroup | None = None
    """The gang's PodGroup object, where one exists."""
    reserved: int = 0
    """Members that do not exist yet and have reserved capacity."""
    leader_first: bool = False
    """Its leader creates the missing members: the unit may be planned without them."""
    leader_blocked: bool = False
    """The leader could go first if the scheduler could reserve capacity for the members."""
    _size: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Counted once: gangs are large, and planning reads their size often.
        sizes = (pod.gang.min_available for pod in (*self.pods, *self.gated) if pod.gang)
        object.__setattr__(self, "_size", size_of(sizes, self.group))

    @property
    def tenant(self) -> str:
        return next((pod.attributes.tenant for pod in (*self.pods, *self.gated)), "")

    @property
    def is_gang(self) -> bool:
        return isinstance(self.key, GangKey)

    @property
    def size(self) -> int:
        """How many members must have a node together; 1 while it is unknown."""
        return self._size or 1

    @property
    def size_unknown(self) -> bool:
        """A PodGroup object gives the size, and it does not exist."""
        return self._size is None

    @property
    def need(self) -> int:
        """The lowest number of pending pods that a plan must place."""
        missing = self.size - self.bound - self.reserved
        return min(max(missing, 1), len(self.pods)) if self.pods else 0

    @property
    def existing(self) -> int:
        return len(self.pods) + len(self.gated) + self.bound

    @property
    def forming(self) -> bool:
        return self.size_unknown or self.existing + self.reserved < self.size

    @property
    def plannable(self) -> bool:
        """Enough members can get a node now."""
        if not self.pods or self.size_unknown:
            return False
        return self.leader_first or len(self.pods) + self.bound + self.reserved >= self.size

    @property
    def waits_for_rejected(self) -> bool:
        """The gang is complete but for members whose Binding the API server rejected."""
        if not self.bind_rejected or self.size_unknown:
            return False
        return self.existing + self.bind_rejected >= self.size

    @property
    def timeout(self) -> float:
        """How long a gang may take to form, and then to be bound completely."""
        members = (*self.pods, *self.gated)
        declared = [
            pod.gang.timeout for pod in members if pod.gang and pod.gang.timeout is not None
        ]
        if declared:
            return max(declared)
        if self.group is not None and self.group.timeout is not None:
            return self.group.timeout
        return default_timeout(self.size)

    @property
    def priority(self) -> int:
        return max((pod.priority for pod in (*self.pods, *self.gated)), default=0)

    @property
    def order(self) -> tuple[int, float, str]:
        """Highest priority first, then oldest; the uid ends every tie."""
        return min(order(pod) for pod in (*self.pods, *self.gated))


def size_of(declared: Iterable[int | None], group: PodGroup | None) -> int | None:
    """The gang's size as its members declare it; None: it is in a PodGroup that does not exist."""
    size = 1
    for number in declared:
        if number is None and group is None:
            return None
        size = max(size, number or (group.size if group else 1))
    return size


def default_timeout(size: int) -> float:
    return _TIMEOUT + _TIMEOUT_PER_MEMBER * size


def order(pod: Pod) -> tuple[int, float, str]:
    return (-pod.priority, pod.created, pod.uid)


def key_of(pod: Pod) -> UnitKey:
    return pod.key if pod.gang is None else pod.gang.key


def is_leader(pod: Pod) -> bool:
    return pod.gang is not None and pod.gang.leader


def unresolvable(unit: Unit) -> bool:
    """Too few members have supported requests: no new node would help."""
    return sum(not pod.spec.unsupported for pod in unit.pods) < unit.need


def forming_count(unit: Unit) -> GangCount:
    return GangCount(unit.key.name, unit.existing, unit.size, "pods exist")


def waiting_text(unit: Unit, *, timed_out: bool = False) -> str:
    """What a forming gang waits for. The text is stable while nothing changes."""
    if unit.size_unknown:
        start = f"{vocabulary.WAITING_FOR_POD_GROUP} {unit.key.name}"
        text = f"{start}: its PodGroup object does not exist"
    else:
        text = forming_count(unit).text
    if unit.bind_rejected:
        text += f", {unit.bind_rejected} more rejected by the API server"
    if unit.leader_blocked:
        text += "; its leader cannot go first: the kind ResourceReservation is not installed"
    return f"{text}, timed out after {unit.timeout:g}s" if timed_out else text


def units(
    pods: Iterable[Pod],
    bound: Callable[[GangKey], int] = lambda _: 0,
    group: Callable[[GangKey], PodGroup | None] = lambda _: None,
) -> list[Unit]:
    """The units of these pending pods, in the order in which they are planned."""
    members: dict[UnitKey, list[Pod]] = {}
    for pod in pods:
        members.setdefault(key_of(pod), []).append(pod)
    grouped = []
    for key, own in members.items():
        gang = key if isinstance(key, GangKey) else None
        grouped.append(
            Unit(
                key,
                tuple(sorted(own, key=order)),
                bound(gang) if gang else 0,
                group=group(gang) if gang else None,
            )
        )
    return sorted(grouped, key=lambda unit: unit.order)


@dataclass(frozen=True, slots=True)
class PartialGang:
    """A gang of which only some members are bound."""

    key: GangKey
    live: tuple[Pod, ...]
    size: int
    timeout: float
    witnessed: bool
    """This process bound its members, so their number needs no confirmation."""


@dataclass(frozen=True, slots=True)
class StartReservation:
    """The unit is expected to start at this time, on these nodes."""

    key: UnitKey
    start: float
    nodes: frozenset[str]
    waits_for: tuple[str, ...] = ()
    """Keys of the pods on these nodes that end last, the last first; a few."""
    priority: int = 0
