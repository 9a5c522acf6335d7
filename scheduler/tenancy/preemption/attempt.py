"""One preemption in progress."""

import asyncio
import math
from dataclasses import dataclass, field

from scheduler.model.placeholder import is_placeholder
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit


@dataclass(slots=True)
class Attempt:
    unit: Unit
    """The preemptor."""
    deadline: float
    """Until then the capacity stays reserved, and longer only while victims terminate."""
    last_deadline: float
    """Until then the capacity stays reserved at the most."""
    placements: tuple[Placement, ...] = ()
    victims: set[str] = field(default_factory=set)
    """uids of victims that have not left their nodes"""
    nominated: tuple[Placement, ...] = ()
    """Pods of the preemptor with a nominated node in their status."""
    evicted: int = 0
    task: asyncio.Task[None] | None = None
    search_at: float = math.inf
    """When the controller checks whether the victims are sufficient."""
    search_pause: float = 0.0
    """The last pause between two searches."""

    @property
    def evicting(self) -> bool:
        """Whether eviction calls are in progress."""
        return self.task is not None and not self.task.done()

    def nominate(self) -> list[tuple[Pod, str]]:
        """Nominations that are not written yet; from now on they count as written."""
        known = {placement.pod.uid: placement.node for placement in self.nominated}
        self.nominated = tuple(
            placement for placement in self.placements if not is_placeholder(placement.pod)
        )
        return [
            (placement.pod, placement.node)
            for placement in self.nominated
            if known.get(placement.pod.uid) != placement.node
        ]
