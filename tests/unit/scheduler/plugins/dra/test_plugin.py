"""Claims in plans: which pod gets which devices on which node, and what is taken requeued."""

from typing import Any

import pytest

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import units
from scheduler.plan.planner import plan
from scheduler.plugins.dra.claim_types import ResourceClaim
from scheduler.plugins.dra.device_types import ResourceSlice
from scheduler.plugins.dra.unready_pods import UnreadyPods
from tests.unit.scheduler.builders import a_node, a_pod
from tests.unit.scheduler.plugins.dra.builders import (
    DRIVER,
    a_device,
    a_pod_with_claims,
    a_pod_with_template,
    a_subrequest,
    allocated,
    claim_json,
    class_json,
    devices,
    exactly,
    first_of,
    put,
    slice_json,
)

Json = dict[str, Any]

BIG = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
EITHER = first_of("r", {"name": "big", **a_subrequest(cel=BIG)}, {"name": "any", **a_subrequest()})


def a_snapshot(*objects: Json, cpu: str = "8") -> Snapshot:
    """Nodes a, b and c; a has two small GPUs, b four large ones."""
    snapshot = Snapshot.of([a_node(name, cpu=cpu) for name in "abc"])
    slices = (slice_json("a", devices(2, memory="40Gi")), slice_json("b", devices(4)))
    put(snapshot, class_json(), *slices, *objects)
    return snapshot


def outcome(snapshot: Snapshot, *pods: Pod) -> str:
    """`pod=node:devices` of the plan, or its message; the state is as before afterwards."""
    before = snapshot.state()
    found = plan(units(pods)[0], snapshot)
    assert snapshot.state() == before
    if not isinstance(found, Placed):
        return found.text
    with snapshot.trial():
        for one in found.placements:
            snapshot.place(one.pod, one.node, one.assignment)
        return " ".join(
            f"{one.pod.key.name}={one.node}:{_numbers(snapshot, one.pod, one.node)}"
            for one in found.placements
        )


def _numbers(snapshot: Snapshot, pod: Pod, node: str) -> str:
    decision = snapshot.devices.decision(pod, node)
    assert not decision.unmatched
    return "".join(
        pick.device.device.removeprefix("gpu-")
        for _, allocation in decision.claims
        for pick in (allocation.picks if allocation else ())
    )


def generated_for(*pods: Pod, spec: Json | None = None) -> list[Json]:
    return [claim_json(f"{pod.key.name}-gpu", spec or exactly(), owner=pod.uid) for pod in pods]


GANG = [a_pod_with_template(f"m{n}", gang=("g", 3)) for n in range(3)]
FIVE = [a_pod_with_template(f"m{n}", gang=("g", 5)) for n in range(5)]
PAIR = [a_pod_with_claims(f"p{n}", "one", gang=("g", 2)) for n in range(2)]


