"""Which hardware tenants may use and like, which nodes are reserved, and VRAM by the model table."""

from typing import Any

import pytest

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.model.policy import GpuModel, PlacementTables, TenantTier
from scheduler.model.unit import units
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

TABLES = PlacementTables(
    models={
        "H100": GpuModel("premium", 80 * 2**30, high_end=True),
        "A100": GpuModel("standard", 40 * 2**30),
        "L4": GpuModel("economy", 24 * 2**30),
        "T4": GpuModel("economy", 16 * 2**30),
    },
    tiers={
        "gold": TenantTier("gold", 2, preferred=("premium", "standard")),
        "silver": TenantTier("silver", 1, ("standard", "economy"), ("standard", "economy")),
        "bronze": TenantTier("bronze", 0, ("economy",), ("economy",)),
    },
)


def host(name: str, model: str = "", gpus: int = 4, **labels: str) -> Node:
    words = {
        vocabulary.GFD_PRODUCT_LABEL: model,
        vocabulary.HARDWARE_TIER_LABEL: labels.get("tier", ""),
        vocabulary.GPU_CLASS_LABEL: labels.get("kind", ""),
        vocabulary.RESERVED_TIER_LABEL: labels.get("reserved", ""),
        vocabulary.GFD_MEMORY_LABEL: labels.get("mebibytes", ""),
    }
    nonempty = {key: value for key, value in words.items() if value}
    return a_node(name, cpu="64", gpus=gpus, labels=nonempty)


def of(tier: str, gpus: int = 1, *, hardware: str = "", **more: Any) -> Pod:
    labels = {vocabulary.TIER_LABEL: tier, vocabulary.HARDWARE_TIER_LABEL: hardware}
    nonempty = {key: value for key, value in labels.items() if value}
    return a_pod("p", gpus=gpus, labels=nonempty, **more)


def outcome(pods: list[Pod], nodes: list[Node]) -> set[str] | str:
    snapshot = Snapshot.of(nodes)
    snapshot.adopt(TABLES)
    match planner.plan(units(pods)[0], snapshot):
        case Placed() as plan:
            return {one.node for one in plan.placements}
        case NoFit() as misfit:
            return misfit.text


VRAM = {vocabulary.VRAM_ANNOTATION: "20Gi"}
KINDS = [host("a-h100", "H100"), host("b-a100", "A100"), host("c-l4", "L4"), host("d-t4", "T4")]


@pytest.mark.parametrize(
    ("pods", "nodes", "want"),
    [
        pytest.param([of("gold")], KINDS, {"a-h100"}, id="gold prefers premium"),
        pytest.param([of("silver")], KINDS, {"b-a100"}, id="silver prefers standard"),
        pytest.param([of("bronze")], KINDS, {"c-l4"}, id="bronze has economy alone"),
        pytest.param(
            [of("gold", hardware="economy")], KINDS, {"c-l4"}, id="the pod's own preference first"
        ),
        pytest.param(
            [of("gold", hardware="premium")],
            KINDS[1:],
            {"b-a100"},
            id="the second preference where the first is missing",
        ),
        pytest.param(
            [of("bronze")],
            KINDS[:2],
            "0/2 nodes are available: 2 node(s) had a hardware tier that bronze may not use.",
            id="what the tier may not use is closed",
        ),
        pytest.param(
            [of("bronze", 0)], KINDS[:1], {"a-h100"}, id="a pod without GPUs has no such limit"
        ),
        pytest.param(
            [of("")], KINDS, {"b-a100"}, id="high-end GPUs stay free without a preference"
        ),
        pytest.param([of("")], KINDS[:1], {"a-h100"}, id="and are used when others are full"),
        pytest.param(
            [of("", annotations=VRAM)], KINDS, {"c-l4"}, id="the smallest GPU with enough VRAM"
        ),
        pytest.param(
            [of("bronze", annotations={vocabulary.VRAM_ANNOTATION: "30Gi"})],
            KINDS,
            "0/4 nodes are available: 2 insufficient VRAM: need 30Gi per GPU, largest 80Gi,"
            " 2 node(s) had a hardware tier that bronze may not use.",
            id="each node has its own reason",
        ),
        pytest.param(
            [of("", annotations={vocabulary.VRAM_ANNOTATION: "80Gi"})],
            [host("a", "H100", mebibytes="81559"), host("b", "H100", mebibytes="40000")],
            {"a"},
            id="the VRAM that a node reports overrides the table",
        ),
        pytest.param(
            [of("bronze")],
            [host("a", "H100", tier="economy"), host("b", "T4", tier="premium")],
            {"a"},
            id="the node's tier overrides the model's",
        ),
        pytest.param(
            [of("bronze")],
            [host("a", kind="h100"), host("b", kind="t4"), host("c", kind="premium")],
            {"b"},
            id="a class is a model in small letters, or a tier",
        ),
        pytest.param(
            [of("bronze")],
            [host("a", "Unheard-of")],
            {"a"},
            id="hardware of unknown tier is open",
        ),
        pytest.param(
            a_gang(2, gpus=4, labels={vocabulary.TIER_LABEL: "gold"}),
            [host("a", "A100", 8), host("b", "H100"), host("c", "H100")],
            {"a"},
            id="preferred hardware costs a gang no node",
        ),
        pytest.param(
            a_gang(2, gpus=4, labels={vocabulary.TIER_LABEL: "gold"}),
            [host("a", "A100"), host("b", "H100"), host("c", "H100"), host("d", "A100")],
            {"b", "c"},
            id="a gang gets the hardware that all members prefer",
        ),
        pytest.param(
            [of("silver", 0)],
            [host("a", gpus=0, reserved="gold"), host("b", gpus=0, reserved="Silver")],
            {"b"},
            id="a node reserved for a higher tier is closed",
        ),
        pytest.param(
            [of("gold", 0)],
            [host("a", gpus=0, reserved="silver")],
            {"a"},
            id="a node reserved for a lower tier is open",
        ),
        pytest.param(
            [of("", 0)],
            [host("a", gpus=0, reserved="gold"), host("b", gpus=0, reserved="none")],
            {"b"},
            id="a pod without a tenant counts as the lowest",
        ),
        pytest.param(
            [of("gold", 0)],
            [host("a", gpus=0, reserved="platinum"), host("b", gpus=0, reserved="platinum")],
            "0/2 nodes are available: 2 node(s) reserved for tier platinum, which no policy names.",
            id="a tier that no policy names opens nothing",
        ),
        pytest.param(
            [of("bronze", 0)],
            [host("a", gpus=0, reserved="gold")],
            "0/1 nodes are available: 1 node(s) reserved for tier gold.",
            id="reserved for others",
        ),
    ],
)
def test_tiers(pods: list[Pod], nodes: list[Node], want: set[str] | str) -> None:
    assert outcome(pods, nodes) == want


