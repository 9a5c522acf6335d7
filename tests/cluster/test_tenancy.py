"""
Who gets the room when there is not enough, on a real API server: quotas, turns and preemption.

One test is one story in namespaces of two tenants, `a…` and `b…`, on nodes of its own.
"""

import asyncio
import itertools
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from cluster import connection
from cluster.client import Client
from kubenexus.dev.plane import ControlPlane
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary
from scheduler.tenancy.accounts import Accounts
from scheduler.tenancy.remembering import Remembering, recalled
from scheduler.tenancy.shares import Memory
from tests.cluster.conftest import Kubectl
from tests.cluster.waiting import eventually
from tests.cluster.yard import Yard, until

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
_numbers = itertools.count(1)
POLICIES = f"/apis/{vocabulary.POLICY_API_VERSION}/tenantpolicies"
NOW = 1767225600.0
MARK = {vocabulary.PREEMPTIBLE_LABEL: "true"}


class Court:
    """Two tenants with a namespace each, and nodes that both may use."""

    def __init__(self, plane: ControlPlane, stack: Stack) -> None:
        number = next(_numbers)
        self.plane, self.stack = plane, stack
        self.a, self.b = f"a{number}", f"b{number}"
        self.policies: list[str] = []
        self._uids: dict[str, str] = {}
        self.yards = {name: Yard(plane, name) for name in (self.a, self.b)}
        for name in self.yards:
            labels = {vocabulary.TENANT_LABEL: name, vocabulary.TIER_LABEL: "silver"}
            about = {"name": name, "labels": labels}
            self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        for name in self.yards:
            eventually(partial(plane.has_default_account, name), f"account of {name}")

    @property
    def api(self) -> Any:
        return self.plane.api()

    def node(self, cpu: str) -> str:
        return self.yards[self.a].add_node(f"n{len(self.plane_nodes())}", cpu=cpu)

    def plane_nodes(self) -> list[str]:
        rows = self.api.call("GET", "/api/v1/nodes")["items"]
        return [row["metadata"]["name"] for row in rows]

    def policy(self, tenant: str, **quota: Any) -> None:
        """In force for the scheduler once it says so: it is waited for."""
        name = tenant
        spec = {
            "tenant": {"name": tenant, "tier": "silver"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": tenant}},
            "quota": quota,
        }
        made = {
            "apiVersion": vocabulary.POLICY_API_VERSION,
            "kind": "TenantPolicy",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.api.call("POST", POLICIES, made)
        self.policies.append(name)
        eventually(lambda: self.ready(name), f"policy {name} in force")

    def ready(self, name: str) -> bool:
        path = f"{POLICIES}/{name}"
        found = self.api.call("GET", path)
        rows = found.get("status", {}).get("conditions", ())
        return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)

    def pod(self, tenant: str, name: str, *, labels: Json | None = None, **more: Any) -> Json:
        pod = self.yards[tenant].pod(name, **more)
        pod["metadata"]["labels"] |= labels or {}
        pod["spec"]["nodeSelector"] = {"yard": self.a}
        return pod

    def create(self, tenant: str, *pods: Json) -> None:
        self.yards[tenant].create(*pods)

    def bound(self, tenant: str, *names: str) -> dict[str, str]:
        """Once these, and no others of the tenant, have a node."""
        found = until(
            lambda: {k: v for k, v in self.yards[tenant].nodes_of_pods().items() if v},
            lambda nodes: set(nodes) == set(names),
            60.0,
        )
        assert set(found) == set(names)
        return found

    def told(self, tenant: str, reason: str) -> list[tuple[str, str, str]]:
        return until(lambda: self.yards[tenant].events(reason), bool)

    def close(self) -> None:
        for name in self.policies:
            path = f"{POLICIES}/{name}"
            self.api.call("DELETE", path)
        for name, yard in self.yards.items():
            yard.close()
            self.api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def court(control_plane: ControlPlane, stack: Stack) -> Iterator[Court]:
    court = Court(control_plane, stack)
    yield court
    court.close()


def get(court: Court, tenant: str, name: str) -> Json:
    path = f"/api/v1/namespaces/{tenant}/pods/{name}"
    found: Json = court.api.call("GET", path)
    return found


def test_a_limit_holds_for_gangs_and_over_a_crash(court: Court, stack: Stack) -> None:
    court.node("16")
    court.policy(court.a, max={"cpu": "4"})
    for gang in ("x", "y", "z"):
        court.create(court.a, *(court.pod(court.a, f"{gang}{i}", gang=(gang, 2)) for i in range(2)))
    yard = court.yards[court.a]
    until(yard.nodes_of_pods, lambda found: sum(map(bool, found.values())) == 4)
    stack.restart(SCHEDULER, crash=True)
    waiting = [name for name, node in yard.nodes_of_pods().items() if not node]
    condition = until(lambda: yard.condition(waiting[0]), lambda found: bool(found[1]))
    text = f"tenant {court.a} asks for 2 of cpu; 4 of at most 4 in its quota are in use"
    assert (condition, {note for _, _, note in court.told(court.a, "QuotaExceeded")}) == (
        ("False", "QuotaExceeded", text),
        {text},
    )
    bound = {name for name, node in yard.nodes_of_pods().items() if node}
    assert (len(bound), len({name[0] for name in bound})) == (4, 2)
    freed = next(iter(sorted(bound)))[0]
    for i in range(2):
        court.api.call("DELETE", f"/api/v1/namespaces/{court.a}/pods/{freed}{i}")
    court.bound(court.a, *(f"{gang}{i}" for gang in {"x", "y", "z"} - {freed} for i in range(2)))


def test_what_was_borrowed_goes_for_a_promise_and_both_sides_are_told(court: Court) -> None:
    node = court.node("2")
    court.policy(court.a, guaranteed={"cpu": "1"})
    court.policy(court.b, guaranteed={"cpu": "1"})
    court.create(court.b, *(court.pod(court.b, f"b{i}") for i in range(2)))
    court.bound(court.b, "b0", "b1")
    court.create(court.a, court.pod(court.a, "mine"))
    assert court.bound(court.a, "mine") == {"mine": node}
    [(victim, kind, note)] = court.told(court.b, "Preempted")
    assert (kind, note) == ("Warning", f"Preempted by pod {court.a}/mine of tenant {court.a}")
    assert court.told(court.a, "Preempting") == [
        (
            "mine",
            "Normal",
            f"pod {court.a}/mine of tenant {court.a} waits for 1 pod to end: {court.b}/{victim}",
        )
    ]
    left = {"b0", "b1"} - {victim}
    court.bound(court.b, *left)


def test_priority_decides_within_a_tenant_and_the_room_is_nominated(court: Court) -> None:
    """The victim is kept from ending by a finalizer, so that what goes on meanwhile is seen."""
    node = court.node("2")
    low = court.pod(court.a, "low", cpu="2")
    low["metadata"]["finalizers"] = ["example.com/stay"]
    other = court.pod(court.b, "other", cpu="2", labels=MARK)
    court.create(court.a, low)
    court.bound(court.a, "low")
    critical = court.pod(court.a, "high", cpu="2", priorityClassName="system-node-critical")
    court.create(court.a, critical)
    found = until(
        lambda: get(court, court.a, "high")["status"].get("nominatedNodeName"), bool, 60.0
    )
    conditions = {
        row["type"]: (row["status"], row.get("reason"))
        for row in get(court, court.a, "low")["status"]["conditions"]
    }
    court.create(court.b, other)
    court.stack.restart(SCHEDULER, crash=True)
    patch = {"metadata": {"finalizers": None}}
    path = f"/api/v1/namespaces/{court.a}/pods/low"
    court.api.call("PATCH", path, patch, content_type="application/merge-patch+json")
    assert court.bound(court.a, "high") == {"high": node}
    assert (found, conditions["DisruptionTarget"]) == (node, ("True", "EvictionByEvictionAPI"))
    assert court.yards[court.b].nodes_of_pods() == {"other": ""}


def test_a_gang_goes_as_a_whole_where_a_budget_lets_it(court: Court) -> None:
    """Two gangs that yield; the budget of one allows one pod, so the other goes."""
    court.node("4")
    for gang in ("kept", "free"):
        court.create(
            court.b,
            *(
                court.pod(court.b, f"{gang}{i}", gang=(gang, 2), labels={**MARK, "app": gang})
                for i in range(2)
            ),
        )
        court.bound(court.b, *(f"{gang}{i}" for i in range(2)), *court_names(court, court.b))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": court.b},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    court.yards[court.b].post("apis/policy/v1/poddisruptionbudgets", budget)
    path = f"/apis/policy/v1/namespaces/{court.b}/poddisruptionbudgets/kept"
    until(
        lambda: court.api.call("GET", path).get("status", {}).get("disruptionsAllowed"),
        lambda found: found == 1,
    )
    court.create(court.a, *(court.pod(court.a, f"new{i}", gang=("new", 2)) for i in range(2)))
    court.bound(court.a, "new0", "new1")
    court.bound(court.b, "kept0", "kept1")


def court_names(court: Court, tenant: str) -> list[str]:
    return [name for name, node in court.yards[tenant].nodes_of_pods().items() if node]


def test_nobody_goes_who_must_not(court: Court) -> None:
    """Another tenant's pods at a lower priority, and pods of a DaemonSet and of the cluster."""
    court.node("3")
    spec = court.pod(court.b, "d", cpu="1")["spec"]
    labels = {"app": "daemon", **MARK}
    court.yards[court.b].post(
        "apis/apps/v1/daemonsets",
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "daemon"},
            "spec": {
                "selector": {"matchLabels": {"app": "daemon"}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    )
    [daemon] = until(lambda: court_names(court, court.b), bool)
    critical = court.pod(
        court.b, "critical", labels=MARK, priorityClassName="system-cluster-critical"
    )
    court.create(court.b, critical, court.pod(court.b, "plain"))
    court.bound(court.b, daemon, "critical", "plain")
    court.create(court.a, court.pod(court.a, "high", priorityClassName="system-cluster-critical"))
    condition = until(
        lambda: court.yards[court.a].condition("high"), lambda found: bool(found[1]), 60.0
    )
    assert condition[1] == "Unschedulable"
    court.bound(court.b, daemon, "critical", "plain")


def test_what_was_used_is_kept_in_the_status_and_changes_no_policy(court: Court) -> None:
    """With the scheduler's own rights, and the kinds as they are installed."""
    court.policy(court.a, max={"cpu": "4"})
    plane = court.plane
    before = court.api.call("GET", f"{POLICIES}/{court.a}")

    async def write(share: float) -> dict[str, Memory]:
        accounts = Accounts()
        found = connection.load(plane.kubeconfig(vocabulary.SCHEDULER_NAME))
        async with Client(found, component="test") as client:
            remembering = Remembering(
                client, accounts, lambda: [before], may_write=lambda: True, epoch=lambda: NOW
            )
            accounts.shares.recall({court.a: Memory(share, NOW)}, NOW)
            accounts.ledger.take(court.a, (("cpu", 1500), ("memory", 2**30)))
            remembering.recall()
            await remembering.write()
        return recalled([court.api.call("GET", f"{POLICIES}/{court.a}")])

    assert asyncio.run(write(0.25)) == {court.a: Memory(0.25, NOW)}
    after = court.api.call("GET", f"{POLICIES}/{court.a}")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["status"]["conditions"] == before["status"]["conditions"]
    assert after["status"]["usage"] == {
        "used": {"cpu": "1500m", "memory": "1Gi"},
        "share": "0.250",
        "at": "2026-01-01T00:00:00Z",
    }


def test_what_never_fits_is_refused_where_it_is_applied(court: Court, kubectl: Kubectl) -> None:
    court.policy(court.a, max={"cpu": "4"})
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "wide", "namespace": court.a},
        "spec": {
            "parallelism": 8,
            "completions": 8,
            "template": {
                "metadata": {
                    "labels": {
                        vocabulary.GANG_NAME_LABEL: "wide",
                        vocabulary.GANG_MIN_AVAILABLE_LABEL: "8",
                    }
                },
                "spec": {**court.pod(court.a, "p")["spec"], "restartPolicy": "Never"},
            },
        },
    }
    got = kubectl("apply", "-f", "-", input=json.dumps(job))
    assert (got.returncode, REFUSED.format(tenant=court.a) in got.stderr) == (1, True), got.stderr


REFUSED = "kubenexus/quota: group 'wide', 8 pods, asks for 8 of cpu, and {tenant} may use 4 at most"
