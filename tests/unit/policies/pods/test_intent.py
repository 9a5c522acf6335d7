import math
import operator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import bounds, vocabulary
from policies.pods import intent
from policies.pods.intent import Gang, Intent, Numa, Problem
from policies.vocabulary import Key, annotation, label
from tests.builders import a_container, a_pod, in_gang

SIGS = "pod-group.scheduling.sigs.k8s.io"


def canonical(size: int | None = 4) -> Gang:
    return Gang("g", size, label(vocabulary.GANG_NAME_LABEL))


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param({}, {}, None, id="a pod of its own"),
        pytest.param(in_gang(), {}, canonical(), id="canonical labels"),
        pytest.param(
            {f"{SIGS}/name": "g", f"{SIGS}/min-member": "4"},
            {},
            Gang("g", 4, label(f"{SIGS}/name")),
            id="the sigs family",
        ),
        pytest.param(
            {},
            {vocabulary.GANG_GROUP_ANNOTATION: "g"},
            Gang("g", None, annotation(vocabulary.GANG_GROUP_ANNOTATION)),
            id="a locality group has no size",
        ),
        pytest.param(
            in_gang() | {f"{SIGS}/name": "g"}, {}, canonical(), id="families that agree are one"
        ),
        pytest.param(
            in_gang() | {vocabulary.GANG_ROLE_LABEL: "leader"},
            {vocabulary.GANG_TIMEOUT_ANNOTATION: "2m"},
            Gang("g", 4, label(vocabulary.GANG_NAME_LABEL), "leader", 120.0),
            id="role and timeout",
        ),
        pytest.param(
            {vocabulary.X_K8S_POD_GROUP: "g"},
            {},
            Gang("g", None, label(vocabulary.X_K8S_POD_GROUP)),
            id="a PodGroup object says the size",
        ),
    ],
)
def test_gangs(labels: dict[str, str], annotations: dict[str, str], want: Gang | None) -> None:
    got = intent.read(a_pod(labels=labels, annotations=annotations))
    assert got == Intent(gang=want)


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        pytest.param(
            {},
            {
                vocabulary.NUMA_POLICY_ANNOTATION: "single-numa",
                "scheduling.kubenexus.io/numa-policy": "single-numa-node",
            },
            id="an alias of a NUMA policy",
        ),
        pytest.param(
            {"vram.scheduling.kubenexus.io/required": "81920Mi"},
            {vocabulary.VRAM_ANNOTATION: "80Gi"},
            id="two units of one amount",
        ),
        pytest.param(
            in_gang() | {f"{SIGS}/min-member": "04"}, {}, id="a number with a zero before it"
        ),
    ],
)
def test_two_spellings_of_one_value_agree(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    assert intent.read(a_pod(labels=labels, annotations=annotations)).problems == ()


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        pytest.param("cpu=4,memory=8Gi", [], id="amounts"),
        pytest.param(
            "4 CPUs", ["found '4 CPUs', want amounts such as cpu=4,memory=8Gi"], id="a sentence"
        ),
        pytest.param(
            "cpu=lots",
            ["found 'lots', want a quantity such as 500m, 2, 1.5Gi or 80G"],
            id="no quantity",
        ),
        pytest.param("cpu=-1", ["found 'cpu=-1', want zero or more"], id="less than nothing"),
        pytest.param(
            "cpu=1,cpu=2",
            ["found 'cpu=1,cpu=2', want amounts such as cpu=4,memory=8Gi"],
            id="one resource twice",
        ),
    ],
)
def test_requests_of_members(text: str, messages: list[str]) -> None:
    key = vocabulary.GANG_MEMBERS_ANNOTATION
    found = intent.read(a_pod(labels=in_gang(), annotations={key: text})).problems
    assert [one.message for one in found] == [f"{key}: {row}" for row in messages]


DEEP: Any = []
for _ in range(1000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (4, "4"),
        (1.5, "1.5"),
        (True, "True"),
        (["4"], "a list"),
        ({"a": "b"}, "a map"),
        pytest.param(DEEP, "a list", id="deeper than Python can write"),
    ],
)
def test_a_value_that_is_no_text_is_a_problem(value: Any, found: str) -> None:
    pod = a_pod()
    labels = {**in_gang(size=None), vocabulary.GANG_MIN_AVAILABLE_LABEL: value}
    pod["metadata"]["labels"] = labels
    [problem] = intent.read(pod).problems
    assert (problem.rule, problem.fix) == ("text", "put the value in quotes")
    assert problem.message.startswith(f"{vocabulary.GANG_MIN_AVAILABLE_LABEL}: found {found}, ")


