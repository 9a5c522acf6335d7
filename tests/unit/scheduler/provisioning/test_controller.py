"""Which gangs request nodes, what happens to requests, and the objects as written: values alone."""

from typing import Any

import orjson
import pytest

from cluster import errors
from policies import vocabulary
from scheduler.model.gang import GangKey
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.provisioning import objects
from scheduler.provisioning.decision import ProvisioningState, Step, classes, decide, missing, pause
from scheduler.provisioning.objects import Phase, ProvisioningRequest
from tests.unit.scheduler.builders import a_gang, a_pod, pod_json

G = GangKey("ns", "g")
SHORT = NoFit(1, reasons=(("Insufficient cpu", 1),))


def a_request(attempt: int = 1, *, digest: str = "same", **more: Any) -> ProvisioningRequest:
    name = f"g-{digest}-{attempt}"
    return ProvisioningRequest(("ns", name), f"uid-{name}", G, digest, attempt, **more)


FAILED = a_request(phase=Phase.FAILED, since=1000.0)
THIRD = a_request(3, phase=Phase.FAILED, since=1000.0)
OTHER = a_request(digest="other")
CURRENT = a_request()


@pytest.mark.parametrize(
    ("state", "requests", "epoch", "want"),
    [
        pytest.param("wants", [], 0, Step(attempt=1), id="no request exists: the first is created"),
        pytest.param("wants", [CURRENT], 0, Step(), id="one exists: it is waited for"),
        pytest.param(
            "wants",
            [a_request(phase=Phase.PROVISIONED)],
            9e9,
            Step(),
            id="provisioned: the nodes are waited for",
        ),
        pytest.param(
            "wants",
            [OTHER],
            0,
            Step(delete=(OTHER,), attempt=1),
            id="the request is for other pods: it is deleted first",
        ),
        pytest.param(
            "wants",
            [OTHER, CURRENT],
            0,
            Step(delete=(OTHER,)),
            id="one request too many: it is deleted",
        ),
        pytest.param("wants", [FAILED], 1059, Step(), id="failed: the pause is waited out"),
        pytest.param(
            "wants",
            [FAILED],
            1060,
            Step(attempt=2, delete_after=(FAILED,)),
            id="failed and paused: the next is created before the failed one is deleted",
        ),
        pytest.param("wants", [THIRD], 1239, Step(), id="the third pause is four times as long"),
        pytest.param(
            "wants",
            [FAILED, a_request(2)],
            9e9,
            Step(delete=(FAILED,)),
            id="stopped between making the next and deleting the failed one",
        ),
        pytest.param("waits", [], 0, Step(), id="a gang that only waits requests nothing"),
        pytest.param("waits", [OTHER, FAILED], 9e9, Step(), id="and keeps existing requests"),
        pytest.param(
            "done",
            [CURRENT, OTHER],
            0,
            Step(delete=(OTHER, CURRENT)),
            id="a gang that is done deletes all",
        ),
    ],
)
def test_decide(state: str, requests: list[ProvisioningRequest], epoch: float, want: Step) -> None:
    assert decide(ProvisioningState(state), "same", requests, epoch=epoch) == want


def test_pauses_double_up_to_half_an_hour() -> None:
    assert [pause(n) for n in (1, 2, 3, 5, 6, 99)] == [60, 120, 240, 960, 1800, 1800]


def leader(name: str, **more: Any) -> Pod:
    labels = {vocabulary.GANG_ROLE_LABEL: "leader"}
    return a_pod(name, gang=("g", 2), labels=labels, **more)


BAD = {"numa": "sideways"}


