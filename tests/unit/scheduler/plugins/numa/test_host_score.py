"""Hosts compared by their NUMA nodes: the same score as inside one host, for all rows at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import vocabulary
from policies.hosts.topology import Topology, Zone
from scheduler.cache.snapshot import Snapshot
from scheduler.model.numa_request import HostRequest
from scheduler.model.plan import Placed
from scheduler.model.unit import units
from scheduler.plan import planner
from scheduler.plugins.numa import host_score, numa_score
from scheduler.plugins.numa.host_usage import HostUsage
from scheduler.plugins.numa.numa_table import NumaTable
from tests.unit.scheduler.builders import a_node, a_pod

GIB = 2**30


class Rows:
    """Just what a grid reads of the columns."""

    def __init__(self, count: int) -> None:
        self.alive = np.ones(count, dtype=np.bool_)
        self.names = [f"n{i}" for i in range(count)]

    def mark(self) -> int:
        return 0

    def since(self, mark: int) -> set[int] | None:
        return None


def zones(rows: list[tuple[int, int, int, int | None]]) -> tuple[Zone, ...]:
    """(CPUs, GiB, bandwidth, distance to every other)."""
    return tuple(
        Zone(
            i,
            cpu * 1000,
            memory * GIB,
            bandwidth=width,
            distances=()
            if far is None
            else tuple((j, 10 if i == j else far) for j in range(len(rows))),
        )
        for i, (cpu, memory, width, far) in enumerate(rows)
    )


HOSTS = st.lists(
    st.lists(
        st.tuples(
            st.integers(1, 16),
            st.integers(1, 64),
            st.sampled_from([0, 100, 200]),
            st.sampled_from([None, 12, 21]),
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(
    hosts=HOSTS,
    cpu=st.integers(0, 8),
    memory=st.integers(0, 32),
    intensive=st.booleans(),
    distance=st.sampled_from([0, 50, 100]),
    prefer=st.sampled_from([(), (0,), (1, 2)]),
)
def test_the_same_as_one_host_after_the_other(
    hosts: list[list[tuple[int, int, int, int | None]]],
    cpu: int,
    memory: int,
    intensive: bool,
    distance: int,
    prefer: tuple[int, ...],
) -> None:
    layouts = {f"n{i}": HostUsage(Topology(zones(rows))) for i, rows in enumerate(hosts)}
    host_request = HostRequest(
        cpu=cpu * 1000,
        memory=memory * GIB,
        policy="best-effort",
        intensive=intensive,
        distance=distance,
        prefer=prefer,
    )
    found = host_score.scores(NumaTable(Rows(len(hosts)), layouts), host_request)
    for row, host_usage in enumerate(layouts.values()):
        able = [
            zone.id
            for zone in host_usage.topology.zones
            if zone.cpu >= host_request.cpu and zone.memory >= host_request.memory
        ]
        want = max(
            (numa_score.score(host_usage, host_request, (zone,)) for zone in able), default=0.0
        )
        assert found[row] == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("single-numa", "b", id="with a policy the host whose NUMA node is used best"),
        pytest.param(None, "a", id="without one the emptiest host, as kube-scheduler"),
    ],
)
def test_a_single_pod_is_placed_by_it(policy: str | None, want: str) -> None:
    def host(name: str, cpus: int) -> dict[str, str]:
        return {
            vocabulary.NUMA_NODE_COUNT_LABEL: "1",
            vocabulary.numa_node_label(0, "cpus"): f"0-{cpus - 1}",
            vocabulary.numa_node_label(0, "memory"): "64Gi",
        }

    nodes = [
        a_node("a", cpu="64", memory="64Gi", labels=host("a", 64)),
        a_node("b", cpu="10", memory="64Gi", labels=host("b", 10)),
    ]
    pod = a_pod("p", cpu="6", memory="1Gi", **({"numa": policy} if policy else {}))
    plan = planner.plan(units([pod])[0], Snapshot.of(nodes))
    assert isinstance(plan, Placed)
    assert plan.placements[0].node == want
