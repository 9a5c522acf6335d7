"""
The fair-share order of tenants: guarantees first, then the lowest share by weight.

    order = (not below its guarantee), (share / weight of the top group, …, of the tenant)

A share is the largest part of any cluster resource that a member uses (dominant share). It decays:
usage of one half-life ago counts half. Usage now counts beside the decayed usage, so that a tenant
that waited long goes first, and one that starts many pods at once does not stay first until its
decayed usage catches up. Siblings are compared level by level from the top, so that a group of many
tenants gets as much as a group of few. `remember` and `recall` carry the shares across restarts.
Times come from outside, as seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Amounts, TenantNode

FairShareOrder = tuple[bool, tuple[tuple[float, str], ...]]

WEIGHT_OF_NOW: Final = 0.5
"""The weight of usage now; the rest is the weight of decayed usage."""


@dataclass(frozen=True, slots=True)
class DecayedShare:
    """A decayed share, and its time."""

    share: float
    at: float


class FairShares:
    """Reads the ledger; `totals` are the capacity of the cluster by resource."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._decayed: dict[str, DecayedShare] = {}
        self._totals: Amounts = {}
        self.version = 0
        """Counts changes of the shares beside charges and uncharges."""

    def advance(self, totals: Amounts, now: float) -> None:
        """Let time pass: members have used since the last call what they use now."""
        self._totals = totals
        self.version += 1
        names = {*self._decayed, *self.ledger.members()}
        for name in names:
            before = self._decayed.get(name, DecayedShare(0.0, now))
            factor = self._decay(now - before.at)
            share = before.share * factor + self.share(name) * (1 - factor)
            if share < 1e-6 and name not in self.ledger.members():
                self._decayed.pop(name, None)
            else:
                self._decayed[name] = DecayedShare(share, now)

    def _decay(self, seconds: float) -> float:
        return float(0.5 ** (max(0.0, seconds) / self.ledger.tree.half_life))

    def share(self, member: str) -> float:
        """The largest part of any cluster resource that the member uses now."""
        used = self.ledger.used(member)
        return max(
            (
                amount / self._totals[name]
                for name, amount in used.items()
                if self._totals.get(name)
            ),
            default=0.0,
        )

    def order(self, tenant: str, requested: Amounts) -> FairShareOrder:
        """The lowest goes first; equal only for one tenant."""
        path = tuple(
            (self.weighted(member), member.name)
            for member in reversed(self.ledger.tree.path(tenant))
        )
        return not self.ledger.below_guarantee(tenant, requested), path

    def weighted(self, member: TenantNode) -> float:
        """The share of the member by its weight."""
        before = self._decayed.get(member.name)
        decayed = before.share if before else 0.0
        now = self.share(member.name)
        return (WEIGHT_OF_NOW * now + (1 - WEIGHT_OF_NOW) * decayed) / member.weight

    # --- across restarts ---

    def remember(self) -> Mapping[str, DecayedShare]:
        return dict(self._decayed)

    def recall(self, known: Mapping[str, DecayedShare], now: float) -> None:
        """Take over a predecessor's shares, decayed since; newer own ones stay."""
        self.version += 1
        for name, written in known.items():
            own = self._decayed.get(name)
            if own is None or own.at < written.at:
                share = max(0.0, written.share) * self._decay(now - written.at)
                self._decayed[name] = DecayedShare(share, now)
