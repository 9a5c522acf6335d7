"""What holds for every object and every document, however odd."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import policies
from policies import vocabulary
from policies.documents import yaml_reader
from policies.engine import loader
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest
from policies.engine.result import Evaluation
from tests.policy_builders import (
    NOW,
    a_compiler,
    a_namespace,
    a_platform_policy,
    a_rule,
    a_tenant_policy,
)

Json = dict[str, Any]
LIBRARY = Path(policies.__file__).parent / "library"
SLOW_START = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

OWN = [
    a_platform_policy(
        "own",
        variables=[{"name": "labels", "expression": "object.metadata.labels"}],
        defaults=[
            {"when": "'team' in variables.labels", "set": {"labels": {"paid": "yes"}}},
            {
                "when": "object.metadata.labels.paid == 'yes'",
                "set": {"nodeSelector": {"pool": "paid"}, "schedulerName": "kubenexus-scheduler"},
            },
            {"set": {"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}}},
        ],
        validations=[
            a_rule("object.spec.containers.all(c, c.image.contains(':'))", "tagged"),
            a_rule("requests(object, 'cpu') < 64000", "small"),
        ],
        failurePolicy="Ignore",
    ),
    a_tenant_policy(
        "t",
        tier="silver",
        gang={"maxSize": 8, "gate": True, "timeout": "30s"},
        numa={"default": "best-effort", "allowed": ["none", "best-effort"]},
        defaults=[
            {"set": {"labels": {"paid": "no", "owner": {"expression": "object.metadata.name"}}}},
            {"set": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
            {"when": "gang != null", "set": {"annotations": {"gang": "yes"}}, "override": True},
        ],
        validations=[a_rule("object.metadata.labels['team'] != ''", "team", action="Warn")],
    ),
]


@lru_cache(maxsize=2)
def policy_set(*, reverse: bool = False) -> PolicySet:
    reading = loader.read_files(LIBRARY) + loader.read_objects(OWN)
    entries = reading.entries[::-1] if reverse else reading.entries
    result = loader.compile_all(loader.Reading(entries), compiler=a_compiler())
    assert result.problems == ()
    return result.policies


words = st.sampled_from(["", "a", "b", "yes", "no", "4", "1", "0", "x:1", "default-scheduler"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 70), st.floats(), words)
anything = st.recursive(
    scalars,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from(["name", "spec", "a", "cpu"]), below, max_size=3),
    ),
    max_leaves=6,
)
keys = st.sampled_from(
    [
        "team",
        "paid",
        "spark-role",
        vocabulary.GANG_NAME_LABEL,
        vocabulary.GANG_MIN_AVAILABLE_LABEL,
        vocabulary.WORKLOAD_TYPE_LABEL,
        vocabulary.HARDWARE_TIER_LABEL,
        vocabulary.TIER_LABEL,
        vocabulary.NUMA_POLICY_ANNOTATION,
        "scheduling.kubenexus.io/numa-policy",
    ]
)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    st.sampled_from(["1", "2Gi", "100m", 1]),
    max_size=3,
)
resources = st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts})
containers = st.lists(
    st.fixed_dictionaries({"name": words, "image": words}, optional={"resources": resources}),
    max_size=3,
)


def mostly(sound: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Sound values nine times in ten, anything otherwise."""
    return st.integers(0, 9).flatmap(lambda number: sound if number else anything)


def pods(sure: bool) -> st.SearchStrategy[Json]:
    part = (lambda sound: sound) if sure else mostly
    texts = part(st.dictionaries(keys, part(words), max_size=5))
    metadata = st.fixed_dictionaries(
        {"name": part(words)}, optional={"labels": texts, "annotations": texts}
    )
    spec = st.fixed_dictionaries(
        {"containers": part(containers)},
        optional={
            "initContainers": part(containers),
            "schedulerName": part(words),
            "tolerations": part(st.lists(st.fixed_dictionaries({"key": words}), max_size=2)),
            "schedulingGates": part(st.lists(st.fixed_dictionaries({"name": words}), max_size=2)),
            "nodeSelector": part(st.dictionaries(words, words, max_size=2)),
            "priorityClassName": part(words),
        },
    )
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("v1"),
            "kind": st.just("Pod"),
            "metadata": part(metadata),
            "spec": part(spec),
        }
    )


def evaluated(pod: Json, *, reverse: bool = False) -> Evaluation:
    admission = AdmissionRequest.of(pod, namespace=a_namespace("ns", tenant="a"))
    return evaluate(admission, policy_set(reverse=reverse), now=NOW)


@SLOW_START
@given(pods(sure=False))
def test_no_object_makes_evaluation_raise_and_replicas_agree(pod: Json) -> None:
    # NaN is unequal to itself, so the texts are compared.
    assert repr(evaluated(pod)) == repr(evaluated(pod, reverse=True))


@SLOW_START
@given(pods(sure=True))
def test_evaluating_the_result_again_writes_nothing(pod: Json) -> None:
    found = evaluated(pod)
    assert found.object is not None
    assert evaluated(dict(found.object)).injections == ()


@SLOW_START
@given(
    st.sampled_from(["Job", "Deployment", "JobSet", "RayCluster", "Pod"]),
    anything,
    st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
)
def test_no_workload_makes_evaluation_raise(kind: str, spec: object, operation: str) -> None:
    group = {"Job": "batch/v1", "Deployment": "apps/v1", "Pod": "v1"}.get(kind, "ray.io/v1")
    obj = {"apiVersion": group, "kind": kind, "metadata": {"name": "n"}, "spec": spec}
    admission = AdmissionRequest.of(
        obj, operation=operation, namespace=a_namespace("ns", tenant="a")
    )
    assert evaluate(admission, policy_set(), now=NOW).identity.tenant == "a"


@SLOW_START
@given(
    st.dictionaries(
        st.sampled_from(["tenant", "validations", "defaults", "variables", "gang", "classify"]),
        st.one_of(anything, st.lists(anything, max_size=2)),
        max_size=4,
    )
)
def test_no_document_makes_loading_raise(spec: Json) -> None:
    result = loader.compile_all(
        loader.read_objects([{**a_tenant_policy(), "spec": spec}]), compiler=a_compiler()
    )
    assert result.ok == bool(result.policies.policies)


@SLOW_START
@given(st.text(alphabet="abk: -[]{}'\"|>&*#\n\t!%@`,", max_size=60))
def test_no_text_makes_reading_raise(text: str) -> None:
    try:
        parts = yaml_reader.parse(text, "f")
    except yaml_reader.DocumentError:
        return
    values = [part.value for part in parts if isinstance(part.value, dict)]
    assert not loader.read_objects(values).entries
