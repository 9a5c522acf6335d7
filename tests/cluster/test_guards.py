"""Ways around admission, tried on a real API server as an auditor would."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from kubenexus.rbac import TENANT, TENANT_NAMESPACE
from policies import vocabulary
from tests.builders import a_container, a_pod, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]
OURS = vocabulary.SCHEDULER_NAME


def created(plane: ControlPlane, namespace: str, pod: Json) -> Json:
    pod = pod | {"metadata": pod["metadata"] | {"namespace": namespace}}
    return plane.api().call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def refusal(plane: ControlPlane, method: str, path: str, body: Json, *, user: str = "admin") -> str:
    kinds = {"PATCH": "application/merge-patch+json", "POST": "application/json"}
    with pytest.raises(CallFailed) as caught:
        plane.api(user).call(method, path, body, content_type=kinds[method])
    return str(caught.value)


def waiting_pod(name: str = "p") -> Json:
    """One that stays pending: no node has that much capacity."""
    return a_pod(
        name, schedulerName=OURS, labels=in_gang("g", 1), containers=[a_container(cpu="9999")]
    )


@pytest.mark.parametrize(
    ("subresource", "change"),
    [
        pytest.param(
            "", {"metadata": {"labels": {vocabulary.GANG_NAME_LABEL: "h"}}}, id="the pod itself"
        ),
        pytest.param(
            "/status", {"metadata": {"labels": {vocabulary.TIER_LABEL: "gold"}}}, id="its status"
        ),
    ],
)
def test_stamps_stay_by_every_path(
    stack: Stack, control_plane: ControlPlane, namespace: str, subresource: str, change: Json
) -> None:
    created(control_plane, namespace, waiting_pod())
    path = f"/api/v1/namespaces/{namespace}/pods/p{subresource}"
    assert "kubenexus/stamped" in refusal(control_plane, "PATCH", path, change)


def test_a_foreign_binding_is_refused(
    stack: Stack, control_plane: ControlPlane, namespace: str
) -> None:
    created(control_plane, namespace, waiting_pod())
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": namespace},
        "target": {"kind": "Node", "name": "node-0"},
    }
    for path in ("pods/p/binding", "bindings"):
        said = refusal(control_plane, "POST", f"/api/v1/namespaces/{namespace}/{path}", binding)
        assert "kubenexus/binding" in said, said


def test_a_node_cannot_be_preset(stack: Stack, control_plane: ControlPlane, namespace: str) -> None:
    pod = a_pod("p", namespace=namespace, schedulerName=OURS, nodeName="node-0")
    said = refusal(control_plane, "POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    assert "kubenexus/node-preset" in said


def test_a_gate_is_lifted_by_the_scheduler_alone(
    stack: Stack, control_plane: ControlPlane, namespace: str
) -> None:
    # One of two: the gang is not complete, so the scheduler leaves the gate where it is.
    gates = [{"name": vocabulary.GANG_GATE}]
    created(
        control_plane,
        namespace,
        a_pod("p", labels=in_gang(size="2"), schedulerName=OURS, schedulingGates=gates),
    )
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    lift: Json = {"spec": {"schedulingGates": []}}
    assert "kubenexus/gate" in refusal(control_plane, "PATCH", path, lift)
    scheduler = control_plane.api(OURS)
    done = scheduler.call("PATCH", path, lift, content_type="application/merge-patch+json")
    assert not done["spec"].get("schedulingGates")


def test_only_tenant_admins_move_a_namespace_to_another_tenant(
    stack: Stack, control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    # The tenant gets the right to change the namespace, but manages no tenants.
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "test-namespace-editor"},
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch", "update"]}
        ],
    }
    grant = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "test-namespace-editor"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "test-namespace-editor",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT}],
    }
    for item in (role, grant):
        control_plane.api().apply(item)

    def label(value: str, user: str) -> subprocess.CompletedProcess[str]:
        return kubectl("label", "--overwrite", "namespace", TENANT_NAMESPACE, value, user=user)

    try:
        eventually(
            lambda: label("plain=1", TENANT).returncode == 0, "the right to label the namespace"
        )
        refused = label(f"{vocabulary.TIER_LABEL}=silver", TENANT)
        assert (
            "kubenexus/namespace-tenant: changed from 'gold' to 'silver' by 'tenant'"
            in refused.stderr
        )
        assert label(f"{vocabulary.TIER_LABEL}=silver", "admin").returncode == 0
    finally:
        label(f"{vocabulary.TIER_LABEL}=gold", "admin")
        kubectl("delete", "clusterrole,clusterrolebinding", "test-namespace-editor")
