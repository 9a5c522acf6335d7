"""
The real side of the parity test: an API server and kube-scheduler, and nothing else that acts.

    load(cluster) ──▶ barrier ──▶ schedule(probe), schedule(probe), … ──▶ load(the next cluster)

No controller and no fake kubelet runs here: what was written stays as it is, so that two
schedulers decide, one after the other, about the same cluster. A probe is gone before the next one
comes. kube-scheduler reads several watches that keep no order among each other: the barrier waits
for its nodes, and `parity_compare` repeats a probe before it takes an answer for a difference.
"""

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kubenexus import rbac
from kubenexus.dev.api import Api
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from tests.cluster import parity_requirements
from tests.cluster.parity_cluster import (
    FAILED,
    NAMESPACES,
    RESIZES,
    SUCCEEDED,
    TERMINATES,
    ExistingPod,
    Probe,
    RandomCluster,
)
from tests.cluster.parity_storage import Storage

Object = dict[str, Any]

# These write what only a controller removes, and none runs here.
ADMISSION_OFF: Final = "ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection"
MANAGERS: Final = ("kube-controller-manager", "kwok")
WRITERS: Final = 6
POLL: Final = 0.002
PATIENCE: Final = 30.0
MERGE: Final = "application/merge-patch+json"
AT_ONCE: Final = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
LAST: Final = "parity-last"
UNMATCHED: Final = "node(s) didn't match Pod's node affinity/selector"

# What follows the fit error: preemption's own account, and the sighs of plugins with nothing to do.
BEHIND: Final = re.compile(
    r"\. (?:(?:not found|no new claims to deallocate)(?:, |$))?(?:preemption: .*)?$"
)

