"""
Pods with volumes on a real API server, with the volume controllers of kube-controller-manager.

What makes volumes here is `Provisioner`, a thread that does what a CSI provisioner does: it makes a
volume for a claim as soon as the claim names a node.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import pytest

from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary

pytestmark = pytest.mark.cluster

T = TypeVar("T")
Json = dict[str, Any]

STORAGE: Final = "/apis/storage.k8s.io/v1"
VOLUMES: Final = "/api/v1/persistentvolumes"
MERGE: Final = "application/merge-patch+json"
SELECTED: Final = vocabulary.SELECTED_NODE_ANNOTATION


def until(read: Callable[[], T], want: Callable[[T], bool], seconds: float = 60.0) -> T:
    """Poll until the state is as wanted; the last state found, for the assertion to show."""
    end = time.monotonic() + seconds
    while not want(found := read()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


class Store:
    """Hosts, classes and volumes for one test alone; their names begin with its namespace."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self._made: list[str] = []

    @property
    def api(self) -> Api:
        return self.plane.api()

    def name(self, short: str) -> str:
        return f"{self.namespace}-{short}"

    def close(self) -> None:
        for path in reversed(self._made):
            self.api.call("DELETE", path)

    def _make(self, path: str, obj: Json) -> None:
        self.api.call("POST", path, obj)
        self._made.append(f"{path}/{obj['metadata']['name']}")

    def host(self, short: str) -> str:
        name = self.name(short)
        amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        self.plane.add_nodes(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {
                        "name": name,
                        "labels": {"store": self.namespace, vocabulary.HOSTNAME_LABEL: name},
                    },
                    "spec": {"taints": [{"key": "store", "effect": "NoSchedule"}]},
                    "status": {"capacity": amounts, "allocatable": amounts},
                }
            ]
        )
        self._made.append(f"/api/v1/nodes/{name}")
        return name

    def storage_class(self, short: str, provisioner: str, *, late: bool = True) -> str:
        name = self.name(short)
        self._make(
            f"{STORAGE}/storageclasses",
            {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer" if late else "Immediate",
            },
        )
        return name

    def volume(
        self, short: str, class_name: str, *, on: str, size: str = "10Gi", **spec: Any
    ) -> str:
        name = self.name(short)
        self._make(VOLUMES, a_volume(name, class_name, on=on, size=size, **spec))
        return name

    def claim(
        self, name: str, class_name: str, *, mode: str = "ReadWriteOnce", size: str = "1Gi"
    ) -> None:
        self.api.call(
            "POST",
            self.path("persistentvolumeclaims"),
            {"metadata": {"name": name}, "spec": claim_spec(class_name, mode, size)},
        )

    def pod(
        self, name: str, *claims: str, gang: int = 0, volumes: list[Json] | None = None
    ) -> None:
        labels = {}
        if gang:
            labels = {
                vocabulary.GANG_NAME_LABEL: "g",
                vocabulary.GANG_MIN_AVAILABLE_LABEL: str(gang),
            }
        mounted = [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
            for number, claim in enumerate(claims)
        ]
        requests = {"requests": {"cpu": "1"}}
        self.api.call(
            "POST",
            self.path("pods"),
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    "schedulerName": vocabulary.SCHEDULER_NAME,
                    "nodeSelector": {"store": self.namespace},
                    "tolerations": [{"key": "store", "operator": "Exists"}],
                    "containers": [{"name": "c", "image": "i", "resources": requests}],
                    "volumes": volumes or mounted,
                },
            },
        )

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}{f'/{name}' if name else ''}"

    def nodes_of_pods(self) -> dict[str, str]:
        found = self.api.call("GET", self.path("pods"))["items"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}

    def all_bound(self, count: int) -> dict[str, str]:
        return until(self.nodes_of_pods, lambda nodes: len(nodes) == count and all(nodes.values()))

    def claims(self) -> dict[str, tuple[str, str]]:
        """Phase and volume of each."""
        found = self.api.call("GET", self.path("persistentvolumeclaims"))["items"]
        return {
            one["metadata"]["name"]: (one["status"]["phase"], one["spec"].get("volumeName", ""))
            for one in found
        }

    def condition_text(self, pod: str) -> str:
        """The message of PodScheduled, from behind the number of nodes."""
        found = self.api.call("GET", self.path("pods", pod))
        for row in found["status"].get("conditions", []):
            if row["type"] == "PodScheduled":
                return str(row.get("message", "")).partition(" nodes are available: ")[2]
        return ""


