from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pods import requests
from policies.pods.requests import RequestError

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


def container(name: str = "c", **amounts: str) -> Json:
    return {"name": name, "resources": {"requests": amounts}}


def sidecar(**amounts: str) -> Json:
    return container("s", **amounts) | {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": []}, {}, id="nothing requested"),
        pytest.param(
            {"containers": [container(cpu="1", memory="1Gi"), container(cpu="500m")]},
            {"cpu": 1500, "memory": 2**30},
            id="containers add up",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]},
            {"cpu": 3000},
            id="a larger init container sets the peak",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [sidecar(cpu="1"), container(cpu="1500m")],
            },
            {"cpu": 2500},
            id="an init container after a sidecar runs beside it",
        ),
        pytest.param(
            {
                "containers": [container(cpu="2")],
                "initContainers": [container(cpu="1500m"), sidecar(cpu="1")],
            },
            {"cpu": 3000},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "64Mi"}},
            {"cpu": 1250, "memory": 2**26},
            id="overhead comes on top",
        ),
        pytest.param(
            {
                "containers": [container("c", cpu="1", **{GPU: "2"})],
                "resources": {"requests": {"cpu": "4", GPU: "9"}},
            },
            {"cpu": 4000, GPU: 2},
            id="pod-level requests replace CPU and memory and nothing else",
        ),
        pytest.param(
            {"containers": [{"name": "c", "resources": {"limits": {GPU: "8"}}}]},
            {GPU: 8},
            id="a limit stands for a missing request",
        ),
        pytest.param(
            {"containers": [{"name": "c", "resources": None}], "initContainers": None},
            {},
            id="null fields are absent fields",
        ),
    ],
)
def test_effective_requests(spec: Json, want: dict[str, int]) -> None:
    assert requests.effective({"spec": spec}) == want


def held(name: str, granted: str | None = None, running: str | None = None) -> Json:
    row: Json = {"name": name}
    if granted is not None:
        row["allocatedResources"] = {"cpu": granted}
    if running is not None:
        row["resources"] = {"requests": {"cpu": running}}
    return row


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = INFEASIBLE | {"reason": "Deferred"}
TWO = [container("a", cpu="1"), container("b", cpu="3")]


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param(
            {"containers": [container(cpu="1")]},
            {"containerStatuses": [held("c", "2", "3")]},
            3000,
            id="what still runs, where it is more",
        ),
        pytest.param(
            {"containers": [container(cpu="4")]},
            {"containerStatuses": [held("c", "2", "3")]},
            4000,
            id="the request, where it is more",
        ),
        pytest.param(
            {"containers": [container(cpu="4")]},
            {"containerStatuses": [held("c", "2", "3")], "conditions": [DEFERRED]},
            4000,
            id="the request, while the kubelet may still grant it",
        ),
        pytest.param(
            {"containers": [container(cpu="4")]},
            {"containerStatuses": [held("c", "2", "3")], "conditions": [INFEASIBLE]},
            3000,
            id="not an infeasible request",
        ),
        pytest.param(
            {"containers": TWO},
            {"containerStatuses": [held("a", "3", "3"), held("b", "1", "1")]},
            4000,
            id="containers that change places: the largest sum, not the sum of the largest",
        ),
        pytest.param(
            {"containers": TWO},
            {"containerStatuses": [held("a", "3")]},
            6000,
            id="a container without a status counts with its request",
        ),
        pytest.param(
            {"containers": TWO},
            {"containerStatuses": [held("a", "2")], "conditions": [INFEASIBLE]},
            2000,
            id="a container without a status, infeasible",
        ),
        pytest.param(
            {"containers": [container(cpu="1")]},
            {"allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}}},
            3000,
            id="a pod's own status stands for those of its containers",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="1")]},
            {"initContainerStatuses": [held("s", "2", "2")]},
            3000,
            id="a sidecar",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
            {"allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "5"}}},
            6000,
            id="a whole pod",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "9"}}},
            {
                "allocatedResources": {"cpu": "6"},
                "resources": {"requests": {"cpu": "5"}},
                "conditions": [INFEASIBLE],
            },
            6000,
            id="a whole pod, infeasible",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
            {"allocatedResources": {"cpu": "6"}, "conditions": [INFEASIBLE]},
            4000,
            id="a whole pod whose running resources are not reported",
        ),
    ],
)
def test_resizes_in_place(spec: Json, status: Json, want: int) -> None:
    assert requests.effective({"spec": spec, "status": status}) == {"cpu": want}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [container()]}, {"cpu": 100, "memory": 9}, id="requests none"),
        pytest.param(
            {"containers": [container(cpu="1"), container(memory="5")]},
            {"cpu": 1100, "memory": 14},
            id="container by container",
        ),
        pytest.param(
            {"containers": [container(cpu="0", memory="0")]},
            {"cpu": 0, "memory": 0},
            id="a request of zero is a request",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"requests": {"cpu": "2"}}},
            {"cpu": 2000, "memory": 9},
            id="the pod itself says it",
        ),
    ],
)
def test_defaults_count_for_containers_without_the_resource(
    spec: Json, want: dict[str, int]
) -> None:
    assert requests.effective({"spec": spec}, defaults={"cpu": 100, "memory": 9}) == want


