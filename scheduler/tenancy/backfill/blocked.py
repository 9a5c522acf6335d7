"""A unit that did not fit, as the order of those who wait for a promised start knows it. Values."""

from dataclasses import dataclass
from typing import Self

from scheduler.model.unit import Unit
from scheduler.tenancy.quota.tree import Pairs


@dataclass(slots=True)
class Blocked:
    tenant: str
    order: tuple[int, float, str]
    asked: Pairs
    """What one of its pods asks for."""
    single: bool
    """Takes whatever comes free next: others take it all the same, and wait for nothing more."""
    not_before: float = 0.0
    """From when on it may be given a promise."""

    @classmethod
    def of(cls, unit: Unit) -> Self:
        single = unit.need <= 1 and unit.pods[0].shape.ask.gpus <= 1
        return cls(unit.tenant, unit.order, unit.pods[0].shape.requests, single)
