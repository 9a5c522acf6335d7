"""Host ports: who binds which port of which node."""

from collections.abc import Iterator
from typing import Final

from ..columns import Bools, Columns
from ..model import Pod

TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"


class Ports:
    """The books of host ports."""

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
