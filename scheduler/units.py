"""
What is planned at once: a unit is one pod, or one whole gang.

A gang's unit holds its pending members and knows how many others already have a node. It is
forming while the members that exist are fewer than the gang needs; a forming unit is not planned.
Members that disagree on the gang's size are held to the largest: nobody is bound too early.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from .model import GangKey, Pod, PodKey
from .outcome import GangCount

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

    @property
    def is_gang(self) -> bool:
        return isinstance(self.key, GangKey)

    @property
    def size(self) -> int:
        """How many members must have a node together."""
        return max((pod.gang.min_available for pod in self.pods if pod.gang), default=1)

    @property
    def need(self) -> int:
        """How many of the pending pods a plan must place, at the least."""
        return min(max(self.size - self.bound, 1), len(self.pods)) if self.pods else 0

    @property
    def exist(self) -> int:
        return len(self.pods) + self.bound

    @property
    def forming(self) -> bool:
        return self.exist < self.size

    @property
    def timeout(self) -> float:
        """How long a gang may take to form, and then to be bound whole."""
        asked = [pod.gang.timeout for pod in self.pods if pod.gang and pod.gang.timeout is not None]
        return max(asked) if asked else _TIMEOUT + _TIMEOUT_PER_MEMBER * self.size

    @property
    def order(self) -> tuple[int, float, str]:
        """Highest priority first, then oldest; the uid ends every tie."""
        return min(order(pod) for pod in self.pods)


def order(pod: Pod) -> tuple[int, float, str]:
    return (-pod.priority, pod.created, pod.uid)


def key_of(pod: Pod) -> UnitKey:
    return pod.key if pod.gang is None else pod.gang.key


def forming_count(unit: Unit) -> GangCount:
    return GangCount(unit.key.name, unit.exist, unit.size, "pods exist")


def units(pods: Iterable[Pod], bound: Callable[[GangKey], int] = lambda _: 0) -> list[Unit]:
    """The units of these pending pods, in the order in which they are planned."""
    members: dict[UnitKey, list[Pod]] = {}
    for pod in pods:
        members.setdefault(key_of(pod), []).append(pod)
    found = [
        Unit(key, tuple(sorted(group, key=order)), bound(key) if isinstance(key, GangKey) else 0)
        for key, group in members.items()
    ]
    return sorted(found, key=lambda unit: unit.order)
