"""Which nodes a pod's volumes leave open, and what the filter reports of the others."""

from typing import Any

import numpy as np
import pytest

from policies import vocabulary
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.plugins.volumes import binding, pod_claims
from scheduler.plugins.volumes import plugin as rules
from tests.unit.scheduler.builders import a_pod
from tests.unit.scheduler.plugins.volumes.builders import (
    DRIVER,
    MADE,
    NOW,
    a_capacity,
    a_claim,
    a_class,
    a_driver,
    a_snapshot,
    a_volume,
    filter_result,
    mounting,
)

Json = dict[str, Any]

ZONE = vocabulary.ZONE_LABEL

# --- claims that are amiss ---


@pytest.mark.parametrize(
    ("objects", "volumes", "want"),
    [
        pytest.param(
            [],
            mounting("data"),
            'persistentvolumeclaim "data" not found',
            id="a claim that does not exist",
        ),
        pytest.param(
            [a_claim("lost", volume="pv", phase="Lost")],
            mounting("lost", "data"),
            'persistentvolumeclaim "data" not found',
            id="a missing PVC is reported before a lost one",
        ),
        pytest.param(
            [a_claim(volume="pv", phase="Lost")],
            mounting("data"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
            id="a lost claim",
        ),
        pytest.param(
            [a_claim(deleting=True)],
            mounting("data"),
            'persistentvolumeclaim "data" is being deleted',
            id="a claim on its way out",
        ),
        pytest.param(
            [a_claim(class_name=NOW)],
            mounting("data"),
            pod_claims.UNBOUND,
            id="a claim that is due to be bound",
        ),
        pytest.param(
            [a_claim(class_name=None)], mounting("data"), pod_claims.UNBOUND, id="no class at all"
        ),
        pytest.param(
            [a_claim(class_name="unheard-of")],
            mounting("data"),
            pod_claims.UNBOUND,
            id="a class that does not exist",
        ),
        pytest.param(
            [a_claim(volume="pv", bound=False), a_volume()],
            mounting("data"),
            pod_claims.UNBOUND,
            id="a late claim that names its volume beforehand is not bound by scheduling",
        ),
        pytest.param(
            [a_claim(volume="pv")],
            mounting("data"),
            'persistentvolume "pv" not found',
            id="a bound claim whose volume is unknown",
        ),
        pytest.param(
            [],
            [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}],
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-x"',
            id="an ephemeral volume without its claim yet",
        ),
        pytest.param(
            [a_claim("p-x", volume="pv", owner="uid-of-another"), a_volume()],
            [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}],
            "PVC ns/p-x was not created for pod ns/p (pod is not owner)",
            id="an ephemeral volume whose claim is another pod's",
        ),
    ],
)
def test_pvc_problems_reject_every_node(
    objects: list[Json], volumes: list[Json], want: str
) -> None:
    assert filter_result(a_snapshot(*objects), volumes=volumes) == want


def test_a_pvc_problem_rejects_every_node_for_the_planner() -> None:
    snapshot = a_snapshot()
    assert not filters.feasible(snapshot, a_pod(volumes=mounting("data")), Memo()).any()


# --- bound claims ---


IN_ZONE = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}]


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([a_volume()], ({"a", "b"}, {}), id="a volume that is everywhere"),
        pytest.param(
            [a_volume(affinity=IN_ZONE)],
            ({"a"}, {rules.AFFINITY_MISMATCH: 1}),
            id="a volume of one zone, by its node affinity",
        ),
        pytest.param(
            [a_volume(affinity=[{"matchExpressions": []}])],
            (set(), {rules.AFFINITY_MISMATCH: 2}),
            id="an empty term reaches nothing",
        ),
        pytest.param(
            [a_volume(affinity=[{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["a"]}]}])],
            (set(), {rules.AFFINITY_MISMATCH: 2}),
            id="a volume's affinity does not see names of nodes",
        ),
        pytest.param(
            [a_volume(labels={ZONE: "z2"})],
            ({"b"}, {rules.NO_ZONE: 1}),
            id="a volume of one zone, by its label",
        ),
        pytest.param(
            [a_volume(labels={vocabulary.BETA_ZONE_LABEL: "z9__z1"})],
            ({"a"}, {rules.NO_ZONE: 1}),
            id="a volume of two zones, by an older label",
        ),
        pytest.param(
            [a_volume(labels={ZONE: "z1__"})],
            ({"a", "b"}, {}),
            id="a zone label with an empty part says nothing",
        ),
        pytest.param(
            [a_volume(labels={vocabulary.REGION_LABEL: "r1"})],
            (set(), {rules.NO_ZONE: 2}),
            id="nodes with a zone and no region are in no region",
        ),
        pytest.param(
            [a_volume(affinity=IN_ZONE, labels={ZONE: "z2"})],
            (set(), {rules.AFFINITY_MISMATCH: 1, rules.NO_ZONE: 1}),
            id="affinity comes before zones",
        ),
    ],
)  # fmt: skip
def test_a_bound_volume(objects: list[Json], want: object) -> None:
    snapshot = a_snapshot(a_claim(volume="pv"), *objects)
    assert filter_result(snapshot, volumes=mounting("data")) == want