_CORE: Final = "/api/v1"
_STORAGE: Final = "/apis/storage.k8s.io/v1"
ROOTS: Final = {
    "Node": f"{_CORE}/nodes",
    "PersistentVolume": f"{_CORE}/persistentvolumes",
    "StorageClass": f"{_STORAGE}/storageclasses",
    "CSINode": f"{_STORAGE}/csinodes",
    "CSIDriver": f"{_STORAGE}/csidrivers",
    "VolumeAttachment": f"{_STORAGE}/volumeattachments",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
FIXED: Final = ("RuntimeClass", "PriorityClass")
SPACED: Final = {
    "Pod": (_CORE, "pods"),
    "PersistentVolumeClaim": (_CORE, "persistentvolumeclaims"),
    "CSIStorageCapacity": (_STORAGE, "csistoragecapacities"),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What kube-scheduler did: it chose a node, or said why not."""

    node: str = ""
    text: str = ""
    """The fit error, without what preemption said."""
    error: str = ""
    """It stumbled over the pod: neither yes nor no."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, with the pod and the objects made for it alone as the API server holds them."""

    answer: Answer
    pod: Object
    objects: tuple[Object, ...] = ()


def path(item: Object) -> str:
    return f"{folder(item)}/{item['metadata']['name']}"


def folder(item: Object) -> str:
    if item["kind"] in ROOTS:
        return ROOTS[item["kind"]]
    root, plural = SPACED[item["kind"]]
    return f"{root}/namespaces/{item['metadata']['namespace']}/{plural}"


class KubeScheduler:
    def __init__(self, plane: ControlPlane, pool: ThreadPoolExecutor) -> None:
        self._plane, self._pool = plane, pool
        self._names = (f"probe-{n}" for n in itertools.count(1))

    @property
    def _api(self) -> Api:
        return self._plane.api()

    # --- a cluster ---

    def load(self, cluster: RandomCluster) -> list[Object]:
        """Replace all objects by this cluster; what the API server made of it."""
        self._clear()
        self._each(self._api.apply, cluster.namespaces)
        self._store(cluster.storage)
        nodes = [dict(node) for node in cluster.nodes]
        last = nodes[-1]["metadata"]
        nodes[-1]["metadata"] = {**last, "labels": {**last["labels"], LAST: cluster.seed}}
        self._each(self._create, nodes)
        self._each(self._stand, cluster.standing)
        self._barrier(cluster.seed, len(nodes))
        return list(self._everything())

    def _clear(self) -> None:
        for claim in self._list("PersistentVolumeClaim"):
            if claim["metadata"].get("finalizers"):
                free = {"metadata": {"finalizers": None}}
                self._api.call("PATCH", path(claim), free, content_type=MERGE)
        folders = [ROOTS[kind] for kind in ROOTS if kind not in FIXED]
        folders += [
            f"{root}/namespaces/{namespace}/{plural}"
            for root, plural in SPACED.values()
            for namespace in NAMESPACES
        ]
        self._each(lambda where: self._api.call("DELETE", where, AT_ONCE), folders)

    def _store(self, storage: Storage) -> None:
        self._each(self._create, [*storage.classes, *storage.csinodes, *storage.drivers])
        self._each(self._create, [*storage.capacities, *storage.attachments])
        claims = self._each(self._create, storage.claims)
        uids = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in claims}
        self._each(lambda volume: self._volume(volume, uids), storage.volumes)
        self._each(self._settle_claim, storage.claims)

    def _volume(self, volume: Object, claims: dict[tuple[str, str], Object]) -> None:
        spec, phase = dict(volume["spec"]), "Available"
        if ref := spec.get("claimRef"):
            claim = claims.get((ref["namespace"], ref["name"]))
            # A cluster that is being made smaller may have lost the claim.
            spec["claimRef"] = {**ref, "uid": claim["metadata"]["uid"] if claim else "lost"}
            if claim is None or claim["spec"].get("volumeName"):
                phase = "Bound"
        made = self._create({**volume, "spec": spec})
        self._status(made, {"phase": phase})

    def _settle_claim(self, claim: Object) -> None:
        if claim["spec"].get("volumeName"):
            self._status(claim, {"phase": "Bound", **claim.get("status", {})})
        if claim["metadata"].get("finalizers"):
            self._api.call("DELETE", path(claim))

    def _stand(self, standing: ExistingPod) -> None:
        pod = self._create(standing.pod)
        if standing.fate == TERMINATES:
            # Without a kubelet it stays as it is.
            self._api.call("DELETE", path(pod))
        elif standing.fate in (SUCCEEDED, FAILED):
            self._status(pod, {"phase": standing.fate.capitalize()})
        elif standing.fate == RESIZES:
            self._status(pod, standing.status)

    def _barrier(self, seed: str, nodes: int) -> None:
        """Until kube-scheduler has the cluster's last node, and so all before it, and no other."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": NAMESPACES[0]},
            "spec": {
                "nodeSelector": {LAST: seed},
                "tolerations": [{"operator": "Exists"}],
                "priorityClassName": parity_requirements.POLITE,
                "containers": [{"name": "c", "image": "i"}],
            },
        }
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.schedule(Probe(pod)).answer
            others = f"{nodes - 1} {UNMATCHED}"
            here = f"0/{nodes} nodes" in answer.text and others in answer.text
            if answer.node or here:
                return
            assert time.monotonic() < end, f"kube-scheduler does not see the nodes: {answer}"

    def _everything(self) -> Iterator[Object]:
        for kind in (*ROOTS, *SPACED):
            if kind not in FIXED:
                yield from self._list(kind)
        for namespace in NAMESPACES:
            yield self._api.call("GET", f"{_CORE}/namespaces/{namespace}") | {"kind": "Namespace"}

    def cordon(self, name: str, on: bool) -> Object:
        change = {"spec": {"unschedulable": on}}
        node = self._api.call("PATCH", f"{ROOTS['Node']}/{name}", change, content_type=MERGE)
        return {**node, "kind": "Node"}

    # --- a probe ---

    def schedule(self, probe: Probe) -> Outcome:
        """Give the pod to kube-scheduler, wait for what it says, and take the pod away."""
        self._store(probe.storage)
        name = next(self._names)
        pod = {**probe.pod, "metadata": {**probe.pod["metadata"], "name": name}}
        own = [*probe.storage.volumes, *probe.storage.claims]
        stored = tuple({**self._api.call("GET", path(item)), "kind": item["kind"]} for item in own)
        made: Object | None = None
        try:
            made = self._create(pod)
            return Outcome(self._wait(path(pod), late=bool(own)), made, stored)
        finally:
            if made is not None:
                self._api.call("DELETE", path(pod), AT_ONCE)
            self._each(self._delete, own)

    def _wait(self, where: str, *, late: bool) -> Answer:
        end = time.monotonic() + PATIENCE
        while (answer := _answer(self._api.call("GET", where), late=late)) is None:
            assert time.monotonic() < end, f"kube-scheduler says nothing about {where}"
            time.sleep(POLL)
        return answer

    # --- calls ---

    def _create(self, item: Object) -> Object:
        return {**self._api.call("POST", folder(item), item), "kind": item["kind"]}

    def _delete(self, item: Object) -> None:
        with contextlib.suppress(CallFailed):
            self._api.call("DELETE", path(item), AT_ONCE)

    def _status(self, item: Object, status: Object) -> None:
        where = f"{path(item)}/status"
        self._api.call("PATCH", where, {"status": status}, content_type=MERGE)

    def _list(self, kind: str) -> list[Object]:
        root, plural = SPACED.get(kind, ("", ""))
        where = ROOTS.get(kind) or f"{root}/{plural}"
        found = self._api.call("GET", where).get("items") or []
        return [{**item, "kind": kind} for item in found]

    def _each(self, action: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return list(self._pool.map(action, items))


def _answer(pod: Object, *, late: bool) -> Answer | None:
    if node := pod["spec"].get("nodeName"):
        return Answer(node=node)
    # No provisioner makes the volume that a late claim waits for: only the node is nominated.
    if late and (node := pod["status"].get("nominatedNodeName")):
        return Answer(node=node)
    for row in pod["status"].get("conditions", ()):
        if row["type"] == "PodScheduled" and row["status"] == "False":
            said = row.get("message", "")
            if row.get("reason") != "Unschedulable":
                return Answer(error=f"{row.get('reason')}: {said}")
            return Answer(text=BEHIND.sub(".", said))
    return None


@contextlib.contextmanager
def kube_scheduler(binaries: Binaries, where: Path) -> Iterator[KubeScheduler]:
    flags = [f"--disable-admission-plugins={ADMISSION_OFF}"]
    with ControlPlane(
        binaries=binaries, folder=where, for_tests=True, apiserver_flags=flags
    ) as plane:
        for child in plane.children:
            if child.name in MANAGERS:
                child.stop()
        api = plane.api()
        for name in NAMESPACES:
            api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for item in parity_requirements.fixtures():
            api.call("POST", folder(item), item)
        config = where / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(_config(plane)))
        plane.start_kube_scheduler(config)
        with ThreadPoolExecutor(WRITERS) as pool:
            yield KubeScheduler(plane, pool)


def _config(plane: ControlPlane) -> Object:
    """The default profile; a client without a rate limit."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(plane.kubeconfig(rbac.KUBE_SCHEDULER)),
            "qps": 5000,
            "burst": 5000,
        },
    }
