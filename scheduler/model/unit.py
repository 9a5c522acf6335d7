"""
What is planned at once: a unit is one pod, or one whole gang.

A gang's unit holds its pending members and knows how many others already have a node. It is
forming while the members that exist are fewer than the gang needs; a forming unit is not planned.
Members behind the gang gate exist but are not planned before the gate is lifted; members whose
bind the API server refuses for good do not count until they are tried again. Members that disagree
on the gang's size are held to the largest: nobody is bound too early. A size that a PodGroup
object gives is unknown while there is no such object, and the gang forms until there is.
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
    """Members that exist and wait for the scheduler to lift the gang gate."""
    refused: int = 0
    """Pending members whose bind the API server refuses, left out for a while."""
    group: PodGroup | None = None
    """What the gang's PodGroup object says, where there is one."""
    reserved: int = 0
    """Members that do not exist yet and for which room is kept."""
    led: bool = False
    """Its leader is going to make the members that are missing: it may be planned without them."""
    unreserving: bool = False
    """Its leader waits, and could go first if room could be kept for the others."""
    _size: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Counted once: gangs are large, and their size is asked for again and again.
        stated = (pod.gang.min_available for pod in (*self.pods, *self.gated) if pod.gang)
        object.__setattr__(self, "_size", size_of(stated, self.group))

    @property
    def tenant(self) -> str:
        return next((pod.attributes.tenant for pod in (*self.pods, *self.gated)), "")

    @property
    def is_gang(self) -> bool:
        return isinstance(self.key, GangKey)

    @property
    def size(self) -> int:
        """How many members must have a node together; 1 while nobody has said."""
        return self._size or 1

    @property
    def size_unknown(self) -> bool:
        """A PodGroup object gives the size, and there is none."""
        return self._size is None

    @property
    def need(self) -> int:
        """How many of the pending pods a plan must place, at the least."""
        missing = self.size - self.bound - self.reserved
        return min(max(missing, 1), len(self.pods)) if self.pods else 0

    @property
    def exist(self) -> int:
        return len(self.pods) + len(self.gated) + self.bound

    @property
    def forming(self) -> bool:
        return self.size_unknown or self.exist + self.reserved < self.size

    @property
    def plannable(self) -> bool:
        """Enough members may be given a node now."""
        if not self.pods or self.size_unknown:
            return False
        return self.led or len(self.pods) + self.bound + self.reserved >= self.size

    @property
    def timeout(self) -> float:
        """How long a gang may take to form, and then to be bound whole."""
        members = (*self.pods, *self.gated)
        asked = [pod.gang.timeout for pod in members if pod.gang and pod.gang.timeout is not None]
        if asked:
            return max(asked)
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


def size_of(stated: Iterable[int | None], group: PodGroup | None) -> int | None:
    """The size of a gang from what its members state; None: left to an object that is missing."""
    size = 1
    for number in stated:
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


def leads(pod: Pod) -> bool:
    return pod.gang is not None and pod.gang.leader


def in_vain(unit: Unit) -> bool:
    """So many members ask for what cannot be honoured that no node whatsoever would help."""
    return sum(not pod.spec.refusals for pod in unit.pods) < unit.need


def forming_count(unit: Unit) -> GangCount:
    return GangCount(unit.key.name, unit.exist, unit.size, "pods exist")


def waiting_text(unit: Unit, *, timed_out: bool = False) -> str:
    """What a forming gang waits for. The same words as long as nothing changes."""
    if unit.size_unknown:
        start = f"{vocabulary.WAITING_FOR_POD_GROUP} {unit.key.name}"
        text = f"{start}: its PodGroup object does not exist"
    else:
        text = forming_count(unit).text
    if unit.refused:
        text += f", {unit.refused} more refused by the API server"
    if unit.unreserving:
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
    found = []
    for key, mine in members.items():
        gang = key if isinstance(key, GangKey) else None
        found.append(
            Unit(
                key,
                tuple(sorted(mine, key=order)),
                bound(gang) if gang else 0,
                group=group(gang) if gang else None,
            )
        )
    return sorted(found, key=lambda unit: unit.order)


@dataclass(frozen=True, slots=True)
class PartialGang:
    """A gang that stands half bound."""

    key: GangKey
    live: tuple[Pod, ...]
    size: int
    timeout: float
    witnessed: bool
    """This process gave its members their nodes: it needs no other evidence."""
