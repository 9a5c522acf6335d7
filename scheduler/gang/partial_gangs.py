"""
Tracks which gangs are partially bound, and since when.

    nothing bound ──first bind──▶ PARTIAL ──live members reach the size──▶ COMPLETE
          ▲                          │                                        │
          └──────── no live member ──┴────────────────────────────────────────┘

Live members have a node in the API and are neither finished nor terminating; assumed placements do
not count. A gang that was complete once is not partial again while it has a live member: a job
whose pods finish one by one ends, a job that lost a node is repaired, and neither is evicted.

The tracker knows that a gang was complete
  1. if this process bound its pods or watched the binds: it has seen the gang complete;
  2. if it found the gang after a start: as many members as the gang needs have a node in the API,
     finished and terminating members of the same controllers included;
  3. else from `stale_gang_eviction`, which compares times in the API before it evicts.
Members that succeeded count if they have the same controller, so that the retry of a failed member
does not wait for its siblings. Deleted pods and pods without a controller are no evidence for 2. A
gang that was found partial and has no waiting members is not evicted: another scheduler may own it.
A gang with capacity reserved for its missing members is not partial.

No I/O; the time is passed in.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.pod import Pod
from scheduler.model.unit import PartialGang, default_timeout, size_of


@dataclass(slots=True)
class _Gang:
    live: dict[str, Pod] = field(default_factory=dict)  # uid -> member with a node
    ended: dict[str, str] = field(default_factory=dict)  # uid -> owner uid of ended members
    succeeded: dict[str, str] = field(default_factory=dict)  # the same, of succeeded members
    complete: bool = False
    witnessed: bool = False  # this process bound members since the gang last had no live member
    binding_cycles: int = 0  # plans of the gang whose binds are in flight
    stated_sizes: Counter[int | None] = field(default_factory=Counter)  # of live members
    partial_since: float | None = None  # when the leader first saw it partial

    def add(self, pod: Pod) -> None:
        self.remove(pod.uid)
        self.live[pod.uid] = pod
        if pod.gang is not None:
            self.stated_sizes[pod.gang.min_available] += 1

    def remove(self, uid: str) -> None:
        pod = self.live.pop(uid, None)
        if pod is not None and pod.gang is not None:
            self.stated_sizes[pod.gang.min_available] -= 1
            self.stated_sizes = +self.stated_sizes


class PartialGangTracker:
    """Takes every pod of a gang; `group` returns the PodGroup of a gang, `reserved` how many of its
    missing members have reserved capacity."""

    def __init__(
        self,
        group: Callable[[GangKey], PodGroup | None] = lambda _: None,
        reserved: Callable[[GangKey], int] = lambda _: 0,
    ) -> None:
        self._group = group
        self._reserved = reserved
        self._gangs: dict[GangKey, _Gang] = {}
        self._gang_of: dict[str, GangKey] = {}  # by pod uid
        self._partial: set[GangKey] = set()

    def __len__(self) -> int:
        """Partial gangs."""
        return len(self._partial)

    def is_partial(self, key: GangKey) -> bool:
        return key in self._partial

    def live(self, key: GangKey) -> int:
        """Members that have a node in the API, neither finished nor terminating."""
        gang = self._gangs.get(key)
        return 0 if gang is None else len(gang.live)

    def succeeded(self, key: GangKey) -> Mapping[str, str]:
        """uid -> owner uid of members that succeeded."""
        gang = self._gangs.get(key)
        return {} if gang is None else gang.succeeded

    def is_binding(self, key: GangKey) -> bool:
        gang = self._gangs.get(key)
        return gang is not None and gang.binding_cycles > 0

    def partial(self) -> Iterator[GangKey]:
        return iter(sorted(self._partial))

    # --- events ---

    def put(self, pod: Pod) -> None:
        """The newest state of the pod, from the watch or after its bind."""
        if pod.gang is None or not pod.node:
            self.drop(pod.uid)
            return
        if self._gang_of.get(pod.uid, pod.gang.key) != pod.gang.key:
            self.drop(pod.uid)
        gang = self._gangs.setdefault(pod.gang.key, _Gang())
        self._gang_of[pod.uid] = pod.gang.key
        if pod.finished or pod.terminating:
            gang.remove(pod.uid)
            gang.ended[pod.uid] = pod.owner.uid if pod.owner else ""
            if pod.succeeded and pod.owner:
                gang.succeeded[pod.uid] = pod.owner.uid
        else:
            gang.ended.pop(pod.uid, None)
            gang.add(pod)
        self._update(pod.gang.key)

    def bound(self, pod: Pod, node: str) -> None:
        """The API server took the bind; the watch will show it."""
        self.put(pod if pod.node else replace(pod, node=node))

    def drop(self, uid: str) -> None:
        """The pod was deleted."""
        key = self._gang_of.pop(uid, None)
        if key is None:
            return
        gang = self._gangs[key]
        gang.remove(uid)
        gang.ended.pop(uid, None)
        gang.succeeded.pop(uid, None)
        self._update(key)

    def start_binding(self, key: GangKey) -> None:
        """This process begins to bind members of the gang."""
        gang = self._gangs.setdefault(key, _Gang())
        gang.witnessed = True
        gang.binding_cycles += 1

    def completed(self, key: GangKey) -> None:
        """As many members as the gang needs were bound, even if some were deleted since."""
        if key in self._gangs:
            self._gangs[key].complete = True
            self._update(key)

    def finish_binding(self, key: GangKey) -> None:
        """The binds begun with `start_binding` have succeeded or failed."""
        self._gangs[key].binding_cycles -= 1
        self._update(key)

    def pod_group_changed(self, key: GangKey) -> None:
        if key in self._gangs:
            self._update(key)

    # --- time ---

    def tick(self, now: float) -> None:
        """Called by the leader: the timeout of a gang counts from when it first saw it partial."""
        for key in self._partial:
            gang = self._gangs[key]
            if gang.partial_since is None:
                gang.partial_since = now

    def restart_timeout(self, key: GangKey, now: float) -> None:
        """If the gang is still partial, its timeout begins anew."""
        if key in self._gangs:
            self._gangs[key].partial_since = now

    def due_at(self, key: GangKey) -> float:
        gang = self._gangs[key]
        return (
            float("inf")
            if gang.partial_since is None
            else gang.partial_since + self.describe(key).timeout
        )

    def describe(self, key: GangKey) -> PartialGang:
        gang = self._gangs[key]
        live = tuple(sorted(gang.live.values(), key=lambda pod: (pod.created, pod.uid)))
        size = self._size(key, gang) or 1
        stated = [pod.gang.timeout for pod in live if pod.gang and pod.gang.timeout is not None]
        group = self._group(key)
        group_timeout = group.timeout if group is not None else None
        timeout = max(stated) if stated else (group_timeout or default_timeout(size))
        return PartialGang(key, live, size, timeout, gang.witnessed)

    # --- state ---

    def _update(self, key: GangKey) -> None:
        gang = self._gangs[key]
        if not gang.live:
            self._partial.discard(key)
            gang.complete = False
            gang.partial_since = None
            gang.witnessed = gang.binding_cycles > 0
            if not gang.ended and not gang.binding_cycles:
                del self._gangs[key]
            return
        size = self._size(key, gang)
        if size is not None and not gang.complete:
            gang.complete = len(gang.live) + self._evidence(gang) >= size
        if gang.complete or size is None or len(gang.live) + self._reserved(key) >= size:
            self._partial.discard(key)
            gang.partial_since = None
        else:
            self._partial.add(key)

    def _size(self, key: GangKey, gang: _Gang) -> int | None:
        return size_of(gang.stated_sizes, self._group(key))

    @staticmethod
    def _evidence(gang: _Gang) -> int:
        """Ended members of the same controllers; of a witnessed gang only those that succeeded."""
        if not gang.ended:
            return 0
        owners = {pod.owner.uid for pod in gang.live.values() if pod.owner}
        ended = gang.succeeded if gang.witnessed else gang.ended
        return sum(owner in owners for owner in ended.values())
