"""
Claims for devices on a real API server, with the claim controller of kube-controller-manager.

No driver runs here: slices are written by the tests as a driver would. What the scheduler writes is
accepted or refused by the API server's own validation.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import SCHEDULER, Stack
from tests.cluster.node_pool import NodePool, until

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

RESOURCE: Final = "apis/resource.k8s.io/v1"
MERGE: Final = "application/merge-patch+json"
DRIVER: Final = "gpu.example.com"
BIG: Final = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
NOT_BOUND: Final = "not bound by us"
ROOT: Final = "resource.kubernetes.io/pcieRoot"


@pytest.fixture(scope="module")
def stack(control_plane: ControlPlane) -> Iterator[Stack]:
    with Stack(control_plane, webhook=False) as running:
        yield running


@pytest.fixture
def lab(stack: Stack, control_plane: ControlPlane, namespace: str) -> Iterator["Lab"]:
    lab = Lab(control_plane, namespace)
    lab.device_class()
    yield lab
    lab.close()


class Lab(NodePool):
    """A node pool whose nodes have devices."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self._made: list[str] = []

    def close(self) -> None:
        for path in self._made:
            self.api.call("DELETE", path)
        super().close()

    def _make(self, plural: str, obj: Json, root: str = RESOURCE) -> None:
        self.api.call("POST", f"/{root}/{plural}", obj)
        self._made.append(f"/{root}/{plural}/{obj['metadata']['name']}")

    def device_class(self) -> None:
        """Selects the devices of this lab alone, and has a parameter for its driver."""
        text = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].lab == "{self.lab}"'
        spec = {
            "selectors": [{"cel": {"expression": text}}],
            "config": [{"opaque": {"driver": DRIVER, "parameters": {"mode": "whole"}}}],
        }
        self._make("deviceclasses", {"metadata": {"name": self.lab}, "spec": spec})

    @property
    def lab(self) -> str:
        return self.namespace

    def host(self, name: str, count: int, *, memory: str = "80Gi", cpu: str = "8") -> str:
        """A node with so many GPUs, two on each PCIe root."""
        node = self.add_node(name, cpu=cpu)
        found = [
            {
                "name": f"gpu-{number}",
                "attributes": {
                    "lab": {"string": self.lab},
                    ROOT: {"string": f"pci0000:{number // 2}"},
                },
                "capacity": {"memory": {"value": memory}},
            }
            for number in range(count)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        self._make(
            "resourceslices",
            {
                "metadata": {"name": f"{node}-gpus"},
                "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": found},
            },
        )
        return node

    def device_request(self, *, count: int = 1, cel: str = "", **more: Any) -> Json:
        rules = {"selectors": [{"cel": {"expression": cel}}]} if cel else {}
        mode = {"allocationMode": "ExactCount", "count": count}
        return {"deviceClassName": self.lab, **mode, **rules, **more}

    def exactly(self, name: str = "gpus", **more: Any) -> Json:
        return {"name": name, "exactly": self.device_request(**more)}

    def template(self, name: str, *requests: Json, **devices: Any) -> None:
        spec = {"spec": {"devices": {"requests": list(requests), **devices}}}
        self.post(f"{RESOURCE}/resourceclaimtemplates", {"metadata": {"name": name}, "spec": spec})

    def claim(self, name: str, *requests: Json, **devices: Any) -> None:
        spec = {"devices": {"requests": list(requests), **devices}}
        self.post(f"{RESOURCE}/resourceclaims", {"metadata": {"name": name}, "spec": spec})

    def claimer(self, name: str, *, claim: str = "", template: str = "", **more: Any) -> Json:
        field = "resourceClaimName" if claim else "resourceClaimTemplateName"
        return self.pod(name, resourceClaims=[{"name": "gpu", field: claim or template}], **more)

    def claims(self) -> list[Json]:
        path = f"/{RESOURCE}/namespaces/{self.namespace}/resourceclaims"
        found: list[Json] = self.api.call("GET", path)["items"]
        return found

    def held(self) -> dict[str, tuple[str, ...]]:
        """Pod -> its devices as node/device; only of claims that are reserved for it."""
        found: dict[str, tuple[str, ...]] = {}
        for claim in self.claims():
            status = claim.get("status", {})
            results = status.get("allocation", {}).get("devices", {}).get("results", [])
            names = tuple(f"{row['pool']}/{row['device']}" for row in results)
            for pod in status.get("reservedFor", []):
                found[pod["name"]] = (*found.get(pod["name"], ()), *names)
        return found

    def allocated(self) -> int:
        return sum("allocation" in claim.get("status", {}) for claim in self.claims())

    def forbid_binding(self, pod: str) -> None:
        """The API server refuses to bind the pod of this name, from the end of this call on."""
        name, root = f"no-bind-{self.namespace}", "apis/admissionregistration.k8s.io/v1"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}
        text = f"request.namespace != '{self.namespace}' || request.name != '{pod}'"
        spec = {
            "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]}]},
            "validations": [{"expression": text, "message": NOT_BOUND}],
        }
        binding = {"policyName": name, "validationActions": ["Deny"]}
        kind = "validatingadmissionpolic"
        self._make(f"{kind}ies", {"metadata": {"name": name}, "spec": spec}, root)
        self._make(f"{kind}ybindings", {"metadata": {"name": name}, "spec": binding}, root)
        self.create(self.pod(pod, schedulerName="nobody"))
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        said = until(lambda: self._dry_run_bind(path), lambda found: NOT_BOUND in found)
        assert NOT_BOUND in said
        self.api.call("DELETE", f"{path}?gracePeriodSeconds=0")
        until(self.nodes_of_pods, lambda found: pod not in found)

    def _dry_run_bind(self, path: str) -> str:
        name = path.rpartition("/")[2]
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "nowhere"}}
        try:
            self.api.call("POST", f"{path}/binding?dryRun=All", target)
        except CallFailed as error:
            return str(error)
        return ""

    def condition_text(self, pod: str, part: str) -> str:
        """The message of PodScheduled, as soon as it says this."""
        found = until(lambda: self.condition(pod)[2], lambda text: part in text)
        return found.partition(" nodes are available: ")[2]


