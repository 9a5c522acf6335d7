"""How many pods each host can take by its NUMA nodes: never too few, and exact for single-numa."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies import vocabulary
from policies.hosts.topology import Gpu, Topology, TopologyManager, Zone
from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaMisfit, NumaShare
from scheduler.model.node import Node
from scheduler.model.numa_request import ALL_RESOURCES, HostRequest
from scheduler.model.pod import Pod, PodKey, SchedulingSpec
from scheduler.plugins.numa.allocator import choose
from scheduler.plugins.numa.candidates import aligned_amounts, closed_numa_nodes, usable_gpus
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage
from scheduler.plugins.numa.numa_table import ANY
from tests.unit.scheduler.builders import a_node

GIB = 2**30
TWO = Topology((Zone(0, 4000, 8 * GIB), Zone(1, 2000, 8 * GIB)), tuple(Gpu(i, 0) for i in range(2)))


def a_host(name: str, topology: Topology | None) -> Node:
    return replace(a_node(name, cpu="64", memory="640Gi"), topology=topology)


def a_placed_pod(name: str, host_request: HostRequest, where: Assignment = NO_ASSIGNMENT) -> Pod:
    return Pod(
        PodKey("ns", name),
        name,
        SchedulingSpec((("pods", 1),), host_request=host_request),
        assignment=where,
    )


@pytest.mark.parametrize(
    ("host_request", "want"),
    [
        pytest.param(HostRequest(cpu=1000, policy="single-numa"), 6, id="by CPU"),
        pytest.param(
            HostRequest(cpu=3000, policy="single-numa"),
            1,
            id="the rest of two NUMA nodes does not add up",
        ),
        pytest.param(HostRequest(cpu=1000, gpus=1, policy="single-numa"), 2, id="by GPUs"),
        pytest.param(HostRequest(cpu=1000, policy="single-numa", avoid=(0,)), 2, id="ids to avoid"),
        pytest.param(HostRequest(cpu=6000, policy="single-numa"), 0, id="too large"),
        pytest.param(HostRequest(cpu=6000, policy="restricted"), 1, id="restricted over both"),
        pytest.param(HostRequest(cpu=1500, policy="restricted"), 3, id="restricted on one"),
        pytest.param(HostRequest(cpu=500, policy="isolated"), 2, id="isolated: one each"),
        pytest.param(HostRequest(cpu=5000, policy="isolated"), 1, id="isolated over both"),
        pytest.param(
            HostRequest(cpu=500, policy="single-numa", spread="isolated"),
            2,
            id="members apart: one each",
        ),
        pytest.param(
            HostRequest(cpu=5000, spread="isolated"), 2, id="apart without a policy: a bound"
        ),
        pytest.param(
            HostRequest(cpu=1000, gpus=1, policy="single-numa", aligned=frozenset({"cpu"})),
            6,
            id="what may sit anywhere does not count",
        ),
    ],
)
def test_bounds(host_request: HostRequest, want: int) -> None:
    snapshot = Snapshot.of(
        [a_host("a", TWO), a_host("b", None), a_host("c", Topology((), TWO.gpus))]
    )
    found = snapshot.numa.numa_table.most(host_request)
    rows = snapshot.table.rows
    assert [int(found[rows[name]]) for name in "abc"] == [want, ANY, ANY]


@pytest.mark.parametrize(
    ("policy", "host_request", "want"),
    [
        pytest.param(
            "single-numa-node", HostRequest(cpu=3000, guaranteed=True), 1, id="exclusive CPUs"
        ),
        pytest.param("single-numa-node", HostRequest(cpu=3000), ANY, id="shared CPUs"),
        pytest.param(
            "single-numa-node", HostRequest(cpu=9000, gpus=1), 2, id="GPUs of a burstable pod"
        ),
        pytest.param("restricted", HostRequest(cpu=5000, guaranteed=True), 1, id="two NUMA nodes"),
        pytest.param(
            "restricted", HostRequest(cpu=5000, gpus=1, guaranteed=True), 0, id="two and one"
        ),
        pytest.param(
            "none",
            HostRequest(cpu=5000, gpus=1, guaranteed=True),
            ANY,
            id="policy none rejects no pod",
        ),
    ],
)
def test_bounds_of_the_topology_manager(policy: str, host_request: HostRequest, want: int) -> None:
    snapshot = Snapshot.of([a_host("a", replace(TWO, manager=TopologyManager(policy)))])
    assert int(snapshot.numa.numa_table.most(host_request)[0]) == want


def test_bounds_follow_charged_pods_and_changed_hosts() -> None:
    snapshot, host_request = (
        Snapshot.of([a_host("a", TWO)]),
        HostRequest(cpu=2000, policy="single-numa"),
    )
    known = a_placed_pod("k", HostRequest(cpu=3000), Assignment((NumaShare(0, 3000),)))
    stranger = a_placed_pod("s", HostRequest(cpu=1000))
    found = [int(snapshot.numa.numa_table.most(host_request)[0])]
    for step in (
        lambda: snapshot.charge(known, "a", known.assignment or NO_ASSIGNMENT),
        lambda: snapshot.charge(stranger, "a"),
        lambda: snapshot.release(known, "a", known.assignment or NO_ASSIGNMENT),
        lambda: snapshot.put_node(a_host("a", Topology((Zone(0, 9000, 0), *TWO.zones[1:])))),
        lambda: snapshot.put_node(a_host("a", None)),
        lambda: snapshot.put_node(a_host("a", Topology(tuple(Zone(i, 2000, 0) for i in range(5))))),
    ):
        step()
        found.append(int(snapshot.numa.numa_table.most(host_request)[0]))
    assert found == [3, 1, 0, 1, 5, ANY, 5]


ZONES = st.builds(
    Zone, st.just(0), st.sampled_from([0, 2000, 4000, 8000]), st.sampled_from([4, 8, 16])
)
ASKS = st.builds(
    HostRequest,
    cpu=st.sampled_from([500, 1000, 3000, 3500, 6000]),
    memory=st.integers(0, 9),
    gpus=st.sampled_from([0, 0, 1, 2]),
    policy=st.sampled_from(["single-numa", "restricted", "isolated", "none"]),
    aligned=st.sampled_from([ALL_RESOURCES, ALL_RESOURCES, frozenset({"cpu"})]),
    avoid=st.sampled_from([(), (1,)]),
    by_default=st.booleans(),
    spread=st.sampled_from(vocabulary.GANG_NUMA_SPREADS),
    guaranteed=st.booleans(),
)


@st.composite
def hosts(draw: st.DrawFn) -> Topology:
    policy = draw(st.sampled_from(["", "", "none", "restricted", "single-numa-node"]))
    zones = [
        replace(zone, id=i) for i, zone in enumerate(draw(st.lists(ZONES, min_size=1, max_size=4)))
    ]
    place = st.one_of(st.none(), st.integers(0, len(zones) - 1))
    island = st.sampled_from(["", "", "a", "b"])
    gpus = tuple(Gpu(i, draw(place), island=draw(island)) for i in range(draw(st.integers(0, 6))))
    return Topology(tuple(zones), gpus, manager=TopologyManager(policy, "pod") if policy else None)


def a_managed_host(policy: str, zones: tuple[Zone, ...], gpus: tuple[Gpu, ...] = ()) -> Topology:
    return Topology(zones, gpus, manager=TopologyManager(policy, "pod"))


# The kubelet takes the GPU beside a NUMA node before a GPU whose NUMA node is unknown.
ONE_GPU_UNLOCATED = a_managed_host("restricted", (Zone(0, 2000, 4),), (Gpu(0, None), Gpu(1, 0)))
# The kubelet takes both GPUs from one NUMA node, and not the two of the island.
ISLAND_OVER_TWO = a_managed_host(
    "restricted",
    (Zone(0, 2000, 4), Zone(1, 2000, 4)),
    tuple(Gpu(i, i // 3, island="a" if i in (2, 3) else "") for i in range(6)),
)
# The kubelet takes all memory from the second NUMA node, also where the CPU is on the first.
CPU_AND_MEMORY_APART = a_managed_host("restricted", (Zone(0, 2000, 4), Zone(1, 0, 16)))


@settings(max_examples=150, deadline=None)
@given(hosts(), st.lists(ASKS, max_size=4), ASKS)
@example(ONE_GPU_UNLOCATED, [], HostRequest(cpu=3000, gpus=1))
@example(
    replace(ONE_GPU_UNLOCATED, manager=TopologyManager("single-numa-node", "pod")),
    [],
    HostRequest(cpu=3000, gpus=1, spread="balanced"),
)
@example(ONE_GPU_UNLOCATED, [], HostRequest(cpu=1000, gpus=1, aligned=frozenset({"cpu"})))
@example(ISLAND_OVER_TWO, [], HostRequest(cpu=6000, gpus=2))
@example(CPU_AND_MEMORY_APART, [], HostRequest(cpu=500, memory=6, guaranteed=True))
@example(  # GPUs without NUMA nodes need not be aligned under a policy that is a default
    Topology((Zone(0, 8000, 16),), (Gpu(0, None),)),
    [],
    HostRequest(cpu=1000, gpus=1, policy="single-numa", by_default=True),
)
def test_a_bound_is_never_below_the_truth(
    host: Topology, others: list[HostRequest], host_request: HostRequest
) -> None:
    snapshot = Snapshot.of([a_host("a", host)])
    host_usage = snapshot.host_usage["a"]
    for index, other in enumerate(others):
        found = choose(host_usage, other)
        if isinstance(found, Assignment):
            snapshot.charge(a_placed_pod(f"o{index}", other), "a", found)
    by_amount = 40
    if host.gpus and host_request.gpus and not aligned_amounts(host_usage, host_request).gpus:
        # GPUs that need not be aligned: the resource filter bounds their number, not the table.
        closed = closed_numa_nodes(host_usage, host_request, None)
        usable = usable_gpus(host_usage, host_request, closed, 0)
        by_amount = max(0, len(usable) - host_usage.floating_gpus) // host_request.gpus
    bound = int(snapshot.numa.numa_table.most(host_request)[0])
    count = filled(host_usage, host_request)
    assert bound >= count
    if host_request.policy == "single-numa" and not host_request.apart and host.manager is None:
        assert min(bound, by_amount, 40) == count
    if not snapshot.numa.numa_table.matters(host_request):
        assert bound == ANY


def filled(host_usage: HostUsage, host_request: HostRequest) -> int:
    """Pods of one gang placed one after the other, up to 40."""
    for count in range(40):
        found = choose(host_usage, host_request, gang="g")
        if isinstance(found, NumaMisfit):
            return count
        host_usage.charge(
            PodUsage(
                host_request.cpu,
                host_request.memory,
                host_request.gpus,
                found,
                gang="g",
                apart=host_request.apart,
            )
        )
    return 40


@pytest.mark.parametrize(
    ("held", "host_request", "want"),
    [
        pytest.param(
            Assignment((NumaShare(0, 500, 1), NumaShare(1, 0, 1))),
            HostRequest(cpu=5000, memory=20 * GIB, policy="single-numa"),
            "need cpu 5, memory 20Gi; largest free cpu 3, memory 7Gi",
            id="whole cores and Gi, rounded down",
        ),
        pytest.param(
            Assignment((NumaShare(0, 500),)),
            HostRequest(cpu=3500, gpus=3, policy="single-numa", aligned=frozenset({"cpu", "gpu"})),
            "need cpu 3500m, gpu 3; largest free cpu 3, gpu 2",
            id="what must sit together",
        ),
        pytest.param(
            Assignment((NumaShare(0, 500, 1),)),
            HostRequest(cpu=3000, memory=8 * GIB, policy="single-numa"),
            "need cpu 3, memory 8Gi; largest free cpu 3, memory 8Gi, not on one NUMA node",
            id="each is there, and not together",
        ),
        pytest.param(
            Assignment((NumaShare(0, 500),), isolated=True),
            HostRequest(cpu=3000, policy="single-numa"),
            "need cpu 3; largest free cpu 2",
            id="what is closed to the pod is not free",
        ),
    ],
)
def test_shortage(held: Assignment, host_request: HostRequest, want: str) -> None:
    cpu, memory = (sum(getattr(share, name) for share in held.shares) for name in ("cpu", "memory"))
    there = a_placed_pod("t", HostRequest(cpu=cpu, memory=memory), held)
    snapshot = Snapshot.of([a_host("a", TWO)], [(there, "a")])
    assert snapshot.numa.numa_table.shortage(host_request, snapshot.table.alive) == want


@pytest.mark.parametrize(
    ("held", "host_request", "want"),
    [
        pytest.param(
            Assignment((NumaShare(0, 500),)),
            HostRequest(cpu=500, policy="isolated"),
            (1, 2),
            id="an isolated pod shares no NUMA node",
        ),
        pytest.param(
            Assignment((NumaShare(0, 500), NumaShare(1, 500))),
            HostRequest(cpu=500, policy="isolated"),
            (0, 2),
            id="a pod on each NUMA node leaves none to an isolated pod",
        ),
        pytest.param(
            Assignment((), (0,)),
            HostRequest(cpu=500, policy="isolated"),
            (1, 2),
            id="a pod that uses only a GPU occupies the NUMA node of the GPU",
        ),
        pytest.param(
            Assignment((NumaShare(0, 500),), isolated=True),
            HostRequest(cpu=1000, policy="single-numa"),
            (2, 6),
            id="the NUMA node of an isolated pod is closed",
        ),
        pytest.param(
            Assignment((NumaShare(0, 500),)),
            HostRequest(cpu=1000, policy="single-numa"),
            (5, 6),
            id="other pods share NUMA nodes",
        ),
    ],
)
def test_bounds_beside_a_pod_and_after_it(
    held: Assignment, host_request: HostRequest, want: tuple[int, int]
) -> None:
    cpu = sum(share.cpu for share in held.shares)
    pod = a_placed_pod("t", HostRequest(cpu=cpu, gpus=len(held.gpus)), held)
    snapshot = Snapshot.of([a_host("a", TWO)], [(pod, "a")])
    beside = int(snapshot.numa.numa_table.most(host_request)[0])
    snapshot.release(pod, "a", held)
    assert (beside, int(snapshot.numa.numa_table.most(host_request)[0])) == want


@pytest.mark.parametrize(
    ("host_request", "want"),
    [
        pytest.param(HostRequest(cpu=500, policy="isolated"), (2, 1), id="isolated"),
        pytest.param(HostRequest(cpu=500, spread="isolated"), (2, 1), id="members apart"),
        pytest.param(HostRequest(cpu=1000, policy="single-numa"), (6, 3), id="by CPU"),
        pytest.param(HostRequest(gpus=1, policy="single-numa"), (2, 0), id="by GPUs"),
    ],
)
def test_bounds_of_a_host_that_loses_a_numa_node(
    host_request: HostRequest, want: tuple[int, int]
) -> None:
    snapshot = Snapshot.of([a_host("a", TWO)])
    before = int(snapshot.numa.numa_table.most(host_request)[0])
    located_elsewhere = Topology((Zone(0, 3000, 8 * GIB),), (Gpu(0, 0),))
    used = a_placed_pod("g", HostRequest(gpus=1), Assignment((), (0,)))
    snapshot.put_node(a_host("a", located_elsewhere))
    if host_request.gpus:
        snapshot.charge(used, "a", Assignment((), (0,)))
    assert (before, int(snapshot.numa.numa_table.most(host_request)[0])) == want
