"""The score of NUMA nodes of one host: its parts, and what is known of none."""

import pytest

from policies.hosts.topology import Topology, Zone
from scheduler.model.assignment import Assignment, NumaShare
from scheduler.model.numa_request import HostRequest
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage
from scheduler.plugins.numa.numa_score import score

GIB = 2**30
PLAIN = Topology((Zone(0, 10_000, 100), Zone(1, 10_000, 100)))
FAR = Topology(
    tuple(
        Zone(i, 32_000, 64 * GIB, bandwidth=200 - 100 * i, distances=((i, 10), (1 - i, 20)))
        for i in range(2)
    )
)


def member(zone: int) -> PodUsage:
    return PodUsage(0, 0, 0, Assignment((NumaShare(zone),)), gang="g")


@pytest.mark.parametrize(
    ("topology", "claims", "host_request", "zones", "want"),
    [
        pytest.param(
            PLAIN, [], HostRequest(cpu=6000), (0,), 40 + 12.5 + 10 + 7.5, id="three fifths in use"
        ),
        pytest.param(PLAIN, [], HostRequest(cpu=10_000), (0,), 24 + 30, id="all in use"),
        pytest.param(
            PLAIN,
            [PodUsage(2000, 0, 0, Assignment((NumaShare(0, 2000),)))],
            HostRequest(cpu=4000),
            (0,),
            40 + 30,
            id="what others use counts",
        ),
        pytest.param(PLAIN, [], HostRequest(memory=60), (0,), 40 + 30, id="memory alone"),
        pytest.param(
            PLAIN,
            [],
            HostRequest(cpu=10_000, memory=0),
            (0, 1),
            36 + 30,
            id="use over both NUMA nodes",
        ),
        pytest.param(
            PLAIN,
            [],
            HostRequest(cpu=1000, prefer=(0,)),
            (0,),
            0.4 * 60 + 30,
            id="a fifth more if preferred",
        ),
        pytest.param(
            FAR,
            [],
            HostRequest(cpu=19_200),
            (0,),
            40 + 12.5 + 10 + 7.5,
            id="a distance of ten more",
        ),
        pytest.param(
            FAR,
            [],
            HostRequest(cpu=19_200, distance=100),
            (0,),
            40 + 12.5 + 0 + 7.5,
            id="weighed twice",
        ),
        pytest.param(
            FAR,
            [],
            HostRequest(cpu=19_200, distance=0),
            (0,),
            40 + 12.5 + 20 + 7.5,
            id="weighed not at all",
        ),
        pytest.param(
            FAR,
            [],
            HostRequest(cpu=19_200, memory=32 * GIB, intensive=True),
            (0,),
            0.4 * 96 + 12.5 + 10 + 7.5,
            id="half of the memory of the NUMA node with the best bandwidth",
        ),
        pytest.param(
            FAR,
            [],
            HostRequest(cpu=19_200, memory=32 * GIB, intensive=True),
            (1,),
            0.4 * 96 + 6.25 + 10 + 7.5,
            id="half the bandwidth counts half",
        ),
        pytest.param(
            PLAIN, [member(0)], HostRequest(cpu=6000), (0,), 40 + 22.5 + 15, id="beside a member"
        ),
        pytest.param(
            PLAIN, [member(0)], HostRequest(cpu=6000), (1,), 40 + 22.5 + 3, id="away from a member"
        ),
        pytest.param(
            PLAIN,
            [member(0), member(0)],
            HostRequest(cpu=6000, spread="balanced"),
            (0,),
            40 + 22.5 + 9,
            id="balanced beside two members",
        ),
        pytest.param(
            PLAIN,
            [member(0)],
            HostRequest(cpu=6000, spread="isolated"),
            (0,),
            40 + 22.5,
            id="not apart",
        ),
        pytest.param(PLAIN, [], HostRequest(cpu=6000), (), 50, id="no NUMA node"),
    ],
)
def test_scores(
    topology: Topology,
    claims: list[PodUsage],
    host_request: HostRequest,
    zones: tuple[int, ...],
    want: float,
) -> None:
    host_usage = HostUsage.of(topology, tuple(claims))
    assert score(host_usage, host_request, zones, "g") == pytest.approx(want, abs=1e-5)
