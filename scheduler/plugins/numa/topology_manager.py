"""
Whether the kubelet's Topology Manager would admit a pod on some NUMA nodes of its host.

A pod that it does not admit fails with TopologyAffinityError after it was bound, so `allocator`
never chooses such NUMA nodes. Modelled, after Kubernetes' documentation of the managers:

    hint providers     whole CPUs of Guaranteed pods (CPU manager `static`), memory and huge pages
                       of Guaranteed pods (memory manager `Static`), GPUs of any pod where the host
                       reports their NUMA nodes
    a hint             some NUMA nodes with enough left; preferred, if an empty host would need as
                       many for that resource alone
    restricted         some NUMA nodes are a preferred hint for every resource at once
    single-numa-node   the same, and it is one NUMA node
    scope `pod`        once for the sum over the containers
    scope `container`  for one container after the other; init containers give back what they took

Hosts do not report whether the CPU and memory managers run. They count as running: rejecting a node
is better than losing a pod. Everything that is charged to a NUMA node counts as used, also what the
kubelet would not hand out exclusively. Not modelled: devices other than GPUs, policy
options (closest NUMA nodes, full cores), reserved CPUs and memory beyond what the host leaves out
of its NUMA nodes, and groups of NUMA nodes that the memory manager ties together. The kubelet does
not read the assignment: among NUMA nodes that suit equally it takes the lowest, and GPUs on them
before GPUs without a NUMA node. `allocator` does the same on such hosts, so that the charged usage
matches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final, NamedTuple

from policies.hosts.topology import TopologyManager
from scheduler.model.numa_request import ContainerRequest, HostRequest, whole_cpus
from scheduler.model.resources import HUGEPAGES
from scheduler.plugins.numa.candidates import NumaOffer
from scheduler.plugins.numa.host_usage import HostUsage

_SINGLE: Final = "single-numa-node"
_STRICT: Final = frozenset({"restricted", _SINGLE})
_MOST_TRIED: Final = 2000
REJECTED: Final = "node(s) would be rejected by the kubelet's Topology Manager"


@dataclass(frozen=True, slots=True)
class _HintProvider:
    """One resource that gives hints: the request, and the host's sizes and free amounts."""

    amount: int
    sizes: Mapping[int, int]  # NUMA node -> what it has
    left: Mapping[int, int]  # NUMA node -> what is left of it


class Affinity(NamedTuple):
    """The NUMA nodes from which the kubelet takes a pod's amounts, and those of its GPUs."""

    zones: tuple[int, ...]
    gpu_zones: tuple[int, ...]


def of(host: HostUsage, host_request: HostRequest) -> TopologyManager | None:
    """The manager that could reject this pod on this host."""
    manager = host.topology.manager
    if manager is None or manager.policy not in _STRICT or not host.numa_nodes:
        return None
    return manager if host_request.guaranteed or (host_request.gpus and host.gpus_located) else None


def reason(manager: TopologyManager) -> str:
    return f"{REJECTED}: policy {manager.policy}, scope {manager.scope}"


def affinity(
    manager: TopologyManager,
    host: HostUsage,
    host_request: HostRequest,
    group: Sequence[NumaOffer],
) -> Affinity | None:
    """The NUMA nodes of this group that the kubelet takes for the pod. None: it rejects the pod."""
    left = {offer.zone: _amounts(offer) for offer in group}
    taken: tuple[int, ...] = ()
    with_gpus: tuple[int, ...] = ()
    for need in _needs(manager, host_request):
        resources = [*_resources(host, need, left)]
        zones = _narrowest(manager, resources, sorted(left))
        if zones is None:
            return None
        if not need.passing:
            _take(need, zones, left)
        taken += zones
        if need.gpus and host.gpus_located:
            with_gpus += zones
    return Affinity(taken, with_gpus)


def _needs(manager: TopologyManager, host_request: HostRequest) -> tuple[ContainerRequest, ...]:
    if not host_request.containers:
        if not host_request.guaranteed:
            return (ContainerRequest(gpus=host_request.gpus),)
        return (
            ContainerRequest(
                whole_cpus(host_request.cpu),
                host_request.memory,
                host_request.gpus,
                host_request.hugepages,
            ),
        )
    if manager.scope != "pod":
        return host_request.containers
    running = _sum([need for need in host_request.containers if not need.passing])
    passing = [need for need in host_request.containers if need.passing]
    return (*passing, running)


def _sum(needs: Sequence[ContainerRequest]) -> ContainerRequest:
    pages: dict[str, int] = {}
    for need in needs:
        for name, count in need.hugepages:
            pages[name] = pages.get(name, 0) + count
    return ContainerRequest(
        cpu=sum(need.cpu for need in needs),
        memory=sum(need.memory for need in needs),
        gpus=sum(need.gpus for need in needs),
        hugepages=tuple(sorted(pages.items())),
    )


def _amounts(offer: NumaOffer) -> dict[str, int]:
    amounts = {"cpu": offer.cpu, "memory": offer.memory, "gpu": offer.spare}
    return {**amounts, **dict(offer.hugepages)}


def _wanted(need: ContainerRequest) -> Iterator[tuple[str, int]]:
    yield from (("cpu", need.cpu), ("memory", need.memory), ("gpu", need.gpus), *need.hugepages)


def _resources(
    host: HostUsage, need: ContainerRequest, left: Mapping[int, Mapping[str, int]]
) -> Iterator[_HintProvider]:
    for name, amount in _wanted(need):
        unknown = name.startswith(HUGEPAGES) and name not in host.located_hugepages
        if not amount or unknown or (name == "gpu" and not host.gpus_located):
            continue
        yield _HintProvider(
            amount,
            {zone: _size(host, zone, name) for zone in host.zones},
            {zone: amounts.get(name, 0) for zone, amounts in left.items()},
        )


def _size(host: HostUsage, zone: int, name: str) -> int:
    if name == "gpu":
        return host.gpus_of[zone]
    numa_node = host.zones[zone]
    if name.startswith(HUGEPAGES):
        return dict(numa_node.hugepages).get(name, 0)
    return numa_node.cpu if name == "cpu" else numa_node.memory


def _narrowest(
    manager: TopologyManager, resources: Sequence[_HintProvider], zones: Sequence[int]
) -> tuple[int, ...] | None:
    """The NUMA nodes that every resource prefers; the lowest of them. None: there are none."""
    if not resources:
        return ()
    widths = {_least(resource.sizes.values(), resource.amount) for resource in resources}
    width = widths.pop()
    if widths or width is None or (manager.policy == _SINGLE and width > 1):
        return None
    for group in islice(combinations(zones, width), _MOST_TRIED):
        if all(
            sum(resource.left[zone] for zone in group) >= resource.amount for resource in resources
        ):
            return group
    return None


def _least(sizes: Iterable[int], amount: int) -> int | None:
    """How many of the NUMA nodes an empty host needs for this resource alone."""
    total = 0
    for count, size in enumerate(sorted(sizes, reverse=True), start=1):
        total += size
        if total >= amount:
            return count
    return None


def _take(need: ContainerRequest, group: Sequence[int], left: Mapping[int, dict[str, int]]) -> None:
    for name, amount in _wanted(need):
        missing = amount
        for zone in group:
            taken = min(missing, left[zone].get(name, 0))
            left[zone][name] = left[zone].get(name, 0) - taken
            missing -= taken