def test_nodes_without_zones_accept_volumes_with_zones() -> None:
    snapshot = a_snapshot(a_claim(volume="pv"), a_volume(labels={ZONE: "z1"}), a="", b="z2")
    assert filter_result(snapshot, volumes=mounting("data")) == ({"a"}, {rules.NO_ZONE: 1})


def test_an_ephemeral_pvc_with_a_missing_volume_rejects_each_node() -> None:
    snapshot = a_snapshot(a_claim("p-x", volume="gone", owner="uid-p"))
    volumes = [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]
    assert filter_result(snapshot, volumes=volumes) == (set(), {rules.VOLUME_GONE: 2})


def test_zones_of_ephemeral_pvcs_do_not_count() -> None:
    snapshot = a_snapshot(a_claim("p-x", volume="pv", owner="uid-p"), a_volume(labels={ZONE: "z1"}))
    volumes = [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]
    assert filter_result(snapshot, volumes=volumes) == ({"a", "b"}, {})


# --- late claims ---


NOTHING = binding.NOTHING_TO_BIND
SHORT = binding.NO_SPACE


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [a_claim()], (set(), {NOTHING: 2}), id="no volume and no provisioner"
        ),
        pytest.param(
            [a_claim(), a_volume(on="b")], ({"b"}, {NOTHING: 1}), id="a local disk on one host"
        ),
        pytest.param(
            [a_claim(size="20Gi"), a_volume(on="b")], (set(), {NOTHING: 2}), id="too small"
        ),
        pytest.param(
            [a_claim(modes=("ReadWriteMany",)), a_volume(on="b")],
            (set(), {NOTHING: 2}),
            id="another access mode",
        ),
        pytest.param(
            [a_claim(volumeMode="Block"), a_volume(on="b")],
            (set(), {NOTHING: 2}),
            id="a block device is wanted",
        ),
        pytest.param(
            [a_claim(volumeAttributesClassName="gold"), a_volume(on="b")],
            (set(), {NOTHING: 2}),
            id="other attributes are wanted",
        ),
        pytest.param(
            [a_claim(selector={"matchLabels": {"disk": "ssd"}}), a_volume(on="b"),
             a_volume("ssd", on="a", labels={"disk": "ssd"})],
            ({"a"}, {NOTHING: 1}),
            id="labels are wanted",
        ),
        pytest.param(
            [a_claim(), a_volume(on="b", class_name=MADE)],
            (set(), {NOTHING: 2}),
            id="a volume of another class",
        ),
        pytest.param(
            [a_claim(), a_volume(on="b", phase="Released")],
            (set(), {NOTHING: 2}),
            id="a volume that is not available",
        ),
        pytest.param(
            [a_claim(), a_volume(on="b", deleting=True)],
            (set(), {NOTHING: 2}),
            id="a volume on its way out",
        ),
        pytest.param(
            [a_claim(), a_volume(on="b", claim="another")],
            (set(), {NOTHING: 2}),
            id="a volume kept for another claim",
        ),
        pytest.param(
            [a_claim(), a_volume(on="b", claim="data", phase="Pending"), a_volume("p2", on="a")],
            ({"b"}, {NOTHING: 1}),
            id="a volume kept for this claim is the only one",
        ),
        pytest.param(
            [a_claim(), a_volume(on="b", claim="data", claim_uid="uid-of-a-namesake")],
            (set(), {NOTHING: 2}),
            id="a volume kept for a claim of the same name that is gone",
        ),
        pytest.param(
            [a_claim(class_name=MADE)], ({"a", "b"}, {}), id="made wherever the pod is placed"
        ),
        pytest.param(
            [a_claim(class_name=MADE, selected="b")],
            ({"b"}, {NOTHING: 1}),
            id="made for a node that was selected before",
        ),
        pytest.param(
            [a_claim(class_name=MADE, selected="gone")],
            (set(), {NOTHING: 2}),
            id="made for a node that is gone",
        ),
        pytest.param(
            [a_class("zonal", DRIVER, zones=("z2", "z3")), a_claim(class_name="zonal")],
            ({"b"}, {NOTHING: 1}),
            id="made in some zones only",
        ),
        pytest.param(
            [a_class("zonal", DRIVER, zones=("z2",)), a_claim(class_name="zonal"),
             a_volume(on="a", class_name="zonal")],
            ({"a", "b"}, {}),
            id="there on one host and made on the other",
        ),
        pytest.param(
            [a_claim(class_name=MADE), a_driver(capacity=True), a_capacity("c", "5Gi", "z1")],
            ({"a"}, {SHORT: 1}),
            id="capacity in one zone",
        ),
        pytest.param(
            [a_claim(class_name=MADE, size="6Gi"), a_driver(capacity=True),
             a_capacity("c", "5Gi", "z1"), a_capacity("d", "5Gi", "z1")],
            (set(), {SHORT: 2}),
            id="capacity in two places does not add up",
        ),
        pytest.param(
            [a_claim(class_name=MADE), a_driver(capacity=True),
             a_capacity("c", "500Gi", "z1", maximumVolumeSize="500Mi")],
            (set(), {SHORT: 2}),
            id="the largest volume counts before the capacity",
        ),
        pytest.param(
            [a_claim(class_name=MADE), a_driver(capacity=True),
             {**a_capacity("c", "5Gi", "z1"), "nodeTopology": None}],
            (set(), {SHORT: 2}),
            id="capacity that no node reaches",
        ),
        pytest.param(
            [a_claim(class_name=MADE), a_driver(), a_capacity("c", "0", "z1")],
            ({"a", "b"}, {}),
            id="a driver that does not report its capacity",
        ),
        pytest.param(
            [a_claim(class_name=MADE, size=None), a_driver(capacity=True)],
            ({"a", "b"}, {}),
            id="a claim that names no size",
        ),
    ],
)  # fmt: skip
def test_delayed_binding(objects: list[Json], want: object) -> None:
    assert filter_result(a_snapshot(*objects), volumes=mounting("data")) == want


