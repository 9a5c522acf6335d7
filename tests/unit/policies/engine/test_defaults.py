from typing import Any

import pytest

from policies.engine import defaults
from policies.engine.defaults import Draft
from policies.engine.policy_tests import written
from policies.engine.result import MOST_CONFLICTS, Injection
from tests.builders import a_pod
from tests.policy_builders import a_platform_policy, a_tenant_policy, evaluated

Json = dict[str, Any]
NUMA = "numa.scheduling.kubenexus.io/policy"
GANG = {
    "pod-group.scheduling.kubenexus.io/name": "g",
    "pod-group.scheduling.kubenexus.io/min-available": "4",
}


def container(**resources: Json) -> Json:
    return {"name": "c", "image": "i", "resources": resources}


@pytest.mark.parametrize(
    ("wanted", "pod", "want"),
    [
        pytest.param(
            {"schedulerName": "ours"}, {}, {"spec.schedulerName": "ours"}, id="scheduler unset"
        ),
        pytest.param(
            {"schedulerName": "ours"},
            {"schedulerName": "default-scheduler"},
            {"spec.schedulerName": "ours"},
            id="scheduler as the API server fills it in",
        ),
        pytest.param(
            {"schedulerName": "ours"}, {"schedulerName": "mine"}, {}, id="scheduler of the user's"
        ),
        pytest.param(
            {"labels": {"a": "1", "b": "2"}},
            {"labels": {"a": "mine"}},
            {"metadata.labels.b": "2"},
            id="labels key by key",
        ),
        pytest.param(
            {"nodeSelector": {"pool": "x"}, "priorityClassName": "low", "runtimeClassName": "kata"},
            {"nodeSelector": {"zone": "z"}, "priorityClassName": "mine"},
            {"spec.nodeSelector.pool": "x", "spec.runtimeClassName": "kata"},
            id="node selector and classes",
        ),
        pytest.param(
            {"tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "x"}]},
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"spec.tolerations": [{"key": "x"}]},
            id="tolerations that are missing",
        ),
        pytest.param(
            {"schedulingGates": ["a.io/x"]},
            {"schedulingGates": [{"name": "b.io/y"}]},
            {"spec.schedulingGates": [{"name": "a.io/x"}]},
            id="gates beside others",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {"a": 1}}},
            {},
            {"spec.affinity": {"nodeAffinity": {"a": 1}}},
            id="affinity where there is none",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {"a": 1}}},
            {"affinity": {"podAffinity": {}}},
            {},
            id="affinity of the user's",
        ),
        pytest.param(
            {"labels": {"a": {"expression": "object.metadata.name + '-x'"}}},
            {},
            {"metadata.labels.a": "p-x"},
            id="a computed value",
        ),
        pytest.param(
            {"labels": {"a": {"expression": "dyn(null)"}, "b": "2"}},
            {},
            {"metadata.labels.b": "2"},
            id="a computed null writes nothing",
        ),
        pytest.param(
            {"annotations": {NUMA: "restricted"}},
            {"annotations": {"scheduling.kubenexus.io/numa-policy": "none"}},
            {},
            id="a key that the user wrote in its other spelling",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
            {
                "containers": [
                    container(requests={"cpu": "2"}),
                    container(limits={"memory": "1Gi"}),
                    container(requests={"memory": "4Gi"}),
                ],
                "initContainers": [container()],
            },
            {
                "spec.containers[0].resources.requests.memory": "1Gi",
                "spec.containers[0].resources.limits.memory": "2Gi",
                "spec.containers[1].resources.requests.cpu": "1",
                "spec.containers[2].resources.requests.cpu": "1",
                "spec.initContainers[0].resources.requests.cpu": "1",
                "spec.initContainers[0].resources.requests.memory": "1Gi",
                "spec.initContainers[0].resources.limits.memory": "2Gi",
            },
            id="resources of each container, never a limit below a request",
        ),
    ],
)
def test_what_a_default_writes(wanted: Json, pod: Json, want: Json) -> None:
    found = evaluated(a_tenant_policy(defaults=[{"set": wanted}]), obj=a_pod(**pod))
    again = evaluated(a_tenant_policy(defaults=[{"set": wanted}]), obj=found.object)
    assert (written(found), found.denials, written(again)) == (want, (), {})


