"""What is read of a pod for the inside of its host."""

from typing import Any

import pytest

from policies import vocabulary
from scheduler.model.numa_request import ALL_RESOURCES, ContainerRequest, HostRequest
from scheduler.model.pod import Pod
from tests.unit.scheduler.builders import pod_json

GIB = 2**30
WEIGHT = vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION
SPREAD = vocabulary.GANG_NUMA_SPREAD_ANNOTATION
INTENSIVE = vocabulary.MEMORY_INTENSIVE_ANNOTATION


def container(name: str = "c", **limits: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits, "requests": dict(limits)}}


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param({}, HostRequest(cpu=1000), id="a plain pod"),
        pytest.param(
            {"cpu": "4", "memory": "17Gi"},
            HostRequest(cpu=4000, memory=17 * GIB, intensive=True),
            id="much memory for few cores",
        ),
        pytest.param(
            {"cpu": "5", "memory": "20Gi"},
            HostRequest(cpu=5000, memory=20 * GIB),
            id="not more than 4Gi for a core",
        ),
        pytest.param(
            {"cpu": "1", "memory": "16Gi"},
            HostRequest(cpu=1000, memory=16 * GIB),
            id="not above 16Gi",
        ),
        pytest.param(
            {"cpu": "4", "memory": "17Gi", "annotations": {INTENSIVE: "false"}},
            HostRequest(cpu=4000, memory=17 * GIB),
            id="an annotation overrides it",
        ),
        pytest.param(
            {"annotations": {INTENSIVE: "true", WEIGHT: "80", SPREAD: "isolated"}},
            HostRequest(cpu=1000, intensive=True, distance=80),
            id="a pod without a gang has no spread",
        ),
        pytest.param(
            {"gang": ("g", 2), "annotations": {SPREAD: "isolated"}},
            HostRequest(cpu=1000, spread="isolated"),
            id="a member of a gang",
        ),
        pytest.param(
            {"containers": [container(cpu="2", memory="1Gi")]},
            HostRequest(cpu=2000, memory=GIB, guaranteed=True),
            id="guaranteed",
        ),
        pytest.param(
            {
                "containers": [
                    {
                        "name": "c",
                        "resources": {
                            "limits": {"cpu": "2", "memory": "1Gi"},
                            "requests": {"cpu": "2000m", "memory": "512Mi"},
                        },
                    }
                ]
            },
            HostRequest(cpu=2000, memory=GIB // 2),
            id="burstable",
        ),
        pytest.param(
            {"containers": [container(cpu="1", memory="1Gi", **{"hugepages-2Mi": "4Mi"})]},
            HostRequest(
                cpu=1000,
                memory=GIB,
                aligned=ALL_RESOURCES | {"hugepages-2Mi"},
                hugepages=(("hugepages-2Mi", 4 * 2**20),),
                guaranteed=True,
            ),
            id="huge pages sit with the rest",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1", memory="1Gi", **{"hugepages-2Mi": "4Mi"})],
                "annotations": {vocabulary.NUMA_RESOURCES_ANNOTATION: "cpu,hugepages-2Mi"},
            },
            HostRequest(
                cpu=1000,
                memory=GIB,
                aligned=frozenset({"cpu", "hugepages-2Mi"}),
                hugepages=(("hugepages-2Mi", 4 * 2**20),),
                guaranteed=True,
            ),
            id="or where the list names them",
        ),
        pytest.param(
            {
                "initContainers": [container("i", cpu="1", memory="1Gi")],
                "containers": [
                    container("a", cpu="2", memory="1Gi"),
                    container("b", cpu="1500m", memory="1Gi", **{"nvidia.com/gpu": "1"}),
                ],
            },
            HostRequest(
                cpu=3500,
                memory=2 * GIB,
                gpus=1,
                guaranteed=True,
                containers=(
                    ContainerRequest(1000, GIB, passing=True),
                    ContainerRequest(2000, GIB),
                    ContainerRequest(0, GIB, 1),
                ),
            ),
            id="each container as the kubelet sees it",
        ),
    ],
)
def test_host_requests(more: dict[str, Any], want: HostRequest) -> None:
    containers = more.pop("containers", None)
    body = pod_json("p", **more)
    if containers is not None:
        body["spec"]["containers"] = containers
    assert Pod.read(body).spec.host_request == want