def test_facts_follow_nodes_and_tables() -> None:
    snapshot = Snapshot.of([host("a", "H100"), host("b", "A100")])
    row = snapshot.table.rows["a"]
    before = int(snapshot.placement_policy.vram()[row])
    snapshot.adopt(TABLES)
    known = int(snapshot.placement_policy.vram()[row])
    snapshot.put_node(host("a", "T4"))
    assert (before, known, int(snapshot.placement_policy.vram()[row])) == (
        0,
        80 * 2**30,
        16 * 2**30,
    )


def test_replicas_that_request_it_are_balanced_over_zones() -> None:
    zones = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "c1": "c"}
    nodes = [
        a_node(name, cpu="16", labels={vocabulary.ZONE_LABEL: zone}) for name, zone in zones.items()
    ]
    snapshot = Snapshot.of(nodes)
    spread_over_zones = {vocabulary.SPREAD_ZONES_ANNOTATION: "true"}
    found = []
    for i in range(6):
        labels = {"app": "web", "pod-template-hash": str(i)}
        pod = a_pod(f"p{i}", labels=labels, annotations=spread_over_zones)
        plan = planner.plan(units([pod])[0], snapshot)
        assert isinstance(plan, Placed)
        snapshot.charge(pod, plan.placements[0].node)
        found.append(zones[plan.placements[0].node])
    assert {zone: found.count(zone) for zone in "abc"} == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("gpus", "taken", "want"),
    [
        pytest.param(1, {}, {"a-h100"}, id="all islands are unused: the preference decides"),
        pytest.param(1, {"c-l4": 1}, {"c-l4"}, id="one is in use: it is taken, preferred or not"),
        pytest.param(
            1, {"a-h100": 1, "c-l4": 1}, {"a-h100"}, id="of islands in use the preferred one"
        ),
        pytest.param(4, {"c-l4": 1}, {"a-h100"}, id="taking a whole island breaks none"),
    ],
)
def test_no_preference_breaks_a_free_gpu_island(
    gpus: int, taken: dict[str, int], want: set[str]
) -> None:
    there = [(a_pod(f"old-{node}", gpus=count), node) for node, count in taken.items()]
    snapshot = Snapshot.of(KINDS, there)
    snapshot.adopt(TABLES)
    plan = planner.plan(units([of("gold", gpus)])[0], snapshot)
    assert isinstance(plan, Placed)
    assert {one.node for one in plan.placements} == want


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("none", id="a label that reserves nothing"),
        pytest.param("bronze", id="reserved for the lowest tier"),
        pytest.param("nowhere", id="reserved for a tier that no policy names"),
    ],
)
def test_every_value_of_the_reserved_label_counts(first: str) -> None:
    """Only node b has enough GPUs, and it is reserved for another tier."""
    nodes = [host("a", gpus=1, reserved=first), host("b", gpus=4, reserved="gold")]
    found = outcome([of("silver", 4)], nodes)
    assert isinstance(found, str)
    assert "1 node(s) reserved for tier gold" in found