@pytest.mark.parametrize(
    ("wanted", "pod", "want"),
    [
        pytest.param(
            {"labels": {"a": "1"}}, {"labels": {"a": "2"}}, {"metadata.labels.a": "1"}, id="a label"
        ),
        pytest.param(
            {"annotations": {NUMA: "restricted"}},
            {"annotations": {"scheduling.kubenexus.io/numa-policy": "none"}},
            {"metadata.annotations['scheduling.kubenexus.io/numa-policy']": "restricted"},
            id="a key in the spelling that the user chose",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}},
            {"containers": [container(requests={"cpu": "2"})]},
            {"spec.containers[0].resources.requests.cpu": "1"},
            id="a request",
        ),
        pytest.param(
            {"tolerations": [{"key": "x"}]},
            {"tolerations": [{"key": "y"}]},
            {"spec.tolerations": [{"key": "x"}]},
            id="a list is added to all the same",
        ),
    ],
)
def test_override_replaces_what_the_user_wrote(wanted: Json, pod: Json, want: Json) -> None:
    rule = {"set": wanted, "override": True}
    found = evaluated(a_tenant_policy(defaults=[rule]), obj=a_pod(**pod))
    again = evaluated(a_tenant_policy(defaults=[rule]), obj=found.object)
    assert (written(found), written(again)) == (want, {})


def sets(value: str, *, when: str | None = None, override: bool = False) -> Json:
    rule: Json = {"set": {"labels": {"x": value}}, "override": override}
    return rule if when is None else {**rule, "when": when}


@pytest.mark.parametrize(
    ("cluster", "tenant", "label", "want"),
    [
        pytest.param(
            [sets("1")], [sets("2")], None, ("1", 1), id="the platform policy takes precedence"
        ),
        pytest.param([sets("1")], [sets("1")], None, ("1", 0), id="the same value is no conflict"),
        pytest.param(
            [sets("1")], [sets("2")], "mine", ("mine", 0), id="the user takes precedence over both"
        ),
        pytest.param(
            [sets("1")], [sets("2", override=True)], None, ("1", 1), id="even before an override"
        ),
        pytest.param(
            [sets("1")],
            [sets("2", override=True)],
            "mine",
            ("2", 0),
            id="an override of the user's",
        ),
        pytest.param([sets("1"), sets("2")], [], None, ("1", 0), id="within a policy in order"),
        pytest.param(
            [sets("1", when="tenant.tier == 'gold'"), sets("2")], [], None, ("2", 0), id="when"
        ),
    ],
)
def test_two_policies_for_one_field(
    cluster: list[Json], tenant: list[Json], label: str | None, want: tuple[str, int]
) -> None:
    documents = a_platform_policy("c", defaults=cluster), a_tenant_policy("t", defaults=tenant)
    found = evaluated(*documents, obj=a_pod(labels={"x": label} if label else None))
    again = evaluated(*documents, obj=found.object)
    value = (found.object or {})["metadata"]["labels"]["x"]
    assert ((value, len(found.conflicts)), again.injections) == (want, ())


def test_a_conflict_names_both_sides() -> None:
    found = evaluated(
        a_platform_policy("c", defaults=[sets("1")]), a_tenant_policy("t", defaults=[sets("2")])
    )
    assert found.warnings == (
        "conflict: metadata.labels.x: c/defaults[0] sets '1' and wins by order, t/defaults[0] sets"
        " '2'",
    )


def test_a_default_that_another_one_brings_about_is_written_in_the_same_request() -> None:
    found = evaluated(
        a_tenant_policy(
            defaults=[
                {"when": "object.metadata.labels.x == '1'", "set": {"labels": {"y": "2"}}},
                sets("1"),
            ],
            failurePolicy="Ignore",
        )
    )
    assert (written(found), found.skipped) == (
        {"metadata.labels.x": "1", "metadata.labels.y": "2"},
        (),
    )


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(
            [
                sets("b", when="object.metadata.labels.x == 'a'", override=True),
                sets("a", when="object.metadata.labels.x == 'b'", override=True),
            ],
            id="two that undo each other",
        ),
        pytest.param(
            [
                {
                    "set": {"labels": {"x": {"expression": "object.metadata.labels.x + '!'"}}},
                    "override": True,
                }
            ],
            id="one that feeds on itself",
        ),
    ],
)
def test_defaults_that_never_settle_are_denied(rules: list[Json]) -> None:
    found = evaluated(a_tenant_policy("t", defaults=rules), obj=a_pod(labels={"x": "a"}))
    assert [(row.policy, row.rule, row.denies) for row in found.failures] == [
        ("kubenexus", "defaults-settle", True)
    ]


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("object.spec.nodeName", 'Key not found in map : "nodeName"', id="an error"),
        pytest.param("dyn(5)", "want a string, the expression gave 5", id="no text"),
    ],
)
def test_a_value_that_cannot_be_evaluated_denies(expression: str, want: str) -> None:
    rule = {"set": {"labels": {"x": {"expression": expression}, "y": "1"}}}
    found = evaluated(a_tenant_policy("t", defaults=[rule]))
    ignored = evaluated(a_tenant_policy("t", defaults=[rule], failurePolicy="Ignore"))
    assert (found.denials, written(ignored), [row.error for row in ignored.skipped]) == (
        (f"t/defaults[0]: cannot be evaluated: {want}",),
        {"metadata.labels.y": "1"},
        [want],
    )


