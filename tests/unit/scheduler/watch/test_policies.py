"""Tables follow policy files and objects; a faulty set changes nothing and is reported."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from policies import vocabulary
from policies.documents.faults import Fault
from policies.engine import loader
from scheduler.model.policy import (
    LEVELS,
    NO_POLICIES,
    GpuModel,
    PlacementTables,
    TenantTier,
    TopologyLevel,
)
from scheduler.report import events
from scheduler.watch.policies import PolicyWatch

Json = dict[str, Any]


def policy(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "PlatformPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


LEVEL = {"name": "row", "labels": ["row"]}
GOOD = policy("mine", topologyLevels=[LEVEL])
OTHER = policy("mine", topologyLevels=[{"name": "hall", "labels": ["hall"]}, LEVEL])
BAD = policy("mine", topologyLevels=[{"name": "row"}])

Objects = dict[str, Json]
Step = Callable[[Objects], None]


def put(obj: Json) -> Step:
    def step(objects: Objects) -> None:
        objects[obj["metadata"]["name"]] = obj

    return step


def delete(obj: Json) -> Step:
    def step(objects: Objects) -> None:
        del objects[obj["metadata"]["name"]]

    return step


def nothing(objects: Objects) -> None:
    """Nothing changed."""


async def story(paths: Sequence[Path], steps: Sequence[Step]) -> list[str]:
    """After each step the adopted level names or the number of faults, else a dash."""
    outcome: list[str] = []

    def adopt(tables: PlacementTables) -> None:
        outcome.append(" ".join(level.name for level in tables.levels))

    def refused(faults: Sequence[Fault]) -> None:
        outcome.append(f"{len(faults)} refused")

    policy_watch = PolicyWatch(paths, adopt=adopt, refused=refused)
    objects: Objects = {}
    outcomes = []
    for number, step in enumerate(steps):
        before = dict(objects)
        step(objects)
        if number == 0 or objects != before:
            policy_watch.put_objects(tuple(objects.values()))
        await policy_watch.poll()
        outcomes.append(", ".join(outcome) or "-")
        outcome.clear()
    return outcomes


SHIPPED = "clique fabric rack zone region"


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        pytest.param([nothing, nothing], ["clique rack fabric zone", "-"], id="no policies"),
        pytest.param([put(GOOD), nothing], ["row", "-"], id="an object"),
        pytest.param([put(GOOD), put(OTHER)], ["row", "row hall"], id="narrowest first"),
        pytest.param([put(GOOD), put(GOOD)], ["row", "-"], id="the same again"),
        pytest.param(
            [put(GOOD), delete(GOOD)], ["row", "clique rack fabric zone"], id="an object is deleted"
        ),
        pytest.param(
            [put(GOOD), put(BAD), put(OTHER)],
            ["row", "1 refused", "row hall"],
            id="a fault changes nothing until it is mended",
        ),
        pytest.param([put(BAD)], [f"{SHIPPED}, 1 refused"], id="faulty from the beginning"),
    ],
)
def test_objects(steps: list[Step], want: list[str]) -> None:
    assert asyncio.run(story([], steps)) == want


def test_files_are_read_when_they_change(tmp_path: Path) -> None:
    file = tmp_path / "levels.yaml"
    text = (
        f"{{apiVersion: {vocabulary.POLICY_API_VERSION}, kind: PlatformPolicy,"
        " metadata: {name: files}, spec: {topologyLevels: [{name: NAME, labels: [a]}]}}"
    )

    def write(text: str) -> Step:
        def step(objects: Objects) -> None:
            file.write_text(text)

        return step

    steps = [
        write(text.replace("NAME", "one")),
        nothing,
        write(text.replace("NAME", "another")),
        write("kind: X"),
    ]
    assert asyncio.run(story([tmp_path], steps)) == ["one", "-", "another", "1 refused"]


def test_the_policies_that_ship() -> None:
    policy_watch = PolicyWatch([loader.LIBRARY], adopt=lambda _: None, refused=lambda _: None)
    policy_watch.put_objects(())
    asyncio.run(policy_watch.poll())
    tables = policy_watch.tables
    assert (
        policy_watch.settled.is_set(),
        tables.level("zone"),
        tables.model("NVIDIA-H100-80GB-HBM3"),
        tables.model("Tesla-T4-SHARED"),
        tables.model(""),
        tables.tiers["silver"],
        [tables.rank(name) for name in ("gold", "silver", "bronze", "platinum")],
    ) == (
        True,
        TopologyLevel("zone", (vocabulary.ZONE_LABEL, vocabulary.AZ_LABEL)),
        GpuModel("premium", 80 * 2**30, high_end=True),
        GpuModel("economy", 16 * 2**30),
        None,
        TenantTier("silver", 1, ("standard", "economy"), ("standard", "economy"), 10),
        [2, 1, 0, None],
    )


def test_without_policies() -> None:
    allowed = {tier.allowed for tier in NO_POLICIES.tiers.values()}
    assert (NO_POLICIES.levels, dict(NO_POLICIES.models), allowed, [*NO_POLICIES.tiers]) == (
        LEVELS,
        {},
        {vocabulary.HARDWARE_TIERS},
        ["gold", "silver", "bronze"],
    )


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("PlatformPolicy/mine", ("PlatformPolicy", "mine"), id="on the object"),
        pytest.param(
            "dir/mine.yaml", ("Namespace", vocabulary.SYSTEM_NAMESPACE), id="for files elsewhere"
        ),
    ],
)
def test_which_object_gets_the_event_of_a_fault(source: str, want: tuple[str, str]) -> None:
    report = events.policies_refused(Fault(source, 0, 0, "spec", "no"))
    assert (report.regarding.kind, report.regarding.name) == want
    assert (
        report.note
        == f"new policies rejected, the last good ones stay in force: {source}: spec: no"
    )
