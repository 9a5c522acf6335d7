"""Slices, pools and claims as store, from the objects of the API."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.model.label_selector import LabelRequirement
from scheduler.plugins.dra.claim_types import ClaimSpec, DriverConfig, ResourceClaim
from scheduler.plugins.dra.device_order import DevicePosition, OrderedDevice, ordered, position_of
from scheduler.plugins.dra.device_types import DeviceId, DeviceTaintRule, ResourceSlice
from scheduler.plugins.dra.node_selector import EVERYWHERE, NodeReach, common, to_json
from scheduler.plugins.dra.store import DeviceStore
from tests.unit.scheduler.builders import a_node
from tests.unit.scheduler.plugins.dra.builders import (
    DRIVER,
    a_device,
    allocated,
    claim_json,
    devices,
    exactly,
    slice_json,
)

Json = dict[str, Any]


def store_of(*slices: Json) -> DeviceStore:
    store = DeviceStore()
    for one in slices:
        store.put_slice(ResourceSlice.read(one))
    return store


@pytest.mark.parametrize(
    ("slices", "want"),
    [
        pytest.param(
            [slice_json("a", devices(2))], [("a", True, ["gpu-0", "gpu-1"])], id="one slice"
        ),
        pytest.param(
            [slice_json("a", devices(1), count=2)],
            [("a", False, ["gpu-0"])],
            id="a slice is missing",
        ),
        pytest.param(
            [
                slice_json("a", devices(2), name="old", generation=1),
                slice_json("a", devices(1), name="new", generation=2),
            ],
            [("a", True, ["gpu-0"])],
            id="the newest generation counts",
        ),
        pytest.param(
            [
                slice_json("a", devices(1), name="x", count=2),
                slice_json("a", devices(1), name="y", count=2),
            ],
            [("a", False, ["gpu-0", "gpu-0"])],
            id="a name that two devices have",
        ),
    ],
)
def test_pools(slices: list[Json], want: list[tuple[str, bool, list[str]]]) -> None:
    found = [
        (
            pool.id[1],
            pool.usable,
            [device.id.device for one in pool.slices for device in one.devices],
        )
        for pool in store_of(*slices).visible("a")
    ]
    assert found == want


def test_a_dropped_slice_drops_its_pool() -> None:
    store = store_of(slice_json("a", devices(1)))
    gone = store.drop_slice(ResourceSlice.read(slice_json("a", devices(1))))
    assert (gone, store.visible("a"), store.pools, store.pools_by_node) == (True, [], {}, {})


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(NodeReach(name="a"), True, id="by name"),
        pytest.param(NodeReach(name="b"), False, id="by another name"),
        pytest.param(EVERYWHERE, True, id="everywhere"),
        pytest.param(
            NodeReach(terms=((LabelRequirement("zone", "In", ("z",)),),)),
            True,
            id="by a label that it has",
        ),
        pytest.param(NodeReach(terms=((),)), False, id="an empty term selects nothing"),
        pytest.param(
            NodeReach(terms=((LabelRequirement("field:metadata.name", "In", ("a",)),),)),
            True,
            id="by a rule about names",
        ),
    ],
)
def test_node_reach(nodes: NodeReach, want: bool) -> None:
    assert nodes.contains(a_node("a", labels={"zone": "z"})) is want


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param((EVERYWHERE,), None, id="no node is excluded"),
        pytest.param(
            (EVERYWHERE, NodeReach(name="a")),
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}],
            id="one device of the node decides",
        ),
        pytest.param(
            (
                NodeReach(terms=((LabelRequirement("zone", "In", ("z",)),),)),
                NodeReach(terms=((LabelRequirement("rack", "Exists"),),)),
            ),
            [
                {
                    "matchExpressions": [
                        {"key": "zone", "operator": "In", "values": ["z"]},
                        {"key": "rack", "operator": "Exists", "values": []},
                    ]
                }
            ],
            id="both rules hold",
        ),
    ],
)
def test_the_nodes_of_an_allocation(nodes: tuple[NodeReach, ...], want: list[Json] | None) -> None:
    found = to_json(common(nodes))
    assert (None if found is None else found["nodeSelectorTerms"]) == want


def test_claims_allocate_and_release_devices() -> None:
    store = store_of(slice_json("a", devices(2)))
    free, first = DeviceId(DRIVER, "a", "gpu-1"), DeviceId(DRIVER, "a", "gpu-0")
    notified: list[object] = []
    store.on_usage.append(notified.append)
    store.put_claim(ResourceClaim.read(claim_json("c", status=allocated("gpu-0"))))
    held = set(store.allocated_by)
    stale = store.put_claim(ResourceClaim.read(claim_json("c", version="0")))
    store.put_claim(ResourceClaim.read(claim_json("c", version="2", status=allocated("gpu-1"))))
    moved = set(store.allocated_by)
    store.drop_claim(ResourceClaim.read(claim_json("c", version="3")))
    assert (held, stale, moved, store.allocated_by, notified) == (
        {first},
        False,
        {free},
        {},
        [{"a"}, {"a"}, {"a"}],
    )


def test_equal_specs_have_one_number() -> None:
    store = DeviceStore()
    for name, count in (("a", 1), ("b", 1), ("c", 2)):
        store.put_claim(ResourceClaim.read(claim_json(name, exactly(count=count))))
    one, same, other = (store.spec_numbers["ns", name] for name in "abc")
    assert one == same != other


def test_a_rule_taints_the_devices_that_it_selects() -> None:
    store = store_of(slice_json("a", devices(2)))
    taint = {"key": "sick", "effect": "NoSchedule"}
    selector = {"driver": DRIVER, "device": "gpu-1"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}}
    store.put_rule(DeviceTaintRule.read(rule))
    (pool,) = store.visible("a")
    found = [[mark.key for mark in store.taints(device)] for device in pool.slices[0].devices]
    assert found == [[], ["sick"]]


def test_the_position_of_a_device() -> None:
    (device,) = ResourceSlice.read(
        slice_json("a", [a_device("x", numa=1, root="pci0000:01", island="i-0")])
    ).devices
    assert position_of(device) == DevicePosition(1, "pci0000:01", "i-0")


ISLANDS = ["i"] * 4 + ["j"] * 4


@pytest.mark.parametrize(
    ("islands", "taken", "wanted", "want"),
    [
        pytest.param(ISLANDS, {5}, 1, "467", id="a broken island before a whole one"),
        pytest.param(["i", "i", *"jjjj"], {2}, 1, "345", id="a small island stays whole too"),
        pytest.param(ISLANDS, {0, 5, 6}, 2, "47", id="one that is then full before all"),
        pytest.param(ISLANDS, {0}, 4, "4567", id="the one that holds all"),
        pytest.param(ISLANDS, {0, 4, 5}, 4, "123", id="the largest where none holds all"),
        pytest.param(["", "i", "i"], set(), 1, "0", id="one alone breaks nothing"),
        pytest.param(["", "", "i", "i"], set(), 2, "23", id="two belong together"),
    ],
)
def test_the_order_of_devices(islands: list[str], taken: set[int], wanted: int, want: str) -> None:
    found = ResourceSlice.read(slice_json("a", devices(len(islands)))).devices
    items = [
        OrderedDevice(n, device, DevicePosition(island=island))
        for n, (device, island) in enumerate(zip(found, islands, strict=True))
    ]
    free = {item.number for item in items} - taken
    first = [str(i.number) for i in ordered(items, free, wanted) if i.number in free]
    assert "".join(first[: len(want)]) == want


def test_a_spec_has_one_number_as_long_as_a_claim_has_it() -> None:
    store = DeviceStore()
    specs = [ClaimSpec(config=(DriverConfig(opaque),)) for opaque in (b"{}", b"[]")]
    a, b = (ResourceClaim(("ns", name), spec=specs[0]) for name in "ab")
    numbers = []
    for claim in (a, b, replace(b, spec=specs[1])):
        store.put_claim(claim)
        numbers.append(store.spec_numbers[claim.key])
    store.drop_claim(a)
    store.put_claim(a)
    numbers.append(store.spec_numbers[a.key])
    store.drop_claim(a)
    store.drop_claim(b)
    assert (numbers, store.__dict__["_specs"]) == ([0, 0, 1, 2], {})