@pytest.mark.parametrize(
    ("objects", "pods", "want"),
    [
        pytest.param(
            [claim_json("one")], [a_pod_with_claims("p", "one")], "p=a:0", id="the tightest node"
        ),
        pytest.param(
            [claim_json("one", exactly(cel=BIG))],
            [a_pod_with_claims("p", "one")],
            "p=b:0",
            id="by memory",
        ),
        pytest.param(
            [claim_json("one", EITHER)],
            [a_pod_with_claims("p", "one")],
            "p=b:0",
            id="the first alternative wins",
        ),
        pytest.param(
            generated_for(*GANG),
            GANG,
            "m0=b:0 m1=b:1 m2=b:2",
            id="a gang on one node, each its own",
        ),
        pytest.param(
            generated_for(*FIVE),
            FIVE,
            "m0=b:0 m1=b:1 m2=b:2 m3=b:3 m4=a:0",
            id="a gang over few nodes",
        ),
        pytest.param([claim_json("one")], PAIR, "p0=a:0 p1=a:0", id="a claim that a gang shares"),
        pytest.param(
            [claim_json("one", status=allocated("gpu-1", node="b"))],
            [a_pod_with_claims("p", "one")],
            "p=b:",
            id="a claim that has its devices",
        ),
        pytest.param(
            [claim_json("one"), claim_json("other", status=allocated("gpu-0", "gpu-1", node="a"))],
            [a_pod_with_claims("p", "one")],
            "p=b:0",
            id="devices that another claim has",
        ),
        pytest.param(
            [claim_json("one", exactly(count=5))],
            [a_pod_with_claims("p", "one")],
            "0/3 nodes are available: 3 cannot allocate all claims.",
            id="no node has so many",
        ),
        pytest.param(
            [claim_json("one", status=allocated("gpu-1", node="gone"))],
            [a_pod_with_claims("p", "one")],
            "0/3 nodes are available: 3 resourceclaim not available on the node.",
            id="devices of a node that is gone",
        ),
        pytest.param(
            [],
            [a_pod_with_claims("p", "one")],
            '0/3 nodes are available: could not find ResourceClaim "ns/one".',
            id="a claim that does not exist",
        ),
        pytest.param(
            [],
            [a_pod_with_template("p", made=None)],
            '0/3 nodes are available: pod "ns/p": ResourceClaim not created yet.',
            id="a claim that is not made yet",
        ),
        pytest.param(
            [claim_json("p-gpu", owner="uid-other")],
            [a_pod_with_template("p")],
            "0/3 nodes are available: ResourceClaim ns/p-gpu was not created for Pod ns/p (Pod is "
            "not owner).",
            id="a claim of another pod",
        ),
        pytest.param(
            [claim_json("one", deletionTimestamp="2026-01-01T00:00:00Z")],
            [a_pod_with_claims("p", "one")],
            '0/3 nodes are available: resourceclaim "one" is being deleted.',
            id="a claim that is being deleted",
        ),
        pytest.param(
            [claim_json("one", exactly("r", class_name="none"))],
            [a_pod_with_claims("p", "one")],
            "0/3 nodes are available: request r: device class none does not exist.",
            id="a class that does not exist",
        ),
        pytest.param(
            [claim_json("one", {"name": "r"})],
            [a_pod_with_claims("p", "one")],
            "0/3 nodes are available: resource claim ns/one, request r: unknown request type.",
            id="a request of no known kind",
        ),
        pytest.param(
            [claim_json("one", exactly("r", capacity={"requests": {"memory": "1Gi"}}))],
            [a_pod_with_claims("p", "one")],
            "0/3 nodes are available: request r: requests capacity of devices that claims share, "
            "which this scheduler does not support.",
            id="a request that is not supported",
        ),
        pytest.param(
            [claim_json("one", status=allocated("gpu-0", pods=tuple(f"u{n}" for n in range(256))))],
            [a_pod_with_claims("p", "one")],
            "0/3 nodes are available: resourceclaim in use.",
            id="a claim with all the pods it may have",
        ),
        pytest.param(
            [claim_json("one", exactly(cel=f'device.attributes["{DRIVER}"].x == 1'))],
            [a_pod_with_claims("p", "one")],
            f"0/3 nodes are available: 3 claim ns/one: selector #0 on device {DRIVER}/a/gpu-0: CEL "
            'runtime error: Key not found in map : "x".',
            id="an error in a selector fails it everywhere",
        ),
    ],
)
def test_plans(objects: list[Json], pods: list[Pod], want: str) -> None:
    assert outcome(a_snapshot(*objects), *pods) == want


NETWORK = slice_json(
    "", [a_device("nic-0"), a_device("nic-1")], pool="net", driver="net.example.com", allNodes=True
)


def test_network_devices_are_allocated_once() -> None:
    rule = 'device.driver == "net.example.com"'
    snapshot = a_snapshot(NETWORK, class_json("nic", rule))
    pods = [a_pod_with_template(f"m{n}", gang=("g", 3), cpu="5") for n in range(3)]
    put(snapshot, *generated_for(*pods, spec=exactly(class_name="nic")))
    two = [a_pod_with_template(f"m{n}", gang=("g", 2), cpu="5") for n in range(2)]
    assert outcome(snapshot, *pods) == (
        "0/3 nodes are available: 1 cannot allocate all claims, 2 Insufficient cpu. waiting for pod "
        "group g: 2/3 members fit"
    )
    assert outcome(snapshot, *two) == "m0=a:nic-0 m1=b:nic-1"


def test_devices_with_nodes_of_their_own() -> None:
    rows = [a_device("gpu-8", nodeName="c"), a_device("gpu-9", nodeName="b")]
    shared = slice_json("", rows, pool="mixed", perDeviceNodeSelection=True)
    snapshot = a_snapshot(shared, claim_json("one", exactly(count=5)))
    assert outcome(snapshot, a_pod_with_claims("p", "one")) == "p=b:01239"


def test_a_placed_pod_uses_its_devices_until_it_is_uncharged() -> None:
    snapshot = a_snapshot(claim_json("one", exactly(count=2)), claim_json("two", exactly(count=3)))
    first, second = a_pod_with_claims("first", "one"), a_pod_with_claims("second", "two")
    snapshot.place(first, "b")
    short = outcome(snapshot, second)
    snapshot.release(first, "b")
    assert (short, outcome(snapshot, second)) == (
        "0/3 nodes are available: 3 cannot allocate all claims.",
        "second=b:012",
    )


