"""
Whose turn it is between tenants: promises first, then the lowest share for its weight.

    order = (below its promise of what is asked? first), (share / weight at the top, …, tenant's)

A share is the largest part that a member uses of any resource of the cluster. It is remembered and
fades: after one half-life, what was used then counts half. What is used now counts beside what was
used before, so that a tenant which has waited long goes ahead, and one that starts much at once
does not stay ahead until memory catches up. Siblings are compared, level by level from the top, so
a group with many tenants is served like one with few. `remember` and `recall` keep the memory
across restarts. No clock of its own: times come from outside, as seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Amounts

FairShareOrder = tuple[bool, tuple[tuple[float, str], ...]]

NOW_COUNTS: Final = 0.5
"""How much of a share is what is used now; the rest is what is remembered."""


@dataclass(frozen=True, slots=True)
class DecayedShare:
    """A faded share, and when it was reckoned."""

    share: float
    at: float


class FairShares:
    """Reads the ledger; `totals` are what the cluster has of each resource."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._memory: dict[str, DecayedShare] = {}
        self._totals: Amounts = {}

    def advance(self, totals: Amounts, now: float) -> None:
        """Let time pass: what members use now has been used since the last call."""
        self._totals = totals
        names = {*self._memory, *self.ledger.members()}
        for name in names:
            memory = self._memory.get(name, DecayedShare(0.0, now))
            kept = 0.5 ** (max(0.0, now - memory.at) / self.ledger.tree.half_life)
            share = memory.share * kept + self.share(name) * (1 - kept)
            if share < 1e-6 and name not in self.ledger.members():
                self._memory.pop(name, None)
            else:
                self._memory[name] = DecayedShare(share, now)

    def share(self, member: str) -> float:
        """The largest part that the member uses now of anything that the cluster has."""
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
        """Of somebody who asks for this; the lowest goes first, equal only for one tenant."""
        path = tuple(
            (self._weighted(member.name, member.weight), member.name)
            for member in reversed(self.ledger.tree.path(tenant))
        )
        return not self.ledger.below(tenant, requested), path

    def _weighted(self, name: str, weight: int) -> float:
        memory = self._memory.get(name)
        faded = memory.share if memory else 0.0
        return (NOW_COUNTS * self.share(name) + (1 - NOW_COUNTS) * faded) / weight

    # --- across restarts ---

    def remember(self) -> Mapping[str, DecayedShare]:
        return dict(self._memory)

    def recall(self, known: Mapping[str, DecayedShare], now: float) -> None:
        """What a predecessor remembered; it has faded since, unless something was seen since."""
        for name, memory in known.items():
            mine = self._memory.get(name)
            if mine is None or mine.at < memory.at:
                kept = 0.5 ** (max(0.0, now - memory.at) / self.ledger.tree.half_life)
                self._memory[name] = DecayedShare(max(0.0, memory.share) * kept, now)
