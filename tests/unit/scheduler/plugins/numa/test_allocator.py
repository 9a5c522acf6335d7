"""NUMA nodes and GPUs of hosts: the allocator's choice, and the usage that it charges."""

from typing import Any

import pytest

from policies import vocabulary
from policies.hosts.topology import Gpu, Topology, Zone
from scheduler.model import assignment
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaMisfit, NumaShare
from scheduler.model.numa_request import HostRequest
from scheduler.plugins.numa.allocator import (
    AVOIDED,
    HELD_BY_ISOLATED,
    NONE_UNSHARED,
    TOO_WIDE,
    choose,
)
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage

TWO = Topology((Zone(0, 4000, 100), Zone(1, 4000, 100)), tuple(Gpu(i, i // 2) for i in range(4)))


def taken(
    zone: int, cpu: int = 0, *, gpus: tuple[int, ...] = (), isolated: bool = False
) -> PodUsage:
    return PodUsage(cpu, 0, len(gpus), Assignment((NumaShare(zone, cpu),), gpus, isolated))


def floating(cpu: int = 0, gpus: int = 0) -> PodUsage:
    return PodUsage(cpu, 0, gpus)


@pytest.mark.parametrize(
    ("claims", "host_request", "want"),
    [
        pytest.param(
            [],
            HostRequest(cpu=2000, memory=10, gpus=2, policy="single-numa"),
            Assignment((NumaShare(0, 2000, 10),), (0, 1)),
            id="equals go to the lowest id, GPUs with the CPUs",
        ),
        pytest.param(
            [taken(1, 1000)],
            HostRequest(cpu=3000),
            Assignment((NumaShare(1, 3000),)),
            id="without a policy the tightest NUMA node wins",
        ),
        pytest.param(
            [taken(1, 1000)],
            HostRequest(cpu=3000, policy="single-numa"),
            Assignment((NumaShare(0, 3000),)),
            id="with a policy the one whose use comes nearest to three fifths",
        ),
        pytest.param(
            [taken(0, 1000), taken(1, 500)],
            HostRequest(cpu=1000, policy="best-effort"),
            Assignment((NumaShare(0, 1000),)),
            id="with a policy a NUMA node that is little in use is filled first",
        ),
        pytest.param(
            [taken(1, 1000)],
            HostRequest(cpu=2000, policy="best-effort", prefer=(0,)),
            Assignment((NumaShare(0, 2000),)),
            id="a preferred id comes before tightness",
        ),
        pytest.param(
            [],
            HostRequest(cpu=1000, policy="single-numa", avoid=(0, 7)),
            Assignment((NumaShare(1, 1000),)),
            id="an id to avoid is closed, one the host lacks is ignored",
        ),
        pytest.param(
            [],
            HostRequest(cpu=1000, policy="single-numa", avoid=(0, 1)),
            NumaMisfit(vocabulary.NO_SINGLE_NUMA_NODE),
            id="nothing is left to a pod that avoids all",
        ),
        pytest.param(
            [],
            HostRequest(cpu=6000, policy="single-numa"),
            NumaMisfit(vocabulary.NO_SINGLE_NUMA_NODE),
            id="single-numa never spans",
        ),
        pytest.param(
            [],
            HostRequest(cpu=6000, memory=120, policy="restricted"),
            Assignment((NumaShare(0, 4000, 100), NumaShare(1, 2000, 20))),
            id="restricted spans as few as an empty host needs",
        ),
        pytest.param(
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=3000, policy="restricted"),
            NumaMisfit(TOO_WIDE),
            id="restricted does not span for want of capacity",
        ),
        pytest.param(
            [taken(0, 2000), taken(1, 2000)],
            HostRequest(cpu=3000, policy="best-effort"),
            Assignment((NumaShare(0, 2000), NumaShare(1, 1000))),
            id="best-effort spans when one is full",
        ),
        pytest.param(
            [taken(0, 2000)],
            HostRequest(cpu=1000, policy="isolated"),
            Assignment((NumaShare(1, 1000),), isolated=True),
            id="isolated takes a NUMA node without pods",
        ),
        pytest.param(
            [taken(0, 1), taken(1, 1)],
            HostRequest(cpu=1000, policy="isolated"),
            NumaMisfit(NONE_UNSHARED),
            id="isolated does not share",
        ),
        pytest.param(
            [taken(0, 1000, isolated=True)],
            HostRequest(cpu=2000),
            Assignment((NumaShare(1, 2000),)),
            id="an isolated NUMA node is closed to others",
        ),
        pytest.param(
            [taken(0, 1000, isolated=True)],
            HostRequest(cpu=5000),
            NumaMisfit(HELD_BY_ISOLATED),
            id="no pod floats over an isolated NUMA node",
        ),
        pytest.param(
            [taken(1, 3000)],
            HostRequest(cpu=2000, avoid=(0,)),
            NumaMisfit(AVOIDED),
            id="no pod floats over a NUMA node that it avoids",
        ),
        pytest.param(
            [taken(0, gpus=(0,), isolated=True)],
            HostRequest(cpu=1000, gpus=2, aligned=frozenset({"cpu"})),
            Assignment((NumaShare(1, 1000),), (2, 3)),
            id="GPUs beside an isolated pod are not shared either",
        ),
        pytest.param(
            [PodUsage(0, 0, 1, Assignment((), (0,)))],
            HostRequest(cpu=1000, policy="isolated"),
            Assignment((NumaShare(1, 1000),), isolated=True),
            id="a pod with a GPU is on the NUMA node of the GPU",
        ),
        pytest.param(
            [taken(0, 3000), taken(1, 3000)],
            HostRequest(cpu=3000, gpus=2),
            Assignment((), (0, 1)),
            id="GPUs are named also where the rest is left to the host",
        ),
        pytest.param(
            [floating(3000)],
            HostRequest(cpu=2000, policy="single-numa"),
            NumaMisfit(vocabulary.NO_SINGLE_NUMA_NODE),
            id="what floats may sit on any NUMA node",
        ),
        pytest.param(
            [floating(3000)],
            HostRequest(cpu=3000),
            NO_ASSIGNMENT,
            id="a plain pod is left to the host",
        ),
        pytest.param(
            [taken(0, gpus=(0,))],
            HostRequest(gpus=2, policy="single-numa"),
            Assignment((NumaShare(1),), (2, 3)),
            id="GPUs of one NUMA node",
        ),
        pytest.param(
            [floating(gpus=1)],
            HostRequest(gpus=2, policy="single-numa"),
            NumaMisfit(vocabulary.NO_SINGLE_NUMA_NODE),
            id="a floating GPU may be any",
        ),
        pytest.param(
            [taken(0, gpus=(0,)), taken(1, gpus=(2,))],
            HostRequest(cpu=1000, gpus=2, policy="single-numa", aligned=frozenset({"cpu"})),
            Assignment((NumaShare(0, 1000),), (1, 3)),
            id="a resource left out of the list may sit anywhere",
        ),
    ],
)
def test_choices(
    claims: list[PodUsage], host_request: HostRequest, want: Assignment | NumaMisfit
) -> None:
    host_usage = HostUsage.of(TWO, tuple(claims))
    before = host_usage.state()
    assert (choose(host_usage, host_request), host_usage.state()) == (want, before)


PAGES = "hugepages-2Mi"
PAGED = Topology((Zone(0, 4000, 100, ((PAGES, 4),)), Zone(1, 4000, 100, ((PAGES, 6),))))


def pages(count: int, zone: int | None = None) -> PodUsage:
    """A pod with huge pages, somewhere or on one NUMA node."""
    held = (
        NO_ASSIGNMENT if zone is None else Assignment((NumaShare(zone, 0, 0, ((PAGES, count),)),))
    )
    return PodUsage(0, 0, 0, held, ((PAGES, count),))


def paged(count: int, policy: str = "single-numa", *, together: bool = True) -> HostRequest:
    names = {"cpu", "memory", "gpu", *([PAGES] if together else [])}
    return HostRequest(policy=policy, aligned=frozenset(names), hugepages=((PAGES, count),))


@pytest.mark.parametrize(
    ("topology", "claims", "host_request", "want"),
    [
        pytest.param(
            PAGED,
            [],
            paged(5),
            Assignment((NumaShare(1, 0, 0, ((PAGES, 5),)),)),
            id="where there are enough",
        ),
        pytest.param(
            PAGED,
            [pages(3, 1)],
            paged(4),
            Assignment((NumaShare(0, 0, 0, ((PAGES, 4),)),)),
            id="what is held there counts there alone",
        ),
        pytest.param(
            PAGED,
            [pages(3)],
            paged(4),
            NumaMisfit(vocabulary.NO_SINGLE_NUMA_NODE),
            id="what is held somewhere counts everywhere",
        ),
        pytest.param(
            PAGED,
            [],
            paged(8, "restricted"),
            Assignment((NumaShare(0, 0, 0, ((PAGES, 4),)), NumaShare(1, 0, 0, ((PAGES, 4),)))),
            id="over both NUMA nodes",
        ),
        pytest.param(
            PAGED,
            [],
            paged(8, together=False),
            Assignment((NumaShare(0),)),
            id="left out of the list they may sit anywhere",
        ),
        pytest.param(
            TWO, [], paged(8), Assignment((NumaShare(0),)), id="a host that tells nothing of them"
        ),
    ],
)
def test_huge_pages(
    topology: Topology,
    claims: list[PodUsage],
    host_request: HostRequest,
    want: Assignment | NumaMisfit,
) -> None:
    assert choose(HostUsage.of(topology, tuple(claims)), host_request) == want


def test_usage_is_exact_even_where_pods_overlap() -> None:
    claims = [
        taken(0, 1000, gpus=(0, 1)),
        taken(0, 500, gpus=(1,)),
        taken(9, 700, gpus=(99,)),
        floating(300, gpus=1),
        taken(1, 100, isolated=True),
    ]
    host_usage = HostUsage(TWO)
    states = [host_usage.state()]
    for claim in claims:
        host_usage.charge(claim)
        states.append(host_usage.state())
    for claim in claims:
        host_usage.uncharge(claim)
    assert (host_usage.state(), len({str(state) for state in states})) == (states[0], len(states))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(NO_ASSIGNMENT, id="nothing"),
        pytest.param(
            Assignment((NumaShare(0, 1, 2), NumaShare(3, 4, 5)), (0, 7)), id="shares and GPUs"
        ),
        pytest.param(Assignment((NumaShare(0, 1, 2),), isolated=True), id="isolated"),
        pytest.param(
            Assignment((NumaShare(0, 1, 2, (("hugepages-2Mi", 4),)), NumaShare(1, 1, 2))),
            id="huge pages",
        ),
    ],
)
def test_an_assignment_reads_back_as_it_was_written(value: Assignment) -> None:
    assert assignment.parse(value.render()) == value


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            '{"numa":[0],"gpus":[0,1]}', Assignment((NumaShare(0),), (0, 1)), id="no shares"
        ),
        pytest.param(None, None, id="absent"),
        pytest.param("nonsense", None, id="not JSON"),
        pytest.param("[]", None, id="not an object"),
        pytest.param('{"numa":[0,0]}', None, id="a NUMA node twice"),
        pytest.param('{"numa":[0],"cpu":[1,2],"memory":[0]}', None, id="columns of two lengths"),
        pytest.param('{"numa":[-1]}', None, id="a negative id"),
        pytest.param('{"gpus":[true]}', None, id="a truth value for an index"),
        pytest.param('{"numa":5}', None, id="no list"),
        pytest.param('{"numa":[0],"hugepages":[1]}', None, id="huge pages without a name"),
        pytest.param(
            '{"numa":[0],"hugepages":{"hugepages-1Gi":[]}}', None, id="too few huge pages"
        ),
        pytest.param(
            '{"numa":[0],"hugepages":{"gold":[1]}}', None, id="huge pages of an unknown size"
        ),
    ],
)
def test_foreign_assignments(text: str | None, want: Any) -> None:
    assert assignment.parse(text) == want
