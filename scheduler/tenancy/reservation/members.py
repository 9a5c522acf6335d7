"""
Room for members of a gang that its leader is going to make: stand-ins for pods to come.

    leader waits, members missing, gang stands still
        ──plan of leader + stand-ins, all or nothing──▶ leader bound, stand-ins kept on their nodes
        ──a member comes──▶ planned together with the stand-ins that are left; one fewer is kept
              its bind fails ──▶ its place is kept again, until it is bound or another one comes
        ──a node is lost──▶ places are missing: looked for at once, and when room comes (`moving`)
        ──all members there · leader gone · too long──▶ nothing is kept

A driver that makes its executors would otherwise wait for them, and they for it. What a member
will ask for is what the leader says of it, else what members ask that exist, else what the leader
asks. Stand-ins count for the tenant's quota like the pods that they stand for.

What is kept here stands in the API as well: see `reserving`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cache.reserved_capacity import ReservedCapacity
from scheduler.model.gang import GangKey
from scheduler.model.placeholder import is_placeholder, like, placeholders
from scheduler.model.plan import Placed, Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey, is_leader
from scheduler.tenancy.quota.accounting import QuotaAccounts

KEPT_SECONDS: Final = 600.0  # at least
ALL_CAME: Final = "all members exist"


@dataclass(frozen=True, slots=True)
class MemberReservation:
    """Of one reservation: whose pods they will be, and how long it is kept."""

    leader: str
    """Its uid; empty: nobody knows."""
    until: float


class MemberReservations:
    """What is kept for members to come, by their gang."""

    def __init__(self, holds: ReservedCapacity, accounts: QuotaAccounts) -> None:
        self._holds, self._accounts = holds, accounts
        self._planned: dict[UnitKey, tuple[tuple[Placement, ...], dict[str, Placement]]] = {}
        self._terms: dict[GangKey, MemberReservation] = {}
        self._wanted: dict[GangKey, tuple[Pod, ...]] = {}  # gang -> those who should have a place
        self._nodes: dict[GangKey, frozenset[str]] = {}  # gang -> where they were last given one
        self.short: set[GangKey] = set()
        """Gangs some of whose members to come have no place, as far as was noticed: `moving`."""
        self._flying: dict[GangKey, dict[str, Placement]] = {}  # -> uid -> where it is being bound
        self._counted: dict[GangKey, tuple[str, ...]] = {}  # gang -> uids, as the accounts know
        self._enabled = True
        self._observer: Callable[[GangKey], None] = lambda gang: None

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

    def kept(self, key: UnitKey) -> tuple[Placement, ...]:
        return tuple(one for one in self._holds.of(key) if is_placeholder(one.pod))

    def places(self, key: GangKey) -> tuple[Placement, ...]:
        """What is kept, and where members are being bound that took one: theirs if that fails."""
        return (*self.kept(key), *self._flying.get(key, {}).values())

    def count(self, key: GangKey) -> int:
        return len(self.kept(key)) if key in self._terms else 0

    def wanted(self, key: GangKey) -> tuple[Pod, ...]:
        """Those who should have a place."""
        return self._wanted.get(key, ())

    def placeless(self, key: GangKey, kept: Iterable[Placement]) -> list[Pod]:
        """Those of them who have none of these."""
        placed = {one.pod.uid for one in kept}
        return [pod for pod in self.wanted(key) if pod.uid not in placed]

    def lost(self, key: GangKey) -> frozenset[str]:
        """Nodes on which members were given a place that is there no longer."""
        return self._nodes.get(key, frozenset()) - {one.node for one in self._holds.of(key)}

    def owed(self, key: GangKey) -> int:
        """Members that the gang may still wait for: with a place, without, or being bound."""
        return len(self.wanted(key)) + len(self._flying.get(key, ()))

    def get(self, key: UnitKey) -> MemberReservation | None:
        return self._terms.get(key) if isinstance(key, GangKey) else None

    def __len__(self) -> int:
        return len(self._terms)

    def __iter__(self) -> Iterator[GangKey]:
        return iter(tuple(self._terms))

    # --- planning ---

    def extended(self, unit: Unit) -> Unit:
        """The unit with stand-ins for the members that are missing and wanted with it."""
        kept = self.kept(unit.key)
        missing = max(0, unit.size - unit.existing) if unit.leader_first else 0
        come = sum(not is_leader(pod) for pod in unit.pods) if kept else 0
        count = max(0, len(kept) - come) if kept else missing
        if not count:
            return unit
        spec = kept[0].pod.spec if kept else None
        more = placeholders(unit, count, spec)
        return replace(unit, pods=(*unit.pods, *more), leader_first=False, reserved=0)

    def taken(self, unit: Unit, plan: Placed) -> Placed:
        """The plan for pods that exist; where the others stand is kept in mind for `placed`."""
        apart = [one for one in plan.placements if is_placeholder(one.pod)]
        real = tuple(one for one in plan.placements if not is_placeholder(one.pod))
        going = {one.pod.uid: _occupant(one) for one in real if not is_leader(one.pod)}
        self._planned[unit.key] = tuple(_occupant(one) for one in apart), going
        left = tuple(pod for pod in plan.unplaced if not is_placeholder(pod))
        return Placed(real, left, plan.why_unplaced if left else None)

    def placed(self, unit: Unit, now: float, *, answered: bool = False) -> frozenset[str]:
        """
        The plan was taken: from now on its stand-ins are kept, and no others. The nodes on which
        nothing is kept any more.

        `answered`: whoever binds says what became of it, see there.
        """
        places, going = self._planned.pop(unit.key, ((), {}))
        key, known = unit.key, self.get(unit.key)
        if not isinstance(key, GangKey) or (known is None and not places):
            return frozenset()
        leader = next((pod.uid for pod in unit.pods if is_leader(pod)), known and known.leader)
        until = known.until if known else now + max(unit.timeout, KEPT_SECONDS)
        if answered and going:
            self._flying[key] = self._flying.get(key, {}) | going
        return self.keep(key, places, MemberReservation(leader or "", until))

    def answered(self, key: GangKey, bound: Mapping[str, bool], *, most: int) -> bool:
        """
        Pods by uid, and whether they were bound: the place of one that was not is kept again, as
        long as no more than so many are. Whether that was the last of it: all have come.
        """
        terms, flying = self._terms.get(key), self._flying.get(key)
        if terms is None or flying is None:
            return False
        found = [(flying.pop(uid), done) for uid, done in bound.items() if uid in flying]
        back = [place for place, done in found if not done]
        if not flying:
            del self._flying[key]
        kept, back = self.kept(key), back[: max(0, most - len(self._wanted[key]))]
        if not back and (self._wanted[key] or flying):
            self._observer(key)
            return False
        self.keep(key, [*kept, *back], terms, more=self.placeless(key, kept))
        return key not in self._terms

    def keep(
        self,
        key: GangKey,
        places: Sequence[Placement],
        terms: MemberReservation,
        *,
        more: Iterable[Pod] = (),
    ) -> frozenset[str]:
        """
        Room at these places, and at no others; `more` should have one, and there is none now.
        The nodes on which nothing is kept any more.
        """
        evicting = [one for one in self._holds.of(key) if not is_placeholder(one.pod)]
        before, flying = self._open(key), self._flying.get(key)
        pods = _numbered([*(one.pod for one in places), *more])
        rows = [replace(one, pod=pod) for one, pod in zip(places, pods, strict=False)]
        self._holds.put(key, [*evicting, *rows])
        kept = self.kept(key)
        if pods or flying:
            self._terms[key], self._wanted[key] = terms, pods
            self._nodes[key] = frozenset(one.node for one in rows)
            self._counted[key] = tuple(one.pod.uid for one in kept)
            for one in kept:
                self._accounts.charge(one.pod, one.node)
            if len(kept) < len(pods):
                self.short.add(key)
        self._observer(key)
        return before - {one.node for one in kept}

    def end(self, key: UnitKey) -> frozenset[str]:
        """Nothing is kept any more; the nodes on which something was."""
        self._planned.pop(key, None)
        if not isinstance(key, GangKey) or key not in self._terms:
            return frozenset()
        self._flying.pop(key, None)
        before = self._open(key)
        self._observer(key)
        return before

    def _open(self, key: GangKey) -> frozenset[str]:
        self._terms.pop(key, None)
        self._wanted.pop(key, None)
        self._nodes.pop(key, None)
        self.short.discard(key)
        for uid in self._counted.pop(key, ()):  # those whose node went among them
            self._accounts.uncharge(uid)
        return self._holds.end(key)

    def over(self, goes_on: Callable[[str], bool], now: float) -> list[tuple[GangKey, str]]:
        """Gangs for which nothing needs to be kept any longer, and why."""
        found = []
        for key, terms in self._terms.items():
            if now >= terms.until:
                why = f"its members were not created within {KEPT_SECONDS:g}s or the gang's timeout"
                found.append((key, why))
            elif terms.leader and not goes_on(terms.leader):
                found.append((key, "its leader ended"))
        return found

    def next_at(self) -> float | None:
        """When `over` may have something to say by the clock."""
        return min((terms.until for terms in self._terms.values()), default=None)

    @contextmanager
    def uncounted(self, key: UnitKey) -> Iterator[None]:
        """What is kept for the unit does not count against it while it is planned."""
        with self._accounts.ledger.trial():
            for placement in self.kept(key):
                tenant = placement.pod.attributes.tenant
                self._accounts.ledger.uncharge(tenant, self._accounts.charged(placement.pod.uid))
            yield


def _occupant(one: Placement) -> Placement:
    return Placement(one.pod, one.node, one.assignment)


def _numbered(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """A stand-in for each, whoever it was."""
    return tuple(like(pod, pod.spec, 1, start=number)[0] for number, pod in enumerate(pods))
