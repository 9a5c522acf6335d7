"""
Looking into a scheduler at work: one pod as it stands, and why it waits. Nothing is changed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from scheduler.cache.cache import Cache
from scheduler.cache.reserved_capacity import ReservedCapacity
from scheduler.explain import response
from scheduler.explain.inspection import Inspection
from scheduler.gang.partial_gangs import PartialGangTracker
from scheduler.gang.recovery import GangRecovery
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, PodKey
from scheduler.model.unit import StartReservation, UnitKey, key_of
from scheduler.plan.filters import HELD
from scheduler.plan.memo import Memo
from scheduler.queueing.entry import UnitView
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.tenancy.reservation.objects import amounts


class Inspector:
    """`pods` are those without a node, by uid; `known` lists all that the watch has shown."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        partial_gangs: PartialGangTracker,
        recovery: GangRecovery,
        memo: Memo,
        now: Callable[[], float],
        pods: Mapping[str, Pod],
        known: Callable[[], Iterable[Pod]],
        asked_for: Callable[[GangKey], list[str]] = lambda _: [],
        start_reservations: Callable[[], Iterable[StartReservation]],
        reserved_later: Callable[[Pod], Iterable[str]] = lambda _: (),
    ) -> None:
        self._cache, self._queue = cache, queue
        self._partial_gangs, self._recovery = partial_gangs, recovery
        self._memo, self._now, self._pods, self._known = memo, now, pods, known
        self._asked_for = asked_for
        self._reserved_later = reserved_later
        self._start_reservations = start_reservations

    def inspect(self, which: str | PodKey) -> Inspection | None:
        """A pod by its uid or its key; None: no such pod is waiting or was shown."""
        pod = self._find(which)
        if pod is None:
            return None
        key = self._queue.key(pod.uid)
        look = None if key is None else self._queue.view(key)
        held = self._cache.held(pod.uid)
        gang = pod.gang.key if pod.gang else None
        return Inspection(
            pod,
            look,
            node=held.node if held else pod.node,
            bound=self._partial_gangs.live(gang) if gang else 0,
            is_partial=gang is not None and self._partial_gangs.is_partial(gang),
            bound_members=self._cache.bound_members(gang) if gang else (),
            closed=self._closed(look) if look else frozenset(),
        )

    def _closed(self, look: UnitView) -> frozenset[str]:
        """Nodes that were held for others when the unit was last tried."""
        closed = self._recovery.closed_to(look.unit)
        return closed.union(*(one.nodes for one in self._ahead(look)))

    def _ahead(self, look: UnitView) -> list[StartReservation]:
        """Promised starts that the unit would have made late when it was last tried."""
        if look.why is None or all(reason != HELD for reason, _ in look.why.reasons):
            return []
        return [
            one
            for one in self._start_reservations()
            if one.key != look.unit.key and one.priority >= look.unit.priority
        ]

    def explain(self, key: PodKey) -> dict[str, Any] | None:
        """Why a pod waits, see `answers`; None: no such pod is known."""
        seen = self.inspect(key)
        if seen is None:
            return None
        gang = seen.pod.gang
        members: list[tuple[Pod, str]] = []
        if gang is not None:
            mine = {pod.uid: pod for pod in self._known() if pod.gang and pod.gang.key == gang.key}
            for pod in mine.values():
                held = self._cache.held(pod.uid)
                if not pod.finished:
                    members.append((pod, held.node if held else pod.node))
        snapshot = self._cache.snapshot
        promised = tuple(self._start_reservations())
        found = response.answer(
            seen, snapshot, self._memo, members=members, promised=promised, now=self._now()
        )
        ahead = [] if seen.look is None else self._ahead(seen.look)
        if ahead and "changes" in found:
            found["changes"].append(response.shorter(min(one.start for one in ahead)))
        return found | self._reserved(seen) | self._provisioning(seen)

    def _reserved(self, seen: Inspection) -> dict[str, Any]:
        """What is kept for others, where the pod has no node."""
        if seen.node:
            return {}
        now = kept_from(seen.pod, self._cache.reserved)
        found = [*now, *self._reserved_later(seen.pod)]
        return {"reserved": found} if found else {}

    def _provisioning(self, seen: Inspection) -> dict[str, Any]:
        """The nodes that are asked for, where the pod has none."""
        gang = seen.pod.gang
        found = [] if seen.node or gang is None else self._asked_for(gang.key)
        return {"provisioning": found} if found else {}

    def _find(self, which: str | PodKey) -> Pod | None:
        if isinstance(which, str) and which in self._pods:
            return self._pods[which]
        for pod in (*self._pods.values(), *self._known()):
            if which in (pod.uid, pod.key):
                return pod
        return None


def kept_from(pod: Pod, holds: ReservedCapacity) -> Iterator[str]:
    """Room on nodes that this pod may not use, by whom it is kept for."""
    for key in sorted(holds, key=str):
        rows = holds.of(key)
        if key != key_of(pod) and not _may_use(pod, key, rows):
            yield f"{_amount(rows)} on {_nodes(rows)} for {_whom(key, rows)}"


def _allotted(key: UnitKey) -> bool:
    return not isinstance(key, GangKey) and key.name.endswith("/")


def _may_use(pod: Pod, key: UnitKey, rows: Sequence[Placement]) -> bool:
    return _allotted(key) and rows[0].pod.attributes.tenant == pod.attributes.tenant


def _amount(rows: Sequence[Placement]) -> str:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(dict(row.pod.spec.requests))
    return ", ".join(f"{name} {text}" for name, text in amounts(sorted(total.items())).items())


def _nodes(rows: Sequence[Placement]) -> str:
    names = sorted({row.node for row in rows})
    return f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes"


def _whom(key: UnitKey, rows: Sequence[Placement]) -> str:
    if _allotted(key):
        return f"tenant {rows[0].pod.attributes.tenant} (ResourceReservation {str(key)[:-1]})"
    return f"{'pod group' if isinstance(key, GangKey) else 'pod'} {key}"
