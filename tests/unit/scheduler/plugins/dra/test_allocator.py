"""Devices of one node for the claims of one pod, against tables and against a exhaustive_search force."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given as having
from hypothesis import settings
from hypothesis import strategies as st

from scheduler.plugins.dra.allocator import (
    CANNOT,
    GAVE_UP,
    Allocated,
    DeviceSource,
    NodeDevices,
    Outcome,
    allocate,
)
from scheduler.plugins.dra.cel_selectors import DeviceSelectors
from scheduler.plugins.dra.claim_types import ClaimSpec, DeviceClass
from scheduler.plugins.dra.device_order import position_of
from scheduler.plugins.dra.device_types import Device, ResourceSlice
from scheduler.plugins.dra.node_selector import NodeReach
from tests.unit.scheduler.plugins.dra.builders import (
    DRIVER,
    a_device,
    a_subrequest,
    claim_json,
    class_json,
    devices,
    exactly,
    first_of,
    slice_json,
)

Json = dict[str, Any]

ROOT = "resource.kubernetes.io/pcieRoot"
BIG = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
SELECTING = DeviceSelectors()
CLASSES = {"gpu": DeviceClass.read(class_json())}


def spec_of(*requests: Json, **more: Any) -> ClaimSpec:
    return ClaimSpec.read(claim_json("c", *requests, **more)["spec"])


def a_source(taken: Iterable[str] = (), counters: dict[str, int] | None = None) -> DeviceSource:
    held = set(taken)
    left = {("set", name): Decimal(amount) for name, amount in (counters or {}).items()}
    return DeviceSource(
        classes=CLASSES,
        device_selectors=SELECTING,
        in_use=lambda found: found.device in held,
        taints=lambda device: device.taints,
        counters=lambda pool: dict(left),
    )


def node_devices(rows: list[Json], *, unusable_pools: Sequence[str] = ()) -> NodeDevices:
    found: tuple[Device, ...] = ResourceSlice.read(slice_json("a", rows)).devices
    where = [(device, NodeReach(name="a")) for device in found]
    return NodeDevices(
        where, [position_of(device) for device in found], unusable_pools=unusable_pools
    )


def shown(outcome: Outcome) -> str:
    """`request=device` for each device, claims apart by a bar; or the reason."""
    if not isinstance(outcome, Allocated):
        return outcome.text(["ns/c", "ns/d"])
    return " | ".join(
        " ".join(
            f"{pick.subrequest.name}={pick.device.device.removeprefix('gpu-')}"
            for pick in one.picks
        )
        for one in outcome.allocations
    )


ROOTS = [a_device(f"gpu-{n}", root=f"r{n // 2}", numa=n // 4) for n in range(8)]
MIXED = [*devices(2, memory="40Gi"), a_device("gpu-2"), a_device("gpu-3")]
SAME = [{"matchAttribute": ROOT}]
APART = [{"distinctAttribute": ROOT}]
SICK = [{"key": "sick", "value": "very", "effect": "NoSchedule"}]
BEARS = [{"key": "sick", "operator": "Exists"}]
SLICED = [
    a_device(
        f"gpu-{n}",
        consumesCounters=[{"counterSet": "set", "counters": {"mem": {"value": str(size)}}}],
    )
    for n, size in enumerate((40, 40, 20))
]


@pytest.mark.parametrize(
    ("rows", "taken", "specs", "want"),
    [
        pytest.param(devices(2), "", [spec_of(exactly())], "gpus=0", id="one of two"),
        pytest.param(devices(2), "0", [spec_of(exactly())], "gpus=1", id="the free one"),
        pytest.param(devices(2), "01", [spec_of(exactly())], CANNOT, id="none is free"),
        pytest.param(
            MIXED, "", [spec_of(exactly(cel=BIG, count=2))], "gpus=2 gpus=3", id="by capacity"
        ),
        pytest.param(
            MIXED,
            "",
            [spec_of(exactly("any"), exactly("big", cel=BIG, count=2))],
            "any=0 big=2 big=3",
            id="two requests never share a device",
        ),
        pytest.param(
            MIXED[1:3],
            "",
            [spec_of(exactly("any"), exactly("small", cel=f"!({BIG})"))],
            "any=2 small=1",
            id="a wrong turn is taken back",
        ),
        pytest.param(
            devices(3),
            "",
            [spec_of(exactly()), spec_of(exactly(count=2))],
            "gpus=0 | gpus=1 gpus=2",
            id="two claims",
        ),
        pytest.param(
            MIXED,
            "23",
            [
                spec_of(
                    first_of(
                        "r",
                        {"name": "big", **a_subrequest(cel=BIG)},
                        {"name": "any", **a_subrequest()},
                    )
                )
            ],
            "r/any=0",
            id="the second alternative where the first cannot be had",
        ),
        pytest.param(
            MIXED,
            "",
            [
                spec_of(
                    first_of(
                        "r",
                        {"name": "big", **a_subrequest(cel=BIG)},
                        {"name": "any", **a_subrequest()},
                    )
                )
            ],
            "r/big=2",
            id="the first alternative where it can be had",
        ),
        pytest.param(
            ROOTS,
            "0",
            [spec_of(exactly(count=2), constraints=SAME)],
            "gpus=2 gpus=3",
            id="two on one root",
        ),
        pytest.param(
            ROOTS,
            "0246",
            [spec_of(exactly(count=2), constraints=SAME)],
            CANNOT,
            id="no root has two",
        ),
        pytest.param(
            ROOTS,
            "",
            [spec_of(exactly(count=3), constraints=APART)],
            "gpus=0 gpus=2 gpus=4",
            id="each on a root of its own",
        ),
        pytest.param(
            devices(2),
            "",
            [spec_of(exactly(count=2), constraints=SAME)],
            CANNOT,
            id="an attribute that no device has",
        ),
        pytest.param(
            devices(2), "", [spec_of(exactly(allocationMode="All"))], "gpus=0 gpus=1", id="all"
        ),
        pytest.param(
            devices(2), "1", [spec_of(exactly(allocationMode="All"))], CANNOT, id="all, one in use"
        ),
        pytest.param([], "", [spec_of(exactly(allocationMode="All"))], CANNOT, id="all of nothing"),
        pytest.param(
            devices(1),
            "0",
            [spec_of(exactly(adminAccess=True))],
            "gpus=0",
            id="admin access to a device in use",
        ),
        pytest.param(
            [a_device("gpu-0", taints=SICK), a_device("gpu-1")],
            "",
            [spec_of(exactly())],
            "gpus=1",
            id="a tainted device is left alone",
        ),
        pytest.param(
            [a_device("gpu-0", taints=SICK)],
            "",
            [spec_of(exactly(tolerations=BEARS))],
            "gpus=0",
            id="a taint that is tolerated",
        ),
        pytest.param(
            SLICED, "", [spec_of(exactly(count=2))], "gpus=0 gpus=2", id="counters are drawn upon"
        ),
        pytest.param(SLICED, "", [spec_of(exactly(count=3))], CANNOT, id="counters run out"),
        pytest.param(
            [a_device("gpu-0", allowMultipleAllocations=True)],
            "",
            [spec_of(exactly())],
            f"{CANNOT}: devices that claims share by capacity are not supported by this scheduler",
            id="unsupported devices are named",
        ),
        pytest.param(
            devices(1),
            "",
            [spec_of(exactly()), spec_of(exactly(cel=f'device.attributes["{DRIVER}"].x == 1'))],
            f"claim ns/d: selector #0 on device {DRIVER}/a/gpu-0: CEL runtime error: "
            'Key not found in map : "x"',
            id="an error fails the claim that it is in",
        ),
        pytest.param(
            devices(40), "", [spec_of(exactly(count=33))], CANNOT, id="too many for a claim"
        ),
    ],
)
def test_allocations(rows: list[Json], taken: str, specs: list[ClaimSpec], want: str) -> None:
    source = a_source((f"gpu-{n}" for n in taken), {"mem": 70})
    assert shown(allocate(specs, node_devices(rows), source)) == want


@pytest.mark.parametrize(
    ("zones", "want"),
    [
        pytest.param({1}, "gpus=4", id="of the other NUMA node"),
        pytest.param({2}, CANNOT, id="of a NUMA node without devices"),
        pytest.param(None, "gpus=0", id="from anywhere"),
    ],
)
def test_devices_of_some_numa_nodes(zones: set[int] | None, want: str) -> None:
    here = None if zones is None else frozenset(zones)
    assert (
        shown(allocate([spec_of(exactly())], node_devices(ROOTS), a_source(), zones=here)) == want
    )


def test_all_devices_wait_for_a_pool_that_is_being_published() -> None:
    on_node = node_devices(devices(1), unusable_pools=["d/p is currently being updated"])
    found = shown(allocate([spec_of(exactly(allocationMode="All"))], on_node, a_source()))
    assert found == (
        "claim ns/c, request gpus: asks for all devices, but resource pool d/p is currently being "
        "updated"
    )


def test_a_search_gives_up_after_its_steps() -> None:
    rows = [a_device(f"gpu-{n}", root=f"r{n}") for n in range(30)]
    spec = spec_of(exactly("a", count=2), exactly("b", count=8), constraints=[*SAME, *APART])
    assert shown(allocate([spec], node_devices(rows), a_source(), max_steps=20)) == GAVE_UP


def test_the_number_of_equal_pods() -> None:
    found = allocate([spec_of(exactly(count=2))], node_devices(devices(7)), a_source(["gpu-0"]))
    assert isinstance(found, Allocated)
    assert found.max_pods == 3


# --- exhaustive_search force ---

KINDS = ("x", "y", "z")


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Json], set[str], list[ClaimSpec]]:
    count = draw(st.integers(1, 6))
    rows = [
        a_device(f"gpu-{n}", model=draw(st.sampled_from(KINDS)), root=draw(st.sampled_from("pq")))
        for n in range(count)
    ]
    taken = draw(st.sets(st.sampled_from([row["name"] for row in rows]), max_size=2))
    specs = [draw(claims()) for _ in range(draw(st.integers(1, 2)))]
    return rows, taken, specs


@st.composite
def claims(draw: st.DrawFn) -> ClaimSpec:
    def alternative(number: int) -> Json:
        kind = draw(st.sampled_from(("", *KINDS)))
        cel = f'device.attributes["{DRIVER}"].model == "{kind}"' if kind else ""
        return {"name": f"w{number}", **a_subrequest(count=draw(st.integers(1, 2)), cel=cel)}

    requests: list[Json] = []
    for number in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            one = alternative(0)
            one.pop("name")
            requests.append({"name": f"r{number}", "exactly": one})
        else:
            requests.append(first_of(f"r{number}", alternative(0), alternative(1)))
    rules = draw(st.sampled_from(([], SAME, APART, [{**SAME[0], "requests": ["r0"]}])))
    return spec_of(*requests, constraints=rules)


def exhaustive_search(rows: list[Json], taken: set[str], specs: list[ClaimSpec]) -> bool:
    """Whether any choice of alternatives and devices satisfies everything; tries all of them."""
    free = [row for row in rows if row["name"] not in taken]
    slots = [(claim, request) for claim, spec in enumerate(specs) for request in spec.requests]
    for alternatives in product(*(request.alternatives for _, request in slots)):
        pools = []
        for alternative in alternatives:
            selector = alternative.selectors[0] if alternative.selectors else ""
            kind = next((k for k in KINDS if f'"{k}"' in selector), "")
            fit = [row for row in free if not kind or row["attributes"]["model"]["string"] == kind]
            pools.append(list(combinations(fit, alternative.count)))
        for chosen in product(*pools):
            names = [row["name"] for group in chosen for row in group]
            if len(set(names)) == len(names) and _satisfied(specs, slots, chosen):
                return True
    return False


def _satisfied(specs: list[ClaimSpec], slots: list[Any], chosen: tuple[Any, ...]) -> bool:
    for claim, spec in enumerate(specs):
        for rule in spec.constraints:
            values = [
                row["attributes"][ROOT]["string"]
                for (mine, request), group in zip(slots, chosen, strict=True)
                if mine == claim and (not rule.requests or request.name in rule.requests)
                for row in group
            ]
            if len(set(values)) != (len(values) if rule.distinct else min(1, len(values))):
                return False
    return True


@settings(max_examples=150, deadline=None)
@having(cases())
def test_an_allocation_is_found_where_one_exists(
    case: tuple[list[Json], set[str], list[ClaimSpec]],
) -> None:
    rows, taken, specs = case
    found = allocate(specs, node_devices(rows), a_source(taken))
    assert isinstance(found, Allocated) is exhaustive_search(rows, taken, specs)
    if isinstance(found, Allocated):
        names = [pick.device.device for one in found.allocations for pick in one.picks]
        assert not set(names) & taken
        assert len(set(names)) == len(names)