def test_a_shared_assumed_allocation_outlives_its_first_pod() -> None:
    snapshot = a_snapshot(claim_json("one"), claim_json("two", exactly(count=2, cel=f"!({BIG})")))
    first, second = a_pod_with_claims("first", "one"), a_pod_with_claims("second", "one")
    snapshot.place(first, "a")
    snapshot.place(second, "a")
    snapshot.release(first, "a")
    held = outcome(snapshot, a_pod_with_claims("p", "two"))
    snapshot.release(second, "a")
    assert (held, outcome(snapshot, a_pod_with_claims("p", "two"))) == (
        "0/3 nodes are available: 3 cannot allocate all claims.",
        "p=a:01",
    )


def test_a_deleted_node_drops_its_assumed_allocations() -> None:
    snapshot = a_snapshot(claim_json("one"))
    pod = a_pod_with_claims("p", "one")
    snapshot.place(pod, "a")
    snapshot.drop_node("a")
    assert outcome(snapshot, pod) == "p=b:0"


def test_cached_outcomes_end_when_the_node_changes() -> None:
    snapshot = a_snapshot(claim_json("one", exactly(count=5)))
    pod = a_pod_with_claims("p", "one")
    before = outcome(snapshot, pod)
    snapshot.devices.store.put_slice(ResourceSlice.read(slice_json("b", devices(5), generation=2)))
    snapshot.cluster_event()
    assert (before, outcome(snapshot, pod)) == (
        "0/3 nodes are available: 3 cannot allocate all claims.",
        "p=b:01234",
    )


def a_host(*, numa: tuple[int, ...], cpu: str = "8") -> Snapshot:
    """Two NUMA nodes with half of the CPUs each, and a GPU on each of these."""
    snapshot = Snapshot.of([a_node("a", cpu=cpu, memory="32Gi", zones=2)])
    rows = [a_device(f"gpu-{n}", numa=zone) for n, zone in enumerate(numa)]
    put(snapshot, class_json(), slice_json("a", rows), claim_json("one", exactly(count=2)))
    return snapshot


@pytest.mark.parametrize(
    ("numa", "policy", "want"),
    [
        pytest.param((0, 1, 1), "single-numa", "1: p=a:12", id="the NUMA node with two GPUs"),
        pytest.param(
            (0, 1),
            "single-numa",
            "0/1 nodes are available: 1 node(s) could not give the pod its devices on its NUMA "
            "nodes.",
            id="no NUMA node has two GPUs",
        ),
        pytest.param((0, 1), "best-effort", "0: p=a:01", id="best effort takes other devices"),
        pytest.param((1, 1), "none", "0: p=a:01", id="no NUMA policy"),
    ],
)
def test_numa_alignment_of_devices(numa: tuple[int, ...], policy: str, want: str) -> None:
    snapshot = a_host(numa=numa)
    pod = a_pod_with_claims("p", "one", numa=policy, cpu="2", memory="1Gi")
    found = plan(units([pod])[0], snapshot)
    shown = outcome(snapshot, pod)
    if isinstance(found, Placed):
        zones = "".join(str(zone) for zone in found.placements[0].assignment.numa)
        shown = f"{zones}: {shown}"
    assert shown == want


def test_devices_near_the_pod_are_preferred() -> None:
    snapshot = a_host(numa=(1, 0, 1, 0))
    prefer = {f"{vocabulary.GROUP}/numa-affinity-node-id": "0"}
    pod = a_pod_with_claims(
        "p", "one", numa="best-effort", cpu="2", memory="1Gi", annotations=prefer
    )
    assert outcome(snapshot, pod) == "p=a:13"


def test_unready_pods_wait_until_their_claims_exist() -> None:
    snapshot = a_snapshot()
    requeued: list[str] = []
    store = snapshot.devices.store
    unready = UnreadyPods(store, lambda pod: requeued.append(pod.key.name))
    kept = [
        unready.hold_unready(a_pod("plain")),
        unready.hold_unready(a_pod_with_claims("named", "missing")),
        unready.hold_unready(a_pod_with_template("early", made=None)),
        unready.hold_unready(a_pod_with_template("p")),
    ]
    store.put_claim(ResourceClaim.read(claim_json("other-gpu")))
    store.put_claim(ResourceClaim.read(claim_json("p-gpu")))
    unready.drop("uid-early")
    assert (kept, requeued, len(unready)) == ([False, False, True, True], ["p"], 0)