def test_what_a_tenant_sets_by_fields() -> None:
    document = a_tenant_policy(
        "t", numa={"default": "restricted"}, gang={"timeout": "30s", "gate": True}
    )
    found = evaluated(document, obj=a_pod(labels=GANG))
    alone = evaluated(document)
    assert (written(found), written(alone), evaluated(document, obj=found.object).injections) == (
        {
            f"metadata.annotations['{NUMA}']": "restricted",
            "metadata.annotations['pod-group.scheduling.kubenexus.io/timeout']": "30s",
            "spec.schedulingGates": [{"name": "scheduling.kubenexus.io/gang"}],
        },
        {f"metadata.annotations['{NUMA}']": "restricted"},
        (),
    )


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"operation": "UPDATE"}, id="an update"),
        pytest.param({"inject": False}, id="a validating call"),
    ],
)
def test_nothing_is_written_by(request_: Json) -> None:
    found = evaluated(a_tenant_policy(defaults=[sets("1")]), **request_)
    assert (found.injections, found.object) == ((), a_pod())


def test_the_given_object_is_never_changed() -> None:
    pod = a_pod(labels={"a": "b"})
    evaluated(
        a_tenant_policy(defaults=[{"set": {"labels": {"x": "1"}, "tolerations": [{}]}}]), obj=pod
    )
    assert pod == a_pod(labels={"a": "b"})


def test_parts_of_a_workload_that_are_no_pod_templates_are_left_alone() -> None:
    spark = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "s", "namespace": "team-a"},
        "spec": {"driver": {"labels": {}}, "executor": {"instances": 2}},
    }
    found = evaluated(
        a_tenant_policy(matchConstraints={"kinds": ["SparkApplication"]}, defaults=[sets("1")]),
        obj=spark,
    )
    assert (found.injections, found.object) == ((), spark)


def test_steps_of_a_path() -> None:
    assert defaults.steps("spec.jobs[2].template") == ("spec", "jobs", 2, "template")


def test_the_numa_default_is_written_to_every_template() -> None:
    template = {"spec": {"containers": [{"name": "c"}]}}
    workload = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j"},
        "spec": {
            "replicatedJobs": [
                {"name": name, "template": {"spec": {"template": template}}} for name in "ab"
            ]
        },
    }
    document = a_tenant_policy(
        numa={"default": "restricted"}, matchConstraints={"kinds": ["JobSet"]}
    )
    found = evaluated(document, obj=workload)
    assert written(found) == {
        f"spec.replicatedJobs[{index}].template.spec.template"
        ".metadata.annotations['numa.scheduling.kubenexus.io/policy']": "restricted"
        for index in (0, 1)
    }


def test_many_containers_are_copied_once() -> None:
    pod = a_pod(containers=[{"name": f"c{index}"} for index in range(3)])
    draft = Draft(pod)
    seen = []
    for index in range(3):
        path = ("spec", "containers", index, "resources", "requests", "cpu")
        draft._set((), path, Injection((), "1", "p", "r"))
        seen.append(draft.object["spec"]["containers"])
    assert seen[0] is seen[1] is seen[2]
    assert [row["resources"] for row in seen[0]] == [{"requests": {"cpu": "1"}}] * 3
    assert pod["spec"]["containers"] == [{"name": f"c{index}"} for index in range(3)]


def test_of_many_conflicts_the_first_ones_are_reported() -> None:
    draft = Draft({})
    for policy, value in (("a", "1"), ("b", "2")):
        for index in range(2 * MOST_CONFLICTS):
            write = Injection((), value, policy, "r")
            draft.value((), ("metadata", "labels", f"k{index}"), write)
    assert len(draft.conflicts) == MOST_CONFLICTS