def test_pods_by_template_get_devices_of_their_own(lab: Lab) -> None:
    small, large = lab.host("small", 2, memory="40Gi"), lab.host("large", 4)
    lab.template("one", lab.exactly(cel=BIG))
    lab.template("two", lab.exactly("a"), lab.exactly("b"))
    lab.create(
        lab.claimer("single", template="one"),
        lab.claimer("dual", template="two"),
    )
    nodes = lab.all_bound(2)
    held = lab.held()
    counts = {pod: len(devices) for pod, devices in held.items()}
    assert (nodes["single"], counts) == (large, {"single": 1, "dual": 2})
    assert all(device.startswith(nodes[pod]) for pod, found in held.items() for device in found)
    assert max(Counter(device for found in held.values() for device in found).values()) == 1
    assert nodes["dual"] in (small, large)
    parameters = {
        row["opaque"]["parameters"]["mode"]
        for claim in lab.claims()
        for row in claim["status"]["allocation"]["devices"]["config"]
    }
    assert parameters == {"whole"}


def test_a_gang_gets_a_device_for_each_member_or_none(lab: Lab) -> None:
    lab.host("a", 2)
    lab.template("one", lab.exactly())
    lab.create(*(lab.claimer(f"m{n}", template="one", gang=("g", 3)) for n in range(3)))
    text = lab.condition_text("m0", "cannot allocate all claims")
    before = (set(lab.nodes_of_pods().values()), lab.allocated())
    lab.host("b", 1)
    lab.all_bound(3)
    devices = [device for found in lab.held().values() for device in found]
    assert "1 cannot allocate all claims" in text
    assert "members fit" in text
    assert (before, len(devices), len(set(devices))) == (({""}, 0), 3, 3)


def test_a_shared_claim_brings_its_pods_to_one_node(lab: Lab) -> None:
    for name in ("a", "b"):
        lab.host(name, 1, cpu="2")
    lab.claim("shared", lab.exactly())
    lab.create(*(lab.claimer(f"p{n}", claim="shared") for n in range(2)))
    nodes = lab.all_bound(2)
    held = lab.held()
    lab.create(lab.claimer("late", claim="shared"))
    text = lab.condition_text("late", "resourceclaim not available on the node")
    assert (len(set(nodes.values())), held["p0"]) == (1, held["p1"])
    assert "1 Insufficient cpu" in text
    assert lab.held() == held


