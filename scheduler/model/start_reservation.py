"""A start reservation: when a unit is expected to start, and where."""

from dataclasses import dataclass

from scheduler.model.unit import UnitKey


@dataclass(frozen=True, slots=True)
class StartReservation:
    """The unit is expected to start at this time, on these nodes."""

    key: UnitKey
    start: float
    nodes: frozenset[str]
    waits_for: tuple[str, ...] = ()
    """Keys of the pods on these nodes that end last, the last first; a few."""
    priority: int = 0