def test_the_native_group_is_read_from_the_spec() -> None:
    pod = a_pod(schedulingGroup={"podGroupName": "g"})
    gang = intent.read(pod).gang
    assert gang == Gang("g", None, Key("fields", vocabulary.NATIVE_GROUP_FIELD))
    assert gang is not None
    assert gang.size_in_pod_group


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, Numa(), id="nothing requested"),
        pytest.param(
            {f"{vocabulary.GROUP}/numa-policy": "single-numa-node"},
            Numa(policy="single-numa"),
            id="the older key and value",
        ),
        pytest.param(
            {
                vocabulary.NUMA_POLICY_ANNOTATION: "isolated",
                vocabulary.NUMA_RESOURCES_ANNOTATION: "cpu, memory,nvidia.com/gpu",
                vocabulary.NUMA_AFFINITY_ANNOTATION: "0, 1",
                vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION: "3",
                vocabulary.MEMORY_INTENSIVE_ANNOTATION: "false",
                vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION: "100",
                vocabulary.GANG_NUMA_SPREAD_ANNOTATION: "balanced",
            },
            Numa(
                "isolated",
                ("cpu", "memory", "nvidia.com/gpu"),
                (0, 1),
                (3,),
                False,
                100,
                "balanced",
            ),
            id="everything",
        ),
    ],
)
def test_numa(annotations: dict[str, str], want: Numa) -> None:
    assert intent.read(a_pod(annotations=annotations)) == Intent(numa=want)


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param(
            in_gang(size="0"),
            {},
            "p/gang-size: pod-group.scheduling.kubenexus.io/min-available: found '0', want a whole "
            "number of at least 1 "
            "(metadata.labels['pod-group.scheduling.kubenexus.io/min-available']): "
            "correct the value or remove the key",
            id="size zero",
        ),
        pytest.param(
            in_gang() | {f"{SIGS}/name": "other"},
            {},
            "p/gang-families: label pod-group.scheduling.kubenexus.io/name is 'g' and label "
            "pod-group.scheduling.sigs.k8s.io/name is 'other' "
            "(metadata.labels['pod-group.scheduling.sigs.k8s.io/name']): "
            "keep pod-group.scheduling.kubenexus.io/name alone, or give both the same value",
            id="families that disagree",
        ),
        pytest.param(
            {vocabulary.GANG_MIN_AVAILABLE_LABEL: "4"},
            {},
            "p/gang-name: pod-group.scheduling.kubenexus.io/min-available is 4 but no group is named "
            "(metadata.labels['pod-group.scheduling.kubenexus.io/min-available']): add the label "
            "pod-group.scheduling.kubenexus.io/name, or remove "
            "pod-group.scheduling.kubenexus.io/min-available",
            id="a size without a name",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_POLICY_ANNOTATION: "strict"},
            "p/numa-policy: numa.scheduling.kubenexus.io/policy: found 'strict', want one of none, "
            "best-effort, restricted, single-numa, isolated "
            "(metadata.annotations['numa.scheduling.kubenexus.io/policy']): "
            "correct the value or remove the key",
            id="unknown NUMA policy",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_RESOURCES_ANNOTATION: "cpu,gpu"},
            "p/numa-resources: numa.scheduling.kubenexus.io/resources: found 'gpu' in 'cpu,gpu', want "
            "resource names such as cpu,memory,nvidia.com/gpu "
            "(metadata.annotations['numa.scheduling.kubenexus.io/resources']): "
            "correct the value or remove the key",
            id="unknown resource name",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_AFFINITY_ANNOTATION: "0,x"},
            "p/numa-ids: scheduling.kubenexus.io/numa-affinity-node-id: found '0,x', want a comma list "
            "of NUMA node ids such as 0,1 "
            "(metadata.annotations['scheduling.kubenexus.io/numa-affinity-node-id']): "
            "correct the value or remove the key",
            id="bad id list",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION: "101"},
            "p/numa-weight: scheduling.kubenexus.io/numa-distance-weight: found '101', want a whole "
            "number from 0 to 100 "
            "(metadata.annotations['scheduling.kubenexus.io/numa-distance-weight']): "
            "correct the value or remove the key",
            id="weight out of range",
        ),
        pytest.param(
            {},
            {vocabulary.VRAM_ANNOTATION: "80GB"},
            "p/vram: scheduling.kubenexus.io/vram-request: found '80GB', want a quantity such as 500m, "
            "2, 1.5Gi or 80G (metadata.annotations['scheduling.kubenexus.io/vram-request']): "
            "correct the value or remove the key",
            id="VRAM that is no quantity",
        ),
        pytest.param(
            {},
            {vocabulary.EXPECTED_DURATION_ANNOTATION: "1 day"},
            "p/duration: scheduling.kubenexus.io/expected-duration: found '1 day', want a duration such "
            "as 30s, 10m or 1h30m "
            "(metadata.annotations['scheduling.kubenexus.io/expected-duration']): "
            "correct the value or remove the key",
            id="duration that is none",
        ),
    ],
)
def test_what_cannot_be_obeyed_names_key_found_accepted_and_fix(
    labels: dict[str, str], annotations: dict[str, str], want: str
) -> None:
    got = intent.read(a_pod(labels=labels, annotations=annotations))
    assert [problem.line("p") for problem in got.problems] == [want]