def test_the_first_way_that_can_be_had_is_taken_with_devices_of_one_root(lab: Lab) -> None:
    node = lab.host("a", 4, memory="40Gi")
    same = {"constraints": [{"requests": ["gpus"], "matchAttribute": ROOT}]}
    lab.template("spare", lab.exactly())
    lab.create(lab.claimer("first", template="spare"))
    lab.all_bound(1)
    ways = [
        {"name": "large", **lab.device_request(cel=BIG)},
        {"name": "pair", **lab.device_request(count=2)},
    ]
    lab.template("either", {"name": "gpus", "firstAvailable": ways}, **same)
    lab.create(lab.claimer("second", template="either"))
    lab.all_bound(2)
    (chosen,) = [one for one in lab.claims() if len(_results(one)) == 2]
    assert {row["request"] for row in _results(chosen)} == {"gpus/pair"}
    assert lab.held()["second"] == (f"{node}/gpu-2", f"{node}/gpu-3")


def test_what_a_refused_bind_leaves_is_taken_back(lab: Lab) -> None:
    lab.host("a", 1)
    lab.forbid_binding("barred")
    lab.template("one", lab.exactly())
    lab.create(lab.claimer("barred", template="one"))
    refused = until(lambda: lab.condition("barred"), lambda found: NOT_BOUND in found[2])
    left = until(lab.allocated, lambda count: count == 0)
    lab.create(lab.claimer("other", template="one"))
    until(lab.nodes_of_pods, lambda nodes: bool(nodes.get("other")))
    assert NOT_BOUND in refused[2]
    assert (left, list(lab.held())) == (0, ["other"])


def test_a_scheduler_that_is_killed_leaks_no_device(lab: Lab, stack: Stack) -> None:
    for name in ("a", "b"):
        lab.host(name, 12, cpu="12")
    lab.template("one", lab.exactly())
    pods = [lab.claimer(f"p{n}", template="one") for n in range(24)]
    coming = threading.Thread(target=lab.create, args=pods)
    coming.start()
    until(lab.allocated, lambda count: count > 2)
    stack.child(SCHEDULER).kill()
    coming.join()
    stack.start()
    nodes = lab.all_bound(24)
    devices = [device for found in lab.held().values() for device in found]
    assert (all(nodes.values()), len(devices), len(set(devices))) == (True, 24, 24)


def test_what_a_killed_scheduler_wrote_is_used_or_freed(lab: Lab, stack: Stack) -> None:
    near, _ = lab.host("near", 1, cpu="2"), lab.host("full", 1, cpu="1")
    far = lab.host("far", 1, cpu="2")
    stack.child(SCHEDULER).kill()
    for name, node in (("kept", near), ("stuck", f"{lab.namespace}-full")):
        lab.claim(name, lab.exactly())
        lab.create(lab.claimer(name, claim=name, cpu="2"))
        _allocate(lab, name, node)
    stack.start()
    assert lab.all_bound(2) == {"kept": near, "stuck": far}
    assert lab.held() == {"kept": (f"{near}/gpu-0",), "stuck": (f"{far}/gpu-0",)}


def _results(claim: Json) -> list[Json]:
    found: list[Json] = claim["status"]["allocation"]["devices"]["results"]
    return found


def _allocate(lab: Lab, name: str, node: str) -> None:
    """As a scheduler would that dies before it binds the pod of the same name."""
    pod = lab.api.call("GET", f"/api/v1/namespaces/{lab.namespace}/pods/{name}")
    rule = {"key": "metadata.name", "operator": "In", "values": [node]}
    device = {"request": "gpus", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    path = f"/{RESOURCE}/namespaces/{lab.namespace}/resourceclaims/{name}"
    lab.api.call("PATCH", path, {"metadata": {"finalizers": [FINALIZER]}}, content_type=MERGE)
    status = {
        "allocation": {
            "devices": {"results": [device]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [rule]}]},
        },
        "reservedFor": [consumer],
    }
    lab.api.call("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)
