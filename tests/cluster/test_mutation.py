"""What admission writes on pods, as a real API server stores it, beside another webhook that writes."""

import base64
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubenexus.dev.plane import key_files
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import ports
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.builders import a_container, a_pod
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
OWN = {"key": "own", "operator": "Exists"}
POOL = {"key": "pool", "operator": "Exists"}


@pytest.fixture
def tenant(stack: Stack, kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """A namespace whose tenant has defaults of every shape, and a gate for gangs."""
    name = f"written-{namespace}"
    policy = {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "TenantPolicy",
        "metadata": {"name": name},
        "spec": {
            "tenant": {"name": name, "tier": "gold"},
            "namespaceSelector": {"matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: namespace}},
            "gang": {"gate": True},
            "defaults": [
                {
                    "set": {
                        "labels": {"example.test/key": "a"},
                        "annotations": {"example.test/plain": "b"},
                        "tolerations": [POOL],
                        "nodeSelector": {"pool": "x"},
                        "resources": {"requests": {"memory": "64Mi"}},
                    }
                }
            ],
        },
    }
    got = kubectl("apply", "-f", "-", input=json.dumps(policy))
    assert got.returncode == 0, got.stderr

    def in_force() -> bool:
        probe = json.dumps(a_pod("probe", namespace=namespace))
        got = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=probe)
        return got.returncode == 0 and "example.test/key" in got.stdout

    # Two workers: both must have answered with the policy several times over.
    eventually(lambda: all(in_force() for _ in range(8)), "the policy in force at every worker")
    yield namespace
    kubectl("delete", "tenantpolicy", name)


def tried(kubectl: Kubectl, obj: Json) -> Json:
    """The object as it would be stored."""
    got = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(obj))
    assert got.returncode == 0, got.stderr
    return dict(json.loads(got.stdout))