@pytest.mark.parametrize(
    ("pods", "more", "why", "want"),
    [
        pytest.param(a_gang(3), {}, SHORT, ["g-0", "g-1", "g-2"], id="a whole gang"),
        pytest.param(
            a_gang(4, size=3), {"bound": 1}, SHORT, ["g-0", "g-1"], id="a half-bound one: the rest"
        ),
        pytest.param(
            a_gang(4, size=2), {}, SHORT, ["g-0", "g-1"], id="no more than it needs to start"
        ),
        pytest.param(
            [*a_gang(2), leader("z")], {}, SHORT, ["z", "g-0"], id="its leader is among them"
        ),
        pytest.param(a_gang(2), {}, NoFit(0), ["g-0", "g-1"], id="there are no nodes at all"),
        pytest.param(
            [*a_gang(2), a_pod("bad", gang=("g", 2), **BAD)],
            {},
            SHORT,
            ["g-0", "g-1"],
            id="not for a member above the minimum that no node could help",
        ),
        pytest.param([a_pod("p")], {}, SHORT, [], id="a pod alone: autoscalers see it"),
        pytest.param(a_gang(2), {"bound": 2}, SHORT, [], id="members above a gang that is whole"),
        pytest.param(
            [leader("l")], {"leader_first": True}, SHORT, [], id="members that do not exist yet"
        ),
        pytest.param(a_gang(2), {"reserved": 1}, SHORT, [], id="members with reserved capacity"),
        pytest.param(a_gang(2), {}, NoFit(1, over_quota="quota"), [], id="a quota is in the way"),
        pytest.param(
            a_gang(2), {}, NoFit(1, message="claim is missing"), [], id="no lack of capacity"
        ),
        pytest.param(
            [a_pod("bad", gang=("g", 2), **BAD), *a_gang(1, size=2)],
            {},
            SHORT,
            [],
            id="no node could help a member that it needs",
        ),
        pytest.param(
            [a_pod(f"g-{i}", gang=("g", 33), cpu=str(i + 1)) for i in range(33)],
            {},
            SHORT,
            [],
            id="more kinds of members than a request takes",
        ),
    ],
)
def test_members_of_a_request(pods: list[Pod], more: Any, why: NoFit, want: list[str]) -> None:
    key = pods[0].gang.key if pods[0].gang else pods[0].key
    found = missing(Unit(key, tuple(pods), **more), why)
    assert [pod.key.name for pod in found] == want


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": "1970-01-01T00:01:40Z", **more}


ACCEPTED = condition("Accepted", message="taken")


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param([], (Phase.PENDING, "", 50.0), id="no response"),
        pytest.param([ACCEPTED], (Phase.PENDING, "taken", 50.0), id="accepted"),
        pytest.param(
            [ACCEPTED, condition("Provisioned", "False", message="not found, later")],
            (Phase.PENDING, "not found, later", 50.0),
            id="tried, and to be tried again by the autoscaler",
        ),
        pytest.param(
            [ACCEPTED, condition("Provisioned", message="found")],
            (Phase.PROVISIONED, "Provisioned: found", 100.0),
            id="provisioned",
        ),
        pytest.param(
            [condition("Provisioned"), condition("BookingExpired", message="over")],
            (Phase.FAILED, "BookingExpired: over", 100.0),
            id="provisioned, and kept no longer",
        ),
        pytest.param(
            [condition("Provisioned"), condition("CapacityRevoked", reason="Taken")],
            (Phase.FAILED, "CapacityRevoked: Taken", 100.0),
            id="provisioned, and taken away",
        ),
        pytest.param(
            [condition("Failed", message="too large"), condition("BookingExpired", "False")],
            (Phase.FAILED, "Failed: too large", 100.0),
            id="failed",
        ),
    ],
)
def test_phase_of_a_request(rows: list[Any], want: tuple[Phase, str, float]) -> None:
    obj = {
        "metadata": {
            "name": "a-b-c-deadbeef00-12",
            "namespace": "ns",
            "uid": "u",
            "labels": {objects.MANAGED_BY: "me", vocabulary.GANG_NAME_LABEL: "g"},
            "creationTimestamp": "1970-01-01T00:00:50Z",
        },
        "spec": {"podSets": [{"podTemplateRef": {"name": "t"}, "count": 1}]},
        "status": {"conditions": rows},
    }
    name = ("ns", "a-b-c-deadbeef00-12")
    assert objects.read(obj, scheduler="me") == ProvisioningRequest(
        name, "u", G, "deadbeef00", 12, *want, ("t",)
    )
    assert objects.read(obj, scheduler="you") is None


CONTROLLER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "j",
    "uid": "job-uid",
    "controller": True,
    "blockOwnerDeletion": True,
}


