"""What a pod is charged inside a host, also where the host no longer has what the pod was given."""

import pytest

from policies.hosts.topology import Gpu, Topology, Zone
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaShare
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage

PAGES = "hugepages-2Mi"
HOST = Topology(
    (Zone(0, 4000, 100, hugepages=((PAGES, 10),)), Zone(1, 4000, 100, hugepages=((PAGES, 10),))),
    (Gpu(0, 0), Gpu(1, 1), Gpu(2, None)),
)

EMPTY = ((4000, 100, 10, 0), (4000, 100, 10, 0))
NOWHERE = (0, 0, 0, 0)


def share(zone: int, cpu: int = 0, memory: int = 0, pages: int = 0) -> NumaShare:
    return NumaShare(zone, cpu, memory, ((PAGES, pages),) if pages else ())


def pod(
    assignment: Assignment, *, cpu: int = 0, memory: int = 0, gpus: int = 0, pages: int = 0
) -> PodUsage:
    hugepages = ((PAGES, pages),) if pages else ()
    return PodUsage(cpu, memory, gpus, assignment, hugepages=hugepages)


@pytest.mark.parametrize(
    ("usage", "numa_nodes", "floating", "free_gpus"),
    [
        pytest.param(
            pod(
                Assignment((share(0, 1000, 10, 2), share(1, 500, 5, 1)), (0,)),
                cpu=1500,
                memory=15,
                gpus=1,
                pages=3,
            ),
            ((3000, 90, 8, 1), (3500, 95, 9, 1)),
            NOWHERE,
            {1, 2},
            id="to its NUMA nodes and GPUs",
        ),
        pytest.param(
            pod(NO_ASSIGNMENT, cpu=1500, memory=15, gpus=1, pages=3),
            EMPTY,
            (1500, 15, 1, 3),
            {0, 1, 2},
            id="to no NUMA node where none is known",
        ),
        pytest.param(
            pod(Assignment((share(0, 1000, 10, 2),)), cpu=1500, memory=15, pages=3),
            ((3000, 90, 8, 1), EMPTY[1]),
            (500, 5, 0, 1),
            {0, 1, 2},
            id="the rest of what it requests to no NUMA node",
        ),
        pytest.param(
            pod(
                Assignment((share(7, 1000, 10, 2), share(1, 500, 5, 1)), (9, 1)),
                cpu=1500,
                memory=15,
                gpus=2,
                pages=3,
            ),
            (EMPTY[0], (3500, 95, 9, 1)),
            (1000, 10, 1, 2),
            {0, 2},
            id="NUMA nodes and GPUs that the host no longer has, before others",
        ),
        pytest.param(
            pod(Assignment((), (1,)), gpus=1),
            (EMPTY[0], (4000, 100, 10, 1)),
            NOWHERE,
            {0, 2},
            id="a GPU counts the pod on its NUMA node",
        ),
        pytest.param(
            pod(Assignment((), (2,)), gpus=1),
            EMPTY,
            NOWHERE,
            {0, 1},
            id="a GPU without a NUMA node",
        ),
        pytest.param(
            pod(Assignment((share(0, 1000, 10, 2),)), cpu=800, memory=8, pages=1),
            ((3000, 90, 8, 1), EMPTY[1]),
            NOWHERE,
            {0, 1, 2},
            id="more than it requests: nothing is left over",
        ),
    ],
)
def test_charges(
    usage: PodUsage,
    numa_nodes: tuple[tuple[int, int, int, int], ...],
    floating: tuple[int, int, int, int],
    free_gpus: set[int],
) -> None:
    host = HostUsage(HOST)
    before = host.state()
    host.charge(usage)
    found = tuple(
        (one.cpu, one.memory, one.hugepages[PAGES], one.pods) for one in host.numa_nodes.values()
    )
    pages = host.floating_hugepages.get(PAGES, 0)
    elsewhere = (host.floating_cpu, host.floating_memory, host.floating_gpus, pages)
    assert (found, elsewhere, host.free_gpus) == (numa_nodes, floating, free_gpus)
    host.uncharge(usage)
    assert host.state() == before
