"""Places that the kubelet's Topology Manager would refuse are never chosen."""

import pytest

from policies.hosts.topology import Gpu, Topology, TopologyManager, Zone
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaMisfit, NumaShare
from scheduler.model.numa_request import ContainerRequest, HostRequest
from scheduler.plugins.numa import topology_manager
from scheduler.plugins.numa.allocator import choose
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage

GPUS = tuple(Gpu(i, i // 2) for i in range(4))


def host(policy: str, scope: str = "container", gpus: tuple[Gpu, ...] = GPUS) -> Topology:
    zones = (Zone(0, 4000, 100), Zone(1, 4000, 100))
    return Topology(zones, gpus, manager=TopologyManager(policy, scope))


def rejected(policy: str, scope: str = "container") -> NumaMisfit:
    return NumaMisfit(f"{topology_manager.REJECTED}: policy {policy}, scope {scope}")


def taken(zone: int, cpu: int = 0, memory: int = 0, gpus: tuple[int, ...] = ()) -> PodUsage:
    return PodUsage(cpu, memory, len(gpus), Assignment((NumaShare(zone, cpu, memory),), gpus))


TWICE = (ContainerRequest(cpu=3000, memory=10), ContainerRequest(cpu=3000, memory=10))


@pytest.mark.parametrize(
    ("topology", "claims", "host_request", "want"),
    [
        pytest.param(
            host("none"),
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=3000, guaranteed=True),
            Assignment((NumaShare(0, 2000), NumaShare(1, 1000))),
            id="policy none rejects no pod",
        ),
        pytest.param(
            host("best-effort"),
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=3000, guaranteed=True),
            Assignment((NumaShare(0, 2000), NumaShare(1, 1000))),
            id="best-effort rejects no pod",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=3000, guaranteed=True),
            rejected("single-numa-node"),
            id="exclusive CPUs on two NUMA nodes",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=3000),
            Assignment((NumaShare(0, 2000), NumaShare(1, 1000))),
            id="a burstable pod has no CPUs of its own",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=2500, guaranteed=True),
            Assignment((NumaShare(0, 2000), NumaShare(1, 500))),
            id="nor has a guaranteed one with a part of a CPU",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, 0, 60), taken(1, 0, 60)],
            HostRequest(cpu=500, memory=50, guaranteed=True),
            rejected("single-numa-node"),
            id="memory of a guaranteed pod on two NUMA nodes",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, gpus=(0,)), taken(1, gpus=(2,))],
            HostRequest(cpu=500, gpus=2),
            rejected("single-numa-node"),
            id="GPUs on two NUMA nodes, for any pod",
        ),
        pytest.param(
            host("single-numa-node", gpus=()),
            [],
            HostRequest(cpu=500, gpus=2),
            Assignment((NumaShare(0, 500),)),
            id="GPUs of unknown NUMA nodes give no hint",
        ),
        pytest.param(
            host("restricted"),
            [],
            HostRequest(cpu=6000, gpus=4, guaranteed=True),
            Assignment((NumaShare(0, 4000), NumaShare(1, 2000)), (0, 1, 2, 3)),
            id="restricted admits two where an empty host would need two",
        ),
        pytest.param(
            host("restricted"),
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=4000, guaranteed=True),
            rejected("restricted"),
            id="restricted rejects two where an empty host would need one",
        ),
        pytest.param(
            host("restricted"),
            [],
            HostRequest(cpu=6000, gpus=2, guaranteed=True),
            rejected("restricted"),
            id="restricted rejects resources that need different numbers",
        ),
        pytest.param(
            host("single-numa-node", "pod"),
            [],
            HostRequest(cpu=6000, memory=20, guaranteed=True, containers=TWICE),
            rejected("single-numa-node", "pod"),
            id="scope pod aligns the sum",
        ),
        pytest.param(
            host("single-numa-node"),
            [],
            HostRequest(cpu=6000, memory=20, guaranteed=True, containers=TWICE),
            Assignment((NumaShare(0, 4000, 20), NumaShare(1, 2000, 0))),
            id="scope container aligns one after the other",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(1, 2000)],
            HostRequest(cpu=6000, memory=20, guaranteed=True, containers=TWICE),
            rejected("single-numa-node"),
            id="the second container does not fit",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(1, 4000)],
            HostRequest(
                cpu=3000,
                guaranteed=True,
                containers=(ContainerRequest(cpu=3000, passing=True), ContainerRequest(cpu=3000)),
            ),
            Assignment((NumaShare(0, 3000),)),
            id="an init container gives back what it took",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, 1000)],
            HostRequest(cpu=1000, policy="single-numa", guaranteed=True),
            Assignment((NumaShare(0, 1000),)),
            id="as the kubelet would, the lowest id",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, 3000)],
            HostRequest(cpu=2000, policy="isolated", guaranteed=True),
            Assignment((NumaShare(1, 2000),), isolated=True),
            id="the pod's own policy holds as well",
        ),
        pytest.param(
            host("restricted"),
            [PodUsage(3000, 0, 0, NO_ASSIGNMENT)],
            HostRequest(cpu=2000, guaranteed=True),
            rejected("restricted"),
            id="a floating pod may be anywhere",
        ),
        pytest.param(
            host("restricted", gpus=(Gpu(0, None), Gpu(1, 1))),
            [],
            HostRequest(cpu=9000, gpus=1),
            Assignment(gpus=(1,)),
            id="as the kubelet would, a GPU beside a NUMA node before one of unknown place",
        ),
        pytest.param(
            host("restricted", gpus=(Gpu(0, None), Gpu(1, 1))),
            [taken(1, gpus=(1,))],
            HostRequest(cpu=9000, gpus=1),
            rejected("restricted"),
            id="a GPU of unknown place gives no hint where others do",
        ),
        pytest.param(
            host("restricted", gpus=(Gpu(0, None), Gpu(1, 0))),
            [],
            HostRequest(cpu=500, gpus=1, aligned=frozenset({"cpu"})),
            Assignment((NumaShare(0, 500),), (1,)),
            id="the kubelet aligns GPUs that are not in the pod's NUMA list",
        ),
        pytest.param(
            host("restricted", gpus=tuple(Gpu(i, i // 2, island=f"{i % 2}") for i in range(4))),
            [],
            HostRequest(cpu=6000, gpus=2),
            Assignment((NumaShare(0, 4000), NumaShare(1, 2000)), (0, 1)),
            id="as the kubelet would, GPUs of one NUMA node before GPUs of one island",
        ),
        pytest.param(
            host("restricted"),
            [taken(0, 0, 60), taken(1, 3000)],
            HostRequest(cpu=4500, memory=50, guaranteed=True),
            Assignment((NumaShare(0, 3500, 0), NumaShare(1, 1000, 50))),
            id="as the kubelet would, all memory from one NUMA node",
        ),
        pytest.param(
            host("single-numa-node"),
            [taken(0, gpus=(0,))],
            HostRequest(
                cpu=6000,
                gpus=1,
                guaranteed=True,
                containers=(ContainerRequest(cpu=3000), ContainerRequest(cpu=3000, gpus=1)),
            ),
            Assignment((NumaShare(0, 4000), NumaShare(1, 2000)), (2,)),
            id="GPUs beside the container that requests them",
        ),
        pytest.param(
            host("single-numa-node", "pod"),
            [],
            HostRequest(
                cpu=500,
                gpus=3,
                containers=(
                    ContainerRequest(gpus=1),
                    ContainerRequest(gpus=2, passing=True),
                    ContainerRequest(gpus=1),
                ),
            ),
            Assignment((NumaShare(0, 500), NumaShare(1, 0)), (0, 1, 2)),
            id="more GPUs than the kubelet aligns at once",
        ),
    ],
)
def test_admission(
    topology: Topology,
    claims: list[PodUsage],
    host_request: HostRequest,
    want: Assignment | NumaMisfit,
) -> None:
    assert choose(HostUsage.of(topology, tuple(claims)), host_request) == want
