from typing import Any

import pytest

from policies import vocabulary
from tests.builders import a_namespace, a_pod, a_template, in_gang
from webhook.admission import guards
from webhook.admission.guards import TrustedUsers
from webhook.review.codec import Review

Json = dict[str, Any]
OURS = vocabulary.SCHEDULER_NAME
GATED = [{"name": vocabulary.GANG_GATE}, {"name": "other"}]
ASSIGNED = {vocabulary.NUMA_ASSIGNED_ANNOTATION: '{"numa":[0]}'}


def a_review(
    operation: str,
    new: Json | None,
    old: Json | None = None,
    *,
    resource: str = "pods",
    subresource: str = "",
) -> Review:
    return Review(
        uid="u",
        operation=operation,
        kind=(new or old or {}).get("kind", "Pod"),
        resource=resource,
        subresource=subresource,
        namespace="team-a",
        name="p",
        user={"username": "eve"},
        object=new,
        old_object=old,
    )


def bound(resource: str = "pods", subresource: str = "binding") -> Review:
    return a_review("CREATE", {"kind": "Binding"}, resource=resource, subresource=subresource)


@pytest.mark.parametrize(
    ("review", "trust", "pod", "want"),
    [
        pytest.param(
            a_review("CREATE", a_pod(schedulerName=OURS)),
            TrustedUsers(),
            None,
            [],
            id="a plain pod",
        ),
        pytest.param(
            a_review("CREATE", a_pod(schedulerName=OURS, nodeName="n")),
            TrustedUsers(),
            None,
            ["node-preset: found 'n', but kubenexus-scheduler chooses the node"],
            id="a pod that chooses its node itself",
        ),
        pytest.param(
            a_review("CREATE", a_pod(schedulerName="other", nodeName="n")),
            TrustedUsers(),
            None,
            [],
            id="other schedulers' pods are their own affair",
        ),
        pytest.param(
            a_review("CREATE", a_pod(schedulerName=OURS, annotations=ASSIGNED)),
            TrustedUsers(),
            None,
            [
                "assignment-preset: found '{\"numa\":[0]}', but NUMA nodes and GPUs are assigned by the scheduler"
            ],
            id="a pod that assigns itself hardware",
        ),
        *(
            pytest.param(
                a_review(
                    "UPDATE",
                    a_pod(labels=in_gang("h")),
                    a_pod(labels=in_gang("g")),
                    subresource=subresource,
                ),
                TrustedUsers(is_scheduler=True),
                None,
                ["stamped: changed from 'g' to 'h'"],
                id=f"another gang by way of {subresource or 'the pod itself'}",
            )
            for subresource in ("", "status", "resize", "ephemeralcontainers")
        ),
        pytest.param(
            a_review(
                "UPDATE", a_pod(annotations={"pod-group.scheduling.sigs.k8s.io/name": "g"}), a_pod()
            ),
            TrustedUsers(),
            None,
            ["stamped: changed from nothing to 'g'"],
            id="a gang key of another family",
        ),
        pytest.param(
            a_review("UPDATE", a_pod(annotations=ASSIGNED), a_pod()),
            TrustedUsers(),
            None,
            ["stamped: changed from nothing to '{\"numa\":[0]}'"],
            id="an assignment by another user",
        ),
        pytest.param(
            a_review("UPDATE", a_pod(annotations=ASSIGNED), a_pod()),
            TrustedUsers(is_scheduler=True),
            None,
            [],
            id="an assignment by the scheduler",
        ),
        pytest.param(
            a_review("UPDATE", a_pod(schedulingGates=GATED[1:]), a_pod(schedulingGates=GATED)),
            TrustedUsers(),
            None,
            ["gate: the gate scheduling.kubenexus.io/gang was removed by 'eve'"],
            id="a gate removed by another user",
        ),
        pytest.param(
            a_review("UPDATE", a_pod(), a_pod(schedulingGates=GATED)),
            TrustedUsers(is_scheduler=True),
            None,
            [],
            id="a gate lifted by the scheduler",
        ),
        pytest.param(
            a_review("UPDATE", a_pod(schedulingGates=GATED[:1]), a_pod(schedulingGates=GATED)),
            TrustedUsers(),
            None,
            [],
            id="another gate is another's affair",
        ),
        *(
            pytest.param(
                bound(resource, subresource),
                TrustedUsers(),
                a_pod(schedulerName=OURS),
                ["binding: 'eve' binds a pod that names kubenexus-scheduler"],
                id=f"a foreign Binding by way of {resource}",
            )
            for resource, subresource in (("pods", "binding"), ("bindings", ""))
        ),
        pytest.param(
            bound(),
            TrustedUsers(is_scheduler=True),
            a_pod(schedulerName=OURS),
            [],
            id="a Binding of the scheduler",
        ),
        pytest.param(
            bound(),
            TrustedUsers(),
            a_pod(schedulerName="other"),
            [],
            id="a Binding of another scheduler's pod",
        ),
        pytest.param(
            bound(), TrustedUsers(), None, [], id="a Binding for a pod that does not exist"
        ),
        pytest.param(
            a_review(
                "UPDATE",
                a_namespace(tier="gold"),
                a_namespace(tier="bronze"),
                resource="namespaces",
            ),
            TrustedUsers(),
            None,
            [
                "namespace-tenant: changed from 'bronze' to 'gold' by 'eve', who does not manage tenants"
            ],
            id="a namespace that promotes itself",
        ),
        pytest.param(
            a_review(
                "UPDATE",
                a_namespace(tier="gold"),
                a_namespace(tier="bronze"),
                resource="namespaces",
            ),
            TrustedUsers(manages_tenants=True),
            None,
            [],
            id="a namespace promoted by an admin",
        ),
        pytest.param(
            a_review("DELETE", None, a_pod(labels=in_gang())),
            TrustedUsers(),
            None,
            [],
            id="a deletion",
        ),
    ],
)
def test_requests_that_bypass_admission_are_denied(
    review: Review, trust: TrustedUsers, pod: Json | None, want: list[str]
) -> None:
    got = guards.problems(review, trust=trust, bound_pod=pod)
    assert [f"{problem.rule}: {problem.message}" for problem in got] == want


