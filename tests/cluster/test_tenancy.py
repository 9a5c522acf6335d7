"""
Which tenant gets scarce capacity, on a real API server: quotas, turns and preemption.

One test is one story in namespaces of two tenants, `a…` and `b…`, on nodes of its own.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from cluster.client import Client
from cluster.connection import connection
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary
from scheduler.tenancy.fairshare.persistence import UsagePersistence, recalled
from scheduler.tenancy.fairshare.shares import DecayedShare, FairShares
from scheduler.tenancy.quota.ledger import Ledger
from tests.cluster.conftest import Kubectl
from tests.cluster.node_pool import until
from tests.cluster.tenant_env import TENANT_POLICIES, TenantEnv
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
NOW = 1767225600.0
PROBE = "probe"
MARK = {vocabulary.PREEMPTIBLE_LABEL: "true"}


@pytest.fixture
def tenant_env(control_plane: ControlPlane, stack: Stack) -> Iterator[TenantEnv]:
    tenant_env = TenantEnv(control_plane, stack)
    yield tenant_env
    tenant_env.close()


def test_a_limit_holds_for_gangs_and_over_a_crash(tenant_env: TenantEnv, stack: Stack) -> None:
    tenant_env.node("16")
    tenant_env.policy(tenant_env.a, max={"cpu": "4"})
    for gang in ("x", "y", "z"):
        tenant_env.create(
            tenant_env.a,
            *(tenant_env.pod(tenant_env.a, f"{gang}{i}", gang=(gang, 2)) for i in range(2)),
        )
    node_pool = tenant_env.node_pools[tenant_env.a]
    until(node_pool.nodes_of_pods, lambda found: sum(map(bool, found.values())) == 4)
    stack.restart(SCHEDULER, crash=True)
    waiting = [name for name, node in node_pool.nodes_of_pods().items() if not node]
    condition = until(lambda: node_pool.condition(waiting[0]), lambda found: bool(found[1]))
    quota = f"quota of tenant {tenant_env.a} exceeded (used 4, max 4)"
    text = f"tenant {tenant_env.a} requests cpu 2: {quota}"
    assert (
        condition,
        {note for _, _, note in tenant_env.events_of(tenant_env.a, "QuotaExceeded")},
    ) == (
        ("False", "QuotaExceeded", text),
        {text},
    )
    bound = {name for name, node in node_pool.nodes_of_pods().items() if node}
    assert (len(bound), len({name[0] for name in bound})) == (4, 2)
    freed = next(iter(sorted(bound)))[0]
    tenant_env.delete(tenant_env.a, *(f"{freed}{i}" for i in range(2)))
    tenant_env.bound(
        tenant_env.a, *(f"{gang}{i}" for gang in {"x", "y", "z"} - {freed} for i in range(2))
    )


def test_borrowed_quota_is_reclaimed_for_a_guarantee_and_both_sides_get_events(
    tenant_env: TenantEnv,
) -> None:
    node = tenant_env.node("2")
    tenant_env.policy(tenant_env.a, guaranteed={"cpu": "1"})
    tenant_env.policy(tenant_env.b, guaranteed={"cpu": "1"})
    tenant_env.create(tenant_env.b, *(tenant_env.pod(tenant_env.b, f"b{i}") for i in range(2)))
    tenant_env.bound(tenant_env.b, "b0", "b1")
    tenant_env.create(tenant_env.a, tenant_env.pod(tenant_env.a, "mine"))
    assert tenant_env.bound(tenant_env.a, "mine") == {"mine": node}
    [(victim, kind, note)] = tenant_env.events_of(tenant_env.b, "Preempted")
    assert (kind, note) == (
        "Warning",
        f"Preempted by pod {tenant_env.a}/mine of tenant {tenant_env.a}:"
        " reclaim of the preemptor's guarantee",
    )
    assert tenant_env.events_of(tenant_env.a, "Preempting") == [
        (
            "mine",
            "Normal",
            f"pod {tenant_env.a}/mine of tenant {tenant_env.a} waits for 1 victim to terminate:"
            f" {tenant_env.b}/{victim}",
        )
    ]
    left = {"b0", "b1"} - {victim}
    tenant_env.bound(tenant_env.b, *left)


def test_priority_decides_within_a_tenant_and_the_node_is_nominated(tenant_env: TenantEnv) -> None:
    """A finalizer keeps the victim from ending, so that the test sees what happens meanwhile."""
    node = tenant_env.node("2")
    low = tenant_env.pod(tenant_env.a, "low", cpu="2")
    low["metadata"]["finalizers"] = ["example.com/stay"]
    other = tenant_env.pod(tenant_env.b, "other", cpu="2", labels=MARK)
    tenant_env.create(tenant_env.a, low)
    tenant_env.bound(tenant_env.a, "low")
    critical = tenant_env.pod(
        tenant_env.a, "high", cpu="2", priorityClassName="system-node-critical"
    )
    tenant_env.create(tenant_env.a, critical)
    found = until(
        lambda: tenant_env.get(tenant_env.a, "high")["status"].get("nominatedNodeName"), bool, 60.0
    )
    until(lambda: tenant_env.terminating(tenant_env.a), bool, 60.0)
    conditions = {
        row["type"]: (row["status"], row.get("reason"))
        for row in tenant_env.get(tenant_env.a, "low")["status"]["conditions"]
    }
    tenant_env.create(tenant_env.b, other)
    tenant_env.stack.restart(SCHEDULER, crash=True)
    tenant_env.release(tenant_env.a, "low")
    assert tenant_env.bound(tenant_env.a, "high") == {"high": node}
    assert (found, conditions["DisruptionTarget"]) == (node, ("True", "EvictionByEvictionAPI"))
    assert tenant_env.node_pools[tenant_env.b].nodes_of_pods() == {"other": ""}


def test_a_gang_is_evicted_whole_where_a_budget_allows_it(tenant_env: TenantEnv) -> None:
    """Two gangs that yield; the budget of one allows one pod, so the scheduler evicts the other."""
    tenant_env.node("4")
    for gang in ("kept", "free"):
        tenant_env.create(
            tenant_env.b,
            *(
                tenant_env.pod(
                    tenant_env.b, f"{gang}{i}", gang=(gang, 2), labels={**MARK, "app": gang}
                )
                for i in range(2)
            ),
        )
        tenant_env.bound(
            tenant_env.b, *(f"{gang}{i}" for i in range(2)), *tenant_env.placed(tenant_env.b)
        )
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": tenant_env.b},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    tenant_env.node_pools[tenant_env.b].post("apis/policy/v1/poddisruptionbudgets", budget)
    path = f"/apis/policy/v1/namespaces/{tenant_env.b}/poddisruptionbudgets/kept"
    until(
        lambda: tenant_env.api.call("GET", path).get("status", {}).get("disruptionsAllowed"),
        lambda found: found == 1,
    )
    tenant_env.create(
        tenant_env.a, *(tenant_env.pod(tenant_env.a, f"new{i}", gang=("new", 2)) for i in range(2))
    )
    tenant_env.bound(tenant_env.a, "new0", "new1")
    tenant_env.bound(tenant_env.b, "kept0", "kept1")


class Refusing(Protocol):
    def __call__(self, tenant_env: TenantEnv, pod: str, when: str) -> None: ...


@pytest.fixture
def refusing(control_plane: ControlPlane) -> Iterator[Refusing]:
    """The API server evicts this pod of tenant `b` never, where the expression is true."""
    root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    made: list[str] = []

    def refuse(tenant_env: TenantEnv, pod: str, when: str) -> None:
        name = f"stays-{tenant_env.b}"
        chosen = f"request.name == '{pod}' && {when} || request.name == '{PROBE}'"
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/eviction"],
        }
        refusal = {
            "expression": f"request.namespace != '{tenant_env.b}' || !({chosen})",
            "message": "it stays",
        }
        policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [refusal]}
        binding = {"policyName": name, "validationActions": ["Deny"]}
        for plural, spec in (("ies", policy), ("ybindings", binding)):
            tenant_env.api.call(
                "POST", f"{root}{plural}", {"metadata": {"name": name}, "spec": spec}
            )
            made.append(f"{root}{plural}/{name}")
        eventually(lambda: refuses(tenant_env), "the API server refuses")

    yield refuse
    for path in made:
        control_plane.api().call("DELETE", path)


def refuses(tenant_env: TenantEnv) -> bool:
    """Whether the API server applies the policy yet, tried with a pod that does not exist."""
    path = f"/api/v1/namespaces/{tenant_env.b}/pods/{PROBE}/eviction"
    about = {"name": PROBE, "namespace": tenant_env.b}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    try:
        tenant_env.api.call("POST", path, body)
    except CallFailed as exc:
        return "it stays" in str(exc)
    return False


@pytest.mark.parametrize(
    "when",
    [
        pytest.param("true", id="as soon as it is rehearsed"),
        pytest.param("!request.?dryRun.orValue(false)", id="after a rehearsal that was allowed"),
    ],
)
def test_a_pod_whose_eviction_is_rejected_stays_and_another_is_evicted(
    tenant_env: TenantEnv, refusing: Refusing, when: str
) -> None:
    """The newest would go first, having done the least work; the API server keeps it where it is."""
    node = tenant_env.node("2")
    tenant_env.create(tenant_env.b, tenant_env.pod(tenant_env.b, "older", labels=MARK))
    tenant_env.bound(tenant_env.b, "older")
    started(tenant_env, tenant_env.b, "older")
    tenant_env.create(tenant_env.b, tenant_env.pod(tenant_env.b, "newer", labels=MARK))
    tenant_env.bound(tenant_env.b, "older", "newer")
    refusing(tenant_env, "newer", when)
    tenant_env.create(tenant_env.a, tenant_env.pod(tenant_env.a, "mine"))
    assert tenant_env.bound(tenant_env.a, "mine") == {"mine": node}
    tenant_env.bound(tenant_env.b, "newer")
    victims = [name for name, _, _ in tenant_env.events_of(tenant_env.b, "Preempted")]
    assert (
        victims,
        "deletionTimestamp" in tenant_env.get(tenant_env.b, "newer")["metadata"],
    ) == (
        ["older"],
        False,
    )


def started(tenant_env: TenantEnv, tenant: str, name: str) -> None:
    """Long enough ago for the work that another pod loses to be less: times have whole seconds."""
    path = f"/api/v1/namespaces/{tenant}/pods/{name}/status"
    patch = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    tenant_env.api.call("PATCH", path, patch, content_type="application/merge-patch+json")


def test_protected_pods_are_never_evicted(tenant_env: TenantEnv) -> None:
    """Another tenant's pods at a lower priority, and pods of a DaemonSet and of the cluster."""
    tenant_env.node("3")
    spec = tenant_env.pod(tenant_env.b, "d", cpu="1")["spec"]
    labels = {"app": "daemon", **MARK}
    tenant_env.node_pools[tenant_env.b].post(
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
    [daemon] = until(lambda: tenant_env.placed(tenant_env.b), bool)
    critical = tenant_env.pod(
        tenant_env.b, "critical", labels=MARK, priorityClassName="system-cluster-critical"
    )
    tenant_env.create(tenant_env.b, critical, tenant_env.pod(tenant_env.b, "plain"))
    tenant_env.bound(tenant_env.b, daemon, "critical", "plain")
    tenant_env.create(
        tenant_env.a,
        tenant_env.pod(tenant_env.a, "high", priorityClassName="system-cluster-critical"),
    )
    condition = until(
        lambda: tenant_env.node_pools[tenant_env.a].condition("high"),
        lambda found: bool(found[1]),
        60.0,
    )
    assert condition[1] == "Unschedulable"
    tenant_env.bound(tenant_env.b, daemon, "critical", "plain")


def test_usage_is_stored_in_the_status_and_changes_no_policy(tenant_env: TenantEnv) -> None:
    """With the scheduler's own rights, and the kinds as they are installed."""
    tenant_env.policy(tenant_env.a, max={"cpu": "4"})
    plane = tenant_env.plane
    before = tenant_env.api.call("GET", f"{TENANT_POLICIES}/{tenant_env.a}")

    async def write(share: float) -> dict[str, DecayedShare]:
        shares = FairShares(Ledger())
        found = connection.load(plane.kubeconfig(vocabulary.SCHEDULER_NAME))
        async with Client(found, component="test") as client:
            remembering = UsagePersistence(
                client, shares, lambda: [before], may_write=lambda: True, epoch=lambda: NOW
            )
            shares.recall({tenant_env.a: DecayedShare(share, NOW)}, NOW)
            shares.ledger.charge(tenant_env.a, (("cpu", 1500), ("memory", 2**30)))
            remembering.recall()
            await remembering.write()
        return recalled([tenant_env.api.call("GET", f"{TENANT_POLICIES}/{tenant_env.a}")])

    assert asyncio.run(write(0.25)) == {tenant_env.a: DecayedShare(0.25, NOW)}
    after = tenant_env.api.call("GET", f"{TENANT_POLICIES}/{tenant_env.a}")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["status"]["conditions"] == before["status"]["conditions"]
    assert after["status"]["usage"] == {
        "used": {"cpu": "1500m", "memory": "1Gi"},
        "share": "0.250",
        "at": "2026-01-01T00:00:00Z",
    }


def test_what_never_fits_is_refused_where_it_is_applied(
    tenant_env: TenantEnv, kubectl: Kubectl
) -> None:
    tenant_env.policy(tenant_env.a, max={"cpu": "4"})
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "wide", "namespace": tenant_env.a},
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
                "spec": {**tenant_env.pod(tenant_env.a, "p")["spec"], "restartPolicy": "Never"},
            },
        },
    }
    got = kubectl("apply", "-f", "-", input=json.dumps(job))
    assert (got.returncode, REFUSED.format(tenant=tenant_env.a) in got.stderr) == (1, True), (
        got.stderr
    )


REFUSED = (
    "kubenexus/quota: group 'wide', 8 pods, requests 8 of cpu, above the quota of {tenant} (max 4)"
)
