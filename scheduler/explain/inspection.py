"""
One pod as the scheduler sees it now: the input of an explanation. Values only.
"""

from dataclasses import dataclass

from scheduler.model.pod import Pod
from scheduler.queueing.entry import UnitView


@dataclass(frozen=True, slots=True)
class Inspection:
    pod: Pod
    """As the watch last showed it."""
    queued: UnitView | None
    """Its unit in the queue, with state, attempts and the last reasons; None: it is not queued."""
    node: str = ""
    """Its node, assumed or in the API; empty while it waits."""
    bound: int = 0
    """Members of its gang that have a node in the API."""
    is_partial: bool = False
    """Its gang is partially bound."""
    bound_members: tuple[tuple[Pod, str], ...] = ()
    """Members of its gang that have a node, assumed or in the API, with its name."""
    closed: frozenset[str] = frozenset()
    """Nodes that are held for other units."""
