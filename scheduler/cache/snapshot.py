"""
Free capacity, node by node: the snapshot that plans are made on.

    charge / release    pods as the API shows them, whether they fit or not
    place               a decision of this scheduler: it must fit, or the state is wrong
    trial               every change inside it is undone exactly at its end
    broken              nodes on which a plugin failed in the middle of a change; the cache rebuilds
                        them (`Cache.repair`) before the next plan

Amounts of nodes are in `table`. Each plugin of the registry keeps the state that its filters read.
Pods are not stored here: `cache.cache` knows them, and feeds the snapshot from watches.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Self

from scheduler.columns.node_table import NodeTable
from scheduler.errors import InvariantError
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaMisfit
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.model.policy import PlacementTables
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.plugins import registry as plugin_registry
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.interpod.plugin import InterPod
from scheduler.plugins.numa.plugin import NumaTopology
from scheduler.plugins.placement_policy import PlacementPolicy
from scheduler.plugins.registry import PluginSet, Registry
from scheduler.plugins.volumes.plugin import VolumePlugin


class Snapshot:
    """
    Rows of nodes, and what pods take of them. `freed` counts the changes that free capacity or open
    a node, `moved` counts every change: a pod may wait for another pod to arrive.
    """

    def __init__(self, registry: Registry = plugin_registry.DEFAULT) -> None:
        self.table = NodeTable()
        self.plugins = PluginSet(self.table, registry)
        self.interpod = self.plugins.get(InterPod)
        self.volumes = self.plugins.get(VolumePlugin)
        self.devices = self.plugins.get(DynamicResources)
        self.placement_policy = self.plugins.get(PlacementPolicy)
        self.numa = self.plugins.get(NumaTopology)
        self.host_usage = self.numa.host_usage
        self.nominees: dict[str, Pod] = {}  # uid -> a pod that another scheduler nominated
        self.freed = 0
        self.moved = 0
        self.broken: set[str] = set()
        self._undo: list[tuple[str, Pod, Assignment, int]] = []  # with the sign of the change
        self._trials = 0

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[tuple[Pod, str]] = (),
        *,
        registry: Registry = plugin_registry.DEFAULT,
    ) -> Self:
        """A snapshot of these nodes with these pods on them, pods being (pod, node name)."""
        snapshot = cls(registry)
        for node in nodes:
            snapshot.put_node(node)
        for pod, name in pods:
            snapshot.charge(pod, name, pod.assignment or NO_ASSIGNMENT)
        return snapshot

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, node: str) -> bool:
        return node in self.table.rows

    @property
    def registry(self) -> Registry:
        return self.plugins.registry

    @property
    def tables(self) -> PlacementTables:
        """The policies in force."""
        return self.placement_policy.tables

    # --- nodes ---

    def put_node(self, node: Node, pods: Iterable[tuple[Pod, Assignment]] = ()) -> bool:
        """Add or change a node; `pods` are charged to it already. True: it may help a pod."""
        old = self.table.nodes.get(node.name)
        if old == node:
            return False
        self.table.put(node)
        if old is not None and replace(old, images=node.images) == node:
            return False  # pulled images change a score, and no filter
        for put_node in self.plugins.put_node:
            put_node(node, old, pods)
        self.freed += 1
        self.moved += 1
        return True

    def drop_node(self, name: str) -> None:
        row = self.table.rows[name]
        for drop in self.plugins.drop:
            drop(row)
        self.table.drop(name)
        self.moved += 1

    # --- pods ---

    def charge(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        self._move(pod, node, assignment, +1)

    def release(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        self._move(pod, node, assignment, -1)
        self.freed += 1

    def place(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        self._move(pod, node, assignment, +1)
        if self._trials:
            self._undo.append((node, pod, assignment, -1))
            self._check_free(pod, node)
            return
        try:
            self._check_free(pod, node)
        except Exception:
            self.broken.add(node)
            raise

    def _check_free(self, pod: Pod, node: str) -> None:
        row = self.table.rows[node]
        for name, _ in pod.spec.requests:
            if self.table.free_at(row, name) < 0:
                raise InvariantError(f"node {node} has less than nothing left of {name}")

    def adopt(self, tables: PlacementTables) -> None:
        """Use these policies from now on: everything derived from others is derived again."""
        for adopt in self.plugins.adopt:
            adopt(tables)
        self.table.statics += 1
        self.cluster_event()

    def cluster_event(self) -> None:
        """Facts other than nodes and pods have changed, such as storage or namespaces."""
        self.freed += 1
        self.moved += 1

    def suppose(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        """As `charge`, inside a trial."""
        self._move(pod, node, assignment, +1)
        self._undo.append((node, pod, assignment, -1))

    def suppose_gone(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        """As `release`, inside a trial."""
        self._move(pod, node, assignment, -1)
        self._undo.append((node, pod, assignment, +1))

    def nominate(self, pod: Pod) -> None:
        """Another scheduler nominated the pod for its `nominated` node; "": no longer."""
        known = self.nominees.pop(pod.uid, None)
        if pod.nominated:
            self.nominees[pod.uid] = pod
        elif known is not None:
            self.freed += 1

    def choose(self, pod: Pod, node: str) -> Assignment | NumaMisfit:
        """The NUMA nodes and GPUs that the pod would get on this node."""
        host = self.host_usage.get(node)
        if host is None:
            return NO_ASSIGNMENT
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return self.numa.choose(pod, host, pod.spec.host_request)
        choose = partial(self.numa.choose, pod, host)
        return self.devices.choose(pod, self.table.rows[node], host.numa_nodes, choose)

    def signature(self, pod: Pod) -> tuple[object, ...]:
        """Equal for pods of one spec that fit the same nodes."""
        return tuple([signature(pod) for signature in self.plugins.signature])

    @contextmanager
    def trial(self) -> Iterator[None]:
        mark = len(self._undo)
        self._trials += 1
        try:
            yield
        finally:
            self._trials -= 1
            self._roll_back(mark)

    @property
    def in_trial(self) -> bool:
        return self._trials > 0

    def _roll_back(self, mark: int) -> None:
        """Undo all changes since the mark; on a broken node the repair does it."""
        failure: Exception | None = None
        while len(self._undo) > mark:
            node, pod, assignment, sign = self._undo.pop()
            if node not in self.broken:
                try:
                    self._move(pod, node, assignment, sign)
                except Exception as error:
                    self.broken.add(node)
                    failure = error
        if failure is not None:
            raise InvariantError("a trial was not undone by a plugin") from failure

    def _move(self, pod: Pod, node: str, assignment: Assignment, sign: int) -> None:
        row = self.table.rows[node]
        self.moved += 1
        try:
            for change in self.plugins.charge if sign > 0 else self.plugins.uncharge:
                change(pod, row, assignment)
        except Exception:
            self.broken.add(node)
            raise

    def state(self) -> dict[str, tuple[object, ...]]:
        """Everything that `charge` changes, by node: for comparing two moments."""
        return {
            name: tuple(state(row) for state in self.plugins.state)
            for name, row in self.table.rows.items()
        }
