"""
Who gets the room when there is not enough, on a real API server: quotas, turns and preemption.

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
from tests.cluster.court import TENANT_POLICIES, Court
from tests.cluster.waiting import eventually
from tests.cluster.yard import until

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
NOW = 1767225600.0
PROBE = "probe"
MARK = {vocabulary.PREEMPTIBLE_LABEL: "true"}


@pytest.fixture
def court(control_plane: ControlPlane, stack: Stack) -> Iterator[Court]:
    court = Court(control_plane, stack)
    yield court
    court.close()


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
    court.delete(court.a, *(f"{freed}{i}" for i in range(2)))
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
    found = until(lambda: court.get(court.a, "high")["status"].get("nominatedNodeName"), bool, 60.0)
    until(lambda: court.going(court.a), bool, 60.0)
    conditions = {
        row["type"]: (row["status"], row.get("reason"))
        for row in court.get(court.a, "low")["status"]["conditions"]
    }
    court.create(court.b, other)
    court.stack.restart(SCHEDULER, crash=True)
    court.release(court.a, "low")
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
        court.bound(court.b, *(f"{gang}{i}" for i in range(2)), *court.placed(court.b))
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


class Refusing(Protocol):
    def __call__(self, court: Court, pod: str, when: str) -> None: ...


@pytest.fixture
def refusing(control_plane: ControlPlane) -> Iterator[Refusing]:
    """The API server evicts this pod of tenant `b` never, where the expression is true."""
    root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    made: list[str] = []

    def refuse(court: Court, pod: str, when: str) -> None:
        name = f"stays-{court.b}"
        chosen = f"request.name == '{pod}' && {when} || request.name == '{PROBE}'"
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/eviction"],
        }
        refusal = {
            "expression": f"request.namespace != '{court.b}' || !({chosen})",
            "message": "it stays",
        }
        policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [refusal]}
        binding = {"policyName": name, "validationActions": ["Deny"]}
        for plural, spec in (("ies", policy), ("ybindings", binding)):
            court.api.call("POST", f"{root}{plural}", {"metadata": {"name": name}, "spec": spec})
            made.append(f"{root}{plural}/{name}")
        eventually(lambda: refuses(court), "the API server refuses")

    yield refuse
    for path in made:
        control_plane.api().call("DELETE", path)


def refuses(court: Court) -> bool:
    """Whether the API server goes by the policy yet: asked about a pod that does not exist."""
    path = f"/api/v1/namespaces/{court.b}/pods/{PROBE}/eviction"
    about = {"name": PROBE, "namespace": court.b}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    try:
        court.api.call("POST", path, body)
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
def test_a_pod_whose_eviction_is_refused_stays_and_another_goes(
    court: Court, refusing: Refusing, when: str
) -> None:
    """The newest would go first, having done the least work; the API server keeps it where it is."""
    node = court.node("2")
    court.create(court.b, court.pod(court.b, "older", labels=MARK))
    court.bound(court.b, "older")
    started(court, court.b, "older")
    court.create(court.b, court.pod(court.b, "newer", labels=MARK))
    court.bound(court.b, "older", "newer")
    refusing(court, "newer", when)
    court.create(court.a, court.pod(court.a, "mine"))
    assert court.bound(court.a, "mine") == {"mine": node}
    court.bound(court.b, "newer")
    told = [name for name, _, _ in court.told(court.b, "Preempted")]
    assert (told, "deletionTimestamp" in court.get(court.b, "newer")["metadata"]) == (
        ["older"],
        False,
    )


def started(court: Court, tenant: str, name: str) -> None:
    """Long enough ago for the work that another pod loses to be less: times have whole seconds."""
    path = f"/api/v1/namespaces/{tenant}/pods/{name}/status"
    patch = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    court.api.call("PATCH", path, patch, content_type="application/merge-patch+json")


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
    [daemon] = until(lambda: court.placed(court.b), bool)
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
    before = court.api.call("GET", f"{TENANT_POLICIES}/{court.a}")

    async def write(share: float) -> dict[str, DecayedShare]:
        shares = FairShares(Ledger())
        found = connection.load(plane.kubeconfig(vocabulary.SCHEDULER_NAME))
        async with Client(found, component="test") as client:
            remembering = UsagePersistence(
                client, shares, lambda: [before], may_write=lambda: True, epoch=lambda: NOW
            )
            shares.recall({court.a: DecayedShare(share, NOW)}, NOW)
            shares.ledger.take(court.a, (("cpu", 1500), ("memory", 2**30)))
            remembering.recall()
            await remembering.write()
        return recalled([court.api.call("GET", f"{TENANT_POLICIES}/{court.a}")])

    assert asyncio.run(write(0.25)) == {court.a: DecayedShare(0.25, NOW)}
    after = court.api.call("GET", f"{TENANT_POLICIES}/{court.a}")
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
