"""
The inside of hosts: NUMA nodes and GPUs, the pods that use them, and the choice for a pod.

    put_node, charge …   one `HostUsage` for each node with a topology
    fits, capacity       bounds over all hosts at once, by `numa_table`
    host_filter          host by host, by `allocator`
    spread_score         the best NUMA node of each host, by `host_score`
    packing              costs of GPU islands, by `gpu_packing`
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from policies import vocabulary
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.assignment import Assignment, NumaMisfit
from scheduler.model.node import Node
from scheduler.model.numa_request import HostRequest
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.plugins.numa import allocator, host_score
from scheduler.plugins.numa.allocator import NO_TOPOLOGY, WITH_SHORTAGE
from scheduler.plugins.numa.gpu_packing import HostIslands
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage
from scheduler.plugins.numa.numa_table import NumaTable
from scheduler.plugins.protocol import Choose, Plugin, Rejection, Relaxation


class NumaTopology(Plugin):
    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.host_usage: dict[str, HostUsage] = {}  # node name -> its inside, where known
        self.numa_table = NumaTable(table, self.host_usage)
        self._islands = HostIslands()

    # --- state ---

    def put_node(
        self, node: Node, old: Node | None, pods: Iterable[tuple[Pod, Assignment]]
    ) -> None:
        if node.topology is None:
            self.host_usage.pop(node.name, None)
        elif old is None or old.topology != node.topology:
            usage = tuple(_usage(pod, assignment) for pod, assignment in pods)
            self.host_usage[node.name] = HostUsage.of(node.topology, usage)
            self.numa_table.managed |= node.topology.manager is not None

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        host = self.host_usage.get(self._table.names[row])
        if host is not None:
            host.charge(_usage(pod, assignment))

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        host = self.host_usage.get(self._table.names[row])
        if host is not None:
            host.uncharge(_usage(pod, assignment))

    def drop(self, row: int) -> None:
        self.host_usage.pop(self._table.names[row], None)

    def state(self, row: int) -> tuple[object, ...]:
        host = self.host_usage.get(self._table.names[row])
        return () if host is None else host.state()

    # --- filters ---

    def static_key(self, spec: SchedulingSpec) -> Hashable:
        return spec.host_request.needs_topology or None

    def static_filter(self, spec: SchedulingSpec) -> Iterator[Rejection]:
        yield NO_TOPOLOGY, ~self._table.has_topology

    def fits(self, spec: SchedulingSpec, rows: Bools) -> None:
        if self.numa_table.matters(spec.host_request):
            rows &= self.numa_table.most(spec.host_request) > 0

    def capacity(self, spec: SchedulingSpec, counts: Ints) -> None:
        if self.numa_table.matters(spec.host_request):
            np.minimum(counts, self.numa_table.most(spec.host_request), out=counts)

    def host_filter(self, pod: Pod, rows: Bools, choose: Choose) -> Iterator[Rejection]:
        """Reasons about free capacity name the request and the largest that is free."""
        host_request, names = pod.spec.host_request, self._table.names
        left = rows
        if host_request.policy == "single-numa" and not host_request.apart:
            left = rows & (self.numa_table.most(host_request) > 0)
        reasons: dict[str, list[int]] = {}
        if too_full := np.flatnonzero(rows & ~left).tolist():
            reasons[vocabulary.NO_SINGLE_NUMA_NODE] = too_full
        for row in map(int, np.flatnonzero(left)):
            if names[row] in self.host_usage:
                chosen = choose(pod, names[row])
                if isinstance(chosen, NumaMisfit):
                    reasons.setdefault(chosen.reason, []).append(row)
        for reason, hosts in reasons.items():
            rejected = np.zeros_like(rows)
            rejected[hosts] = True
            if reason in WITH_SHORTAGE:
                yield f"{reason}: {self.numa_table.shortage(host_request, rejected)}", rejected
            else:
                yield reason, rejected

    def unresolvable(self, pod: Pod) -> str:
        if not pod.spec.host_request.needs_topology:
            return ""
        table = self._table
        known = len(table) == 0 or (table.has_topology & table.alive).any()
        return "" if known else vocabulary.NO_NUMA_TOPOLOGY

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.host_request.strict:
            loose = replace(spec.host_request, policy="best-effort")
            yield "use NUMA policy best-effort", replace(spec, host_request=loose)

    # --- scores ---

    def spread_score(self, pod: Pod, rows: Bools) -> Ints | None:
        host_request = pod.spec.host_request
        if host_request.policy == "none":
            return None
        inside = host_score.scores(self.numa_table, host_request)
        return (host_score.WEIGHT * inside).astype(np.int64)

    def packing(self) -> HostIslands:
        """The GPU islands of all hosts as they are now, for `gpu_packing`."""
        self._islands.renew(self._table, self.host_usage)
        return self._islands

    # --- choice inside a host ---

    def choose(
        self, pod: Pod, host: HostUsage, host_request: HostRequest
    ) -> Assignment | NumaMisfit:
        """NUMA nodes and GPUs of the host for the pod, by this request."""
        gang = pod.gang.key if pod.gang is not None else None
        return allocator.choose(host, host_request, gang=gang, vram=pod.spec.vram)


def _usage(pod: Pod, assignment: Assignment) -> PodUsage:
    request = pod.spec.host_request
    if pod.gang is None:
        return PodUsage(request.cpu, request.memory, request.gpus, assignment, request.hugepages)
    return PodUsage(
        request.cpu,
        request.memory,
        request.gpus,
        assignment,
        request.hugepages,
        pod.gang.key,
        request.apart,
    )
