"""
What must happen before a plan is bound: volumes, devices, capacity for members to come.

    placements ──volumes provisioned──▶ ──claims allocated──▶ ──reservation written──▶ ready
                       └─────────────────────┴──────────────────────┴────────────────▶ failed

If so many members of a gang fail that it cannot be complete, none of them is bound.
"""

from collections.abc import Callable, Sequence

from scheduler.model.plan import Placement, PreBindFailure, Result, Unbound
from scheduler.model.unit import Unit
from scheduler.plugins.dra.prebind import TIMEOUT_SECONDS as CLAIM_SECONDS
from scheduler.plugins.dra.prebind import ClaimPreBind
from scheduler.plugins.volumes.prebind import TIMEOUT_SECONDS as VOLUME_SECONDS
from scheduler.plugins.volumes.prebind import VolumePreBind
from scheduler.tenancy.reservation.controller import ReservationController

Placements = tuple[Placement, ...]


class PreBind:
    """Each step returns the placements that are ready, and appends the others to `results`."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        volumes: VolumePreBind | None = None,
        claims: ClaimPreBind | None = None,
        reservations: ReservationController | None = None,
    ) -> None:
        self._now = now
        self._volumes = volumes
        self._claims = claims
        self._reservations = reservations

    def waits_for_volumes(self, placements: Sequence[Placement]) -> bool:
        return self._volumes is not None and self._volumes.needed(placements)

    async def provision_volumes(
        self, unit: Unit, placements: Placements, results: list[Result]
    ) -> Placements:
        if self._volumes is None:
            return placements
        outcome = await self._volumes.prepare(placements, deadline=self._now() + VOLUME_SECONDS)
        results += map(_unbound, outcome.failed)
        if outcome.failed and len(outcome.ready) < unit.need:
            why = "other members of the pod group have no volumes yet"
            results += [Unbound(placement, why) for placement in outcome.ready]
            return ()
        return outcome.ready

    async def allocate_claims(
        self, unit: Unit, placements: Placements, results: list[Result]
    ) -> Placements:
        if self._claims is None or not self._claims.needed(placements):
            return placements
        outcome = await self._claims.prepare(placements, deadline=self._now() + CLAIM_SECONDS)
        results += map(_unbound, outcome.failed)
        if outcome.failed and len(outcome.ready) < unit.need:
            why = "other members of the pod group have no devices yet"
            results += [Unbound(placement, why) for placement in outcome.ready]
            return ()
        return outcome.ready

    async def write_reservation(
        self, unit: Unit, placements: Placements, results: list[Result]
    ) -> Placements:
        """Reserve capacity for members that the leader will create."""
        if self._reservations is None or not self._reservations.needs_object(unit, placements):
            return placements
        why = await self._reservations.create_object(unit, placements)
        results += [Unbound(placement, why) for placement in placements if why]
        return () if why else placements

    async def undo(self, placements: Sequence[Placement]) -> None:
        """Deallocate the claims of pods that were not bound."""
        if self._claims is not None:
            await self._claims.undo(placements)

    def finish(self, unit: Unit, results: Sequence[Result]) -> None:
        if self._reservations is not None:
            self._reservations.bind_finished(unit, results)


def _unbound(failure: PreBindFailure) -> Unbound:
    return Unbound(failure.placement, failure.why, error=failure.error)
