"""Several sources, one host: which fact wins, and which NUMA nodes and GPUs there are."""

import pytest

from policies.hosts.merge import (
    MOST_AMOUNT,
    MOST_BANDWIDTH,
    MOST_NUMBER,
    HostFacts,
    facts_of,
    merge,
)
from policies.hosts.topology import Gpu, Topology, TopologyManager, Zone


def zones(source: str, *, all_of_them: bool = True, **facts: dict[str, object]) -> HostFacts:
    """`z0={"cpu": 1}`"""
    return HostFacts(source, {int(k[1:]): v for k, v in facts.items()}, lists_zones=all_of_them)


def gpus(source: str, **facts: dict[str, object]) -> HostFacts:
    return HostFacts(source, gpus={int(k[1:]): v for k, v in facts.items()})


@pytest.mark.parametrize(
    ("sources", "offered", "want"),
    [
        pytest.param([], 8, None, id="no source has facts"),
        pytest.param([HostFacts("a"), HostFacts("b")], 0, None, id="two say nothing"),
        pytest.param(
            [
                zones("best", z0={"cpu": 3000}, all_of_them=False),
                zones("next", z0={"cpu": 4000, "memory": 7}, z1={"cpu": 4000, "memory": 8}),
                zones("last", z0={"bandwidth": 5}, z1={"memory": 9}, z2={"cpu": 1}),
            ],
            0,
            Topology((Zone(0, 3000, 7, bandwidth=5), Zone(1, 4000, 8))),
            id="fact by fact, and the best that lists all NUMA nodes says which there are",
        ),
        pytest.param(
            [zones("driver", z1={"cpu": 1000}, all_of_them=False)],
            0,
            Topology((Zone(1, 1000, 0),)),
            id="NUMA nodes that only a driver reports",
        ),
        pytest.param(
            [
                zones("kernel", z0={"cpus": 4000, "memories": 100}),
                zones("kubelet", z0={"cpu": 3000, "memory": 60}),
            ],
            0,
            Topology((Zone(0, 3000, 60),)),
            id="usable amounts before totals, from any source",
        ),
        pytest.param(
            [zones("kernel", z0={"memories": 100, "hugepages": (("hugepages-2Mi", 40),)})],
            0,
            Topology((Zone(0, 0, 60, (("hugepages-2Mi", 40),)),)),
            id="huge pages are no memory for others",
        ),
        pytest.param(
            [
                gpus("driver", g0={"vram": 80, "root": "pci1"}, g1={"vram": 80, "zone": 9}),
                zones("kernel", z0={"cpus": 1}),
                HostFacts("labels", each_gpu={"model": "m", "vram": 1}),
                gpus("more", g0={"zone": 0, "switch": "s"}, g7={"vram": 3}),
            ],
            2,
            Topology(
                (Zone(0, 1, 0),),
                (Gpu(0, 0, "m", 80, "s"), Gpu(1, None, "m", 80)),
            ),
            id="the best that names GPUs says which there are; a NUMA node that is not there is unsaid",
        ),
        pytest.param(
            [gpus("driver", g0={"zone": 0}), gpus("kernel", g0={}, g5={"zone": 1})],
            3,
            Topology((), (Gpu(0, 0), Gpu(1, None), Gpu(5, 1))),
            id="a host that offers more has more: from other sources, or numbered",
        ),
        pytest.param(
            [
                gpus("driver", g0={"pci": "b", "vram": 2}, g1={"pci": "a", "vram": 1}),
                gpus("kernel", g0={"pci": "a", "zone": 0}, g1={"pci": "b", "zone": 1}),
            ],
            2,
            Topology((), (Gpu(0, 0, vram=1, pci="a"), Gpu(1, 1, vram=2, pci="b"))),
            id="GPUs that count differently are distinguished by their PCI addresses",
        ),
        pytest.param(
            [
                zones("nrt", z0={"cpu": 1}, z1={"cpu": 1}),
                HostFacts("counts", gpu_counts={1: 1, 0: 2}),
                HostFacts("labels", each_gpu={"vram": 4}),
            ],
            3,
            Topology(
                (Zone(0, 1, 0), Zone(1, 1, 0)),
                (Gpu(0, 0, vram=4), Gpu(1, 0, vram=4), Gpu(2, 1, vram=4)),
            ),
            id="GPUs that are counted and not named",
        ),
        pytest.param(
            [
                HostFacts(
                    "counts",
                    gpu_counts={0: 2},
                    host={"manager": TopologyManager("restricted", "pod")},
                )
            ],
            3,
            Topology((), manager=TopologyManager("restricted", "pod")),
            id="a count that misses GPUs is none",
        ),
        pytest.param(
            [
                HostFacts(
                    "sizes",
                    {
                        1: {
                            "cpu": 2**63,
                            "memory": 2**63,
                            "hugepages": (("hugepages-2Mi", 2**63),),
                            "bandwidth": 2**63,
                            "distances": ((1, 2**63),),
                        },
                        2**40: {"cpu": 1},
                    },
                    lists_zones=True,
                    gpus={0: {"zone": 1, "vram": 2**83}, 2**40: {"zone": 2**40}},
                )
            ],
            2,
            Topology(
                (
                    Zone(
                        1,
                        MOST_AMOUNT,
                        MOST_AMOUNT,
                        (("hugepages-2Mi", MOST_AMOUNT),),
                        MOST_BANDWIDTH,
                        ((1, MOST_NUMBER),),
                    ),
                ),
                (Gpu(0, 1, vram=MOST_AMOUNT),),
            ),
            id="no amount beyond its cap, no number beyond any host's",
        ),
    ],
)
def test_merge(sources: list[HostFacts], offered: int, want: Topology | None) -> None:
    assert merge(sources, gpus=offered) == want


def test_a_topology_survives_a_round_trip_through_facts() -> None:
    host = Topology(
        (Zone(0, 1, 2, (("hugepages-2Mi", 3),), 4, ((0, 10),)), Zone(2, 5, 6)),
        (
            Gpu(0, 0, "m", 7, "pci0000:10", "i", "d/p/n", "0000:11:00.0"),
            Gpu(3, None, switch="0000:aa:00.0"),
        ),
        ("a problem",),
        TopologyManager("best-effort"),
    )
    assert merge([HostFacts("nobody"), facts_of(host)], gpus=2) == host
