"""
Counts the members of a queued gang and builds the `Unit` that the planner takes.

    members that wait      in the entry, behind the gang gate or not
    members with a node    `bound`
    members that succeeded `succeeded`; those of the same owners count, so that the retry of one
                           failed member does not wait for its siblings
    members to come        `reserved`: capacity is reserved for pods that the leader will create
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.unit import Unit, is_leader, size_of
from scheduler.queueing.entry import QueuedUnit


class ReservedMembers(Protocol):
    """For how many members of a gang capacity is reserved, and whether reserving is possible."""

    @property
    def enabled(self) -> bool: ...

    def count(self, key: GangKey) -> int: ...


@dataclass(frozen=True, slots=True)
class UnitBuilder:
    bound: Callable[[GangKey], int]
    """How many members of a gang have a node."""
    group: Callable[[GangKey], PodGroup | None]
    """The PodGroup of a gang."""
    succeeded: Callable[[GangKey], Mapping[str, str]]
    """Members that succeeded: pod uid -> owner uid."""
    reserved: ReservedMembers | None = None
    """None: the scheduler never reserves capacity for members to come."""

    def build(self, entry: QueuedUnit) -> Unit:
        gang = entry.key if isinstance(entry.key, GangKey) else None
        plannable, gated, rejected = entry.members()
        if gang is None:
            return Unit(entry.key, plannable, 0, gated=gated, bind_rejected=rejected)
        can_reserve = self.reserved is not None and self.reserved.enabled
        cannot_reserve = self.reserved is not None and not can_reserve
        return Unit(
            entry.key,
            plannable,
            self._placed(gang, entry),
            gated=gated,
            bind_rejected=rejected,
            group=self.group(gang),
            reserved=self._reserved(gang, entry),
            leader_first=entry.settled and can_reserve and any(map(is_leader, plannable)),
            leader_blocked=cannot_reserve and any(map(is_leader, plannable)),
        )

    def too_few(self, entry: QueuedUnit) -> bool:
        """Whether the gang forms, by its number of members alone: a gang of hundreds of pods comes
        pod by pod, and `build` for each of them would be quadratic."""
        if not isinstance(entry.key, GangKey) or not entry.pods or entry.suspended:
            return False
        size = size_of(entry.stated_sizes, self.group(entry.key))
        members = (
            len(entry.pods) + self._placed(entry.key, entry) + self._reserved(entry.key, entry)
        )
        return not entry.rejections and size is not None and members < size

    def lacks_bound_members(self, entry: QueuedUnit) -> bool:
        """Whether some members have a node, and fewer than the gang needs."""
        if not isinstance(entry.key, GangKey):
            return False
        bound = self.bound(entry.key)
        return 0 < bound < self.build(entry).size

    def _reserved(self, gang: GangKey, entry: QueuedUnit) -> int:
        """Reserved places beyond the members that wait: each of those takes one of them."""
        count = self.reserved.count(gang) if self.reserved is not None else 0
        if not count:
            return 0
        return max(0, count - sum(not is_leader(pod) for pod in entry.pods.values()))

    def _placed(self, gang: GangKey, entry: QueuedUnit) -> int:
        """Members that need no node any more."""
        succeeded = self.succeeded(gang)
        if not succeeded:
            return self.bound(gang)
        owners = {pod.owner.uid for pod in entry.pods.values() if pod.owner}
        return self.bound(gang) + sum(owner in owners for owner in succeeded.values())
