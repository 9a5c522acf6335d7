"""Classes of unschedulable pods, and a hint for each of them at once."""

from collections.abc import Callable

from scheduler.model.pod import Pod
from scheduler.plugins.protocol import QueueingHint
from scheduler.queueing.unschedulable import EquivalenceClass


class Classes:
    """The observer of a queue: every class that waits."""

    def __init__(self) -> None:
        self._waiting: dict[EquivalenceClass, None] = {}

    def add(self, pods: EquivalenceClass) -> None:
        self._waiting[pods] = None

    def discard(self, pods: EquivalenceClass) -> None:
        del self._waiting[pods]

    def hints(
        self, hint: Callable[[Pod], QueueingHint]
    ) -> list[tuple[EquivalenceClass, QueueingHint]]:
        return [(pods, hint(pods.pod)) for pods in self._waiting]
