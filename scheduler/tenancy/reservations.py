"""
Room for members of a gang that its leader is going to make: stand-ins for pods to come.

    leader waits, members missing, gang stands still
        ──plan of leader + stand-ins, all or nothing──▶ leader bound, stand-ins kept on their nodes
        ──a member comes──▶ planned together with the stand-ins that are left; one fewer is kept
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

from policies import requests

from ..model import PODS, GangKey, Pod, PodKey, Shape
from ..outcome import Placed, Placement
from ..units import Unit, UnitKey, leads
from .accounts import Accounts
from .holds import Holds
from .victims import Occupant

KEPT_SECONDS: Final = 600.0  # at least
_MARK: Final = "stand-in/"


def is_stand_in(pod: Pod) -> bool:
    return pod.uid.startswith(_MARK)


def stand_ins(unit: Unit, count: int, shape: Shape | None = None) -> tuple[Pod, ...]:
    """So many pods as the unit's leader is going to make."""
    leader = next((pod for pod in unit.pods if leads(pod)), unit.pods[0])
    model = next((pod for pod in unit.pods if not leads(pod)), leader)
    stated = dict(leader.terms.members)
    if shape is None:
        shape = model.shape if model is not leader or not stated else shape_of(leader, stated)
    return like(model, shape, count)


def like(model: Pod, shape: Shape, count: int) -> tuple[Pod, ...]:
    """Stand-ins for so many members of the model's gang."""
    gang = model.gang
    assert gang is not None
    return tuple(
        replace(
            model,
            key=PodKey(gang.key.namespace, f"{gang.key.name}-{number}"),
            uid=f"{_MARK}{gang.key}/{number}",
            shape=shape,
            gang=replace(gang, leader=False),
            node="",
            assignment=None,
            condition=None,
        )
        for number in range(count)
    )


def shape_of(leader: Pod, stated: Mapping[str, int]) -> Shape:
    """As the leader's, with these amounts."""
    ask = replace(
        leader.shape.ask,
        cpu=stated.get("cpu", 0),
        memory=stated.get("memory", 0),
        gpus=requests.gpus(stated),
        containers=(),
    )
    amounts = tuple(sorted({**stated, PODS: 1}.items()))
    return replace(leader.shape, requests=amounts, unsaid=(0, 0), ask=ask)


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one reservation: whose pods they will be, and how long it is kept."""

    leader: str
    """Its uid; empty: nobody knows."""
    until: float


class Reservations:
    """What is kept for members to come, by their gang."""

    def __init__(self, holds: Holds, accounts: Accounts) -> None:
        self._holds, self._accounts = holds, accounts
        self._planned: dict[UnitKey, tuple[Occupant, ...]] = {}
        self._terms: dict[GangKey, Terms] = {}
        self._counted: dict[GangKey, tuple[str, ...]] = {}  # gang -> uids, as the accounts know
        self.possible = True
        """Whether room can be kept at all."""
        self.on_change: Callable[[GangKey], None] = lambda gang: None
        """Told of gangs for which something else is kept than before."""

    def kept(self, key: UnitKey) -> tuple[Occupant, ...]:
        return tuple(one for one in self._holds.of(key) if is_stand_in(one.pod))

    def count(self, key: GangKey) -> int:
        return len(self.kept(key)) if key in self._terms else 0

    def terms(self, key: UnitKey) -> Terms | None:
        return self._terms.get(key) if isinstance(key, GangKey) else None

    def __iter__(self) -> Iterator[GangKey]:
        return iter(tuple(self._terms))

    # --- planning ---

    def extended(self, unit: Unit) -> Unit:
        """The unit with stand-ins for the members that are missing and wanted with it."""
        kept = self.kept(unit.key)
        missing = max(0, unit.size - unit.exist) if unit.led else 0
        come = sum(not leads(pod) for pod in unit.pods) if kept else 0
        count = max(0, len(kept) - come) if kept else missing
        if not count:
            return unit
        shape = kept[0].pod.shape if kept else None
        more = stand_ins(unit, count, shape)
        return replace(unit, pods=(*unit.pods, *more), led=False, reserved=0)

    def taken(self, unit: Unit, plan: Placed) -> Placed:
        """The plan for pods that exist; where the others stand is kept in mind for `placed`."""
        apart = [one for one in plan.placements if is_stand_in(one.pod)]
        self._planned[unit.key] = tuple(_occupant(one) for one in apart)
        real = tuple(one for one in plan.placements if not is_stand_in(one.pod))
        left = tuple(pod for pod in plan.left if not is_stand_in(pod))
        return Placed(real, left, plan.why_left if left else None)

    def placed(self, unit: Unit, now: float) -> None:
        """The plan was taken: from now on its stand-ins are kept, and no others."""
        places = self._planned.pop(unit.key, None)
        if places is None or not isinstance(unit.key, GangKey):
            return
        known = self._terms.get(unit.key)
        leader = next((pod.uid for pod in unit.pods if leads(pod)), known and known.leader)
        until = known.until if known else now + max(unit.timeout, KEPT_SECONDS)
        self.keep(unit.key, places, Terms(leader or "", until))

    def keep(self, key: GangKey, places: Sequence[Occupant], terms: Terms) -> None:
        self.end(key)
        self._holds.put(key, places)
        kept = self._holds.of(key)
        if not kept:
            return
        self._terms[key] = terms
        self._counted[key] = tuple(one.pod.uid for one in kept)
        for one in kept:
            self._accounts.take(one.pod, one.node)
        self.on_change(key)

    def end(self, key: UnitKey) -> frozenset[str]:
        """Nothing is kept any more; the nodes on which something was."""
        self._planned.pop(key, None)
        if not isinstance(key, GangKey) or self._terms.pop(key, None) is None:
            return frozenset()
        for uid in self._counted.pop(key):  # those whose node went among them
            self._accounts.give(uid)
        self.on_change(key)
        return self._holds.end(key)

    def over(self, goes_on: Callable[[str], bool], now: float) -> list[tuple[GangKey, str]]:
        """Gangs for which nothing needs to be kept any longer, and why."""
        found = []
        for key, terms in self._terms.items():
            if now >= terms.until:
                found.append((key, f"its members did not come in {KEPT_SECONDS:g}s or more"))
            elif terms.leader and not goes_on(terms.leader):
                found.append((key, "its leader is gone"))
        return found

    def next_at(self) -> float | None:
        """When `over` may have something to say by the clock."""
        return min((terms.until for terms in self._terms.values()), default=None)

    @contextmanager
    def uncounted(self, key: UnitKey) -> Iterator[None]:
        """What is kept for the unit does not count against it while it is planned."""
        kept = self.kept(key)
        for one in kept:
            self._accounts.ledger.give(one.pod.terms.tenant, self._amounts(one))
        try:
            yield
        finally:
            for one in kept:
                self._accounts.ledger.take(one.pod.terms.tenant, self._amounts(one))

    def _amounts(self, one: Occupant) -> Iterable[tuple[str, int]]:
        return self._accounts.taken(one.pod.uid)


def _occupant(one: Placement) -> Occupant:
    return Occupant(one.pod, one.node, one.assignment)