def claim_spec(class_name: str, mode: str = "ReadWriteOnce", size: str = "1Gi") -> Json:
    return {
        "storageClassName": class_name,
        "accessModes": [mode],
        "resources": {"requests": {"storage": size}},
    }


def a_volume(name: str, class_name: str, *, on: str, size: str = "10Gi", **spec: Any) -> Json:
    rule = {"key": vocabulary.HOSTNAME_LABEL, "operator": "In", "values": [on]}
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class_name,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
            **spec,
        },
    }


class Provisioner:
    """Makes volumes for claims that name a node; the first `failures` of them it gives back."""

    def __init__(self, store: Store, *, failures: int = 0) -> None:
        self._store, self._failures = store, failures
        self.seen: list[tuple[str, str, str]] = []
        """(claim, node, the node that its pod had at that moment)"""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Provisioner":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        for claim, _, _ in self.seen:
            with contextlib.suppress(CallFailed):
                self._store.api.call("DELETE", f"{VOLUMES}/{self._store.name(claim)}")

    def _run(self) -> None:
        api = self._store.api
        while not self._stop.wait(0.05):
            for claim in api.call("GET", self._store.path("persistentvolumeclaims"))["items"]:
                node = claim["metadata"].get("annotations", {}).get(SELECTED)
                if node and not claim["spec"].get("volumeName"):
                    self._serve(api, claim, node)

    def _serve(self, api: Api, claim: Json, node: str) -> None:
        name = claim["metadata"]["name"]
        pods = set(self._store.nodes_of_pods().values())
        if self._failures:
            self._failures -= 1
            body = {"metadata": {"annotations": {SELECTED: None}}}
            path = self._store.path("persistentvolumeclaims", name)
            api.call("PATCH", path, body, content_type=MERGE)
            return
        if name in {seen for seen, _, _ in self.seen}:
            return
        self.seen.append((name, node, ",".join(sorted(pods))))
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": self._store.namespace,
            "name": name,
            "uid": claim["metadata"]["uid"],
        }
        class_name = claim["spec"]["storageClassName"]
        made = a_volume(self._store.name(name), class_name, on=node, claimRef=reference)
        api.call("POST", VOLUMES, made)


@pytest.fixture
def store(control_plane: ControlPlane, namespace: str, stack: Stack) -> Iterator[Store]:
    store = Store(control_plane, namespace)
    yield store
    store.close()


def test_a_pod_follows_its_bound_volume(store: Store) -> None:
    store.host("a")
    there = store.host("b")
    now = store.storage_class("now", "kubernetes.io/no-provisioner", late=False)
    volume = store.volume("pv", now, on=there)
    store.claim("data", now)
    until(store.claims, lambda claims: claims["data"][0] == "Bound")
    store.pod("p", "data")
    assert (store.all_bound(1), store.claims()) == ({"p": there}, {"data": ("Bound", volume)})


def test_a_claim_that_is_due_to_be_bound_holds_the_pod_back(store: Store) -> None:
    there = store.host("a")
    now = store.storage_class("now", "kubernetes.io/no-provisioner", late=False)
    store.claim("data", now)
    store.pod("p", "data")
    want = "pod has unbound immediate PersistentVolumeClaims."
    assert until(lambda: store.condition_text("p"), bool) == want
    store.volume("pv", now, on=there)
    assert store.all_bound(1) == {"p": there}


