"""
The scheduling queue: units that wait for nodes. A unit is one pod or one gang.

            members complete          gates removed           pop           start_binding
    FORMING ──────────────────▶ GATED ───────────────▶ ACTIVE ──────▶ PLANNING ──────────▶ BINDING
       ▲   (a member is gone)                            ▲  ▲             │                 │   │
       └───────────── from any state              due ┌──┘  │ event       │ does not fit    │   └▶
                                                   BACKOFF  UNSCHEDULABLE ◀                 │ bound
                                                      ▲                                     │
                                                      └────── requeue: a bind failed ───────┘
    REFUSED     the API server rejects the binds of members: tried again after minutes
    SUSPENDED   bound members of a partial gang are being evicted: not planned meanwhile
    OVER_QUOTA  the tenant's quota is used up: not planned, even where capacity is free
    QUARANTINED the scheduler itself failed on the unit: tried again after 5 s to 5 minutes, or when
                one of its pods changes

Every unit is in exactly one state, so that none is lost or planned twice at once. Backoff is 1 s
after the first failure and doubles to 10 s. An unschedulable unit moves to the active queue when an
event may help it (`unschedulable`), and after five minutes without one. A forming gang is not
unschedulable: `tick` returns it for a report when its membership has settled, and at its timeout.

Order: partial gangs, then tenants by fair share (`active`), then priority with the boost of the
tier, then units that starve or lack bound members, then age, then uid. No I/O and no clock of its
own: `cycle` drives the queue and passes the time in. The queue holds units that are *not* placed;
`cache` holds placed pods.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey, is_leader, key_of
from scheduler.options import STARVING_AFTER
from scheduler.queueing.active import (
    MAX_STALE_ITEMS,
    ActiveQueue,
    FairShareOrder,
    ScannedTenants,
    TenantOrder,
    urgency,
)
from scheduler.queueing.entry import (
    QueuedUnit,
    QueueState,
    Rank,
    Signature,
    UnitView,
    differs_by_user,
    rejection_delay,
    scheduling_fields,
)
from scheduler.queueing.over_quota import OverQuotaUnits
from scheduler.queueing.unit_builder import ReservedMembers, UnitBuilder
from scheduler.queueing.unschedulable import NO_TESTS, ClassHints, ClassObserver, UnschedulableUnits

MAX_UNSCHEDULABLE: Final = 300.0  # seconds after which a unit is tried without an event
SETTLED_AFTER: Final = 1.0  # seconds without a new member after which a forming gang is reported
GATE_RETRY: Final = 30.0  # seconds after which a gate that still exists is removed again

_INCOMPLETE: Final = (QueueState.FORMING, QueueState.GATED, QueueState.REFUSED)


def _raise(key: UnitKey, error: Exception) -> None:
    raise error


class SchedulingQueue:
    """
    `bound`, `group`, `succeeded` and `reserved` count the members of a gang (`unit_builder`).

    `is_partial` tells whether a gang is partially bound, `class_of` is equal for pods that fit the
    same nodes, `fair_share_order` sorts tenants by the requests of their first unit, `tenants`
    keeps them in this order, `boost` is what a tier adds to the priority of its units in the queue;
    it causes no preemption. `on_error` hears of an error about one unit, and calls `quarantine`.
    `observer` hears of the classes of unschedulable pods, and gives the hints of `move_to_active`.
    """

    def __init__(
        self,
        *,
        bound: Callable[[GangKey], int],
        group: Callable[[GangKey], PodGroup | None] = lambda _: None,
        is_partial: Callable[[GangKey], bool] = lambda _: False,
        succeeded: Callable[[GangKey], Mapping[str, str]] = lambda _: {},
        class_of: Callable[[Pod], Hashable] = lambda pod: pod.spec,
        starving_after: float = STARVING_AFTER,
        fair_share_order: FairShareOrder = lambda tenant, _: tenant,
        tenants: TenantOrder | None = None,
        boost: Callable[[str], int] = lambda _: 0,
        reserved: ReservedMembers | None = None,
        has_start_reservation: Callable[[UnitKey], bool] = lambda key: False,
        on_error: Callable[[UnitKey, Exception], None] = _raise,
        observer: ClassObserver = NO_TESTS,
    ) -> None:
        self._on_error = on_error
        self._builder = UnitBuilder(bound, group, succeeded, reserved)
        self._has_start_reservation = has_start_reservation
        self._is_partial = is_partial
        self._starving_after = starving_after
        self._boost = boost
        self._entries: dict[UnitKey, QueuedUnit] = {}
        self._unit_of: dict[str, UnitKey] = {}  # pod uid -> its unit
        self._fair_share_order = fair_share_order
        self._active = ActiveQueue(
            self._is_current,
            lambda key: self._entries[key].requests,
            tenants or ScannedTenants(fair_share_order),
        )
        self._timers: list[tuple[float, int, UnitKey]] = []
        self._unschedulable = UnschedulableUnits(
            class_of, observer, lambda key: self._entries[key].ready_at
        )
        self.over_quota = OverQuotaUnits(self._tenant_order)
        self._gated: dict[str, Pod] = {}  # uid -> pod of a complete gang behind the gang gate
        self._tokens = itertools.count()

    # --- pods and gangs change ---

    def put(self, pod: Pod, now: float) -> None:
        """A pending pod, new or changed."""
        key = key_of(pod)
        if self._unit_of.get(pod.uid, key) != key:
            self.remove(pod.uid, now)
        entry = self._entry(key, now)
        old = entry.pods.get(pod.uid)
        entry.put(pod)
        self._unit_of[pod.uid] = key
        if old is None or scheduling_fields(old) != scheduling_fields(pod):
            entry.settled = False
            self._reconsider(entry, now)
        elif entry.state is QueueState.QUARANTINED and differs_by_user(old, pod):
            self._reconsider(entry, now)

    def requeue(self, pods: Sequence[Pod], now: float) -> None:
        """Pods of one unit whose binds failed. A partial gang is tried at once the first time; all
        other units back off."""
        entry = self._put_all(pods, now)
        entry.back_off(now)
        if entry.attempts == 1 and self._is_partial_gang(entry):
            entry.ready_at = now
        self._update_state(entry, now)

    def requeue_rejected(self, pods: Sequence[Pod], now: float) -> None:
        """Pods of one unit whose binds the API server will keep rejecting."""
        entry = self._put_all(pods, now)
        for pod in pods:
            entry.reject(pod.uid, now)
        self._update_state(entry, now)

    def remove(self, uid: str, now: float) -> None:
        """A pod that is gone, has its node, or needs none."""
        key = self._unit_of.pop(uid, None)
        self._gated.pop(uid, None)
        if key is None:
            return
        entry = self._entries[key]
        was_binding = uid in entry.binding
        entry.drop(uid)
        if not entry.pods and not entry.binding:
            self._hand_over(entry, now)
            self._unschedulable.discard(key)
            self.over_quota.discard(key)
            del self._entries[key]
            self._active.discard(key)
        elif was_binding and entry.pods:
            return  # nothing changes for the members that wait
        elif entry.state is not QueueState.PLANNING:
            self._reconsider(entry, now)

    def members_changed(self, gang: GangKey, now: float) -> None:
        """Members of the gang were bound or deleted."""
        entry = self._entries.get(gang)
        if entry is not None and (entry.state in _INCOMPLETE or self._builder.build(entry).forming):
            self._reconsider(entry, now)

    def pod_group_changed(self, gang: GangKey, now: float) -> None:
        """The gang's PodGroup was created, changed or deleted."""
        entry = self._entries.get(gang)
        if entry is not None and entry.state is not QueueState.PLANNING:
            self._reconsider(entry, now)

    def suspend(self, key: UnitKey, now: float) -> None:
        """The unit is not planned until `resume`."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.suspended = True
            self._update_state(entry, now)

    def resume(self, key: UnitKey, now: float) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.suspended:
            entry.suspended = False
            entry.back_off(now)
            self._update_state(entry, now)

    def quarantine(
        self, key: UnitKey, now: float, error: str, pods: Sequence[Pod] = ()
    ) -> float | None:
        """
        The scheduler itself failed on the unit: it is tried again after a delay, which is returned,
        or when it changes. `pods` of the unit wait again. None: no pod of the unit waits.
        """
        entry = self._put_all(pods, now) if pods else self._entries.get(key)
        if entry is None or not entry.pods:
            return None
        delay = entry.quarantine(now, error)
        self._set_state(entry, QueueState.QUARANTINED)
        self._set_timer(entry, entry.quarantined_until)
        self._hand_over(entry, now)
        return delay

    def tried(self, key: UnitKey) -> None:
        """The unit was tried without an error: the next quarantine is short again."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.errors = 0

    # --- the scheduling cycle ---

    def pop(self, now: float) -> Unit | None:
        """The next unit to plan; the caller reports placed pods with `start_binding`, the rest with
        `mark_unschedulable` or `mark_over_quota`."""
        while (key := self._active.pop()) is not None:
            entry = self._entries[key]
            try:
                entry.expire_rejections(now)
                unit = self._builder.build(entry)
                if not unit.plannable:
                    self._update_state(entry, now)
                    continue
            except Exception as error:
                self._on_error(key, error)
                continue
            self._set_state(entry, QueueState.PLANNING)
            return unit
        return None

    def start_binding(self, key: UnitKey, uids: Iterable[str], now: float) -> None:
        """These pods of the unit have nodes, and their binds are in flight."""
        entry = self._entries[key]
        for uid in uids:
            entry.start_binding(uid)
        self._hand_over(entry, now)
        entry.why = None
        self._update_state(entry, now)

    def finish_binding(self, uid: str, now: float) -> None:
        """The API server took the bind."""
        if uid in self._unit_of:
            entry = self._entries[self._unit_of[uid]]
            if uid in entry.binding:
                entry.attempts = entry.errors = 0
            self.remove(uid, now)

    def mark_unschedulable(self, key: UnitKey, now: float, why: NoFit | None = None) -> None:
        """The unit, or the rest of it, did not fit."""
        entry = self._entries.get(key)
        if entry is None or not entry.pods:
            return
        entry.back_off(now)
        self._end_probe(entry)
        entry.why = why
        unit = self._builder.build(entry)
        if not unit.plannable:
            self._update_state(entry, now)
            return
        self._set_state(entry, QueueState.UNSCHEDULABLE)
        entry.signature = self._unschedulable.add(unit, self._rank(entry, now))
        due = now + MAX_UNSCHEDULABLE
        if unit.is_gang and entry.waiting_since is not None and not self._is_starving(entry, now):
            # Tried again when it starves: nodes can be held for it then.
            due = min(due, entry.waiting_since + self._starving_after)
        self._set_timer(entry, due)

    def move_to_active(self, now: float, hints: ClassHints = ()) -> int:
        """Move units that a change may help, or whose turn to be retried has come: how many."""
        probes = self._unschedulable.helped(hints, now)
        for key, signature in probes:
            self._probe(key, signature, now)
        return len(probes)

    def mark_over_quota(self, key: UnitKey, now: float, why: NoFit) -> None:
        """The quota of the unit's tenant is used up; `retry_over_quota` when it no longer is.
        A unit backs off where only planning tells whether it is."""
        entry = self._entries.get(key)
        if entry is None or not entry.pods:
            return
        self._hand_over(entry, now)
        entry.why = why
        if self._builder.build(entry).plannable:
            self._set_state(entry, QueueState.OVER_QUOTA)
            limit, amount = None, 0
            if (excess := why.excess) is not None:
                limit, amount = (excess.member, excess.resource), excess.requested
            else:
                entry.back_off(now)
            self.over_quota.add(key, entry.tenant, self._rank(entry, now), limit, amount)
            self._set_timer(entry, now + MAX_UNSCHEDULABLE)
        else:
            self._update_state(entry, now)

    def retry_over_quota(self, key: UnitKey, now: float) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.state is QueueState.OVER_QUOTA:
            self._update_state(entry, now)

    def retry(self, key: UnitKey, now: float) -> None:
        """Try the unit at once: what it waited for has happened."""
        entry = self._entries.get(key)
        if entry is not None and entry.state in (QueueState.UNSCHEDULABLE, QueueState.BACKOFF):
            entry.ready_at = now
            self._set_ready(entry, now)

    def gates_to_remove(self) -> list[Pod]:
        """Pods of complete gangs that are behind the gang gate; each is returned once."""
        pods = list(self._gated.values())
        self._gated.clear()
        return pods

    def tick(self, now: float) -> list[Unit]:
        """Act on timers that are due; returns the forming gangs to report."""
        due: list[Unit] = []
        while self._timers and self._timers[0][0] <= now:
            _, token, key = heapq.heappop(self._timers)
            if not self._is_current(key, token):
                continue
            try:
                self._act(self._entries[key], now, due)
            except Exception as error:
                self._on_error(key, error)
        self.move_to_active(now)
        return due

    def _act(self, entry: QueuedUnit, now: float, due: list[Unit]) -> None:
        """The timer of the unit is due."""
        if entry.state is QueueState.UNSCHEDULABLE:
            self._flush(entry, now)
            return
        if entry.state is QueueState.FORMING:
            entry.settled = True
            due.append(self._builder.build(entry))
        self._update_state(entry, now, unchanged=True)

    def next_at(self) -> float | None:
        """When `tick` next has something to do; may be early, never late."""
        due = (self._timers[0][0] if self._timers else None, self._unschedulable.next_at())
        return min((at for at in due if at is not None), default=None)

    # --- state changes ---

    def _reconsider(self, entry: QueuedUnit, now: float) -> None:
        """The unit itself changed: it forms, or is tried when its backoff ends."""
        entry.quarantined_until = 0.0
        self._hand_over(entry, now)
        if self._builder.too_few(entry):
            self._set_forming(entry, now)
        else:
            self._update_state(entry, now)

    def _update_state(self, entry: QueuedUnit, now: float, *, unchanged: bool = False) -> None:
        """Move the unit to the state it belongs in; `unchanged`: a forming gang did not grow."""
        entry.expire_rejections(now)
        if not entry.pods:
            self._set_state(entry, QueueState.BINDING)
            return
        if entry.suspended:
            self._set_state(entry, QueueState.SUSPENDED)
            return
        if now < entry.quarantined_until:
            self._set_state(entry, QueueState.QUARANTINED)
            self._set_timer(entry, entry.quarantined_until)
            return
        unit = self._builder.build(entry)
        if not unit.forming:
            self._gated.update((pod.uid, pod) for pod in unit.gated)
        if unit.plannable:
            self._set_ready(entry, now)
        elif unit.gated and not unit.forming:
            self._set_state(entry, QueueState.GATED)
            self._set_timer(entry, now + GATE_RETRY)
        elif unit.waits_for_rejected:
            self._set_state(entry, QueueState.REFUSED)
            self._set_timer(entry, entry.rejections_expire_at())
        else:
            self._set_forming(entry, now, settled=unit if unchanged else None)

    def _set_forming(self, entry: QueuedUnit, now: float, *, settled: Unit | None = None) -> None:
        """Set the timer for the report when the gang has settled, then for its timeout."""
        if entry.state is not QueueState.FORMING:
            entry.forming_since = now
        self._set_state(entry, QueueState.FORMING)
        if settled is None:
            self._set_timer(entry, now + SETTLED_AFTER)
        elif now < (deadline := entry.forming_since + settled.timeout):
            self._set_timer(entry, deadline)
        elif entry.rejections:
            self._set_timer(entry, entry.rejections_expire_at())

    def _set_ready(self, entry: QueuedUnit, now: float) -> None:
        if entry.waiting_since is None:
            entry.waiting_since = now
        if now >= entry.ready_at:
            self._set_state(entry, QueueState.ACTIVE)
            item = (self._rank(entry, now), entry.token, entry.key)
            self._active.push(entry.tenant, item, units=len(self._entries))
        else:
            self._set_state(entry, QueueState.BACKOFF)
            self._set_timer(entry, entry.ready_at)

    def _set_state(self, entry: QueuedUnit, state: QueueState) -> None:
        if entry.state is QueueState.UNSCHEDULABLE:
            self._unschedulable.discard(entry.key)
        if entry.state is QueueState.OVER_QUOTA:
            self.over_quota.discard(entry.key)
        if state is QueueState.FORMING:
            entry.waiting_since = None
        was_active = entry.state is QueueState.ACTIVE
        entry.state = state
        entry.token = next(self._tokens)
        if was_active:
            self._active.discard(entry.key)

    def _probe(self, key: UnitKey, signature: Signature, now: float) -> None:
        entry = self._entries[key]
        entry.probes = signature
        self._unschedulable.start_probe(signature)
        self._set_ready(entry, now)

    def _end_probe(self, entry: QueuedUnit) -> Signature | None:
        """The unit is no longer the probe of its signature."""
        signature, entry.probes = entry.probes, None
        if signature is not None:
            self._unschedulable.end_probe(signature)
        return signature

    def _hand_over(self, entry: QueuedUnit, now: float) -> None:
        """The probe was placed or will not be tried: its next equal becomes the probe."""
        signature = self._end_probe(entry)
        if signature is None:
            return
        key = self._unschedulable.take_next(signature, now)
        if key is not None:
            self._probe(key, signature, now)

    def _flush(self, entry: QueuedUnit, now: float) -> None:
        """Unschedulable for long: one unit of its signature is tried without an event."""
        self._set_timer(entry, now + MAX_UNSCHEDULABLE)
        self._unschedulable.flush(entry.signature or (), now, MAX_UNSCHEDULABLE)

    def _put_all(self, pods: Iterable[Pod], now: float) -> QueuedUnit:
        entry: QueuedUnit | None = None
        for pod in pods:
            entry = self._entry(key_of(pod), now)
            entry.put(pod)
            self._unit_of[pod.uid] = entry.key
        if entry is None:
            raise ValueError("no pods")
        return entry

    def _entry(self, key: UnitKey, now: float) -> QueuedUnit:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = QueuedUnit(key, since=now)
        return entry

    def _set_timer(self, entry: QueuedUnit, at: float) -> None:
        """Stale timers are dropped in bulk: a standby sets timers for weeks."""
        heap = self._timers
        heapq.heappush(heap, (at, entry.token, entry.key))
        if len(heap) > 4 * len(self._entries) + MAX_STALE_ITEMS:
            heap[:] = [timer for timer in heap if self._is_current(timer[2], timer[1])]
            heapq.heapify(heap)

    def _is_current(self, key: UnitKey, token: int) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.token == token

    # --- order ---

    def _rank(self, entry: QueuedUnit, now: float) -> Rank:
        priority, created, uid = entry.order()
        priority -= self._boost(entry.tier)
        first = self._is_starving(entry, now) or self._builder.lacks_bound_members(entry)
        partial = self._is_partial_gang(entry)
        return (0 if partial else 1, priority, 0 if first else 1, created, uid)

    def _tenant_order(self, tenant: str, rank: Rank, key: UnitKey) -> tuple[Any, ...]:
        """The order of tenants in the active queue, for the first unit of each."""
        requests = self._entries[key].requests
        return urgency(rank), self._fair_share_order(tenant, requests), rank

    def _is_partial_gang(self, entry: QueuedUnit) -> bool:
        return isinstance(entry.key, GangKey) and self._is_partial(entry.key)

    def _is_starving(self, entry: QueuedUnit, now: float) -> bool:
        since = entry.waiting_since
        return since is not None and now - since >= self._starving_after

    # --- read ---

    def __len__(self) -> int:
        """Pods that wait, and pods whose bind is in flight."""
        return len(self._unit_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._unit_of

    def state(self, key: UnitKey) -> QueueState | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def counts(self) -> Counter[QueueState]:
        """Pods by the state of their unit; pods whose bind is in flight count as binding."""
        counts: Counter[QueueState] = Counter()
        for entry in self._entries.values():
            counts[entry.state] += len(entry.pods)
            counts[QueueState.BINDING] += len(entry.binding)
        return +counts

    def quarantined(self) -> int:
        """Units in quarantine."""
        return sum(entry.state is QueueState.QUARANTINED for entry in self._entries.values())

    def gangs(self) -> Counter[QueueState]:
        """Gangs with waiting members, by state."""
        return Counter(
            entry.state
            for entry in self._entries.values()
            if entry.pods and isinstance(entry.key, GangKey)
        )

    def led(self) -> Iterator[GangKey]:
        """Gangs whose leader pod waits."""
        for entry in tuple(self._entries.values()):
            if isinstance(entry.key, GangKey) and any(map(is_leader, entry.pods.values())):
                yield entry.key

    def key(self, uid: str) -> UnitKey | None:
        return self._unit_of.get(uid)

    def pods(self, key: UnitKey) -> tuple[Pod, ...]:
        """Pods of the unit that wait."""
        entry = self._entries.get(key)
        return () if entry is None else tuple(entry.pods.values())

    def unit(self, key: UnitKey) -> Unit | None:
        entry = self._entries.get(key)
        return None if entry is None else self._builder.build(entry)

    def view(self, key: UnitKey) -> UnitView | None:
        """The unit and its state, for an explanation."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        return UnitView(
            self._builder.build(entry),
            entry.state,
            entry.attempts,
            entry.since,
            entry.waiting_since,
            entry.why,
            entry.error,
            entry.quarantined_until,
        )

    def nominated(self) -> dict[UnitKey, list[Pod]]:
        """Waiting pods with a nominated node, by unit."""
        nominated: dict[UnitKey, list[Pod]] = {}
        for key, entry in self._entries.items():
            pods = [pod for pod in entry.pods.values() if pod.nominated]
            if pods:
                nominated[key] = pods
        return nominated

    def was_rejected(self, uid: str) -> bool:
        """Whether the API server rejected an earlier bind of the pod."""
        key = self._unit_of.get(uid)
        return key is not None and uid in self._entries[key].rejections

    def rejection_delay(self, uid: str) -> float:
        """Seconds until the pod is tried again if the API server rejects its bind now."""
        key = self._unit_of.get(uid)
        return rejection_delay(0) if key is None else self._entries[key].rejection_delay(uid)

    def starving(self, key: UnitKey, now: float) -> bool:
        """Whether the unit has been complete for `starving_after` seconds; a unit with a start
        reservation does not starve."""
        entry = self._entries.get(key)
        reserved = self._has_start_reservation(key)
        return entry is not None and not reserved and self._is_starving(entry, now)

    def timed_out(self, unit: Unit, now: float) -> bool:
        """Whether the gang has been forming for longer than its timeout."""
        entry = self._entries.get(unit.key)
        return entry is not None and now >= entry.forming_since + unit.timeout
