"""
Inspects a running scheduler: one pod as it is now, and why it waits. Read-only.
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
    """`pods` are the pods without a node, by uid; `known` lists all pods that the watch showed."""

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
        provisioning: Callable[[GangKey], list[str]] = lambda _: [],
        start_reservations: Callable[[], Iterable[StartReservation]],
        reserved_later: Callable[[Pod], Iterable[str]] = lambda _: (),
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._partial_gangs = partial_gangs
        self._recovery = recovery
        self._memo = memo
        self._now = now
        self._pods = pods
        self._known = known
        self._provisioning = provisioning
        self._reserved_later = reserved_later
        self._start_reservations = start_reservations

    def inspect(self, which: str | PodKey) -> Inspection | None:
        """A pod by its uid or its key; None: unknown."""
        pod = self._find(which)
        if pod is None:
            return None
        key = self._queue.key(pod.uid)
        queued = None if key is None else self._queue.view(key)
        held = self._cache.get(pod.uid)
        gang = pod.gang.key if pod.gang else None
        return Inspection(
            pod,
            queued,
            node=held.node if held else pod.node,
            bound=self._partial_gangs.live(gang) if gang else 0,
            is_partial=gang is not None and self._partial_gangs.is_partial(gang),
            bound_members=self._cache.bound_members(gang) if gang else (),
            closed=self._closed(queued) if queued else frozenset(),
        )

    def _closed(self, queued: UnitView) -> frozenset[str]:
        """Nodes that were held for other units when the unit was last tried."""
        closed = self._recovery.closed_to(queued.unit)
        return closed.union(*(reservation.nodes for reservation in self._ahead(queued)))

    def _ahead(self, queued: UnitView) -> list[StartReservation]:
        """Start reservations that the unit would have delayed when it was last tried."""
        if queued.why is None or all(reason != HELD for reason, _ in queued.why.reasons):
            return []
        return [
            reservation
            for reservation in self._start_reservations()
            if reservation.key != queued.unit.key and reservation.priority >= queued.unit.priority
        ]

    def explain(self, key: PodKey) -> dict[str, Any] | None:
        """Why a pod waits, as `response` describes it; None: unknown."""
        seen = self.inspect(key)
        if seen is None:
            return None
        gang = seen.pod.gang
        members: list[tuple[Pod, str]] = []
        if gang is not None:
            siblings = (pod for pod in self._known() if pod.gang and pod.gang.key == gang.key)
            for pod in {pod.uid: pod for pod in siblings}.values():
                held = self._cache.get(pod.uid)
                if not pod.finished:
                    members.append((pod, held.node if held else pod.node))
        snapshot = self._cache.snapshot
        reservations = tuple(self._start_reservations())
        answer = response.answer(
            seen,
            snapshot,
            self._memo,
            members=members,
            start_reservations=reservations,
            now=self._now(),
        )
        ahead = [] if seen.queued is None else self._ahead(seen.queued)
        if ahead and "changes" in answer:
            earliest = min(reservation.start for reservation in ahead)
            answer["changes"].append(response.shorter(earliest))
        return answer | self._reserved(seen) | self._provisioning_of(seen)

    def _reserved(self, seen: Inspection) -> dict[str, Any]:
        """Capacity that is reserved for others, if the pod has no node."""
        if seen.node:
            return {}
        now = reserved_for_others(seen.pod, self._cache.reserved)
        lines = [*now, *self._reserved_later(seen.pod)]
        return {"reserved": lines} if lines else {}

    def _provisioning_of(self, seen: Inspection) -> dict[str, Any]:
        """The ProvisioningRequest of its gang, if the pod has no node."""
        gang = seen.pod.gang
        lines = [] if seen.node or gang is None else self._provisioning(gang.key)
        return {"provisioning": lines} if lines else {}

    def _find(self, which: str | PodKey) -> Pod | None:
        if isinstance(which, str) and which in self._pods:
            return self._pods[which]
        for pod in (*self._pods.values(), *self._known()):
            if which in (pod.uid, pod.key):
                return pod
        return None


def reserved_for_others(pod: Pod, reserved: ReservedCapacity) -> Iterator[str]:
    """Reserved capacity that this pod may not use, by its owner."""
    for key in sorted(reserved, key=str):
        rows = reserved.of(key)
        if key != key_of(pod) and not _may_use(pod, key, rows):
            yield f"{_amount(rows)} on {_nodes(rows)} for {_owner(key, rows)}"


def _is_tenant_reservation(key: UnitKey) -> bool:
    return not isinstance(key, GangKey) and key.name.endswith("/")


def _may_use(pod: Pod, key: UnitKey, rows: Sequence[Placement]) -> bool:
    return _is_tenant_reservation(key) and rows[0].pod.attributes.tenant == pod.attributes.tenant


def _amount(rows: Sequence[Placement]) -> str:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(dict(row.pod.spec.requests))
    return ", ".join(f"{name} {text}" for name, text in amounts(sorted(total.items())).items())


def _nodes(rows: Sequence[Placement]) -> str:
    names = sorted({row.node for row in rows})
    return f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes"


def _owner(key: UnitKey, rows: Sequence[Placement]) -> str:
    if _is_tenant_reservation(key):
        return f"tenant {rows[0].pod.attributes.tenant} (ResourceReservation {str(key)[:-1]})"
    return f"{'pod group' if isinstance(key, GangKey) else 'pod'} {key}"
