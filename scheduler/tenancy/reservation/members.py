"""
Capacity reserved for gang members that do not exist yet: placeholder pods on nodes.

    leader waits, members missing, gang settled
        ──plan of leader + placeholders, all or nothing──▶ leader bound, placeholders on their nodes
        ──a member is created──▶ planned with the remaining placeholders; it replaces one of them
              its bind fails ──▶ its capacity is reserved again, for it or another member
        ──a node is lost──▶ incomplete: `relocation` searches for other nodes
        ──all members exist · leader ended · too long──▶ released

Without it a Spark driver and its executors deadlock: the driver waits for the gang, the executors
do not exist until it runs. A member requests what its leader states, else what existing members
request, else what the leader requests. Placeholders count for the tenant's quota like pods. A
leader may announce any number of members: beyond the places of one ResourceReservation there are no
placeholders, and the leader does not fit.

`controller` writes each reservation as a ResourceReservation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from policies.documents.reservation import MOST
from scheduler.cache.reserved_capacity import ReservedCapacity
from scheduler.model.gang import GangKey
from scheduler.model.placeholder import is_placeholder, numbered, placeholders
from scheduler.model.plan import NoFit, Placed, Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey, forming_count, is_leader
from scheduler.tenancy.quota.accounting import QuotaAccounts

MIN_SECONDS: Final = 600.0  # for which capacity is reserved, at least
MAX_SECONDS: Final = 86_400.0  # the same, at most: a leader that creates no members ends it never
ALL_MEMBERS_EXIST: Final = "all members exist"


@dataclass(frozen=True, slots=True)
class MemberReservation:
    """Whose members the capacity is for, and until when."""

    leader: str
    """Its uid; empty: unknown."""
    until: float


class MemberReservations:
    """Reservations for members that do not exist yet, by gang."""

    def __init__(self, reserved: ReservedCapacity, accounts: QuotaAccounts) -> None:
        self._reserved = reserved
        self._accounts = accounts
        self._planned: dict[UnitKey, tuple[tuple[Placement, ...], dict[str, Placement]]] = {}
        self._reservations: dict[GangKey, MemberReservation] = {}
        self._pending: dict[GangKey, tuple[Pod, ...]] = {}  # gang -> placeholders, placed or not
        self._nodes: dict[GangKey, frozenset[str]] = {}  # gang -> nodes last reserved on
        self._binding: dict[GangKey, dict[str, Placement]] = {}  # gang -> uid -> bind in flight
        self._charged: dict[GangKey, tuple[str, ...]] = {}  # gang -> uids charged to the quota
        self._enabled = True
        self._extended: tuple[Unit, Unit] | None = None  # the last unit, and with placeholders
        self._observer: Callable[[GangKey], None] = lambda gang: None
        self.incomplete: set[GangKey] = set()
        """Gangs with placeholders that have no node, as far as `relocation` has noticed."""

    @property
    def enabled(self) -> bool:
        """Whether capacity can be reserved at all: the API server serves ResourceReservations."""
        return self._enabled

    def enable(self, enabled: bool) -> bool:
        """Whether that is a change."""
        changed = self._enabled != enabled
        self._enabled = enabled
        return changed

    def observe(self, observer: Callable[[GangKey], None]) -> None:
        """`observer` is called with each gang whose reservation changed."""
        self._observer = observer

    def placements(self, key: UnitKey) -> tuple[Placement, ...]:
        """Of placeholders on their nodes."""
        return tuple(
            placement for placement in self._reserved.of(key) if is_placeholder(placement.pod)
        )

    def placements_with_binding(self, key: GangKey) -> tuple[Placement, ...]:
        """Also those of members whose bind is in flight: reserved again if it fails."""
        return (*self.placements(key), *self._binding.get(key, {}).values())

    def count(self, key: GangKey) -> int:
        return len(self.placements(key)) if key in self._reservations else 0

    def pending(self, key: GangKey) -> tuple[Pod, ...]:
        """Placeholders for the members that do not exist, with a node or without."""
        return self._pending.get(key, ())

    def pending_without(self, key: GangKey, placements: Iterable[Placement]) -> list[Pod]:
        """Placeholders that have none of these placements."""
        placed = {placement.pod.uid for placement in placements}
        return [pod for pod in self.pending(key) if pod.uid not in placed]

    def lost_nodes(self, key: GangKey) -> frozenset[str]:
        """Nodes on which capacity was reserved and is not any more."""
        return self._nodes.get(key, frozenset()) - {
            placement.node for placement in self._reserved.of(key)
        }

    def outstanding(self, key: GangKey) -> int:
        """Members for which the gang may still wait: placeholders, and binds in flight."""
        return len(self.pending(key)) + len(self._binding.get(key, ()))

    def get(self, key: UnitKey) -> MemberReservation | None:
        return self._reservations.get(key) if isinstance(key, GangKey) else None

    def __len__(self) -> int:
        return len(self._reservations)

    def __iter__(self) -> Iterator[GangKey]:
        return iter(tuple(self._reservations))

    # --- planning ---

    def too_many(self, unit: Unit) -> NoFit | None:
        """Why the scheduler cannot reserve capacity for all members that the leader announces."""
        announced = unit.size - unit.existing
        if not unit.leader_first or announced <= MOST or self.placements(unit.key):
            return None
        return NoFit(
            message=f"its leader announces {announced} members that do not exist, and capacity is"
            f" reserved for at most {MOST}",
            gang=forming_count(unit),
        )

    def with_placeholders(self, unit: Unit) -> Unit:
        """
        The unit with placeholders for the members that do not exist and are planned with it.

        A unit that announces too many members is forming: none of them gets a placeholder.
        """
        reserved = self.placements(unit.key)
        if self._extended is not None and self._extended[0] is unit and not reserved:
            return self._extended[1]
        missing = max(0, unit.size - unit.existing) if unit.leader_first else 0
        existing = sum(not is_leader(pod) for pod in unit.pods) if reserved else 0
        count = max(0, len(reserved) - existing) if reserved else missing
        if not count:
            return unit
        if count > MOST:
            return replace(unit, leader_first=False)
        spec = reserved[0].pod.spec if reserved else None
        members = placeholders(unit, count, spec)
        extended = replace(unit, pods=(*unit.pods, *members), leader_first=False, reserved=0)
        if not reserved:
            self._extended = unit, extended
        return extended

    def without_placeholders(self, unit: Unit, plan: Placed) -> Placed:
        """The plan for pods that exist; `placed` reserves the placements of the placeholders."""
        existing = tuple(
            placement for placement in plan.placements if not is_placeholder(placement.pod)
        )
        reserved = tuple(
            placement for placement in plan.placements if is_placeholder(placement.pod)
        )
        members = {
            placement.pod.uid: placement for placement in existing if not is_leader(placement.pod)
        }
        self._planned[unit.key] = reserved, members
        unplaced = tuple(pod for pod in plan.unplaced if not is_placeholder(pod))
        return Placed(existing, unplaced, plan.why_unplaced if unplaced else None)

    def placed(self, unit: Unit, now: float, *, reports_binds: bool = False) -> frozenset[str]:
        """
        The plan is carried out: reserve for its placeholders, and for no others. Returns the nodes
        on which nothing is reserved any more.

        `reports_binds`: the caller reports the outcome of the binds to `bind_finished`.
        """
        placements, members = self._planned.pop(unit.key, ((), {}))
        key, known = unit.key, self.get(unit.key)
        if not isinstance(key, GangKey) or (known is None and not placements):
            return frozenset()
        leader = next((pod.uid for pod in unit.pods if is_leader(pod)), known and known.leader)
        until = known.until if known else now + reserved_for(unit.timeout)
        if reports_binds and members:
            self._binding[key] = self._binding.get(key, {}) | members
        return self.reserve(key, placements, MemberReservation(leader or "", until))

    def drop_plan(self, key: UnitKey) -> None:
        """The plan is not carried out after all."""
        self._planned.pop(key, None)

    def bind_finished(self, key: GangKey, bound: Mapping[str, bool], *, limit: int) -> bool:
        """
        `bound`: pod uid -> whether the pod was bound. Capacity of a pod that was not is reserved
        again, for at most `limit` members. Returns whether that ends the reservation: all members
        exist.
        """
        reservation, binding = self._reservations.get(key), self._binding.get(key)
        if reservation is None or binding is None:
            return False
        finished = [(binding.pop(uid), done) for uid, done in bound.items() if uid in binding]
        failed = [placement for placement, done in finished if not done]
        if not binding:
            del self._binding[key]
        reserved = self.placements(key)
        failed = failed[: max(0, limit - len(self._pending[key]))]
        if not failed and (self._pending[key] or binding):
            self._observer(key)
            return False
        unplaced = self.pending_without(key, reserved)
        self.reserve(key, [*reserved, *failed], reservation, unplaced=unplaced)
        return key not in self._reservations

    def reserve(
        self,
        key: GangKey,
        placements: Sequence[Placement],
        reservation: MemberReservation,
        *,
        unplaced: Iterable[Pod] = (),
    ) -> frozenset[str]:
        """
        Reserve these placements and no others; `unplaced` members have none for now. Returns the
        nodes on which nothing is reserved any more.
        """
        preemptors = [
            placement for placement in self._reserved.of(key) if not is_placeholder(placement.pod)
        ]
        before, binding = self._release(key), self._binding.get(key)
        pods = numbered([*(placement.pod for placement in placements), *unplaced])
        rows = [
            replace(placement, pod=pod) for placement, pod in zip(placements, pods, strict=False)
        ]
        self._reserved.put(key, [*preemptors, *rows])
        reserved = self.placements(key)
        if pods or binding:
            self._reservations[key] = reservation
            self._pending[key] = pods
            self._nodes[key] = frozenset(placement.node for placement in rows)
            self._charged[key] = tuple(placement.pod.uid for placement in reserved)
            for placement in reserved:
                self._accounts.charge(placement.pod, placement.node)
            if len(reserved) < len(pods):
                self.incomplete.add(key)
        self._observer(key)
        return before - {placement.node for placement in reserved}

    def release(self, key: UnitKey) -> frozenset[str]:
        """Returns the nodes on which capacity was reserved."""
        self._planned.pop(key, None)
        if not isinstance(key, GangKey) or key not in self._reservations:
            return frozenset()
        self._binding.pop(key, None)
        before = self._release(key)
        self._observer(key)
        return before

    def _release(self, key: GangKey) -> frozenset[str]:
        self._reservations.pop(key, None)
        self._pending.pop(key, None)
        self._nodes.pop(key, None)
        self.incomplete.discard(key)
        for uid in self._charged.pop(key, ()):  # also those on a node that was deleted
            self._accounts.uncharge(uid)
        return self._reserved.end(key)

    def expired(self, is_alive: Callable[[str], bool], now: float) -> list[tuple[GangKey, str]]:
        """Gangs whose reservation has to end, and why; `is_alive` takes the uid of a leader."""
        ended = []
        for key, reservation in self._reservations.items():
            if now >= reservation.until:
                why = f"its members were not created within {MIN_SECONDS:g}s or the gang's timeout"
                ended.append((key, why))
            elif reservation.leader and not is_alive(reservation.leader):
                ended.append((key, "its leader ended"))
        return ended

    def next_at(self) -> float | None:
        """When `expired` next finds a reservation by the clock."""
        return min((reservation.until for reservation in self._reservations.values()), default=None)

    @contextmanager
    def uncharged(self, key: UnitKey) -> Iterator[None]:
        """A trial of the ledger without the unit's own placeholders, to plan the unit."""
        with self._accounts.ledger.trial():
            for placement in self.placements(key):
                tenant = placement.pod.attributes.tenant
                self._accounts.ledger.uncharge(tenant, self._accounts.charged(placement.pod.uid))
            yield


def reserved_for(timeout: float) -> float:
    """Seconds for which capacity is reserved for a gang with this timeout."""
    return min(max(timeout, MIN_SECONDS), MAX_SECONDS)
