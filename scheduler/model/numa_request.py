"""
What a pod requests inside one host: amounts, NUMA policy and alignment, read once from the pod.

    HostRequest        the whole pod: amounts, NUMA policy, NUMA ids, gang spread, memory
    ContainerRequest   one container, as the kubelet's managers see it; only where that can matter

`aligned` names the amounts that must be on the same NUMA nodes: `cpu`, `memory`, `gpu`, and huge
pages by their resource name. A pod is memory-intensive when its annotation declares it, or when it
requests more than 16Gi of memory and more than 4Gi per core. `plugins.numa.allocator` chooses the
NUMA nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policies import quantity, vocabulary
from policies.json_fields import Json
from policies.pods import intent, requests
from scheduler.model.resources import HUGEPAGES

Hugepages = tuple[tuple[str, int], ...]  # (resource name, bytes), sorted

ALL_RESOURCES: Final = frozenset({"cpu", "memory", "gpu"})

_INTENSIVE_MEMORY: Final = 16 * 2**30
_INTENSIVE_MEMORY_PER_CORE: Final = 4 * 2**30


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What the kubelet aligns for one container; `passing`: a plain init container."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    hugepages: Hugepages = ()
    passing: bool = False


@dataclass(frozen=True, slots=True)
class HostRequest:
    """`aligned` names the amounts that must be on the same NUMA nodes."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    policy: str = "none"
    aligned: frozenset[str] = ALL_RESOURCES
    prefer: tuple[int, ...] = ()
    avoid: tuple[int, ...] = ()
    by_default: bool = False
    """The policy came from a default: a host of unknown topology counts as one NUMA node."""
    hugepages: Hugepages = ()
    intensive: bool = False
    """Much memory per core: the scheduler weighs other memory use of the NUMA node."""
    distance: int = 50
    """Weight of the distance between NUMA nodes, 0 to 100."""
    spread: str = "packed"
    """How the members of the pod's gang share NUMA nodes; `packed` for a pod without a gang."""
    guaranteed: bool = False
    """Guaranteed QoS: the kubelet's CPU manager gives it exclusive CPUs for whole numbers."""
    containers: tuple[ContainerRequest, ...] = ()
    """Set only for a pod of several containers that the kubelet may align."""

    @property
    def needs_topology(self) -> bool:
        return (self.strict and not self.by_default) or self.apart

    @property
    def strict(self) -> bool:
        return self.policy in vocabulary.NUMA_STRICT_POLICIES

    @property
    def isolated(self) -> bool:
        return self.policy == "isolated"

    @property
    def apart(self) -> bool:
        """No NUMA node is shared with another member of the gang."""
        return self.spread == "isolated"


NO_HOST_REQUEST: Final = HostRequest()


def read(
    pod: Json, amounts: Mapping[str, int], numa: intent.Numa, *, by_default: bool, member: bool
) -> HostRequest:
    """`amounts` are the pod's effective requests; `member`: the pod belongs to a gang."""
    gpus = requests.gpus(amounts)
    hugepages = _hugepages(amounts)
    aligned = ALL_RESOURCES.union(name for name, _ in hugepages) if hugepages else ALL_RESOURCES
    if numa.resources is not None:
        aligned &= {"gpu" if r in vocabulary.GPU_RESOURCES else r for r in numa.resources}
    cpu, memory = amounts.get("cpu", 0), amounts.get("memory", 0)
    spec = pod.get("spec") or {}
    guaranteed = _is_guaranteed(spec)
    return HostRequest(
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        policy=numa.policy or "none",
        aligned=aligned,
        prefer=numa.prefer,
        avoid=numa.avoid,
        by_default=by_default,
        hugepages=hugepages,
        intensive=_is_intensive(cpu, memory, numa),
        distance=numa.distance_weight,
        spread=numa.gang_spread if member else "packed",
        guaranteed=guaranteed,
        containers=_containers(spec, guaranteed=guaranteed) if guaranteed or gpus else (),
    )


def _hugepages(amounts: Mapping[str, int]) -> Hugepages:
    if len(amounts) <= 2:
        return ()  # most pods
    return tuple(sorted((name, n) for name, n in amounts.items() if name.startswith(HUGEPAGES)))


def _is_intensive(cpu: int, memory: int, numa: intent.Numa) -> bool:
    if numa.memory_intensive is not None:
        return numa.memory_intensive
    return memory > _INTENSIVE_MEMORY and memory * 1000 > _INTENSIVE_MEMORY_PER_CORE * cpu


# --- as the kubelet sees the pod ---


def _is_guaranteed(spec: Json) -> bool:
    """Kubernetes' Guaranteed: CPU and memory limited everywhere, and requests equal to limits."""
    rows = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return bool(rows) and all(map(_is_fixed, rows))


def _is_fixed(container: Json) -> bool:
    resources = container.get("resources") or {}
    limits, requested = resources.get("limits") or {}, resources.get("requests") or {}
    for name in ("cpu", "memory"):
        if name not in limits:
            return False
        amount = requested.get(name, limits[name])
        if amount != limits[name] and quantity.parse(amount) != quantity.parse(limits[name]):
            return False
    return True


def _containers(spec: Json, *, guaranteed: bool) -> tuple[ContainerRequest, ...]:
    """Init containers first, as they are admitted; none for a pod of one container."""
    first, rest = spec.get("initContainers") or (), spec.get("containers") or ()
    if len(first) + len(rest) < 2:
        return ()
    inits = (_container(c, guaranteed, passing=c.get("restartPolicy") != "Always") for c in first)
    return (*inits, *(_container(c, guaranteed) for c in rest))


def _container(container: Json, guaranteed: bool, *, passing: bool = False) -> ContainerRequest:
    resources = container.get("resources") or {}
    declared = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    amounts = {str(name): quantity.amount(str(name), value) for name, value in declared.items()}
    return ContainerRequest(
        cpu=whole_cpus(amounts.get("cpu", 0)) if guaranteed else 0,
        memory=amounts.get("memory", 0) if guaranteed else 0,
        gpus=requests.gpus(amounts),
        hugepages=_hugepages(amounts) if guaranteed else (),
        passing=passing,
    )


def whole_cpus(cpu: int) -> int:
    """What the CPU manager assigns exclusively: all of a whole number, nothing of a fraction."""
    return cpu if cpu % 1000 == 0 else 0
