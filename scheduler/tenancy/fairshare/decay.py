"""
Advances the decayed shares while time passes: once per second, and when the nodes change.

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

    def tick(self, now: float) -> None:
        statics = self._snapshot.table.statics
        if now >= self._advanced_at + EVERY or statics != self._statics:
            self._advanced_at = now
            self._statics = statics
            self.advance()

    def advance(self) -> None:
        table = self._snapshot.table
        # Also resources without usage yet: the first tenant to use one does not stay first.
        totals = {name: table.total(name) for name in table.resources() if name != PODS}
        self._shares.advance(totals, self._epoch())