TEN_YEARS = float(87_600 * 3600)
MEMBERS = vocabulary.GANG_MEMBERS_ANNOTATION


@pytest.mark.parametrize(
    ("labels", "annotations", "want", "message"),
    [
        pytest.param(
            {},
            {vocabulary.EXPECTED_DURATION_ANNOTATION: "99999999999h"},
            Intent(expected_duration=TEN_YEARS),
            "scheduling.kubenexus.io/expected-duration: found '99999999999h', want at most 87600h",
            id="a duration",
        ),
        pytest.param(
            in_gang(),
            {vocabulary.GANG_TIMEOUT_ANNOTATION: "9" * 31 + "h"},
            Intent(Gang("g", 4, label(vocabulary.GANG_NAME_LABEL), timeout=TEN_YEARS)),
            f"{vocabulary.GANG_TIMEOUT_ANNOTATION}: found '{'9' * 31}h', want at most 87600h",
            id="a timeout",
        ),
        pytest.param(
            in_gang(size="999999999"),
            {},
            Intent(canonical(100_000)),
            f"{vocabulary.GANG_MIN_AVAILABLE_LABEL}: found '999999999', want at most 100000",
            id="a gang size",
        ),
        pytest.param(
            {},
            {vocabulary.VRAM_ANNOTATION: "9E"},
            Intent(vram=2**53),
            "scheduling.kubenexus.io/vram-request: found '9E', want at most 2^53 bytes or devices,"
            " or 2^53 thousandths of a CPU",
            id="VRAM",
        ),
        pytest.param(
            in_gang(),
            {MEMBERS: "cpu=9E,memory=1Gi"},
            Intent(canonical()),
            f"{MEMBERS}: found 'cpu=9E,memory=1Gi', want at most 64 resources, each at most 2^53"
            " bytes or devices, or 2^53 thousandths of a CPU",
            id="an amount of a member",
        ),
    ],
)
def test_a_value_above_its_bound_is_denied_and_read_as_the_bound(
    labels: dict[str, str], annotations: dict[str, str], want: Intent, message: str
) -> None:
    got = intent.read(a_pod(labels=labels, annotations=annotations))
    (problem,) = got.problems
    assert replace(got, problems=()) == want
    assert (problem.rule, problem.message, problem.saturates) == ("bounds", message, True)


def test_every_problem_is_reported_with_its_path_in_the_object() -> None:
    pod = a_pod(labels=in_gang(size="x"), annotations={vocabulary.VRAM_ANNOTATION: "?"})
    got = intent.read(pod, path="spec.template")
    assert [p.path for p in got.problems] == [
        "spec.template.metadata.labels['pod-group.scheduling.kubenexus.io/min-available']",
        "spec.template.metadata.annotations['scheduling.kubenexus.io/vram-request']",
    ]


