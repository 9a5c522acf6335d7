"""
A cluster for one attack: its own control plane, the webhook, two schedulers, and two tenants.

    hostile     a user with the ClusterRole `edit` in one namespace; ResourceQuotas bound its pods
                and forbid system priorities and affinity to other namespaces, as those of any
                shared cluster do; no quota bounds what one pod requests
    neighbour   the same role in its own namespace, on nodes that are reserved for its tier

Every kind of workload that admission knows is installed, and `edit` includes it, as operators'
charts do. Without `admission` the webhook runs but is not registered: the schedulers meet objects
that were stored before it was installed, or while it was not.
"""

import os
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from kubenexus import pki, rbac
from kubenexus.dev.api import Api
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane import key_files
from kubenexus.dev.plane.control_plane import ControlPlane, await_ready, healthy
from kubenexus.dev.process import ports, self_exec
from kubenexus.dev.process.child import Child, stop_all
from kubenexus.dev.stack import WEBHOOK, Stack
from policies import vocabulary
from policies.pods import workloads
from tests.cluster.waiting import eventually
from tests.hostile import neighbour, objects, pods, requests
from tests.hostile.census import Watched

Json = dict[str, Any]

CRDS: Final = Path(__file__).parents[1] / "cluster" / "crds"
APISERVER_FLAGS: Final = (
    "--feature-gates=GenericWorkload=true",
    "--runtime-config=scheduling.k8s.io/v1beta1=true",
)
POOL: Final = {"pool": "neighbour", vocabulary.RESERVED_TIER_LABEL: "gold"}
MOST_PODS: Final = 300
LEASE: Final = (
    f"/apis/coordination.k8s.io/v1/namespaces/{vocabulary.SYSTEM_NAMESPACE}"
    f"/leases/{vocabulary.SCHEDULER_NAME}"
)