@pytest.mark.parametrize(
    ("review", "pod", "manager"),
    [
        (a_review("CREATE", a_pod()), False, False),
        (bound(), True, False),
        (bound("bindings", ""), True, False),
        (
            a_review("UPDATE", a_namespace(tier="gold"), a_namespace(), resource="namespaces"),
            False,
            True,
        ),
        (a_review("UPDATE", a_namespace(), a_namespace(), resource="namespaces"), False, False),
        (a_review("CREATE", {}, resource="resourcereservations"), False, True),
        (
            a_review("UPDATE", {}, resource="resourcereservations", subresource="status"),
            False,
            False,
        ),
    ],
)
def test_lookups_happen_only_where_they_decide(review: Review, pod: bool, manager: bool) -> None:
    assert (guards.needs_pod(review), guards.needs_tenant_manager(review)) == (pod, manager)


# --- reservations ---


def reserved(spec: Json, old: Json | None = None, *, subresource: str = "") -> Review:
    made = {"kind": "ResourceReservation", "metadata": {"name": "p"}}
    return a_review(
        "CREATE" if old is None else "UPDATE",
        {**made, "spec": spec},
        None if old is None else {**made, "spec": old},
        resource="resourcereservations",
        subresource=subresource,
    )


FOR_A_TENANT: Json = {"tenant": "a", "nodes": ["n"], "until": "2030-01-01T00:00:00Z"}
FOR_A_GROUP: Json = {"podGroup": {"name": "g"}, "until": "2030-01-01T00:00:00Z"}
RIGHT = "reservation-right: 'eve' reserves capacity for a tenant, and does not manage tenants"
KEPT = "reservation-kept: changed by 'eve', but the scheduler owns reservations of pod groups"
NOT_THE_SCHEDULER = "reservation-kept: written by 'eve', but only the scheduler writes it"


@pytest.mark.parametrize(
    ("review", "trust", "want"),
    [
        pytest.param(
            reserved(FOR_A_TENANT), TrustedUsers(), [RIGHT], id="for a tenant, by any user"
        ),
        pytest.param(
            reserved({**FOR_A_TENANT, "nodes": ["m"]}, FOR_A_TENANT),
            TrustedUsers(),
            [RIGHT],
            id="another one for a tenant, by any user",
        ),
        pytest.param(
            reserved(FOR_A_TENANT),
            TrustedUsers(manages_tenants=True),
            [],
            id="by who manages tenants",
        ),
        pytest.param(
            reserved(FOR_A_TENANT, FOR_A_GROUP),
            TrustedUsers(manages_tenants=True),
            [KEPT],
            id="the scheduler's own, turned into one for a tenant",
        ),
        pytest.param(
            reserved(FOR_A_GROUP, FOR_A_GROUP),
            TrustedUsers(),
            [KEPT],
            id="the scheduler's own, changed",
        ),
        pytest.param(
            reserved(FOR_A_GROUP), TrustedUsers(is_scheduler=True), [], id="made by the scheduler"
        ),
        pytest.param(
            reserved(FOR_A_GROUP, FOR_A_GROUP),
            TrustedUsers(is_scheduler=True),
            [],
            id="changed by the scheduler",
        ),
        pytest.param(
            reserved(FOR_A_TENANT, FOR_A_TENANT, subresource="status"),
            TrustedUsers(manages_tenants=True),
            [NOT_THE_SCHEDULER],
            id="a status by another user",
        ),
        pytest.param(
            reserved(FOR_A_TENANT, FOR_A_TENANT, subresource="status"),
            TrustedUsers(is_scheduler=True),
            [],
            id="a status by the scheduler",
        ),
    ],
)
def test_who_may_write_reservations(review: Review, trust: TrustedUsers, want: list[str]) -> None:
    got = guards.problems(review, trust=trust)
    assert [f"{problem.rule}: {problem.message}" for problem in got] == want


