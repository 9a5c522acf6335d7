"""
Member reservations as ResourceReservation objects: created before a leader is bound, restored by a
new scheduler. Also the watch and the statuses of tenant reservations.

    plan of leader + placeholders ──create──▶ object ──▶ leader bound
                                      │ fails: no pod is bound, capacity is released, retried later
    a member replaces a placeholder ──▶ status          reservation ended ──▶ object deleted
    object deleted through the API  ──▶ capacity is released at once

    a new scheduler, before it plans: leader bound ──▶ reserved again, for members that are missing
                                      else         ──▶ object deleted, gang planned from the start
    the same for an object that the former leader wrote while this scheduler took over

The leader owns the object, so the garbage collector deletes the object with it even when no
scheduler runs. `members` decides what is reserved.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from cluster import backoff
from cluster.events import correlator
from cluster.informer import EventKind, WatchEvent
from policies import quantity
from policies.documents.reservation import MOST, Place, PodGroupMembers
from policies.text import moment
from scheduler.background import BackgroundTasks
from scheduler.cache.cache import Cache, CachedPod
from scheduler.errors import ErrorStep
from scheduler.isolation import Isolation
from scheduler.model.assignment import NO_ASSIGNMENT, parse
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.placeholder import like, spec_of
from scheduler.model.plan import Bound, Placement, Result
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, is_leader, size_of
from scheduler.report import events
from scheduler.tenancy.reservation.members import (
    ALL_MEMBERS_EXIST,
    MAX_SECONDS,
    MemberReservation,
    MemberReservations,
)
from scheduler.tenancy.reservation.objects import ReservationObject, document, status
from scheduler.tenancy.reservation.tenant_active import TenantReservations
from scheduler.tenancy.reservation.writer import Created, Name, ReservationWriter

logger = logging.getLogger(__name__)

Json = dict[str, Any]
K = TypeVar("K")

SETTLE: Final = 0.5  # seconds: members come in bursts, and one status covers a burst
LONGEST_PAUSE: Final = 30.0
CREATE_SECONDS: Final = 10.0


class ReservationController:
    """`restored` is called with gangs whose reservation a new scheduler took over, `released` with
    gangs whose reservation ended and why, `freed` with nodes on which less is reserved; `now` is a
    clock that never jumps."""

    def __init__(
        self,
        cache: Cache,
        members: MemberReservations,
        writer: ReservationWriter,
        *,
        group: Callable[[GangKey], PodGroup | None],
        now: Callable[[], float],
        epoch: Callable[[], float],
        restored: Callable[[GangKey], None],
        released: Callable[[GangKey, str], None],
        freed: Callable[[Iterable[str]], None],
        tasks: BackgroundTasks,
        isolation: Isolation,
        record: Callable[[correlator.EventReport], None] = lambda report: None,
    ) -> None:
        self._cache = cache
        self._members = members
        self._writer = writer
        self._group = group
        self._now = now
        self._epoch = epoch
        self._restored = restored
        self._released = released
        self._freed = freed
        self._tasks = tasks
        self._isolation = isolation
        self._record = record
        self._watched: dict[Name, ReservationObject] = {}
        self._objects: dict[GangKey, tuple[Name, str]] = {}  # gang -> name and uid of its object
        self._changed: set[GangKey] = set()  # gangs whose status is to be written
        self._statuses: dict[Name, tuple[str, Json]] = {}  # of tenants: uid and status
        self._unwritten: set[Name] = set()  # tenant reservations whose status is to be written
        self._to_delete: set[Name] = set()
        self._creating: set[Name] = set()
        self._delete_lock = asyncio.Lock()
        self._handled: set[str] = set()  # uids of objects that were created or restored here
        self._unhandled: set[Name] = set()  # other objects for gang members
        self._task: asyncio.Task[None] | None = None
        self.tenants = TenantReservations(
            cache,
            epoch=epoch,
            publish=self._publish,
            record=record,
            freed=freed,
            isolation=isolation,
        )
        members.observe(self._on_change)

    # --- watch ---

    def on_event(self, event: WatchEvent[ReservationObject | None]) -> None:
        name = (event.key[0], event.key[1])
        if event.kind is not EventKind.DELETED and event.object is not None:
            self._watched[name] = event.object
            if event.object.spec.pod_group is None:
                self.tenants.put(event.object)
            elif event.object.uid not in self._handled:
                self._unhandled.add(name)
            return
        self._watched.pop(name, None)
        self._unhandled.discard(name)
        self._statuses.pop(name, None)
        self.tenants.drop(name)
        deleted = event.old or event.object
        if deleted is not None:
            self._handled.discard(deleted.uid)
        for key, (own_name, uid) in list(self._objects.items()):
            if own_name == name and (deleted is None or uid == deleted.uid):
                del self._objects[key]
                self._release(key, "its ResourceReservation was deleted")

    # --- restore ---

    def tick(self) -> None:
        """Before every plan."""
        if self._unhandled:
            self._restore_all()
        self.tenants.tick()

    def next_at(self) -> float | None:
        """When `tick` has something to do, by the clock that never jumps."""
        at = self.tenants.next_at()
        return None if at is None else at - self._epoch() + self._now()

    def _restore_all(self) -> None:
        """Reserve again what another scheduler reserved."""
        for name in sorted(self._unhandled - self._creating):
            self._unhandled.discard(name)
            obj = self._watched[name]
            group = obj.spec.pod_group
            if group is not None and obj.uid not in self._handled and name not in self._to_delete:
                self._handled.add(obj.uid)
                try:
                    self._restore(obj, group)
                except Exception as error:
                    self._handled.discard(obj.uid)  # its next event is another try
                    self._isolation.report(ErrorStep.RESERVATION, "/".join(name), error)

    def _restore(self, obj: ReservationObject, group: PodGroupMembers) -> None:
        key = GangKey(obj.name[0], group.name)
        leader = self._cache.get(group.leader)
        if leader is None or leader.assumed or leader.pod.terminating or key in self._objects:
            self._delete_later(obj.name)
            if key not in self._objects:
                why = "its leader ended, or is not bound and is planned again"
                report = events.member_reservation_dropped
                self._record(report(*obj.name, obj.uid, group.name, why))
            return
        self._objects[key] = (obj.name, obj.uid)
        left = obj.spec.until.timestamp() - self._epoch()
        until = self._now() + min(left, MAX_SECONDS)
        placements, unplaced = self._placements(key, leader, group, obj.places)
        reservation = MemberReservation(group.leader, until)
        self._members.reserve(key, placements, reservation, unplaced=unplaced)
        self._on_change(key)  # also if all members exist
        self._restored(key)
        logger.info("restored reservation", extra={"unit": str(key), "places": len(placements)})

    def _placements(
        self, key: GangKey, leader: CachedPod, group: PodGroupMembers, places: Sequence[Place]
    ) -> tuple[list[Placement], tuple[Pod, ...]]:
        """Of the missing members, and those without a placement."""
        bound_members = self._cache.bound_members(key)
        stated = (pod.gang.min_available for pod, _ in bound_members if pod.gang)
        size = size_of(stated, self._group(key)) or 1
        missing = min(max(0, size - len(bound_members)), MOST)
        amounts = {name: quantity.amount(name, text) for name, text in group.resources.items()}
        pods = like(leader.pod, spec_of(leader.pod, amounts), missing)
        bound_on = Counter(node for pod, node in bound_members if not is_leader(pod))
        placements = [
            Placement(pod, place.node, parse(place.assigned or None) or NO_ASSIGNMENT)
            for pod, place in zip(pods, unused_places(places, bound_on, missing), strict=False)
        ]
        return placements, pods[len(placements) :]

    # --- between a plan and its binds ---

    def needs_object(self, unit: Unit, placements: Iterable[Placement]) -> bool:
        """Whether the API server must have the object before these pods are bound."""
        has_leader = any(is_leader(placement.pod) for placement in placements)
        return has_leader and self._members.get(unit.key) is not None

    async def create_object(self, unit: Unit, placements: Iterable[Placement]) -> str:
        """Empty: the API server has the object. Else why no pod may be bound."""
        key, reservation = unit.key, self._members.get(unit.key)
        leader = next(placement.pod for placement in placements if is_leader(placement.pod))
        if reservation is None or not isinstance(key, GangKey):
            return ""
        until = moment(self._epoch() + reservation.until - self._now())
        body = document(leader, self._members.placements(key), until)
        name = (key.namespace, str(body["metadata"]["name"]))
        created = await self._create(name, body, min(CREATE_SECONDS, unit.timeout / 2))
        if created.why:
            self._delete_later(name)
            return f"cannot reserve capacity for pending members: {created.why}"
        self._objects[key] = (name, created.uid)
        self._handled.add(created.uid)
        self._on_change(key)  # also if all members exist by now
        return ""

    async def _create(self, name: Name, body: Json, seconds: float) -> Created:
        """Waits for a delete in flight, which could delete the new object of the same name."""
        self._creating.add(name)
        try:
            async with self._delete_lock:
                self._to_delete.discard(name)
            return await self._writer.create(body, seconds=seconds)
        finally:
            self._creating.discard(name)

    def bind_finished(self, unit: Unit, results: Sequence[Result]) -> None:
        """
        Release the reservation if the leader was not bound; reserve again for members that were
        not. Called after the cache has forgotten pods that were not bound.
        """
        key = unit.key
        if not isinstance(key, GangKey) or self._members.get(key) is None:
            return
        outcomes = [(result.placement.pod, isinstance(result, Bound)) for result in results]
        if any(is_leader(pod) and not bound for pod, bound in outcomes):
            self._freed(self._members.release(key))
            return
        limit = max(0, unit.size - self._cache.bound(key))
        bound = {pod.uid: bound for pod, bound in outcomes}
        if self._members.bind_finished(key, bound, limit=limit):
            self._released(key, ALL_MEMBERS_EXIST)

    def record_dropped(self, key: GangKey, why: str) -> None:
        """The reservation ended and its leader no longer exists: the Event is on the object."""
        if key in self._objects:
            name, uid = self._objects[key]
            self._record(events.member_reservation_dropped(*name, uid, key.name, why))

    def _release(self, key: GangKey, why: str) -> None:
        if self._members.get(key) is not None:
            self._freed(self._members.release(key))
            self._released(key, why)

    # --- writes in the background ---

    def _on_change(self, key: GangKey) -> None:
        if key in self._objects:
            self._changed.add(key)
            self._start()

    def _publish(self, obj: ReservationObject, status: Json) -> None:
        if self._statuses.get(obj.name) != (obj.uid, status):
            self._statuses[obj.name] = (obj.uid, status)
            self._unwritten.add(obj.name)
            self._start()

    def _delete_later(self, name: Name) -> None:
        self._to_delete.add(name)
        self._start()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._tasks.start(
                self._write_changes(),
                partial(self._isolation.report, ErrorStep.RESERVATION, "reservations"),
            )

    async def _write_changes(self) -> None:
        """Until the objects show what is reserved."""
        pause = SETTLE
        while self._changed or self._to_delete or self._unwritten:
            await self._writer.sleep(pause)
            ok = True
            changed, self._changed = self._changed, set()
            for key in sorted(changed):
                ok = await self._write(self._write_member_status, key, self._changed) and ok
            unwritten, self._unwritten = self._unwritten, set()
            for name in sorted(unwritten):
                ok = await self._write(self._write_tenant_status, name, self._unwritten) and ok
            for name in sorted(self._to_delete - self._creating):
                ok = await self._write(self._delete, name, self._to_delete) and ok
            pause = SETTLE if ok else backoff.doubled(pause, first=SETTLE, most=LONGEST_PAUSE)

    async def _write(self, write: Callable[[K], Awaitable[bool]], about: K, again: set[K]) -> bool:
        """An error concerns one object, which is written `again` later."""
        try:
            return await write(about)
        except Exception as error:
            again.add(about)
            self._isolation.report(ErrorStep.RESERVATION, about, error)
            return False

    async def _write_tenant_status(self, name: Name) -> bool:
        if name not in self._statuses:
            return True
        if await self._writer.update_status(name, self._statuses[name][1]):
            return True
        self._unwritten.add(name)
        return False

    async def _write_member_status(self, key: GangKey) -> bool:
        if key not in self._objects:
            return True
        name, _ = self._objects[key]
        if self._members.get(key) is None:
            del self._objects[key]
            self._to_delete.add(name)
            return True
        placements = self._members.placements_with_binding(key)
        body = status(placements, self._members.outstanding(key))
        if await self._writer.update_status(name, body):
            return True
        self._changed.add(key)
        return False

    async def _delete(self, name: Name) -> bool:
        if name not in self._to_delete or name in self._creating:
            return True
        async with self._delete_lock:
            deleted = await self._writer.delete(name)
            if deleted:
                self._to_delete.discard(name)
            return deleted


def unused_places(
    places: Sequence[Place], bound_on: Mapping[str, int], missing: int
) -> list[Place]:
    """Places of members that are missing: a bound member uses one on its own node, if any."""
    surplus, bound = len(places) - missing, Counter(bound_on)
    unused = []
    for place in places:
        if surplus > 0 and bound[place.node] > 0:
            bound[place.node] -= 1
            surplus -= 1
        else:
            unused.append(place)
    return unused[:missing]