class Site:
    """Up after `start`; everything ends with `stop`."""

    def __init__(self, binaries: Binaries, folder: Path, *, admission: bool = True) -> None:
        self._admission = admission
        self.plane = ControlPlane(
            binaries=binaries, folder=folder, for_tests=True, apiserver_flags=APISERVER_FLAGS
        )
        self._stack = Stack(self.plane, scheduler=False)
        self._schedulers: list[tuple[Child, str]] = []  # process, address
        self._clients: list[Api] = []
        self._exit = ExitStack()

    def __enter__(self) -> "Site":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        stop_all([child for child, _ in self._schedulers], grace=5.0)
        self._exit.close()

    @property
    def admin(self) -> Api:
        return self.plane.api()

    def user(self, name: str) -> Api:
        """A client with a certificate of its own."""
        pair = pki.client(
            self.plane.ca, user=name, now=datetime.now(UTC), valid_for=timedelta(days=1)
        )
        at = self.plane.layout
        key_files.write_private(at.certificate(name), pair.certificate)
        key_files.write_private(at.key(name), pair.key)
        client = Api(
            self.plane.server,
            ca=at.certificate("ca"),
            certificate=at.certificate(name),
            key=at.key(name),
        )
        self._clients.append(client)
        return client

    @property
    def stamps(self) -> Json:
        """What admission writes on the neighbour's pods, where none does."""
        if self._admission:
            return {}
        return {vocabulary.TENANT_LABEL: neighbour.NAMESPACE, vocabulary.TIER_LABEL: "gold"}

    def watched(self) -> list[Watched]:
        """What must not end: the webhook, its workers, and both schedulers."""
        webhook = Watched(
            self._stack.child(WEBHOOK), f"{self._stack.webhook_url}/healthz", workers=True
        )
        return [webhook, *(Watched(child, f"{url}/healthz") for child, url in self._schedulers)]

    def lease(self) -> tuple[str, int]:
        """Who leads, and how often that changed."""
        spec = self.admin.call("GET", LEASE)["spec"]
        return str(spec.get("holderIdentity")), int(spec.get("leaseTransitions") or 0)

    def logs(self) -> dict[str, Path]:
        children = [self._stack.child(WEBHOOK), *(child for child, _ in self._schedulers)]
        return {child.name: child.log for child in children}

    def figures(self) -> dict[str, dict[str, float]]:
        """Scheduler -> its metrics about errors of its own."""
        return {child.name: _errors(f"{url}/metrics") for child, url in self._schedulers}

    # --- steps of the start ---

    def _start(self) -> None:
        self._exit.enter_context(self.plane)
        self._kinds()
        self._exit.enter_context(self._stack)
        self._nodes()
        self._priority_class()
        for name, tier in ((requests.NAMESPACE, "bronze"), (neighbour.NAMESPACE, "gold")):
            self._tenant(name, tier)
        self._bounds()
        if not self._admission:
            self._unregister()
        for number in range(2):
            self._scheduler(number)
        eventually(self._leads, "a scheduler leads")

    def _leads(self) -> bool:
        try:
            return bool(self.lease()[0])
        except CallFailed:
            return False

    def _unregister(self) -> None:
        """From here on the API server stores objects that our admission has not seen."""
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{vocabulary.WEBHOOK_NAME}"
            self.admin.call("DELETE", path)

    def _kinds(self) -> None:
        found = [*CRDS.glob("*.yaml"), CRDS / "others" / "podgroups.scheduling.x-k8s.io.yaml"]
        definitions = [yaml.safe_load(path.read_text()) for path in sorted(found)]
        self.admin.each(self.admin.apply, definitions)
        rules = [
            rbac.rule(group, " ".join((*names, *(f"{name}/scale" for name in names))), rbac.WRITE)
            for group, names in workloads.resources_by_group().items()
        ]
        rules.append(rbac.rule("scheduling.x-k8s.io", "podgroups", rbac.WRITE))
        rules.append(rbac.rule("scheduling.k8s.io", "podgroups", rbac.WRITE))
        rules.append(
            rbac.rule("resource.k8s.io", "resourceclaims resourceclaimtemplates", rbac.WRITE)
        )
        rules.append(rbac.rule("", "pods/ephemeralcontainers pods/resize", ("patch", "update")))
        label = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
        self.admin.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "test-operators-edit", "labels": label},
                "rules": rules,
            }
        )
        for item in definitions:
            group, version = item["spec"]["group"], item["spec"]["versions"][0]["name"]
            path = f"/apis/{group}/{version}/{item['spec']['names']['plural']}"
            eventually(partial(self.admin.ready, path), path)

    def _nodes(self) -> None:
        """Two that every tenant may use, with devices, and two for the neighbour."""

        def node(name: str, cpu: str, labels: Json) -> Json:
            amounts = {"cpu": cpu, "memory": "256Gi", "pods": "1000", "nvidia.com/gpu": "8"}
            more = {vocabulary.HOSTNAME_LABEL: name, vocabulary.ZONE_LABEL: f"zone-{name}"}
            return {
                "metadata": {"name": name, "labels": {**labels, **more}},
                "spec": {},
                "status": {"capacity": amounts, "allocatable": amounts},
            }

        items = [node(name, "16", {"pool": "open"}) for name in pods.NODES]
        items += [node(f"own-{number}", "64", POOL) for number in range(2)]
        self.plane.add_nodes(items)
        root = "/apis/resource.k8s.io/v1"
        kinds = {"selectors": [{"cel": {"expression": f'device.driver == "{objects.DRIVER}"'}}]}
        about = {"name": objects.DEVICE_CLASS}
        self.admin.call("POST", f"{root}/deviceclasses", {"metadata": about, "spec": kinds})
        name = pods.NODES[0]
        devices = [
            {"name": f"gpu-{number}", "attributes": {"x": {"int": number}}} for number in range(8)
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        slices = {"driver": objects.DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        self.admin.call(
            "POST", f"{root}/resourceslices", {"metadata": {"name": name}, "spec": slices}
        )

    def _priority_class(self) -> None:
        low = {"metadata": {"name": "low"}, "value": -10}
        self.admin.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", low)

    def _tenant(self, name: str, tier: str) -> None:
        labels = {vocabulary.TENANT_LABEL: name, vocabulary.TIER_LABEL: tier}
        about = {"name": name, "labels": labels}
        self.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        self.admin.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "edit", "namespace": name},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "edit",
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
                ],
            }
        )
        eventually(partial(self.plane.has_default_account, name), f"account of {name}")

    def _bounds(self) -> None:
        """What keeps one tenant from using up the cluster by right; see the docstring."""

        def quota(name: str, hard: Json, *scopes: Json) -> Json:
            spec: Json = {"hard": hard}
            if scopes:
                spec["scopeSelector"] = {"matchExpressions": list(scopes)}
            return {"metadata": {"name": name}, "spec": spec}

        critical = ["system-node-critical", "system-cluster-critical"]
        for item in (
            quota("pods", {"pods": str(MOST_PODS)}),
            quota(
                "priorities",
                {"pods": "0"},
                {"scopeName": "PriorityClass", "operator": "In", "values": critical},
            ),
            quota(
                "affinity",
                {"pods": "0"},
                {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"},
            ),
        ):
            path = f"/api/v1/namespaces/{requests.NAMESPACE}/resourcequotas"
            self.admin.call("POST", path, item)
        self._policy(neighbour.NAMESPACE, "gold", guaranteed={"cpu": "64", "memory": "128Gi"})

    def _policy(self, tenant: str, tier: str, **quota: Any) -> None:
        path = f"/apis/{vocabulary.POLICY_API_VERSION}/tenantpolicies"
        spec = {
            "tenant": {"name": tenant, "tier": tier},
            "namespaceSelector": {"matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: tenant}},
            "quota": quota,
        }
        made: Json = {"apiVersion": vocabulary.POLICY_API_VERSION, "kind": "TenantPolicy"}
        made |= {"metadata": {"name": tenant}, "spec": spec}
        self.admin.call("POST", path, made)

    def _scheduler(self, number: int) -> None:
        (port,) = ports.free(1)
        url = f"http://{ports.HOST}:{port}"
        name = f"scheduler-{number}"
        child = Child(
            name,
            [
                *self_exec.COMMAND,
                "scheduler",
                f"--kubeconfig={self.plane.kubeconfig(vocabulary.SCHEDULER_NAME)}",
                f"--host={ports.HOST}",
                f"--port={port}",
                "--leader-elect",
            ],
            log=self.plane.layout.log(name),
            env=self_exec.environment(os.environ),
        )
        child.start()
        self._schedulers.append((child, url))
        await_ready([child], lambda: healthy(f"{url}/readyz"), deadline=60.0)


def _errors(url: str) -> dict[str, float]:
    names = ("kubenexus_scheduler_quarantined_units", "kubenexus_scheduler_errors_total")
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    rows = (line.rpartition(" ") for line in lines if line.startswith(names))
    return {name: float(value) for name, _, value in rows}
