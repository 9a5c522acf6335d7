"""Which of the nodes that fit are better: kube-scheduler's default scores, over all rows at once."""

from .columns import Bools, Ints
from .filters import Memo
from .model import Pod
from .snapshot import Snapshot


def preferences(snapshot: Snapshot, pod: Pod, rows: Bools, memo: Memo) -> Ints | None:
    """What the user prefers, for every row; None when the pod prefers nothing."""
    return None


def spreading(snapshot: Snapshot, pod: Pod, rows: Bools, memo: Memo) -> Ints | None:
    """The whole default profile, for every row."""
    return None
