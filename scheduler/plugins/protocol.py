"""
The protocol of a plugin: one class for each family of filters and scores, over all nodes at once.

    watches     feeds                                        objects other than nodes and pods
    state       put_node, charge, uncharge, drop, state      what placed pods take of each row
    filters     static_filter    by the nodes' own facts; memoised by `static_key`
                fits, capacity   by amounts, for one pod and for many equal pods
                filter           by the pods that are placed, and by objects other than nodes
                host_filter      by the inside of each host; runs last
                unresolvable     why no node can ever do
    requeueing  depends_on_pods, events, signature
    scores      static_score     by the nodes' own facts; memoised by `static_score_key`
                score            for every pod
                spread_score     for pods that are spread as kube-scheduler spreads them
                packing_cost     for pods that are packed
    explaining  filter and static_filter name the reasons, relaxations the changes that would help

Every method has a default that does nothing. `registry.PluginSet` finds the methods that a plugin
overrides and calls no others, so a plugin costs nothing where it has nothing to do.

A row is the index of a node in the `NodeTable`. Arrays have one element for each row, dead ones
included. `charge` and `uncharge` are exact opposites: planning tries placements and undoes them.
"""

from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum
from typing import ClassVar, Final

from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.feed import Feed
from scheduler.model.assignment import Assignment, NumaMisfit
from scheduler.model.node import Node
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.policy import PlacementTables

Rejection = tuple[str, Bools]
"""A reason in kube-scheduler's words, and the rows that it rejects."""

Relaxation = tuple[str, SchedulingSpec]
"""A change that the user can make, and the spec of the pod after it."""

Choose = Callable[[Pod, str], Assignment | NumaMisfit]
"""Picks NUMA nodes and GPUs for a pod on the node of this name."""

MAX_SCORE: Final = 100
"""The best score of one plugin for a node, before its weight."""

POD_EVENT: Final = "Pod"
ANY_EVENT: Final = "*"
"""A change of unknown kind: it can help every pod that depends on more than its node."""


class QueueingHint(IntEnum):
    """What a change does for unschedulable pods of one class."""

    NONE = 0
    PERHAPS = 1
    """Only planning can tell."""
    LIKELY = 2
    """A changed node has the amounts, but so has a node on which a plan has failed."""
    FITS = 3
    """A changed node has the amounts, and no node had them before."""


class Plugin:
    """One filter, one score, or both; `PluginSet` makes one of each for a snapshot."""

    events: ClassVar[frozenset[str]] = frozenset()
    """Kinds of objects, other than nodes, whose changes can make a rejected pod schedulable."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    # --- watches ---

    def feeds(self) -> Iterable[Feed]:
        """Resources to watch; they must be in sync before the scheduler plans pods."""
        return ()

    # --- state ---

    def put_node(
        self, node: Node, old: Node | None, pods: Iterable[tuple[Pod, Assignment]]
    ) -> None:
        """The node is new or has changed; `pods` are on it already."""

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        """The pod is on this row from now on."""

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        """Undo `charge`."""

    def drop(self, row: int) -> None:
        """The node is gone. The cache charges its pods again if the node returns."""

    def state(self, row: int) -> tuple[object, ...]:
        """Everything that `charge` changes on the row, as one comparable value."""
        return ()

    def adopt(self, tables: PlacementTables) -> None:
        """Use these policies from now on."""

    # --- filters ---

    def static_key(self, spec: SchedulingSpec) -> Hashable:
        """Equal for specs that `static_filter` treats alike; None: it rejects no row."""
        return None

    def static_filter(self, spec: SchedulingSpec) -> Iterable[Rejection]:
        """By facts of nodes and policies alone. Holds while `table.statics` stands still."""
        return ()

    def fits(self, spec: SchedulingSpec, rows: Bools) -> None:
        """Clear the rows that cannot take one more such pod by amounts."""

    def capacity(self, spec: SchedulingSpec, counts: Ints) -> None:
        """Lower each row's count to the number of such pods that fit by amounts."""

    def filter(self, pod: Pod, rows: Bools) -> Iterable[Rejection]:
        """Reasons, each with those of `rows` that it rejects, in kube-scheduler's order."""
        return ()

    def host_filter(self, pod: Pod, rows: Bools, choose: Choose) -> Iterable[Rejection]:
        """As `filter`, by the inside of each host."""
        return ()

    def unresolvable(self, pod: Pod) -> str:
        """Why no node can ever take the pod; empty: nothing is wrong."""
        return ""

    # --- requeueing and equal pods ---

    def depends_on_pods(self, pod: Pod) -> bool:
        """Whether placed pods, or objects of `events`, decide which rows `filter` rejects."""
        return False

    def affects_equal_pods(self, pod: Pod) -> bool:
        """Whether placing the pod changes the rows that `filter` rejects for an equal pod."""
        return self.depends_on_pods(pod)

    def shares_node(self, pod: Pod) -> bool:
        """Whether equal pods must follow the first of them to its node."""
        return False

    def signature(self, pod: Pod) -> tuple[object, ...]:
        """Equal for pods of one spec for which `filter` rejects the same rows."""
        return ()

    # --- scores ---

    def static_score_key(self, spec: SchedulingSpec) -> Hashable:
        """Equal for specs that `static_score` treats alike."""
        return None

    def static_score(self, spec: SchedulingSpec) -> Ints | None:
        """Raw points by the nodes' own facts; None: all rows are equal."""
        return None

    def normalize(self, points: Ints, rows: Bools) -> Ints | None:
        """The weighted score of raw points, in proportion to the best of `rows`."""
        return points

    def score(self, pod: Pod, rows: Bools) -> Ints | None:
        """Weighted points of each row, more is better; None: all of `rows` are equal."""
        return None

    def spread_score(self, pod: Pod, rows: Bools) -> Ints | None:
        """As `score`, for pods that are spread."""
        return None

    def packing_cost(self, pod: Pod, rows: Ints, *, equal_pods: int) -> Ints | None:
        """What speaks against each of these rows, for pods that are packed."""
        return None

    # --- explaining ---

    def relaxations(self, spec: SchedulingSpec) -> Iterable[Relaxation]:
        """The spec without the requirement of this plugin."""
        return ()