def stored(name: str, index: int = 0, *, owned: bool = True, **more: Any) -> dict[str, Any]:
    """A member as the API server has it, with all that a template must not have."""
    obj = pod_json(name, gang=("g", 3), labels={"index": str(index), "app": "a"}, **more)
    obj["metadata"]["ownerReferences"] = [CONTROLLER] if owned else []
    obj["metadata"]["annotations"] = {"a": "secret"}
    (container,) = obj["spec"]["containers"]
    container |= {"image": "i", "env": [{"name": "TOKEN", "value": "secret"}], "command": ["run"]}
    container["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    obj["spec"] |= {
        "nodeName": "",
        "nodeSelector": {"pool": "gpu"},
        "schedulingGates": [],
        "serviceAccountName": "s",
        "volumes": [
            {"name": "token", "projected": {"sources": []}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
        ],
    }
    return obj


def drafted(stores: list[dict[str, Any]], class_name: str = "c") -> objects.RequestDraft:
    pods, raw = [Pod.read(obj) for obj in stores], {o["metadata"]["uid"]: o for o in stores}
    return objects.draft(
        G,
        class_name,
        [(objects.template(raw[one.source.uid], one), len(one.pods)) for one in classes(pods)],
    )


THREE = [stored(f"g-{i}", i) for i in range(3)]


def test_the_objects_of_a_gang() -> None:
    one = drafted([*THREE, stored("big", 9, cpu="8")])
    name = objects.name_of(one, 2)
    templates = objects.pod_templates(one, 2, scheduler="me")
    request = objects.document(
        one, 2, scheduler="me", class_name="c", api_version="autoscaling.x-k8s.io/v1"
    )
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid"}
    labels = {objects.MANAGED_BY: "me", vocabulary.GANG_NAME_LABEL: "g"}
    about = {"namespace": "ns", "labels": labels, "ownerReferences": [owner]}
    assert request == {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": name, **about},
        "spec": {
            "provisioningClassName": "c",
            "podSets": [
                {"podTemplateRef": {"name": f"{name}-0"}, "count": 1},
                {"podTemplateRef": {"name": f"{name}-1"}, "count": 3},
            ],
        },
    }
    assert templates[1] == {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": f"{name}-1", **about},
        "template": {
            "metadata": {
                "labels": {
                    "app": "a",
                    vocabulary.GANG_NAME_LABEL: "g",
                    vocabulary.GANG_MIN_AVAILABLE_LABEL: "3",
                }
            },
            "spec": {
                "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
                ],
                "nodeSelector": {"pool": "gpu"},
                "schedulerName": vocabulary.SCHEDULER_NAME,
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}],
            },
        },
    }
    assert b"secret" not in orjson.dumps([templates, request])


@pytest.mark.parametrize(
    ("stores", "class_name", "same"),
    [
        pytest.param(THREE[::-1], "c", True, id="in another order"),
        pytest.param(
            [stored(f"h-{i}", i + 5) for i in range(3)], "c", True, id="other pods, alike"
        ),
        pytest.param(THREE[:2], "c", False, id="fewer"),
        pytest.param([*THREE[:2], stored("g-2", 2, cpu="2")], "c", False, id="one requests more"),
        pytest.param(THREE, "d", False, id="of another class"),
    ],
)
def test_the_name_of_a_request_depends_on_its_content(
    stores: list[dict[str, Any]], class_name: str, same: bool
) -> None:
    names = [objects.name_of(one, 1) for one in (drafted(THREE), drafted(stores, class_name))]
    assert (names[0] == names[1]) is same


def test_pods_without_a_controller_own_their_request() -> None:
    one = drafted([stored(f"g-{i}", i, owned=False) for i in range(2)])
    (template,) = objects.pod_templates(one, 1, scheduler="me")
    owners = template["metadata"]["ownerReferences"]
    assert [(row["kind"], row["uid"]) for row in owners] == [("Pod", "uid-g-0"), ("Pod", "uid-g-1")]


@pytest.mark.parametrize("name", ["", "Atomic", "a b", "-a", "a..b", "a" * 254])
def test_an_invalid_class_is_a_configuration_error(name: str) -> None:
    with pytest.raises(errors.ConfigError, match="want lower-case letters"):
        objects.check_class(name)


def test_a_class_that_provides_no_nodes_is_a_configuration_error() -> None:
    with pytest.raises(errors.ConfigError, match="only checks for capacity and provides no nodes"):
        objects.check_class("check-capacity.autoscaling.x-k8s.io")