# --- scale ---


def a_deployment(replicas: int = 8, *, role: str | None = None) -> Json:
    said = {} if role is None else {vocabulary.GANG_ROLE_LABEL: role}
    template = a_template(a_pod(labels={**in_gang("g", 8), **said}))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": replicas, "template": template},
    }


def a_scale(count: int | None) -> Json:
    spec = {} if count is None else {"replicas": count}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": spec}


def scaled(before: int, after: int | None) -> Review:
    new, old = a_scale(after), a_scale(before)
    return a_review("UPDATE", new, old, resource="deployments", subresource="scale")


@pytest.mark.parametrize(
    ("before", "after", "workload", "want"),
    [
        pytest.param(8, 4, a_deployment(), True, id="fewer than the gang"),
        pytest.param(0, 4, a_deployment(0), True, id="from nothing to fewer than the gang"),
        pytest.param(8, 0, a_deployment(), False, id="nothing at all"),
        pytest.param(8, None, a_deployment(), False, id="nothing, which the API server leaves out"),
        pytest.param(8, 9, a_deployment(), False, id="more"),
        pytest.param(4, 6, a_deployment(4), False, id="too few already, and more of them"),
        pytest.param(8, 4, a_deployment(role="worker"), False, id="one side of a larger gang"),
        pytest.param(8, 4, None, False, id="what is gone by now, or counts no pods"),
    ],
)
def test_a_gang_is_not_scaled_below_its_size(
    before: int, after: int | None, workload: Json | None, want: bool
) -> None:
    got = guards.problems(scaled(before, after), trust=TrustedUsers(), scaled=workload)
    found = [(problem.rule, problem.path) for problem in got]
    assert found == ([("gang-size", "spec.replicas")] if want else [])


@pytest.mark.parametrize(
    ("review", "want"),
    [
        (scaled(8, 4), True),
        (scaled(0, 4), True),
        (scaled(8, 0), False),
        (scaled(4, 4), False),
        (a_review("UPDATE", a_pod(), a_pod()), False),
    ],
)
def test_the_scaled_workload_is_read_only_where_it_decides(review: Review, want: bool) -> None:
    assert guards.needs_scaled(review) is want


# --- objects that are being deleted ---


def ending(*finalizers: str, version: str = "1", **parts: Any) -> Json:
    pod = a_pod(**parts)
    pod["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": list(finalizers),
        "resourceVersion": version,
        "managedFields": [{"time": version}],
    }
    return pod


@pytest.mark.parametrize(
    ("review", "want"),
    [
        pytest.param(a_review("UPDATE", ending("a"), ending("a", "b")), True, id="one fewer"),
        pytest.param(
            a_review("UPDATE", ending(version="2"), ending("a")),
            True,
            id="the last, with what every write changes",
        ),
        pytest.param(a_review("UPDATE", ending("a"), ending("a")), False, id="none fewer"),
        pytest.param(a_review("UPDATE", ending("b"), ending("a")), False, id="another instead"),
        pytest.param(
            a_review("UPDATE", ending(labels={"x": "y"}), ending("a")), False, id="a label besides"
        ),
        pytest.param(
            a_review("UPDATE", ending(schedulerName="x"), ending("a")), False, id="a field besides"
        ),
        pytest.param(a_review("UPDATE", a_pod(), a_pod()), False, id="an object that stays"),
        pytest.param(a_review("CREATE", ending()), False, id="an object that is new"),
        pytest.param(
            a_review("UPDATE", ending(), ending("a"), subresource="status"),
            False,
            id="a part of an object",
        ),
    ],
)
def test_only_finalizers_are_let_go(review: Review, want: bool) -> None:
    assert guards.removes_finalizers(review) is want