def test_two_pvcs_of_a_pod_get_two_volumes() -> None:
    """The smaller claim is served first, by the smallest volume that holds it."""
    snapshot = a_snapshot(
        a_claim("large", size="8Gi"),
        a_claim("small", size="2Gi"),
        a_volume("a10", on="a", size="10Gi"),
        a_volume("a5", on="a", size="5Gi"),
        a_volume("b10", on="b", size="10Gi"),
        a_volume("b3", on="b", size="3Gi"),
        a_volume("c10", on="c", size="10Gi"),
        a="z1",
        b="z1",
        c="z1",
    )
    pod = a_pod(volumes=mounting("large", "small"))
    assert filter_result(snapshot, volumes=mounting("large", "small")) == ({"a", "b"}, {NOTHING: 1})
    for node, want in (
        ("a", ((("ns", "small"), "a5"), (("ns", "large"), "a10"))),
        ("b", ((("ns", "small"), "b3"), (("ns", "large"), "b10"))),
    ):
        with snapshot.trial():
            snapshot.place(pod, node)
            assert snapshot.volumes.decision(pod, node) == binding.VolumeDecision(
                static_bindings=want
            )


def test_two_equal_pvcs_need_two_volumes() -> None:
    snapshot = a_snapshot(
        a_claim("one"),
        a_claim("two"),
        a_volume("p1", on="a"),
        a_volume("p2", on="a"),
        a_volume("p3", on="b"),
    )
    assert filter_result(snapshot, volumes=mounting("one", "two")) == ({"a"}, {NOTHING: 1})


def test_a_pvc_that_is_mounted_twice_is_bound_once() -> None:
    snapshot = a_snapshot(a_claim(), a_volume(on="a"))
    assert filter_result(snapshot, volumes=mounting("data", "data")) == ({"a"}, {NOTHING: 1})


def test_a_node_with_two_binding_problems_has_both_reasons() -> None:
    """The filters count a node once per plugin; the plugin gives both reasons."""
    snapshot = a_snapshot(
        a_claim("held", volume="pv"), a_volume(affinity=IN_ZONE), a_claim(), a_volume("x", on="a")
    )
    pod = a_pod(volumes=mounting("held", "data"))
    found = {
        reason: [snapshot.table.names[row] for row in np.flatnonzero(rows)]
        for reason, rows in snapshot.volumes.filter(pod, snapshot.table.alive)
        if rows.any()
    }
    assert found == {rules.AFFINITY_MISMATCH: ["b"], NOTHING: ["b"]}
