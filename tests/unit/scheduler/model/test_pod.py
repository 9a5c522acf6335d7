"""Pods, nodes and units read from raw JSON; unsupported requests."""

from typing import Any

import pytest

from policies import vocabulary
from scheduler.errors import ModelError
from scheduler.model.gang import Gang, GangKey
from scheduler.model.node import MOST_IMAGE, Node
from scheduler.model.numa_request import HostRequest
from scheduler.model.placeholder import spec_of
from scheduler.model.pod import Pod, PodKey, ScheduledCondition, SchedulingSpec
from scheduler.model.resources import LARGEST
from scheduler.model.taints import Taint
from scheduler.model.unit import UnitKey, order, units
from tests.unit.scheduler.builders import a_gang, a_pod, pod_json

UNSUPPORTED = "which this scheduler does not support"


def test_a_whole_pod() -> None:
    pod = Pod.read(
        pod_json(
            "p",
            cpu="1500m",
            memory="1Ki",
            gpus=2,
            gang=("g", 4),
            numa="restricted",
            node="n",
            priority=7,
            nodeSelector={"b": "2", "a": "1"},
            annotations={
                vocabulary.VRAM_ANNOTATION: "3",
                vocabulary.NUMA_RESOURCES_ANNOTATION: "cpu,nvidia.com/gpu",
            },
            status={
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True"}],
            },
        )
    )
    assert pod == Pod(
        key=PodKey("ns", "p"),
        uid="uid-p",
        spec=SchedulingSpec(
            requests=(("cpu", 1500), ("memory", 1024), ("nvidia.com/gpu", 2), ("pods", 1)),
            selector=(("a", "1"), ("b", "2")),
            host_request=HostRequest(1500, 1024, 2, "restricted", frozenset({"cpu", "gpu"})),
            vram=2,
        ),
        labels=(
            (vocabulary.GANG_MIN_AVAILABLE_LABEL, "4"),
            (vocabulary.GANG_NAME_LABEL, "g"),
        ),
        priority=7,
        created=1767225600.0,
        node="n",
        phase="Running",
        gang=Gang(GangKey("ns", "g"), 4),
        condition=ScheduledCondition("True", "", ""),
    )


@pytest.mark.parametrize(
    ("more", "pending", "finished"),
    [
        pytest.param({}, True, False, id="waits"),
        pytest.param({"node": "n"}, False, False, id="has a node"),
        pytest.param({"status": {"phase": "Succeeded"}}, False, True, id="has succeeded"),
        pytest.param({"status": {"phase": "Failed"}, "node": "n"}, False, True, id="has failed"),
        pytest.param({"deleted": True}, False, False, id="is being deleted"),
        pytest.param({"schedulingGates": [{"name": "g"}]}, False, False, id="is gated"),
    ],
)
def test_pending_and_finished(more: dict[str, Any], pending: bool, finished: bool) -> None:
    pod = a_pod(**more)
    assert (pod.pending, pod.finished) == (pending, finished)


REQUIRED: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
PREFERRED: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param({}, [], id="a plain pod"),
        pytest.param(
            {"affinity": {"nodeAffinity": PREFERRED, "podAntiAffinity": PREFERRED}},
            [],
            id="preferences",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
            [],
            id="soft spread",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x"}}]},
            [],
            id="volumes that are everywhere",
        ),
        pytest.param(
            {"affinity": {"podAffinity": REQUIRED, "podAntiAffinity": REQUIRED}},
            [],
            id="pod affinity",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            [],
            id="hard spread",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            [],
            id="volume claims",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
            [],
            id="ephemeral volume claims",
        ),
        pytest.param(
            {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]},
            [],
            id="devices by claim",
        ),
        pytest.param(
            {"resourceClaims": [{"name": "g"}]},
            ["a resource claim by neither name nor template"],
            id="devices by nothing",
        ),
        pytest.param(
            {"annotations": {vocabulary.REQUIRE_CLIQUE_ANNOTATION: "true"}},
            [],
            id="a required clique",
        ),
    ],
)
def test_unsupported_requests(more: dict[str, Any], want: list[str]) -> None:
    assert a_pod(**more).spec.unsupported == tuple(
        f"requests {item}, {UNSUPPORTED}" for item in want
    )


@pytest.mark.parametrize(
    ("text", "duration", "is_unsupported"),
    [
        pytest.param("1h", 3600.0, False, id="within the bound"),
        pytest.param("99999999999h", 87_600 * 3600.0, False, id="above it: counts as the bound"),
        pytest.param("1" * 60_000, None, True, id="too long to be read"),
    ],
)
def test_a_duration_beyond_its_bound(
    text: str, duration: float | None, is_unsupported: bool
) -> None:
    pod = a_pod(annotations={vocabulary.EXPECTED_DURATION_ANNOTATION: text})
    assert (pod.attributes.duration, bool(pod.spec.unsupported)) == (duration, is_unsupported)


def test_contradicting_requests_are_unsupported() -> None:
    pod = a_pod(numa="single-numa", annotations={f"{vocabulary.GROUP}/numa-policy": "restricted"})
    assert len(pod.spec.unsupported) == 1
    assert "single-numa" in pod.spec.unsupported[0]
    assert "restricted" in pod.spec.unsupported[0]


