"""Which GPUs of a host are taken: islands, switches, NUMA nodes, and what is left behind."""

import pytest

from policies import vocabulary
from policies.hosts.topology import Gpu, Topology, Zone
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaMisfit, NumaShare
from scheduler.model.numa_request import HostRequest
from scheduler.plugins.numa.allocator import choose
from scheduler.plugins.numa.gpu_islands import GpuPick, levels_of, pick
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage

GIB = 2**30
EIGHT = tuple(Gpu(i, i // 4, switch=f"s{i // 2}", island=f"i{i // 4}") for i in range(8))
"""Two islands of four, each over two switches."""
PAIRS = tuple(Gpu(i, i // 4, switch=f"s{i // 2}") for i in range(8))


def free_but(*held: int) -> list[int]:
    return [i for i in range(8) if i not in held]


@pytest.mark.parametrize(
    ("gpus", "free", "count", "want"),
    [
        pytest.param(EIGHT, free_but(), 4, GpuPick(0, 1, 1, 0, (0, 1, 2, 3)), id="a whole island"),
        pytest.param(
            EIGHT,
            free_but(4),
            1,
            GpuPick(0, 1, 2, 2, (5,)),
            id="one GPU from an island that is in use",
        ),
        pytest.param(
            EIGHT,
            free_but(0, 1, 2),
            1,
            GpuPick(0, 1, 0, 0, (3,)),
            id="the last of an island is best",
        ),
        pytest.param(
            EIGHT, free_but(0, 1), 4, GpuPick(0, 1, 1, 0, (4, 5, 6, 7)), id="four stay together"
        ),
        pytest.param(
            EIGHT,
            free_but(0),
            2,
            GpuPick(0, 1, 2, 1, (2, 3)),
            id="two share a switch of the island",
        ),
        pytest.param(
            EIGHT,
            free_but(0, 2, 5),
            3,
            GpuPick(0, 1, 0, 0, (4, 6, 7)),
            id="three of a broken island, on two switches",
        ),
        pytest.param(
            EIGHT,
            free_but(0, 5),
            6,
            GpuPick(3, 2, 0, 0, (1, 2, 3, 4, 6, 7)),
            id="six need both islands",
        ),
        pytest.param(
            EIGHT,
            free_but(0),
            5,
            GpuPick(3, 2, 0, 2, (1, 4, 5, 6, 7)),
            id="a whole island and one of the other",
        ),
        pytest.param(EIGHT, free_but(0, 1, 2, 3, 4), 4, None, id="too few"),
        pytest.param(
            PAIRS, free_but(0), 2, GpuPick(1, 1, 1, 0, (2, 3)), id="without islands one switch"
        ),
        pytest.param(
            PAIRS, free_but(), 3, GpuPick(2, 1, 3, 1, (0, 1, 2)), id="beyond a switch one NUMA node"
        ),
        pytest.param(
            (Gpu(0, None), Gpu(1, None), Gpu(2, None)),
            [0, 2],
            1,
            GpuPick(3, 1, 0, 1, (0,)),
            id="without groups the lowest",
        ),
    ],
)
def test_picks(gpus: tuple[Gpu, ...], free: list[int], count: int, want: GpuPick | None) -> None:
    assert pick(levels_of(gpus), count, usable=free, free=set(free)) == want


def test_a_floating_gpu_may_be_any() -> None:
    found = pick(levels_of(EIGHT), 4, usable=range(8), free=set(range(8)), floating=1)
    assert found == GpuPick(3, 1, 0, 4, (0, 1, 2, 3))


SOCKETS = Topology((Zone(0, 8000, 64 * GIB), Zone(1, 8000, 64 * GIB)), EIGHT)
ALONE = Topology((), EIGHT)
MIXED = Topology(
    (), (*(Gpu(i, None, vram=40 * GIB) for i in range(2)), Gpu(2, None, vram=79 * GIB))
)


def holding(*gpus: int) -> PodUsage:
    return PodUsage(0, 0, len(gpus), Assignment((), gpus))


@pytest.mark.parametrize(
    ("topology", "claims", "host_request", "vram", "want"),
    [
        pytest.param(
            SOCKETS,
            [holding(5)],
            HostRequest(cpu=1000, gpus=1),
            0,
            Assignment((NumaShare(1, 1000),), (4,)),
            id="a broken island comes before an untouched one, and decides the NUMA node",
        ),
        pytest.param(
            SOCKETS,
            [holding(5)],
            HostRequest(cpu=1000, gpus=1, policy="single-numa", prefer=(0,)),
            0,
            Assignment((NumaShare(1, 1000),), (4,)),
            id="a preferred id breaks no untouched island",
        ),
        pytest.param(
            SOCKETS,
            [holding(0), holding(5)],
            HostRequest(cpu=1000, gpus=1, prefer=(1,)),
            0,
            Assignment((NumaShare(1, 1000),), (4,)),
            id="a preferred id decides between broken islands",
        ),
        pytest.param(
            SOCKETS,
            [holding(0, 1)],
            HostRequest(cpu=12000, gpus=6),
            0,
            Assignment((NumaShare(0, 8000), NumaShare(1, 4000)), (2, 3, 4, 5, 6, 7)),
            id="GPUs of both NUMA nodes",
        ),
        pytest.param(
            ALONE,
            [holding(0)],
            HostRequest(cpu=1000, gpus=2),
            0,
            Assignment((), (2, 3)),
            id="GPUs alone",
        ),
        pytest.param(ALONE, [], HostRequest(cpu=1000), 0, NO_ASSIGNMENT, id="no GPU requested"),
        pytest.param(
            ALONE,
            [holding(0, 1, 2, 3, 4, 5), PodUsage(0, 0, 1)],
            HostRequest(gpus=2),
            0,
            NO_ASSIGNMENT,
            id="one of the last two is floating",
        ),
        pytest.param(
            ALONE,
            [],
            HostRequest(gpus=1, policy="single-numa"),
            0,
            NumaMisfit("node(s) had no NUMA topology"),
            id="GPUs alone are no NUMA node",
        ),
        pytest.param(
            ALONE,
            [],
            HostRequest(gpus=4, policy="single-numa", by_default=True),
            0,
            Assignment((), (0, 1, 2, 3)),
            id="unless the policy came from a default",
        ),
        pytest.param(
            MIXED,
            [],
            HostRequest(gpus=1),
            80 * GIB,
            Assignment((), (2,)),
            id="the one with the VRAM",
        ),
        pytest.param(
            MIXED,
            [],
            HostRequest(gpus=2),
            80 * GIB,
            NumaMisfit(
                f"{vocabulary.INSUFFICIENT_VRAM}: need 80Gi per GPU, "
                "fewer than 2 free GPUs of the node have it"
            ),
            id="too few with the VRAM",
        ),
    ],
)
def test_choices_with_gpus(
    topology: Topology,
    claims: list[PodUsage],
    host_request: HostRequest,
    vram: int,
    want: Assignment | NumaMisfit,
) -> None:
    assert choose(HostUsage.of(topology, tuple(claims)), host_request, vram=vram) == want