class Unread(str):
    """A text that may be measured and cut, and fails when a parser reads it."""

    def _read(self, *_: object, **__: object) -> Any:
        raise AssertionError("a parser read it")

    split = partition = strip = lower = isascii = isdigit = startswith = encode = _read
    __iter__ = __eq__ = __hash__ = __contains__ = __str__ = __repr__ = __format__ = _read


def a_value(key: Key, text: str) -> dict[str, Any]:
    """A pod with one value, and a gang's name where the key needs one."""
    pod = a_pod(labels=in_gang(size=None))
    pod["metadata"].setdefault(key.place, {})[key.name] = text
    return pod


@pytest.mark.parametrize("key", intent.KEYS, ids=str)
def test_no_parser_sees_a_text_that_is_too_long(key: Key) -> None:
    bound = bounds.of(key)
    text = Unread("1" * (bound.longest + 1))
    (problem,) = [row for row in intent.read(a_value(key, text)).problems if row.rule == "bounds"]
    assert problem == Problem(
        "bounds",
        f"metadata.{key.place}['{key.name}']",
        f"{key.name}: {bound.too_long('1' * (bound.longest + 1))}",
        "shorten the value or remove the key",
    )


def test_a_resource_that_a_container_requests_is_known() -> None:
    pod = a_pod(
        annotations={vocabulary.NUMA_RESOURCES_ANNOTATION: "cpu,fpga"},
        containers=[a_container(cpu="1") | {"resources": {"limits": {"fpga": "1"}}}],
    )
    assert intent.read(pod).numa.resources == ("cpu", "fpga")


KEYS = [
    key.name
    for family in (
        vocabulary.GANG_NAME_FAMILIES,
        vocabulary.GANG_MIN_AVAILABLE_FAMILIES,
        vocabulary.NUMA_POLICY_FAMILIES,
        vocabulary.VRAM_FAMILIES,
    )
    for key in family
] + [vocabulary.NUMA_RESOURCES_ANNOTATION, vocabulary.NUMA_AFFINITY_ANNOTATION]
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
written = st.dictionaries(st.sampled_from(KEYS), st.text(max_size=12) | json, max_size=6)


@given(written | json, written | json, json, json)
def test_no_pod_makes_reading_raise(
    labels: Any, annotations: Any, spec: Any, containers: Any
) -> None:
    pod = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"containers": containers} if spec is None else spec,
    }
    assert isinstance(intent.read(pod), Intent)


def log_scale(most: int) -> st.SearchStrategy[int]:
    """From 0 to `most`, every order of magnitude as often."""
    return st.floats(0, math.log10(most)).map(lambda exponent: int(10**exponent))


numbers = log_scale(10**30)
texts = st.one_of(
    numbers.map(str),
    st.builds("{}{}".format, numbers, st.sampled_from(["h", "ns", "h1m", "Gi", "E", "m", "e9"])),
    st.builds("cpu={},memory={}Gi".format, numbers, numbers),
    st.builds(operator.mul, st.sampled_from(["1", "0,", "1h", "cpu,", "a", " "]), log_scale(10**5)),
)


@given(st.dictionaries(st.sampled_from(intent.KEYS), texts, max_size=6))
def test_no_value_is_read_beyond_its_bound(values: dict[Key, str]) -> None:
    metadata: dict[str, dict[str, str]] = {"labels": in_gang(size=None), "annotations": {}}
    for key, text in values.items():
        metadata[key.place][key.name] = text
    got = intent.read({"metadata": metadata, "spec": {}})
    read = (
        (got.gang.min_available if got.gang else None, bounds.GANG_SIZE),
        (got.gang.timeout if got.gang else None, bounds.DURATION),
        (got.expected_duration, bounds.DURATION),
        (got.vram, bounds.QUANTITY),
        (len(got.numa.prefer), bounds.LIST),
        (len(got.numa.avoid), bounds.LIST),
        (len(got.numa.resources or ()), bounds.LIST),
        (got.numa.distance_weight, bounds.PERCENTAGE),
    )
    assert [row for value, row in read if value is not None and value > (row.largest or 0)] == []
    assert all(len(problem.message) < 500 for problem in got.problems)