def test_overhead_raises_only_limits_that_exist() -> None:
    spec = {
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}],
        "overhead": {"cpu": "250m", "memory": "64Mi"},
    }
    assert requests.effective({"spec": spec}, section="limits") == {"cpu": 1250}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"containers": [container(cpu="lots")]}, "spec.containers[0].resources.requests.cpu"),
        ({"containers": [container(cpu="-1")]}, "spec.containers[0].resources.requests.cpu"),
        ({"containers": ["x"]}, "spec.containers[0]"),
        ({"containers": "x"}, "spec.containers"),
        ({"containers": [{"resources": 3}]}, "spec.containers[0].resources"),
        (
            {"initContainers": [{"resources": {"limits": []}}]},
            "spec.initContainers[0].resources.limits",
        ),
        ({"overhead": {"memory": "1GB"}}, "spec.overhead.memory"),
    ],
)
def test_a_field_that_cannot_be_read_is_named(spec: Json, path: str) -> None:
    with pytest.raises(RequestError) as caught:
        requests.effective({"spec": spec})
    assert caught.value.path == path


def test_gpus_of_all_makers_count() -> None:
    assert requests.gpus({"cpu": 1000, GPU: 2, "amd.com/gpu": 1}) == 3


def by_hand(inits: list[tuple[bool, dict[str, int]]], main: dict[str, int]) -> dict[str, int]:
    """Kubernetes' rule, resource by resource: the most that runs at one time."""
    names = {name for _, amounts in inits for name in amounts} | main.keys()
    total: dict[str, int] = {}
    for name in names:
        sidecars, peak = 0, 0
        for restarts, amounts in inits:
            sidecars += amounts.get(name, 0) if restarts else 0
            peak = max(peak, sidecars + (0 if restarts else amounts.get(name, 0)))
        total[name] = max(peak, sidecars + main.get(name, 0))
    return total


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "a.b/c"]), st.integers(1, 9))


@given(st.lists(st.tuples(st.booleans(), amounts), max_size=6), amounts)
def test_init_containers_and_sidecars_in_any_order(
    inits: list[tuple[bool, dict[str, int]]], main: dict[str, int]
) -> None:
    def one(requested: dict[str, int], **more: str) -> Json:
        quantities = {name: f"{n}m" if name == "cpu" else str(n) for name, n in requested.items()}
        return {"name": "c", "resources": {"requests": quantities}, **more}

    spec = {
        "initContainers": [one(a, restartPolicy="Always") if r else one(a) for r, a in inits],
        "containers": [one(main)],
    }
    assert requests.effective({"spec": spec}) == by_hand(inits, main)


def test_what_cannot_be_read_is_shown_in_few_words() -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": ["x" * 10**6]}}]}
    with pytest.raises(RequestError, match="found a list, want a map of resource names"):
        requests.effective({"spec": spec})
