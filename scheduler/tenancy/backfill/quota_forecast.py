"""
What quotas will allow when a promised time comes.

    used now + whoever goes ahead + the unit itself, less what ends by then, ≤ max up to the top

A unit that fits by then and may not have the room has been promised nothing. Whoever goes ahead of
it takes of the same allowance, on whatever node. Costs one addition a unit ahead as long as there
is enough for all; what ends by then is counted only where there is not.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from scheduler.cache.cache import Cache
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.tenancy.backfill.run_time import RunTimes
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.tree import Amounts, total

Taken = tuple[str, Amounts]  # tenant, amounts


class QuotaForecast:
    """`units` finds a unit that waits, with all that it is going to need; `epoch` is the time of
    day."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        promised: Iterable[UnitKey],
        units: Callable[[UnitKey], Unit | None],
        lengths: RunTimes,
        epoch: Callable[[], float],
    ) -> None:
        self._cache, self._keys, self._units = cache, promised, units
        self._lengths, self._epoch = lengths, epoch
        self._accounts = accounts

    def open(self, unit: Unit, start: float) -> bool:
        """Whether the unit may start then, with all others that were promised a start."""
        return self._excess(unit, start, self._promised(unit.key)) is None

    def used_up(self, unit: Unit, promises: Iterable[StartReservation]) -> str:
        """Why the unit must wait for one of these, of whose allowance it would take; or nothing."""
        if not self._accounts.ledger.tree.limited:
            return ""
        mine = self._asked(unit)
        for promise in promises:
            other = self._units(promise.key)
            ahead = (mine, *self._promised(promise.key, unit.key))
            found = None if other is None else self._excess(other, promise.start, ahead)
            if found is not None and mine[1].get(found.resource):
                return self._text(unit.tenant, mine[1][found.resource], found, promise)
        return ""

    def _asked(self, unit: Unit) -> Taken:
        """What the unit needs at the least."""
        return unit.tenant, total(self._accounts.amounts(pod) for pod in unit.pods[: unit.need])

    def _promised(self, *but: UnitKey) -> Iterator[Taken]:
        for key in self._keys:
            unit = None if key in but else self._units(key)
            if unit is not None:
                yield self._asked(unit)

    def _excess(self, unit: Unit, at: float, ahead: Iterable[Taken]) -> Excess | None:
        """The limit that keeps the unit waiting at that time, with these ahead of it."""
        ledger = self._accounts.ledger
        if not ledger.tree.limited:
            return None
        tenant, needed = self._asked(unit)
        with ledger.trial():
            for other, amounts in ahead:
                ledger.charge(other, amounts.items())
            if ledger.excess(tenant, needed) is None:
                return None
            for other, amounts in self._gone(at):
                ledger.uncharge(other, amounts.items())
            return ledger.excess(tenant, needed)

    def _gone(self, at: float) -> Iterator[Taken]:
        now = self._epoch()
        for one in self._cache.on():
            end = self._lengths.end(one.pod, now)
            if end is not None and end <= at:
                yield one.pod.attributes.tenant, dict(self._accounts.charged(one.pod.uid))

    def _text(self, tenant: str, requested: int, excess: Excess, start: StartReservation) -> str:
        """The excess is that of the unit whose start is reserved, while this request is charged."""
        path = self._accounts.ledger.tree.path(tenant)
        charged = requested if any(member.name == excess.member for member in path) else 0
        own = replace(excess, requested=requested, used=excess.used - charged)
        return OverQuota(tenant, own, reserved=(str(start.key), excess.requested)).text
