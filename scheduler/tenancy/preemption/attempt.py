"""
One unit's room while it is being made: where, until when, and who has to go for it. Values only.
"""

import asyncio
import math
from dataclasses import dataclass, field

from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.tenancy.preemption.victims import Occupant, Verdict
from scheduler.tenancy.reservation.members import is_stand_in


@dataclass(slots=True)
class Attempt:
    unit: Unit
    until: float
    """The room is kept so long, and longer only while somebody is ending."""
    latest: float
    """The room is kept so long at the most."""
    places: tuple[Occupant, ...] = ()
    victims: set[str] = field(default_factory=set)
    """uids of those who have to go and have not gone yet"""
    told: tuple[Occupant, ...] = ()
    """Where pods were told that they are to be."""
    evicted: int = 0
    task: asyncio.Task[None] | None = None
    look_at: float = math.inf
    """When it is looked at whether those who go are enough."""
    pause: float = 0.0
    """How long it was until then, after a look."""

    @property
    def busy(self) -> bool:
        """Whether evictions are being asked for."""
        return self.task is not None and not self.task.done()


def grace(verdict: Verdict) -> float:
    """The longest of those who go."""
    return max((one.pod.terms.grace for one in verdict.pods), default=0.0)


def newly_told(attempt: Attempt) -> list[tuple[Pod, str]]:
    """Pods that exist and were not told yet where they are to be; from now on they are."""
    known = {one.pod.uid: one.node for one in attempt.told}
    attempt.told = tuple(one for one in attempt.places if not is_stand_in(one.pod))
    return [(one.pod, one.node) for one in attempt.told if known.get(one.pod.uid) != one.node]
