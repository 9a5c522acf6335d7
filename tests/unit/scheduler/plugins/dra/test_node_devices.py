"""The devices of a node over several pools and slices, and what becomes of them with their pods."""

from typing import Any

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placed
from scheduler.model.unit import units
from scheduler.plan.planner import plan
from scheduler.plugins.dra.device_types import DeviceId
from scheduler.plugins.dra.node_devices import NodeDeviceCache
from tests.unit.scheduler.builders import a_node
from tests.unit.scheduler.plugins.dra.builders import (
    DRIVER,
    a_device,
    a_pod_with_claims,
    a_pod_with_template,
    allocated,
    claim_json,
    class_json,
    devices,
    exactly,
    put,
    slice_json,
)

Json = dict[str, Any]


def only_on(label: str) -> Json:
    rule = {"key": "rack", "operator": "In", "values": [label]}
    return {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}


def a_snapshot(*objects: Json) -> Snapshot:
    """Nodes n (rack r) and m (rack s), without devices of their own."""
    nodes = [a_node("n", labels={"rack": "r"}), a_node("m", labels={"rack": "s"})]
    snapshot = Snapshot.of(nodes)
    put(snapshot, class_json(), *objects)
    return snapshot


def reached(snapshot: Snapshot, node: str) -> list[str]:
    found = NodeDeviceCache(snapshot.table, snapshot.devices.store).at(snapshot.table.rows[node])
    return sorted(item.device.id.device for item in found.items)


ELSEWHERE = [
    slice_json("", [a_device(f"far-{pool}")], pool=pool, nodeSelector=only_on("s"))
    for pool in ("0", "zz")
]


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([slice_json("n", devices(2))], ["gpu-0", "gpu-1"], id="a pool of the node"),
        pytest.param(ELSEWHERE, [], id="pools of other nodes"),
        pytest.param(
            [
                *ELSEWHERE,
                slice_json("n", devices(1)),
                slice_json("", [a_device("x")], pool="x", allNodes=True),
            ],
            ["gpu-0", "x"],
            id="pools of other nodes before and after",
        ),
        pytest.param(
            [
                slice_json("n", [a_device("d0")], name="s0", count=2),
                slice_json("n", [a_device("d1")], name="s1", count=2),
            ],
            ["d0", "d1"],
            id="a pool of two slices",
        ),
        pytest.param(
            [
                slice_json(
                    "", [a_device("d0")], pool="p", name="s0", count=3, nodeSelector=only_on("s")
                ),
                slice_json(
                    "", [a_device("d1")], pool="p", name="s1", count=3, nodeSelector=only_on("r")
                ),
                slice_json(
                    "",
                    [a_device("d2", nodeName="m"), a_device("d3", nodeName="n")],
                    pool="p",
                    name="s2",
                    count=3,
                    perDeviceNodeSelection=True,
                ),
            ],
            ["d1", "d3"],
            id="slices with nodes of their own in one pool",
        ),
        pytest.param(
            [
                slice_json("n", [a_device("d0")], pool="a", count=2),
                slice_json("n", devices(1), pool="b"),
            ],
            ["gpu-0"],
            id="an incomplete pool hides no other",
        ),
    ],
)
def test_devices_that_a_node_reaches(objects: list[Json], want: list[str]) -> None:
    assert reached(a_snapshot(*objects), "n") == want


def free_devices(snapshot: Snapshot) -> int:
    """How many devices of node n a new claim could get."""
    most = 0
    for count in range(1, 5):
        put(snapshot, claim_json(f"probe-{count}", exactly(count=count)))
        found = plan(units([a_pod_with_claims(f"probe-{count}", f"probe-{count}")])[0], snapshot)
        if isinstance(found, Placed):
            most = count
    return most


@pytest.mark.parametrize(
    ("status", "others", "want"),
    [
        pytest.param({}, [], (1, 4), id="both allocations are assumed: both end with the pod"),
        pytest.param(
            allocated("gpu-0", node="n", pods=("uid-x",)),
            [],
            (1, 3),
            id="the first was allocated before: the second ends with the pod",
        ),
        pytest.param(
            {}, ["one"], (1, 3), id="another pod uses the first: the second ends with the pod"
        ),
        pytest.param({}, ["two"], (1, 2), id="another pod uses the second"),
    ],
)
def test_assumed_allocations_of_a_pod_with_two_claims(
    status: Json, others: list[str], want: tuple[int, int]
) -> None:
    """Claim one has one device of four, claim two has two."""
    snapshot = a_snapshot(
        slice_json("n", devices(4)),
        claim_json("one", status=status),
        claim_json("two", exactly(count=2)),
    )
    pod = a_pod_with_claims("p", "one", "two")
    snapshot.place(pod, "n")
    for claim in others:
        snapshot.place(a_pod_with_claims(f"other-{claim}", claim), "n")
    used = free_devices(snapshot)
    snapshot.release(pod, "n")
    assert (used, free_devices(snapshot)) == want


@pytest.mark.parametrize(
    ("pools", "want"),
    [
        pytest.param(["n"], [{"n"}], id="the node of the pool"),
        pytest.param(["gone", "n"], [{"n"}], id="a pool that is gone, and one that is there"),
        pytest.param(["gone"], [], id="a pool that is gone"),
        pytest.param(["n", "everywhere"], [None], id="a pool of all nodes: any node"),
    ],
)
def test_nodes_whose_devices_changed_hands(pools: list[str], want: list[set[str] | None]) -> None:
    everywhere = slice_json("", [a_device("x")], pool="everywhere", allNodes=True)
    store = a_snapshot(slice_json("n", devices(1)), everywhere).devices.store
    heard: list[set[str] | None] = []
    store.on_usage.append(lambda names: heard.append(None if names is None else set(names)))
    store.usage_changed([DeviceId(DRIVER, pool, "gpu-0") for pool in pools])
    assert heard == want


@pytest.mark.parametrize(
    ("numa", "want"),
    [
        pytest.param((0, 0), "0", id="the first NUMA node has the devices"),
        pytest.param((1, 1), "1", id="the second"),
        pytest.param((2, 2), "2", id="the last, after others without devices"),
        pytest.param((0, 2), "", id="no NUMA node has both"),
    ],
)
def test_every_numa_node_is_tried_for_devices(numa: tuple[int, ...], want: str) -> None:
    snapshot = Snapshot.of([a_node("a", cpu="12", memory="48Gi", zones=3)])
    rows = [a_device(f"gpu-{n}", numa=zone) for n, zone in enumerate(numa)]
    put(snapshot, class_json(), slice_json("a", rows), claim_json("one", exactly(count=2)))
    pod = a_pod_with_claims("p", "one", numa="single-numa", cpu="2", memory="1Gi")
    found = plan(units([pod])[0], snapshot)
    zones = found.placements[0].assignment.numa if isinstance(found, Placed) else ()
    assert "".join(map(str, zones)) == want


def test_pods_of_one_spec_with_different_claims_have_different_signatures() -> None:
    """One claim has its device on a node, two others have none yet and request the same."""
    status = allocated("gpu-0", node="n")
    pods = [a_pod_with_template(f"m{number}") for number in range(3)]
    claims = [
        claim_json(f"m{number}-gpu", owner=pod.uid, status=status if number == 0 else {})
        for number, pod in enumerate(pods)
    ]
    snapshot = a_snapshot(slice_json("n", devices(4)), *claims)
    first, second, third = map(snapshot.signature, pods)
    assert (first == second, second == third) == (False, True)
