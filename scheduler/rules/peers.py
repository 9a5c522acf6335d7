"""Pods and the pods around them: (anti-)affinity and topology spread."""

from collections.abc import Iterator

from ..columns import Bools, Columns
from ..model import Pod


class Peers:
    """Counts of pods by what selects them, node by node."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def take(self, pod: Pod, row: int) -> None:
        """The pod is on this row from now on."""

    def give(self, pod: Pod, row: int) -> None:
        """Undo `take`."""

    def drop(self, row: int) -> None:
        """The node went; whoever is remembered there is taken again when it returns."""

    def refuse(self, pod: Pod, rows: Bools) -> Iterator[tuple[str, Bools]]:
        """(reason, the rows of `rows` that it refuses), in kube-scheduler's order."""
        yield from ()

    def state(self, row: int) -> tuple[object, ...]:
        """Everything that `take` changes on a row: for comparing two moments."""
        return ()

    def concerns(self, pod: Pod) -> bool:
        """Whether where this pod may go depends on other pods: by its own wish or by theirs."""
        return False

    def signature(self, pod: Pod) -> tuple[int, ...]:
        """Which known selectors match the pod: pods of one shape and signature are alike."""
        return ()

    def put_namespace(self, name: str, labels: tuple[tuple[str, str], ...]) -> None:
        """Namespace selectors are answered by these labels."""
