"""
Advances the decayed shares while time passes: once per second, and when the capacity of the cluster
changes.

The time of day drives the decay, because the shares outlive the process.
"""

from collections.abc import Callable
from typing import Final

from scheduler.cache.snapshot import Snapshot
from scheduler.model.resources import PODS
from scheduler.tenancy.fairshare.shares import FairShares

EVERY: Final = 1.0  # seconds


class ShareDecay:
    """`epoch` is the time of day."""

    def __init__(self, snapshot: Snapshot, shares: FairShares, epoch: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._shares = shares
        self._epoch = epoch
        self._advanced_at = float("-inf")
        self._statics = -1
        self._totals: dict[str, int] | None = None

    def tick(self, now: float) -> None:
        statics = self._snapshot.table.statics
        is_due = now >= self._advanced_at + EVERY
        if is_due or (statics != self._statics and self._capacity() != self._totals):
            self._advanced_at = now
            self.advance()
        self._statics = statics

    def advance(self) -> None:
        self._totals = self._capacity()
        self._shares.advance(self._totals, self._epoch())

    def _capacity(self) -> dict[str, int]:
        """Also of resources without usage: the first tenant to use one does not stay first."""
        table = self._snapshot.table
        return {name: table.total(name) for name in table.resources() if name != PODS}
