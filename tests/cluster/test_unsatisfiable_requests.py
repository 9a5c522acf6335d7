"""Requests of a workload's author that no scheduler can satisfy, reported at `kubectl apply`."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.builders import a_container, a_job, a_pod, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

NAME, MIN = vocabulary.GANG_NAME_LABEL, vocabulary.GANG_MIN_AVAILABLE_LABEL
SIGS = "pod-group.scheduling.sigs.k8s.io"
NUMA = vocabulary.NUMA_POLICY_ANNOTATION
LABELS, ANNOTATIONS = "spec.template.metadata.labels", "spec.template.metadata.annotations"
CORRECT = "correct the value or remove the key"


def job(
    namespace: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    cpu: str = "1",
    parallelism: int = 4,
) -> Json:
    pod = a_pod(
        labels=labels,
        annotations=annotations,
        containers=[a_container(cpu=cpu)],
        restartPolicy="Never",
    )
    made = a_job("w", pod=pod, parallelism=parallelism, suspend=True)
    return made | {"metadata": {"name": "w", "namespace": namespace}}


def applied(kubectl: Kubectl, obj: Json) -> tuple[bool, list[str]]:
    """Whether the object was let in, and the lines that kubectl printed besides."""
    got = kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(obj))
    lines = got.stderr.replace("denied the request: ", "denied the request:\n").splitlines()
    return got.returncode == 0, [line for line in lines if "/" in line and "admission" not in line]


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param(
            in_gang(size="0"),
            {},
            f"gang-size: {MIN}: found '0', want a whole number of at least 1 ({LABELS}['{MIN}']): {CORRECT}",
            id="a size below one",
        ),
        pytest.param(
            in_gang(size="2.5"),
            {},
            f"gang-size: {MIN}: found '2.5', want a whole number of at least 1 ({LABELS}['{MIN}']): {CORRECT}",
            id="a size that is no whole number",
        ),
        pytest.param(
            {MIN: "4"},
            {},
            f"gang-name: {MIN} is 4 but no group is named ({LABELS}['{MIN}']): add the label {NAME}, or remove {MIN}",
            id="a size without a name",
        ),
        pytest.param(
            {**in_gang("g"), f"{SIGS}/name": "h"},
            {},
            f"gang-families: label {NAME} is 'g' and label {SIGS}/name is 'h' "
            f"({LABELS}['{SIGS}/name']): keep {NAME} alone, or give both the same value",
            id="two families that name two groups",
        ),
        pytest.param(
            {**in_gang(), f"{SIGS}/min-available": "3"},
            {},
            f"gang-size: label {MIN} is '4' and label {SIGS}/min-available is '3' "
            f"({LABELS}['{SIGS}/min-available']): keep {MIN} alone, or give both the same value",
            id="two families that say two sizes",
        ),
        pytest.param(
            {},
            {NUMA: "one"},
            f"numa-policy: {NUMA}: found 'one', want one of none, best-effort, restricted, single-numa, isolated "
            f"({ANNOTATIONS}['{NUMA}']): {CORRECT}",
            id="an unknown NUMA policy",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_RESOURCES_ANNOTATION: "cpu,ram"},
            f"numa-resources: {vocabulary.NUMA_RESOURCES_ANNOTATION}: found 'ram' in 'cpu,ram', "
            "want resource names such as cpu,memory,nvidia.com/gpu "
            f"({ANNOTATIONS}['{vocabulary.NUMA_RESOURCES_ANNOTATION}']): {CORRECT}",
            id="an unknown resource",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_AFFINITY_ANNOTATION: "0;1"},
            f"numa-ids: {vocabulary.NUMA_AFFINITY_ANNOTATION}: found '0;1', want a comma list of NUMA node ids such as 0,1 "
            f"({ANNOTATIONS}['{vocabulary.NUMA_AFFINITY_ANNOTATION}']): {CORRECT}",
            id="NUMA ids that are no list",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION: "-1"},
            f"numa-ids: {vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION}: found '-1', want a comma list of NUMA node ids such as 0,1 "
            f"({ANNOTATIONS}['{vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION}']): {CORRECT}",
            id="a NUMA id to avoid that is none",
        ),
        pytest.param(
            {},
            {vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION: "101"},
            f"numa-weight: {vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION}: found '101', want a whole number from 0 to 100 "
            f"({ANNOTATIONS}['{vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION}']): {CORRECT}",
            id="a weight out of range",
        ),
        pytest.param(
            {},
            {vocabulary.VRAM_ANNOTATION: "much"},
            f"vram: {vocabulary.VRAM_ANNOTATION}: found 'much', want a quantity such as 500m, 2, 1.5Gi or 80G "
            f"({ANNOTATIONS}['{vocabulary.VRAM_ANNOTATION}']): {CORRECT}",
            id="VRAM that is no quantity",
        ),
        pytest.param(
            {},
            {vocabulary.EXPECTED_DURATION_ANNOTATION: "soon"},
            f"duration: {vocabulary.EXPECTED_DURATION_ANNOTATION}: found 'soon', want a duration such as 30s, 10m or 1h30m "
            f"({ANNOTATIONS}['{vocabulary.EXPECTED_DURATION_ANNOTATION}']): {CORRECT}",
            id="a duration that is none",
        ),
        pytest.param(
            in_gang(),
            {vocabulary.GANG_TIMEOUT_ANNOTATION: "10"},
            f"gang-timeout: {vocabulary.GANG_TIMEOUT_ANNOTATION}: found '10', want a duration such as 30s, 10m or 1h30m "
            f"({ANNOTATIONS}['{vocabulary.GANG_TIMEOUT_ANNOTATION}']): {CORRECT}",
            id="a gang's timeout that is none",
        ),
        pytest.param(
            {vocabulary.TIER_LABEL: "gold"},
            {},
            f"tier: found 'gold', but namespace '{{namespace}}' has tier 'bronze' ({LABELS}['{vocabulary.TIER_LABEL}']): "
            "remove the label, or ask the cluster admin to raise the namespace's tier",
            id="a tier above the namespace's",
        ),
    ],
)
def test_requests_that_no_node_can_satisfy(
    stack: Stack,
    kubectl: Kubectl,
    namespace: str,
    labels: dict[str, str],
    annotations: dict[str, str],
    want: str,
) -> None:
    line = f"kubenexus/{want}".replace("{namespace}", namespace)
    assert applied(kubectl, job(namespace, labels, annotations)) == (False, [line])


def test_every_failed_rule_is_reported(stack: Stack, kubectl: Kubectl, namespace: str) -> None:
    annotations = {NUMA: "one", vocabulary.VRAM_ANNOTATION: "much"}
    admitted, lines = applied(kubectl, job(namespace, in_gang(size=9), annotations))
    assert (admitted, [line.partition(":")[0] for line in lines]) == (
        False,
        ["kubenexus/numa-policy", "kubenexus/vram", "kubenexus/gang-size"],
    )


def test_a_group_name_without_a_size_is_denied_where_no_policy_gives_one(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    pod = a_pod("p", namespace=namespace, labels=in_gang(size=None))
    line = (
        f"kubenexus/gang-size: group 'g' is named without a size (metadata.labels['{NAME}']): "
        f"add the label {MIN} with the number of pods that must start together"
    )
    assert applied(kubectl, pod) == (False, [line])


@pytest.fixture
def limit(stack: Stack, kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """The name of a policy that lets the namespace's tenant have gangs of three."""
    name = f"limit-{namespace}"
    policy = {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "TenantPolicy",
        "metadata": {"name": name},
        "spec": {
            "tenant": {"name": f"tenant-{namespace}", "tier": "silver"},
            "namespaceSelector": {"matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: namespace}},
            "gang": {"maxSize": 3},
        },
    }
    got = kubectl("apply", "-f", "-", input=json.dumps(policy))
    assert got.returncode == 0, got.stderr
    yield name
    kubectl("delete", "tenantpolicy", name)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param("4", id="the template says the size"),
        pytest.param(None, id="the workload gives the size"),
    ],
)
def test_a_gang_above_the_tenants_limit_is_refused_at_the_workload(
    kubectl: Kubectl, namespace: str, limit: str, size: str | None
) -> None:
    obj = job(namespace, in_gang(size=size))
    line = (
        f"{limit}/gang-max-size: the gang needs 4 members, above the limit of tenant tenant-{namespace} (max 3) "
        f"({LABELS}['{MIN}']): lower min-available, or ask the cluster admin for a larger gang"
    )
    eventually(lambda: applied(kubectl, obj) == (False, [line]), "the limit in force")
    assert applied(kubectl, job(namespace, in_gang(size=3))) == (True, [])


