"""
One pod or gang as the scheduler sees it now, for those who explain it. Values only, nothing moves.
"""

from dataclasses import dataclass

from scheduler.model.pod import Pod
from scheduler.queueing.entry import UnitView


@dataclass(frozen=True, slots=True)
class Inspection:
    pod: Pod
    """As the watch last showed it."""
    look: UnitView | None
    """Its unit in the queue, with state, attempts and the last misfit; None: it is not waiting."""
    node: str = ""
    """The node it holds or was given; empty while it waits."""
    bound: int = 0
    """Members of its gang that have a node in the API."""
    is_partial: bool = False
    """Its gang is being completed, or released if that takes too long."""
    bound_members: tuple[tuple[Pod, str], ...] = ()
    """Members of its gang that have a node, by plan or by the API, with its name."""
    closed: frozenset[str] = frozenset()
    """Nodes that it must leave alone, because they are held for a gang that waits too long."""
