"""
The cases, the schedulers that are compared, and their objects.

A case is a list of units (gang sizes; 1 for a pod alone) on a number of equal nodes in racks. It is
drained (all pods wait when the scheduler starts) or arrives (units come at a fixed pace). Every
scheduler gets the same nodes and the same pods; only `schedulerName` and the mark of the gang
differ. Pure.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policies import vocabulary

Object = dict[str, Any]

NAMESPACE: Final = "bench"
GPU: Final = vocabulary.GPU_RESOURCES[0]
GPUS_PER_NODE: Final = 8
QPS, BURST = 5000, 10_000
GROUP_API: Final = "scheduling.k8s.io/v1beta1"
DEFAULT_SCHEDULER: Final = "default-scheduler"
GATES: Final = ("GenericWorkload", "TopologyAwareWorkloadScheduling")

MIXED_SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
# With seed 7 these weights give 250 gangs of 1,898 pods that need 336 nodes: 1.344 a gang.
MIXED_WEIGHTS: Final = (6, 6, 6, 6, 7, 7, 7, 7, 3, 3, 3, 3)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    nodes: int
    units: tuple[int, ...]
    """The size of each unit, in the order of creation."""
    gangs: bool
    rack: int = 50
    """Nodes a rack."""
    rate: float = 0.0
    """Units a second; 0: all of them wait when the scheduler starts."""

    @property
    def pods(self) -> int:
        return sum(self.units)

    @property
    def least_nodes(self) -> float:
        """The fewest nodes a gang can be on, on average."""
        return sum(needed(size) for size in self.units) / len(self.units)


@dataclass(frozen=True, slots=True)
class Peer:
    """A scheduler as it is configured. `groups`: gangs are native PodGroup objects."""

    name: str
    ours: bool = False
    groups: bool = False
    rack: bool = False
    packed: bool = False

    @property
    def scheduler_name(self) -> str:
        return vocabulary.SCHEDULER_NAME if self.ours else DEFAULT_SCHEDULER

    @property
    def gates(self) -> tuple[str, ...]:
        return GATES[: int(self.groups) + int(self.rack)]


def needed(size: int) -> int:
    return -(-size // GPUS_PER_NODE)


def mixed(gangs: int = 250, *, seed: int = 7) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(MIXED_SIZES, weights=MIXED_WEIGHTS, k=gangs))


STOCK: Final = Peer("stock")
STOCK_PACKED: Final = Peer("stock-packed", packed=True)
NATIVE: Final = Peer("native", groups=True)
NATIVE_PACKED: Final = Peer("native-packed", groups=True, packed=True)
NATIVE_RACK: Final = Peer("native-rack", groups=True, rack=True)
NATIVE_RACK_PACKED: Final = Peer("native-rack-packed", groups=True, rack=True, packed=True)
OURS: Final = Peer("ours", ours=True)
PEERS: Final = {
    peer.name: peer
    for peer in (
        STOCK,
        STOCK_PACKED,
        NATIVE,
        NATIVE_PACKED,
        NATIVE_RACK,
        NATIVE_RACK_PACKED,
        OURS,
    )
}
FOR_SINGLES: Final = (STOCK.name, STOCK_PACKED.name, OURS.name)

CASES: Final = {
    case.name: case
    for case in (
        Case("singles-1200@1000", 1000, (1,) * 1200, gangs=False),
        Case("gangs-300x4@1000", 1000, (4,) * 300, gangs=True),
        Case("gangs-2x500@1000", 1000, (500,) * 2, gangs=True),
        Case("mixed@250", 250, mixed(), gangs=True, rack=25),
        Case("singles-1200@5000", 5000, (1,) * 1200, gangs=False),
        Case("gangs-300x4@5000", 5000, (4,) * 300, gangs=True),
        Case("arrival-singles@1000", 1000, (1,) * 1200, gangs=False, rate=60.0),
        Case("arrival-gangs-8@1000", 1000, (8,) * 100, gangs=True, rate=4.0),
        # A few seconds each: to see that everything works, not to publish.
        Case("quick-singles@100", 100, (1,) * 200, gangs=False, rack=25),
        Case("quick-mixed@40", 40, mixed(40), gangs=True, rack=10),
        Case("quick-arrival@100", 100, (8,) * 10, gangs=True, rack=25, rate=5.0),
    )
}
QUICK: Final = tuple(name for name in CASES if name.startswith("quick-"))
FULL: Final = tuple(name for name in CASES if name not in QUICK)


def peers_for(case: Case) -> tuple[str, ...]:
    return tuple(PEERS) if case.gangs else FOR_SINGLES


# --- objects ---


def node_name(number: int) -> str:
    return f"n{number:04d}"


def rack_of(node: str, per_rack: int) -> str:
    return f"rack-{int(node[1:]) // per_rack:03d}"


def nodes(count: int, *, rack: int) -> Iterator[Object]:
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
    for number in range(count):
        name = node_name(number)
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    vocabulary.HOSTNAME_LABEL: name,
                    vocabulary.OS_LABEL: "linux",
                    vocabulary.ARCH_LABEL: "amd64",
                    vocabulary.RACK_LABEL: rack_of(name, rack),
                },
            },
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }


def unit_name(number: int) -> str:
    return f"u{number:04d}"


def pod_name(unit: int, member: int) -> str:
    return f"{unit_name(unit)}-{member:03d}"


def unit_of(pod: str) -> int:
    return int(pod[1:].partition("-")[0])


def pod(name: str, peer: Peer, *, gang: str = "", size: int = 1, node: str = "") -> Object:
    """A pod of one GPU; with a `node` a small one without GPUs that is bound already."""
    amounts = {"cpu": "100m", "memory": "100Mi"} if node else {"cpu": "1", "memory": "1Gi"}
    spec: Object = {
        "schedulerName": peer.scheduler_name,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": "example.test/bench:1",
                "resources": {
                    "requests": amounts,
                    "limits": amounts if node else {**amounts, GPU: "1"},
                },
            }
        ],
    }
    metadata: Object = {"name": name, "namespace": NAMESPACE}
    if node:
        spec["nodeName"] = node
    if gang and peer.groups:
        spec["schedulingGroup"] = {"podGroupName": gang}
    if gang and peer.ours:
        metadata["labels"] = {
            vocabulary.GANG_NAME_LABEL: gang,
            vocabulary.GANG_MIN_AVAILABLE_LABEL: str(size),
        }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def members(case: Case, peer: Peer, unit: int) -> list[Object]:
    size = case.units[unit]
    gang = unit_name(unit) if case.gangs else ""
    return [pod(pod_name(unit, n), peer, gang=gang, size=size) for n in range(size)]


def group(case: Case, peer: Peer, unit: int) -> Object | None:
    """The native PodGroup of a unit, where the peer needs one."""
    if not (case.gangs and peer.groups):
        return None
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": case.units[unit]}}}
    if peer.rack:
        spec["schedulingConstraints"] = {"topology": [{"key": vocabulary.RACK_LABEL}]}
    metadata = {"name": unit_name(unit), "namespace": NAMESPACE}
    return {"apiVersion": GROUP_API, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def configuration(peer: Peer, kubeconfig: Path) -> Object:
    """KubeSchedulerConfiguration of a kube-scheduler; JSON, which is YAML."""
    profile: Object = {"schedulerName": peer.scheduler_name}
    if peer.packed:
        profile |= {
            "percentageOfNodesToScore": 100,
            "plugins": {
                "score": {
                    "enabled": [{"name": "NodeResourcesFit", "weight": 20}],
                    "disabled": [
                        {"name": "NodeResourcesBalancedAllocation"},
                        {"name": "PodTopologySpread"},
                    ],
                }
            },
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "NodeResourcesFitArgs",
                        "scoringStrategy": {
                            "type": "MostAllocated",
                            "resources": [{"name": GPU, "weight": 1}],
                        },
                    },
                }
            ],
        }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": QPS, "burst": BURST},
        "leaderElection": {"leaderElect": False},
        "profiles": [profile],
    }
