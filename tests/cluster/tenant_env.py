"""
Tenants with a namespace each, nodes that all of them may use, and the policies between them.

Each test has its own environment: its tenants are named with a number, so that what one test leaves in
the scheduler's memory says nothing about the next. Policies are in force when a call returns.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.cluster.node_pool import Json, NodePool, until
from tests.cluster.waiting import eventually

TENANT_POLICIES = f"/apis/{vocabulary.POLICY_API_VERSION}/tenantpolicies"
PLATFORM_POLICIES = f"/apis/{vocabulary.POLICY_API_VERSION}/platformpolicies"

_numbers = itertools.count(1)


class TenantEnv:
    """Tenants by their letters; `a` and `b` have names of their own, being the usual ones."""

    def __init__(self, plane: ControlPlane, stack: Stack, *, letters: Sequence[str] = "ab") -> None:
        number = next(_numbers)
        self.plane, self.stack = plane, stack
        self.names = {letter: f"{letter}{number}" for letter in letters}
        self.a, self.b = self.names["a"], self.names["b"]
        self.policies: list[str] = []
        self.node_pools = {name: NodePool(plane, name) for name in self.names.values()}
        for name in self.node_pools:
            labels = {vocabulary.TENANT_LABEL: name, vocabulary.TIER_LABEL: "silver"}
            about = {"name": name, "labels": labels}
            self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        for name in self.node_pools:
            eventually(partial(plane.has_default_account, name), f"account of {name}")

    @property
    def api(self) -> Any:
        return self.plane.api()

    def node(self, cpu: str) -> str:
        return self.node_pools[self.a].add_node(f"n{len(self.plane_nodes())}", cpu=cpu)

    def plane_nodes(self) -> list[str]:
        rows = self.api.call("GET", "/api/v1/nodes")["items"]
        return [row["metadata"]["name"] for row in rows]

    # --- policies ---

    def policy(self, tenant: str, **quota: Any) -> None:
        spec = {
            "tenant": {"name": tenant, "tier": "silver"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": tenant}},
            "quota": quota,
        }
        self._put(TENANT_POLICIES, "TenantPolicy", tenant, spec)

    def platform_policy(self, **spec: Any) -> None:
        self._put(PLATFORM_POLICIES, "PlatformPolicy", f"{self.a}-platform", spec)

    def _put(self, collection: str, kind: str, name: str, spec: Json) -> None:
        path = f"{collection}/{name}"
        made: Json = {"apiVersion": vocabulary.POLICY_API_VERSION, "kind": kind}
        made |= {"metadata": {"name": name}, "spec": spec}
        eventually(partial(self._made, collection, made), f"policy {name} accepted")
        self.policies.append(path)
        eventually(partial(self._ready, path), f"policy {name} in force")

    def _made(self, collection: str, obj: Json) -> bool:
        """False: a policy of another test, deleted a moment ago, is in the way."""
        try:
            self.api.call("POST", collection, obj)
        except CallFailed as exc:
            if "already" in str(exc):
                return False
            raise
        return True

    def _ready(self, path: str) -> bool:
        rows = self.api.call("GET", path).get("status", {}).get("conditions", ())
        return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)

    # --- pods ---

    def pod(self, tenant: str, name: str, *, labels: Json | None = None, **more: Any) -> Json:
        pod = self.node_pools[tenant].pod(name, **more)
        pod["metadata"]["labels"] |= labels or {}
        pod["spec"]["nodeSelector"] = {"node-pool": self.a}
        return pod

    def create(self, tenant: str, *pods: Json) -> None:
        self.node_pools[tenant].create(*pods)

    def get(self, tenant: str, name: str) -> Json:
        found: Json = self.api.call("GET", f"/api/v1/namespaces/{tenant}/pods/{name}")
        return found

    def delete(self, tenant: str, *names: str) -> None:
        for name in names:
            self.api.call("DELETE", f"/api/v1/namespaces/{tenant}/pods/{name}")

    def release(self, tenant: str, name: str) -> None:
        """Take away what keeps a pod from ending."""
        patch = {"metadata": {"finalizers": None}}
        path = f"/api/v1/namespaces/{tenant}/pods/{name}"
        self.api.call("PATCH", path, patch, content_type="application/merge-patch+json")

    def placed(self, tenant: str) -> dict[str, str]:
        return {k: v for k, v in self.node_pools[tenant].nodes_of_pods().items() if v}

    def terminating(self, tenant: str) -> set[str]:
        """Pods that have a deletion timestamp."""
        found = (pod["metadata"] for pod in self.node_pools[tenant].pods())
        return {about["name"] for about in found if "deletionTimestamp" in about}

    def bound(self, tenant: str, *names: str) -> dict[str, str]:
        """Once these, and no others of the tenant, have a node."""
        found = until(
            lambda: self.placed(tenant), lambda nodes: set(nodes) == set(names), seconds=60.0
        )
        assert set(found) == set(names)
        return found

    def events_of(self, tenant: str, reason: str) -> list[tuple[str, str, str]]:
        return until(lambda: self.node_pools[tenant].events(reason), bool)

    def close(self) -> None:
        for path in self.policies:
            self.api.call("DELETE", path)
        for name, node_pool in self.node_pools.items():
            node_pool.close()
            self.api.call("DELETE", f"/api/v1/namespaces/{name}")