def gates(pod: Json) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def test_what_users_said_stays_and_the_rest_is_added(kubectl: Kubectl, tenant: str) -> None:
    pod = a_pod(
        "p",
        namespace=tenant,
        labels={"example.test/key": "mine"},
        tolerations=[OWN],
        containers=[a_container("one", cpu="1"), a_container("two", cpu="1", memory="1Gi")],
    )
    got = tried(kubectl, pod)
    assert got["metadata"]["labels"]["example.test/key"] == "mine"
    assert got["metadata"]["annotations"]["example.test/plain"] == "b", "the map was missing"
    kept = [row for row in got["spec"]["tolerations"] if row["key"] in ("own", "pool")]
    assert kept == [OWN, POOL], "lists are added to"
    assert got["spec"]["nodeSelector"] == {"pool": "x"}
    memory = [one["resources"]["requests"]["memory"] for one in got["spec"]["containers"]]
    assert memory == ["64Mi", "1Gi"]
    profile = json.loads(got["metadata"]["annotations"][vocabulary.PROFILE_ANNOTATION])
    assert (profile["tenant"], profile["tier"]) == (f"written-{tenant}", "gold")
    assert f"written-{tenant}" in profile["policies"]


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        pytest.param(
            {
                "pod-group.scheduling.sigs.k8s.io/name": "g",
                "pod-group.scheduling.sigs.k8s.io/min-available": "2",
            },
            {},
            id="the family of scheduler-plugins",
        ),
        pytest.param(
            {"gang.scheduling.kubenexus.io/name": "g"},
            {"scheduling.kubenexus.io/min-available": "2"},
            id="a label and an annotation",
        ),
        pytest.param(
            {},
            {
                vocabulary.GANG_GROUP_ANNOTATION: "g",
                "scheduling.kubenexus.io/min-available": "2",
                "scheduling.kubenexus.io/numa-policy": "single-numa-node",
            },
            id="annotations, and an alias of NUMA's",
        ),
    ],
)
def test_every_family_becomes_the_canonical_one(
    kubectl: Kubectl, tenant: str, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    got = tried(kubectl, a_pod("p", namespace=tenant, labels=labels, annotations=annotations))
    about = got["metadata"]
    assert {key: about["labels"].get(key) for key in CANONICAL} == {
        vocabulary.GANG_NAME_LABEL: "g",
        vocabulary.GANG_MIN_AVAILABLE_LABEL: "2",
    }
    if "scheduling.kubenexus.io/numa-policy" in annotations:
        assert about["annotations"][vocabulary.NUMA_POLICY_ANNOTATION] == "single-numa"
    assert gates(got) == [vocabulary.GANG_GATE], "the tenant's gangs are held until whole"
    assert got["spec"]["schedulerName"] == vocabulary.SCHEDULER_NAME


CANONICAL = (vocabulary.GANG_NAME_LABEL, vocabulary.GANG_MIN_AVAILABLE_LABEL)


def test_a_pod_of_no_gang_gets_no_gate(kubectl: Kubectl, tenant: str) -> None:
    assert gates(tried(kubectl, a_pod("p", namespace=tenant))) == []


def test_a_gpu_pod_is_classified(kubectl: Kubectl, tenant: str) -> None:
    gpu = a_container(cpu="1") | {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    got = tried(kubectl, a_pod("p", namespace=tenant, containers=[gpu]))
    labels = got["metadata"]["labels"]
    assert labels[vocabulary.HARDWARE_TIER_LABEL] in vocabulary.HARDWARE_TIERS
    assert labels[vocabulary.WORKLOAD_TYPE_LABEL] in vocabulary.WORKLOAD_TYPES


# --- another webhook that writes after this one ---


class Sidecars(http.server.BaseHTTPRequestHandler):
    """Puts a container before all others, once."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        names = [one["name"] for one in request["object"]["spec"]["containers"]]
        response: Json = {"uid": request["uid"], "allowed": True}
        if "mesh" not in names:
            patch = [{"op": "add", "path": "/spec/containers/0", "value": a_container("mesh")}]
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        body = json.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No test reads it."""


@contextmanager
def serving(plane: ControlPlane, folder: Path) -> Iterator[str]:
    pair = key_files.serving(plane.ca, "sidecars", now=datetime.now(UTC))
    key_files.write_private(folder / "tls.pem", pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    server = http.server.ThreadingHTTPServer((ports.HOST, 0), Sidecars)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://{ports.HOST}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def sidecars(control_plane: ControlPlane, tenant: str, tmp_path: Path) -> Iterator[None]:
    """Its configuration comes after ours by name, so that what it writes is shown to ours again."""
    with serving(control_plane, tmp_path) as url:
        ca = base64.b64encode(control_plane.ca.certificate).decode()
        webhook = {
            "name": "sidecars.example.test",
            "clientConfig": {"url": url, "caBundle": ca},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "namespaceSelector": {"matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: tenant}},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": ["CREATE"],
                }
            ],
        }
        obj = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "zz-sidecars"},
            "webhooks": [webhook],
        }
        control_plane.api().call("POST", CONFIGURATIONS, obj)
        yield
        control_plane.api().call("DELETE", f"{CONFIGURATIONS}/zz-sidecars")


def test_what_is_shown_again_is_written_once(kubectl: Kubectl, tenant: str, sidecars: None) -> None:
    labels = {vocabulary.GANG_NAME_LABEL: "g", vocabulary.GANG_MIN_AVAILABLE_LABEL: "2"}
    pod = a_pod("p", namespace=tenant, labels=labels, tolerations=[OWN])

    def meshed() -> Json | None:
        found = tried(kubectl, pod)
        return found if len(found["spec"]["containers"]) == 2 else None

    got = eventually(meshed, "the other webhook")
    containers = {one["name"]: one["resources"]["requests"] for one in got["spec"]["containers"]}
    assert list(containers) == ["mesh", "main"]
    assert containers["mesh"] == {"memory": "64Mi"}, "the second round saw the new container"
    assert containers["main"] == {"cpu": "1", "memory": "64Mi"}
    kept = [row for row in got["spec"]["tolerations"] if row["key"] in ("own", "pool")]
    assert (kept, gates(got)) == ([OWN, POOL], [vocabulary.GANG_GATE])