def test_a_locality_group_has_size_one() -> None:
    pod = a_pod(annotations={vocabulary.GANG_GROUP_ANNOTATION: "near"})
    assert (pod.gang, pod.spec.unsupported) == (Gang(GangKey("ns", "near"), 1), ())


def test_a_whole_node() -> None:
    node = Node.read(
        {
            "metadata": {"name": "n", "labels": {vocabulary.GPU_VRAM_LABEL: "1Ki"}},
            "spec": {
                "unschedulable": True,
                "taints": [
                    {"key": "k", "effect": "NoExecute"},
                    {"key": "soft", "effect": "PreferNoSchedule"},
                ],
            },
            "status": {
                "capacity": {"cpu": "9"},
                "images": [{"names": ["a@sha256:b", "a:1"], "sizeBytes": 7}],
                "allocatable": {"cpu": "2", "nvidia.com/gpu": "4", "memory": "8Ei"},
            },
        }
    )
    assert node == Node(
        name="n",
        allocatable=(("cpu", 2000), ("memory", 2**55 - 1), ("nvidia.com/gpu", 4)),
        labels=((vocabulary.GPU_VRAM_LABEL, "1Ki"),),
        taints=(Taint("k", "", "NoExecute"),),
        soft_taints=(Taint("soft", "", "PreferNoSchedule"),),
        images=(("a:1", 7), ("a@sha256:b", 7)),
        unschedulable=True,
        gpus=4,
        vram=1024,
    )


@pytest.mark.parametrize(
    ("read", "obj", "want"),
    [
        pytest.param(
            Pod.read,
            pod_json("p", cpu="lots"),
            r"pod ns/p: spec\.containers\[0\].*requests\.cpu: found 'lots', want a quantity",
            id="a pod's quantity",
        ),
        pytest.param(
            Node.read,
            {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "x"}}},
            r"node n: status\.allocatable\.cpu: found 'x', want a quantity",
            id="a node's quantity",
        ),
    ],
)
def test_unreadable_objects_are_named(read: Any, obj: Any, want: str) -> None:
    with pytest.raises(ModelError, match=want):
        read(obj)


def test_units_come_by_priority_then_age_then_uid() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    pods = [
        a_pod("late", created=new),
        a_pod("b", created=old),
        a_pod("a", created=old),
        a_pod("high", created=new, priority=5),
        *a_gang(2, created=old, priority=1),
    ]
    keys: list[UnitKey] = [unit.key for unit in units(pods)]
    assert [key.name for key in keys] == ["high", "g", "a", "b", "late"]
    assert len({order(pod) for pod in pods}) == len(pods)


def test_a_pod_and_a_gang_of_one_name_are_two_units() -> None:
    assert len(units([a_pod("same"), *a_gang(1, name="same")])) == 2


def test_of_different_sizes_the_largest_counts() -> None:
    (unit,) = units([a_pod("a", gang=("g", 2)), a_pod("b", gang=("g", 3))])
    assert (unit.size, unit.need, unit.forming) == (3, 2, True)


@pytest.mark.parametrize(
    ("requests", "want"),
    [
        pytest.param({"cpu": "9E"}, (0, 200 * 2**20), id="all of cpu, no memory"),
        pytest.param({"memory": "9E"}, (100, 0), id="all of memory, no cpu"),
        pytest.param({"cpu": "1", "memory": "1"}, (0, 0), id="both"),
    ],
)
def test_default_requests_come_on_top_of_the_capped_amount(
    requests: dict[str, str], want: tuple[int, int]
) -> None:
    obj = pod_json()
    obj["spec"]["containers"][0]["resources"]["requests"] = requests
    assert Pod.read(obj).spec.default_requests == want


def test_what_a_leader_states_for_its_members_is_capped_and_requested_above_zero() -> None:
    text = "cpu=9E,memory=1Gi,example.com/none=0"
    pod = a_pod(annotations={vocabulary.GANG_MEMBERS_ANNOTATION: text})
    stated = (("cpu", LARGEST), ("example.com/none", 0), ("memory", 2**30))
    assert pod.attributes.member_requests == stated
    spec = spec_of(pod, dict(stated))
    assert spec.requests == (("cpu", LARGEST), ("memory", 2**30), ("pods", 1))


def test_weights_and_images_of_any_size_count_within_bounds() -> None:
    most = 2**63 - 1
    preference = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    term = {"topologyKey": "zone", "labelSelector": {}}
    affinity: dict[str, Any] = {
        "nodeAffinity": {DURING: [{"weight": most, "preference": preference}]},
        "podAntiAffinity": {DURING: [{"weight": most, "podAffinityTerm": term}]},
    }
    spec = a_pod(affinity=affinity).spec
    images = [{"names": ["i:1"], "sizeBytes": most}]
    node = Node.read({"metadata": {"name": "n"}, "status": {"images": images}})
    assert [points for points, _ in spec.node_constraints.preferred] == [100]
    assert [points for _, points in spec.inter_pod.preferred] == [-100]
    assert node.images == (("i:1", MOST_IMAGE),)


DURING = "preferredDuringSchedulingIgnoredDuringExecution"
