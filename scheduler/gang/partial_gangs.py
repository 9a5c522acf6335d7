"""
Which gangs stand half bound, and since when: the books behind repair and release.

    nothing bound ──a bind happens──▶ SHORT ──live members reach the size──▶ WHOLE
          ▲                             │                                      │
          └──────── no live member ─────┴──────────────────────────────────────┘

Live members have a node in the API, finished and terminating ones not counted; a plan that is only
assumed counts for nothing here. A gang that was whole once is never called half bound again while
a live member is left: a job whose pods complete one by one ends, and one that lost a node is
repaired, but neither is taken apart.

Whether a gang was whole is known
  1. for gangs whose pods this process bound or watched being bound: by having seen it;
  2. for gangs it found: when as many members as the gang needs have a node in the API, the
     finished and terminating ones of the same controllers included;
  3. for the rest of what it found: by `release`, from the times in the API, before it acts.
Members that succeeded did their part: those of the same controller count, so that the retry of one
that failed does not wait for siblings that will never come again.
Finished pods that were deleted, and bare ones, are no evidence for 2. A gang that was found short
and has nobody waiting is left alone: nothing says that this scheduler owes it anything.

A gang for whose missing members room is kept waits for nobody, and is not half bound.

Pure books: no I/O, the time is passed in.
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
    over: dict[str, str] = field(default_factory=dict)  # uid -> owner uid of members that had one
    succeeded: dict[str, str] = field(default_factory=dict)  # the same, of those that succeeded
    whole: bool = False
    ours: bool = False  # this process gave members their nodes since the last time none was live
    binding_cycles: int = 0  # plans of the gang whose binds are in flight
    sizes: Counter[int | None] = field(default_factory=Counter)  # what live members state -> count

    def come(self, pod: Pod) -> None:
        self.leave(pod.uid)
        self.live[pod.uid] = pod
        if pod.gang is not None:
            self.sizes[pod.gang.min_available] += 1

    def leave(self, uid: str) -> None:
        pod = self.live.pop(uid, None)
        if pod is not None and pod.gang is not None:
            self.sizes[pod.gang.min_available] -= 1
            self.sizes = +self.sizes

    since: float | None = None  # when the working leader first saw it half bound


class PartialGangTracker:
    """Feed it every pod with a gang; `group` says what a gang's PodGroup object says."""

    def __init__(
        self,
        group: Callable[[GangKey], PodGroup | None] = lambda _: None,
        reserved: Callable[[GangKey], int] = lambda _: 0,
    ) -> None:
        self._group, self._reserved = group, reserved
        self._gangs: dict[GangKey, _Gang] = {}
        self._in: dict[str, GangKey] = {}  # pod uid -> the gang it is booked under
        self._short: set[GangKey] = set()

    def __len__(self) -> int:
        """Gangs that stand half bound."""
        return len(self._short)

    def is_partial(self, key: GangKey) -> bool:
        return key in self._short

    def live(self, key: GangKey) -> int:
        """Members that have a node in the API, neither finished nor terminating."""
        gang = self._gangs.get(key)
        return 0 if gang is None else len(gang.live)

    def succeeded(self, key: GangKey) -> Mapping[str, str]:
        """uid -> owner uid of members that succeeded."""
        gang = self._gangs.get(key)
        return {} if gang is None else gang.succeeded

    def in_flight(self, key: GangKey) -> bool:
        gang = self._gangs.get(key)
        return gang is not None and gang.binding_cycles > 0

    def short(self) -> Iterator[GangKey]:
        return iter(sorted(self._short))

    # --- what happens ---

    def put(self, pod: Pod) -> None:
        """The pod's newest state, as the API shows it or as a bind has just made it."""
        if pod.gang is None or not pod.node:
            self.drop(pod.uid)
            return
        if self._in.get(pod.uid, pod.gang.key) != pod.gang.key:
            self.drop(pod.uid)
        gang = self._gangs.setdefault(pod.gang.key, _Gang())
        self._in[pod.uid] = pod.gang.key
        if pod.finished or pod.terminating:
            gang.leave(pod.uid)
            gang.over[pod.uid] = pod.owner.uid if pod.owner else ""
            if pod.succeeded and pod.owner:
                gang.succeeded[pod.uid] = pod.owner.uid
        else:
            gang.over.pop(pod.uid, None)
            gang.come(pod)
        self._judge(pod.gang.key)

    def bound(self, pod: Pod, node: str) -> None:
        """The API server took the bind; the watch will say the same."""
        self.put(pod if pod.node else replace(pod, node=node))

    def drop(self, uid: str) -> None:
        """The pod is gone from the API."""
        key = self._in.pop(uid, None)
        if key is None:
            return
        gang = self._gangs[key]
        gang.leave(uid)
        gang.over.pop(uid, None)
        gang.succeeded.pop(uid, None)
        self._judge(key)

    def start_binding(self, key: GangKey) -> None:
        """This process begins to bind members of the gang."""
        gang = self._gangs.setdefault(key, _Gang())
        gang.ours = True
        gang.binding_cycles += 1

    def completed(self, key: GangKey) -> None:
        """Every member that the gang needs has been bound, whoever went since."""
        if key in self._gangs:
            self._gangs[key].whole = True
            self._judge(key)

    def finish_binding(self, key: GangKey) -> None:
        """The binds begun with `start_binding` have succeeded or failed."""
        self._gangs[key].binding_cycles -= 1
        self._judge(key)

    def regroup(self, key: GangKey) -> None:
        if key in self._gangs:
            self._judge(key)

    # --- what is due ---

    def see(self, now: float) -> None:
        """The leader looks: time counts from when it first saw a gang half bound."""
        for key in self._short:
            gang = self._gangs[key]
            if gang.since is None:
                gang.since = now

    def again(self, key: GangKey, now: float) -> None:
        """The gang was dealt with; if it is half bound still, its time begins anew."""
        if key in self._gangs:
            self._gangs[key].since = now

    def due_at(self, key: GangKey) -> float:
        gang = self._gangs[key]
        return float("inf") if gang.since is None else gang.since + self.half(key).timeout

    def half(self, key: GangKey) -> PartialGang:
        gang = self._gangs[key]
        live = tuple(sorted(gang.live.values(), key=lambda pod: (pod.created, pod.uid)))
        size = self._size(key, gang) or 1
        asked = [pod.gang.timeout for pod in live if pod.gang and pod.gang.timeout is not None]
        group = self._group(key)
        given = group.timeout if group is not None else None
        timeout = max(asked) if asked else (given or default_timeout(size))
        return PartialGang(key, live, size, timeout, gang.ours)

    # --- books ---

    def _judge(self, key: GangKey) -> None:
        gang = self._gangs[key]
        if not gang.live:
            self._short.discard(key)
            gang.whole, gang.since = False, None
            gang.ours = gang.binding_cycles > 0
            if not gang.over and not gang.binding_cycles:
                del self._gangs[key]
            return
        size = self._size(key, gang)
        if size is not None and not gang.whole:
            ended = self._ended(gang) if gang.over else 0
            gang.whole = len(gang.live) + ended >= size
        if gang.whole or size is None or len(gang.live) + self._reserved(key) >= size:
            self._short.discard(key)
            gang.since = None
        else:
            self._short.add(key)

    def _size(self, key: GangKey, gang: _Gang) -> int | None:
        return size_of(gang.sizes, self._group(key))

    @staticmethod
    def _ended(gang: _Gang) -> int:
        """Those of the same controllers that count: where it was seen, only what succeeded does."""
        owners = {pod.owner.uid for pod in gang.live.values() if pod.owner}
        rows = gang.succeeded if gang.ours else gang.over
        return sum(1 for owner in rows.values() if owner in owners)