@pytest.fixture
def numa_node(stack: Stack, control_plane: ControlPlane) -> Iterator[str]:
    """A node with one NUMA node of 32 CPUs; no pod may run there."""
    label = vocabulary.numa_node_label
    labels = {
        vocabulary.NUMA_NODE_COUNT_LABEL: "1",
        label(0, "cpus"): "0-31",
        label(0, "memory"): "64Gi",
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "numa-largest", "labels": labels},
        "spec": {"unschedulable": True},
    }
    control_plane.api().call("POST", "/api/v1/nodes", node)
    yield "numa-largest"
    control_plane.api().call("DELETE", "/api/v1/nodes/numa-largest")


def test_a_pod_larger_than_any_numa_node_is_warned_about(
    kubectl: Kubectl, namespace: str, numa_node: str
) -> None:
    annotations = {NUMA: "single-numa"}
    line = (
        "Warning: spec.template requests 40 CPUs on one NUMA node, the largest known has 32: "
        f"with {NUMA} single-numa it waits for a larger node; request less, or use restricted"
    )
    large = job(namespace, annotations=annotations, cpu="40")
    eventually(lambda: applied(kubectl, large) == (True, [line]), "the node known")
    assert applied(kubectl, job(namespace, annotations=annotations, cpu="32")) == (True, [])
