"""Units that wait for a start reservation, and what a fork estimated for them. Values only."""

from dataclasses import dataclass, field
from typing import Self

from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.tenancy.quota.tree import Pairs


@dataclass(slots=True)
class Estimates:
    """What a fork estimated, by unit."""

    moved: dict[UnitKey, StartReservation] = field(default_factory=dict)
    """Start reservations that could not be met; one without an estimate is not in it."""
    first: dict[UnitKey, StartReservation | None] = field(default_factory=dict)
    """Units without a start reservation, in order."""
    failed: dict[UnitKey, str] = field(default_factory=dict)
    """Errors, as texts."""


@dataclass(slots=True)
class BlockedUnit:
    """A unit that waits for a start reservation."""

    tenant: str
    order: tuple[int, float, str]
    requests: Pairs
    """Of one of its pods."""
    single: bool
    """One pod with at most one GPU: the next free gap suffices, with a start reservation or not."""
    not_before: float = 0.0
    """When the controller estimates its start again."""

    @classmethod
    def of(cls, unit: Unit) -> Self:
        single = unit.need <= 1 and unit.pods[0].spec.host_request.gpus <= 1
        return cls(unit.tenant, unit.order, unit.pods[0].spec.requests, single)
