"""
The queue as it can be read: who waits, in which state, since when, and in which order they come.

`queueing` moves units and builds on this; whoever only looks needs no more than this.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.pod import Pod
from scheduler.model.start_reservation import StartReservation
from scheduler.model.unit import Unit, UnitKey, leads, size_of
from scheduler.queueing.entry import QueuedUnit, QueueState, UnitView
from scheduler.queueing.unschedulable import Rank


class ReservedMembers(Protocol):
    """For how many members of a gang room is kept, and whether any can be."""

    possible: bool

    def count(self, key: GangKey) -> int: ...


class QueueView:
    """`bound` says how many members of a gang have a node already, `group` what its object says,
    `half_bound` whether it stands partial, `done` who succeeded: pod uid -> owner uid, `reserved`
    for whom room is kept; None: no room is ever kept for members to come."""

    def __init__(
        self,
        *,
        bound: Callable[[GangKey], int],
        group: Callable[[GangKey], PodGroup | None],
        half_bound: Callable[[GangKey], bool],
        done: Callable[[GangKey], Mapping[str, str]],
        starving_after: float,
        reserved: ReservedMembers | None = None,
    ) -> None:
        self._bound, self._group, self._half_bound = bound, group, half_bound
        self._done = done
        self._starving_after = starving_after
        self._reserved = reserved
        self._entries: dict[UnitKey, QueuedUnit] = {}
        self._unit_of: dict[str, UnitKey] = {}  # pod uid -> its unit
        self._held: dict[UnitKey, None] = {}  # units that a quota keeps waiting
        self.promised: dict[
            UnitKey, StartReservation
        ] = {}  # units that know when they start: `promising`
        self.boost: Callable[[str], int] = lambda tier: 0
        """What a tier adds to a pod's priority here; nobody is evicted for it."""

    def __len__(self) -> int:
        """Pods that wait or whose bind is in flight."""
        return len(self._unit_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._unit_of

    def state(self, key: UnitKey) -> QueueState | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def counts(self) -> Counter[QueueState]:
        """Pods by the state of their unit; those in flight count as binding."""
        counts: Counter[QueueState] = Counter()
        for entry in self._entries.values():
            counts[entry.state] += len(entry.pods)
            counts[QueueState.BINDING] += len(entry.flying)
        return +counts

    def gangs(self) -> Counter[QueueState]:
        """Gangs with members that wait, by state."""
        return Counter(
            entry.state
            for entry in self._entries.values()
            if entry.pods and isinstance(entry.key, GangKey)
        )

    def led(self) -> Iterator[GangKey]:
        """Gangs whose leader waits."""
        for entry in tuple(self._entries.values()):
            if isinstance(entry.key, GangKey) and any(map(leads, entry.pods.values())):
                yield entry.key

    def key(self, uid: str) -> UnitKey | None:
        return self._unit_of.get(uid)

    def unit(self, key: UnitKey) -> Unit | None:
        entry = self._entries.get(key)
        return None if entry is None else self._unit(entry)

    def look(self, key: UnitKey) -> UnitView | None:
        """The unit as it stands, for those who explain it."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        return UnitView(
            self._unit(entry),
            entry.state,
            entry.attempts,
            entry.since,
            entry.waiting_since,
            entry.why,
        )

    def held_back(self) -> list[Unit]:
        """The units that a quota keeps waiting, in the order in which they would be planned."""
        found = [self._unit(self._entries[key]) for key in self._held]
        return sorted((unit for unit in found if unit.pods), key=lambda unit: unit.order)

    def nominated(self) -> dict[UnitKey, list[Pod]]:
        """Pods that wait and were once told the node that they are to have, by unit."""
        found: dict[UnitKey, list[Pod]] = {}
        for key, entry in self._entries.items():
            pods = [pod for pod in entry.pods.values() if pod.nominated]
            if pods:
                found[key] = pods
        return found

    def was_refused(self, uid: str) -> bool:
        """Whether an earlier bind of the pod was refused for good."""
        key = self._unit_of.get(uid)
        return key is not None and uid in self._entries[key].refusals

    def starving(self, key: UnitKey, now: float) -> bool:
        """Whether the unit could have been placed for longer than anybody should wait; one that
        knows when it starts does not starve."""
        entry = self._entries.get(key)
        known = key in self.promised
        return entry is not None and not known and self._is_starving(entry, now)

    def timed_out(self, unit: Unit, now: float) -> bool:
        """Whether the gang has been forming for longer than it may."""
        entry = self._entries.get(unit.key)
        return entry is not None and now >= entry.forming_since + unit.timeout

    def _unit(self, entry: QueuedUnit) -> Unit:
        gang = entry.key if isinstance(entry.key, GangKey) else None
        ready, gated, refused = entry.split()
        return Unit(
            entry.key,
            ready,
            self._there(gang, entry) if gang else 0,
            gated=gated,
            refused=refused,
            group=self._group(gang) if gang else None,
            reserved=self._kept(gang, entry) if gang else 0,
            led=gang is not None and self._led(entry, ready),
            unreserving=gang is not None and self._unreserving(ready),
        )

    def _kept(self, gang: GangKey, entry: QueuedUnit) -> int:
        """Room kept beyond the members that wait: each of them takes one of the places."""
        kept = self._reserved.count(gang) if self._reserved is not None else 0
        return max(0, kept - sum(not leads(pod) for pod in entry.pods.values())) if kept else 0

    def _led(self, entry: QueuedUnit, ready: tuple[Pod, ...]) -> bool:
        """Its leader waits, and nobody has come for a while."""
        return entry.still and any(map(leads, ready)) and self._can_keep()

    def _unreserving(self, ready: tuple[Pod, ...]) -> bool:
        return self._reserved is not None and not self._reserved.possible and any(map(leads, ready))

    def _can_keep(self) -> bool:
        return self._reserved is not None and self._reserved.possible

    def _there(self, gang: GangKey, entry: QueuedUnit) -> int:
        """
        Members that need no node any more: they have one, or have done their part.

        The retry of a member that failed does not wait for siblings that succeeded.
        """
        done = self._done(gang)
        if not done:
            return self._bound(gang)
        owners = {pod.owner.uid for pod in entry.pods.values() if pod.owner}
        return self._bound(gang) + sum(owner in owners for owner in done.values())

    def _plainly_forming(self, entry: QueuedUnit) -> bool:
        """Too few members, by their number alone: a gang of hundreds comes pod by pod."""
        if not isinstance(entry.key, GangKey) or not entry.pods or entry.suspended:
            return False
        size = size_of(entry.sizes, self._group(entry.key))
        there = len(entry.pods) + self._there(entry.key, entry) + self._kept(entry.key, entry)
        return not entry.refusals and size is not None and there < size

    def _rank(self, entry: QueuedUnit, now: float) -> Rank:
        priority, created, uid = entry.first()
        priority -= self.boost(entry.tier)
        ahead = self._is_starving(entry, now) or self._runs_short(entry)
        return (0 if self._is_half_bound(entry) else 1, priority, 0 if ahead else 1, created, uid)

    def _is_half_bound(self, entry: QueuedUnit) -> bool:
        return isinstance(entry.key, GangKey) and self._half_bound(entry.key)

    def _runs_short(self, entry: QueuedUnit) -> bool:
        """Some members have a node, and fewer than the gang needs."""
        if not isinstance(entry.key, GangKey) or not (bound := self._bound(entry.key)):
            return False
        return bound < self._unit(entry).size

    def _is_starving(self, entry: QueuedUnit, now: float) -> bool:
        since = entry.waiting_since
        return since is not None and now - since >= self._starving_after
