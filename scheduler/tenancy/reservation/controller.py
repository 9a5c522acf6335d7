"""
Reservations as the API holds them: written before a leader is bound, read again by a new scheduler.

    plan of leader + stand-ins ──create──▶ object ──▶ leader bound
                                   │ fails: nothing is bound, nothing is kept, tried again later
    a member took over ──▶ status, a moment later      nothing is kept any more ──▶ object deleted
    object deleted by somebody ──▶ the room is open at once

    a new scheduler, before it plans: leader bound ──▶ kept again, for members that are missing
                                      else         ──▶ object deleted, planned from the start
    an object that another scheduler wrote while this one took over: the same

The object belongs to the leader, so that it goes with it whatever becomes of this program. What is
kept is decided elsewhere (`reservations`); here it is only written down and read.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cluster import backoff
from cluster.events import correlator
from cluster.informer import EventKind, WatchEvent
from policies import quantity
from policies.documents.reservation import Place, PodGroupMembers
from scheduler.background import BackgroundTasks
from scheduler.cache.cache import Cache, CachedPod
from scheduler.model.assignment import NO_ASSIGNMENT, parse
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.placeholder import like, spec_of
from scheduler.model.plan import Bound, Placement, Result
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, is_leader, size_of
from scheduler.report import events
from scheduler.tenancy.reservation.members import ALL_CAME, MemberReservation, MemberReservations
from scheduler.tenancy.reservation.objects import Reservation, document, status
from scheduler.tenancy.reservation.tenant_active import TenantReservations
from scheduler.tenancy.reservation.writer import Created, Name, ReservationWriter

logger = logging.getLogger(__name__)

Json = dict[str, Any]

SETTLE: Final = 0.5  # seconds: members come in bursts, and a status is written once for all
LONGEST_PAUSE: Final = 30.0
WRITE_SECONDS: Final = 10.0


class ReservationController:
    """`opened` hears of gangs for which nothing is kept any more, and why; `now` never jumps.

    What an administrator keeps for a tenant is in `allotments`.
    """

    def __init__(
        self,
        cache: Cache,
        reservations: MemberReservations,
        recorder: ReservationWriter,
        *,
        group: Callable[[GangKey], PodGroup | None],
        now: Callable[[], float],
        epoch: Callable[[], float],
        kept: Callable[[GangKey], None],
        opened: Callable[[GangKey, str], None],
        freed: Callable[[Iterable[str]], None],
        tasks: BackgroundTasks,
        record: Callable[[correlator.EventReport], None] = lambda report: None,
    ) -> None:
        self._cache, self._recorder = cache, recorder
        self._rooms = reservations
        self._group, self._now, self._epoch = group, now, epoch
        self._record = record
        self._tasks = tasks
        self._kept, self._opened, self._freed = kept, opened, freed
        self._known: dict[Name, Reservation] = {}
        self._objects: dict[GangKey, tuple[Name, str]] = {}  # gang -> its object's name and uid
        self._changed: set[GangKey] = set()
        self._doomed: set[Name] = set()
        self._writing: set[Name] = set()
        self._deleting = asyncio.Lock()
        self._handled: set[str] = set()  # uids of objects that were decided on
        self._strays: set[Name] = set()  # objects for members to come that were not
        self._task: asyncio.Task[None] | None = None
        self._rooms.observe(self._on_change)
        self._told: dict[Name, tuple[str, Json]] = {}  # uid and status, of a tenant's
        self._statuses: set[Name] = set()  # of those, the ones to be written
        self.allotments = TenantReservations(
            cache,
            epoch=epoch,
            publish=self._publish,
            record=record,
            freed=freed,
        )

    # --- what the watch says ---

    def on_event(self, event: WatchEvent[Reservation | None]) -> None:
        name = (event.key[0], event.key[1])
        if event.kind is not EventKind.DELETED and event.object is not None:
            self._known[name] = event.object
            if event.object.spec.pod_group is None:
                self.allotments.put(event.object)
            elif event.object.uid not in self._handled:
                self._strays.add(name)
            return
        self._known.pop(name, None)
        self._strays.discard(name)
        self._told.pop(name, None)
        self.allotments.drop(name)
        gone = event.old or event.object
        if gone is not None:
            self._handled.discard(gone.uid)
        for key, mine in list(self._objects.items()):
            if mine[0] == name and (gone is None or mine[1] == gone.uid):
                del self._objects[key]
                self._open(key, "its ResourceReservation was deleted")

    # --- a new scheduler ---

    def tick(self) -> None:
        """Before every plan."""
        if self._strays:
            self._restore()
        self.allotments.tick()

    def next_at(self) -> float | None:
        """When `tick` has something to do, by the clock that never jumps."""
        at = self.allotments.next_at()
        return None if at is None else at - self._epoch() + self._now()

    def _restore(self) -> None:
        """What another scheduler kept is kept again."""
        for name in sorted(self._strays - self._writing):
            self._strays.discard(name)
            one = self._known[name]
            group = one.spec.pod_group
            if group is not None and one.uid not in self._handled and name not in self._doomed:
                self._handled.add(one.uid)
                self._adopt(one, group)

    def _adopt(self, one: Reservation, group: PodGroupMembers) -> None:
        key = GangKey(one.name[0], group.name)
        held = self._cache.held(group.leader)
        if held is None or held.assumed or held.pod.terminating or key in self._objects:
            self._doom(one.name)
            if key not in self._objects:
                why = "its leader ended, or is not bound and is planned again"
                self._record(events.member_reservation_dropped(*one.name, one.uid, group.name, why))
            return
        self._objects[key] = (one.name, one.uid)
        left = one.spec.until.timestamp() - self._epoch()
        places, more = self._places(key, held, group, one.places)
        self._rooms.keep(
            key, places, MemberReservation(group.leader, self._now() + left), more=more
        )
        self._on_change(key)  # also where nothing is left to be kept
        self._kept(key)
        logger.info("kept again", extra={"unit": str(key), "places": len(places)})

    def _places(
        self, key: GangKey, leader: CachedPod, group: PodGroupMembers, places: Sequence[Place]
    ) -> tuple[list[Placement], tuple[Pod, ...]]:
        """Where members that are missing have their place, and those that have none."""
        bound_members = self._cache.bound_members(key)
        stated = (pod.gang.min_available for pod, _ in bound_members if pod.gang)
        missing = max(0, (size_of(stated, self._group(key)) or 1) - len(bound_members))
        amounts = {name: quantity.amount(name, text) for name, text in group.resources.items()}
        pods = like(leader.pod, spec_of(leader.pod, amounts), missing)
        came = Counter(node for pod, node in bound_members if not is_leader(pod))
        rows = still_open(places, came, missing)
        found = [
            Placement(pod, row.node, parse(row.assigned or None) or NO_ASSIGNMENT)
            for pod, row in zip(pods, rows, strict=False)
        ]
        return found, pods[len(found) :]

    # --- between a plan and its binds ---

    def needed(self, unit: Unit, placements: Iterable[Placement]) -> bool:
        """Whether an object must be there before these are bound."""
        return self._rooms.get(unit.key) is not None and any(
            is_leader(one.pod) for one in placements
        )

    async def write(self, unit: Unit, placements: Iterable[Placement]) -> str:
        """Empty: the object stands in the API. Else why nobody may be bound."""
        key, reservation = unit.key, self._rooms.get(unit.key)
        leader = next(one.pod for one in placements if is_leader(one.pod))
        if reservation is None or not isinstance(key, GangKey):
            return ""
        until = datetime.fromtimestamp(self._epoch() + reservation.until - self._now(), UTC)
        body = document(leader, self._rooms.kept(key), until)
        name = (key.namespace, str(body["metadata"]["name"]))
        made = await self._create(name, body, min(WRITE_SECONDS, unit.timeout / 2))
        if made.why:
            self._doom(name)
            return f"cannot reserve capacity for pending members: {made.why}"
        self._objects[key] = (name, made.uid)
        self._handled.add(made.uid)
        self._on_change(key)  # also where all members have come meanwhile
        return ""

    async def _create(self, name: Name, body: Json, seconds: float) -> Created:
        """Not while an older one of that name is being deleted, which would take it along."""
        self._writing.add(name)
        try:
            async with self._deleting:
                self._doomed.discard(name)
            return await self._recorder.create(body, seconds=seconds)
        finally:
            self._writing.discard(name)

    def answered(self, unit: Unit, results: Sequence[Result]) -> None:
        """
        Nothing is kept for a gang whose leader has no node; the place of a member that was not
        bound is kept again. Told when its pods count on their nodes no longer.
        """
        key = unit.key
        if not isinstance(key, GangKey) or self._rooms.get(key) is None:
            return
        bound = [(one.placement.pod, isinstance(one, Bound)) for one in results]
        if any(is_leader(pod) and not done for pod, done in bound):
            self._freed(self._rooms.end(key))
            return
        most = max(0, unit.size - self._cache.bound(key))
        if self._rooms.answered(key, {pod.uid: done for pod, done in bound}, most=most):
            self._opened(key, ALL_CAME)

    def untold(self, key: GangKey, why: str) -> None:
        """Room is kept no longer, and there is no leader to be told."""
        if key in self._objects:
            name, uid = self._objects[key]
            self._record(events.member_reservation_dropped(*name, uid, key.name, why))

    def _open(self, key: GangKey, why: str) -> None:
        if self._rooms.get(key) is not None:
            self._freed(self._rooms.end(key))
            self._opened(key, why)

    # --- what is written behind binds ---

    def _on_change(self, key: GangKey) -> None:
        if key in self._objects:
            self._changed.add(key)
            self._start()

    def _publish(self, one: Reservation, status: Json) -> None:
        if self._told.get(one.name) != (one.uid, status):
            self._told[one.name] = (one.uid, status)
            self._statuses.add(one.name)
            self._start()

    def _doom(self, name: Name) -> None:
        self._doomed.add(name)
        self._start()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._follow())

    async def _follow(self) -> None:
        """Until the API says what is kept."""
        pause = SETTLE
        while self._changed or self._doomed or self._statuses:
            await self._recorder.sleep(pause)
            ok = True
            changed, self._changed = self._changed, set()
            for key in sorted(changed):
                ok = await self._tell(key) and ok
            said, self._statuses = self._statuses, set()
            for name in sorted(said):
                ok = await self._say(name) and ok
            for name in sorted(self._doomed - self._writing):
                ok = await self._delete(name) and ok
            pause = SETTLE if ok else backoff.doubled(pause, first=SETTLE, most=LONGEST_PAUSE)

    async def _say(self, name: Name) -> bool:
        if name not in self._told or await self._recorder.tell(name, self._told[name][1]):
            return True
        self._statuses.add(name)
        return False

    async def _delete(self, name: Name) -> bool:
        if name not in self._doomed or name in self._writing:
            return True
        async with self._deleting:
            done = await self._recorder.delete(name)
            if done:
                self._doomed.discard(name)
            return done

    async def _tell(self, key: GangKey) -> bool:
        if key not in self._objects:
            return True
        name, _ = self._objects[key]
        kept = self._rooms.places(key)
        if self._rooms.get(key) is None:
            del self._objects[key]
            self._doomed.add(name)
            return True
        if await self._recorder.tell(name, status(kept, self._rooms.owed(key))):
            return True
        self._changed.add(key)
        return False


def still_open(places: Sequence[Place], came: Mapping[str, int], most: int) -> list[Place]:
    """Those that are not taken yet: members that came took one on their own node, as a rule."""
    spare, gone = len(places) - most, Counter(came)
    left = []
    for place in places:
        if spare > 0 and gone[place.node] > 0:
            gone[place.node] -= 1
            spare -= 1
        else:
            left.append(place)
    return left[:most]