def test_a_claim_that_does_not_exist_yet(store: Store) -> None:
    there = store.host("a")
    late = store.storage_class("late", "kubernetes.io/no-provisioner")
    store.volume("pv", late, on=there)
    store.pod("p", "data")
    assert (
        until(lambda: store.condition_text("p"), bool) == 'persistentvolumeclaim "data" not found.'
    )
    store.claim("data", late)
    assert store.all_bound(1) == {"p": there}


def test_a_late_claim_gets_the_smallest_local_disk_that_holds_it(store: Store) -> None:
    store.host("a")
    there = store.host("b")
    late = store.storage_class("late", "kubernetes.io/no-provisioner")
    store.volume("large", late, on=there, size="20Gi")
    small = store.volume("small", late, on=there, size="5Gi")
    store.volume("tiny", late, on=there, size="1Gi")
    store.claim("data", late, size="2Gi")
    store.pod("p", "data")
    assert (store.all_bound(1), store.claims()) == ({"p": there}, {"data": ("Bound", small)})


def test_each_member_of_a_gang_gets_a_disk_of_its_own(store: Store) -> None:
    """All members are bound, or none of them while a disk is missing."""
    hosts = [store.host(name) for name in ("a", "b", "c")]
    late = store.storage_class("late", "kubernetes.io/no-provisioner")
    for number, host in enumerate(hosts[:2]):
        store.volume(f"pv-{number}", late, on=host)
    for number in range(3):
        store.claim(f"c{number}", late)
        store.pod(f"m{number}", f"c{number}", gang=3)
    text = until(lambda: store.condition_text("m0"), bool)
    assert "didn't find available persistent volumes to bind" in text
    assert set(store.nodes_of_pods().values()) == {""}
    store.volume("pv-2", late, on=hosts[2])
    assert sorted(store.all_bound(3).values()) == sorted(hosts)
    assert {phase for phase, _ in store.claims().values()} == {"Bound"}


def test_a_volume_is_made_before_the_pod_is_bound(store: Store) -> None:
    there = store.host("a")
    made = store.storage_class("made", "made.example.com")
    store.claim("data", made)
    with Provisioner(store) as provisioner:
        store.pod("p", "data")
        assert store.all_bound(1) == {"p": there}
        assert provisioner.seen == [("data", there, "")]
        assert store.claims() == {"data": ("Bound", store.name("data"))}


def test_a_volume_that_could_not_be_made_is_tried_again(store: Store) -> None:
    there = store.host("a")
    made = store.storage_class("made", "made.example.com")
    store.claim("data", made)
    with Provisioner(store, failures=1) as provisioner:
        store.pod("p", "data")
        assert store.all_bound(1) == {"p": there}
        assert provisioner.seen == [("data", there, "")]


def test_an_ephemeral_volume_is_made_for_its_pod(store: Store) -> None:
    there = store.host("a")
    made = store.storage_class("made", "made.example.com")
    template = {"volumeClaimTemplate": {"spec": claim_spec(made)}}
    with Provisioner(store) as provisioner:
        store.pod("p", volumes=[{"name": "scratch", "ephemeral": template}])
        assert store.all_bound(1) == {"p": there}
        assert provisioner.seen == [("p-scratch", there, "")]


def test_a_claim_for_one_pod_serves_one_after_another(store: Store) -> None:
    there = store.host("a")
    late = store.storage_class("late", "kubernetes.io/no-provisioner")
    store.volume("pv", late, on=there, accessModes=["ReadWriteOncePod"])
    store.claim("data", late, mode="ReadWriteOncePod")
    store.pod("first", "data")
    assert store.all_bound(1) == {"first": there}
    store.pod("second", "data")
    text = until(lambda: store.condition_text("second"), bool)
    assert (
        "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ) in text
    store.api.call("DELETE", store.path("pods", "first"))
    until(store.nodes_of_pods, lambda nodes: nodes == {"second": there})
    assert store.nodes_of_pods() == {"second": there}
