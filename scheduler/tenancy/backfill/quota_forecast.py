"""
Whether quotas allow a unit at a future start.

    used now + units ahead + the unit itself - pods that end by then ≤ max, for each group up to the
                                                                       root

Backfill reserves no start for a unit that would be over its quota then. Units that start ahead of a
start reservation leave it its quota, on any node. The forecast costs one addition per unit ahead
while the quota suffices for all; only otherwise it counts the pods that end by then.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduler.cache.cache import Cache
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.tenancy.backfill.run_time import RunTimes
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.tree import Amounts, total

Charge = tuple[str, Amounts]  # tenant, amounts


class QuotaForecast:
    """`reservations` are those of the backfill controller; `find_unit` returns a queued unit with
    all pods that it needs; `epoch` is the time of day."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        reservations: Mapping[UnitKey, StartReservation],
        find_unit: Callable[[UnitKey], Unit | None],
        run_times: RunTimes,
        epoch: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._accounts = accounts
        self._reservations = reservations
        self._find_unit = find_unit
        self._run_times = run_times
        self._epoch = epoch

    def allows(self, unit: Unit, start: float) -> bool:
        """Whether the unit is within its quota then, beside all other start reservations."""
        return not self._excesses(unit, start, self._reserved(unit.key))

    def conflict(self, unit: Unit, reservations: Iterable[StartReservation]) -> str:
        """
        Why the unit may not take quota ahead of one of these; empty: it may.

        Only limits that apply to the unit count: a start that exceeds the quota of its own tenant
        keeps no other tenant waiting.
        """
        tree = self._accounts.ledger.tree
        if not tree.limited:
            return ""
        charge = self._charge(unit)
        members = {member.name for member in tree.path(unit.tenant)}
        for reservation in reservations:
            other = self._find_unit(reservation.key)
            if other is None:
                continue
            ahead = (charge, *self._reserved(reservation.key, unit.key))
            for excess in self._excesses(other, reservation.start, ahead):
                requested = charge[1].get(excess.resource, 0)
                if requested and excess.member in members:
                    return _text(unit.tenant, requested, excess, reservation)
        return ""

    def _charge(self, unit: Unit) -> Charge:
        """The minimum that the unit needs."""
        return unit.tenant, total(self._accounts.amounts(pod) for pod in unit.pods[: unit.need])

    def _reserved(self, *excluded: UnitKey) -> Iterator[Charge]:
        for key in self._reservations:
            unit = None if key in excluded else self._find_unit(key)
            if unit is not None:
                yield self._charge(unit)

    def _excesses(self, unit: Unit, at: float, ahead: Iterable[Charge]) -> Sequence[Excess]:
        """The quotas that the unit would exceed at that time, with these charges ahead of it."""
        ledger = self._accounts.ledger
        if not ledger.tree.limited:
            return ()
        tenant, needed = self._charge(unit)
        with ledger.trial():
            for other, amounts in ahead:
                ledger.charge(other, amounts.items())
            if ledger.excess(tenant, needed) is None:
                return ()
            for other, amounts in self._ended(at):
                ledger.uncharge(other, amounts.items())
            return list(ledger.excesses(tenant, needed))

    def _ended(self, at: float) -> Iterator[Charge]:
        now = self._epoch()
        for placement in self._cache.pods_on():
            pod = placement.pod
            end = self._run_times.end(pod, now)
            if end is not None and end <= at:
                yield pod.attributes.tenant, dict(self._accounts.charged(pod.uid))


def _text(tenant: str, requested: int, excess: Excess, reservation: StartReservation) -> str:
    """The excess is that of the unit whose start is reserved, while this request is charged."""
    own = replace(excess, requested=requested, used=excess.used - requested)
    return OverQuota(tenant, own, reserved=(str(reservation.key), excess.requested)).text
