"""Kubernetes' own PodGroups, on an API server that serves them: they say how large a gang is."""

from collections.abc import Iterator

import pytest

from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.cluster.node_pool import NodePool, until

pytestmark = pytest.mark.cluster

GROUPS = {"1.36": ("v1alpha2", "GenericWorkload=true,GangScheduling=true")}
DEFAULT = ("v1beta1", "GenericWorkload=true")


@pytest.fixture(scope="module")
def version(kubernetes_binaries: Binaries) -> tuple[str, str]:
    """(version of the API group, feature gates), by the release of Kubernetes."""
    return GROUPS.get(kubernetes_binaries.kubernetes.rpartition(".")[0], DEFAULT)


@pytest.fixture(scope="module")
def plane(
    kubernetes_binaries: Binaries,
    version: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """A control plane of its own: the kind is off by default."""
    api, gates = version
    made = ControlPlane(
        binaries=kubernetes_binaries,
        folder=tmp_path_factory.mktemp("native-groups"),
        for_tests=True,
        apiserver_flags=[
            f"--feature-gates={gates}",
            f"--runtime-config=scheduling.k8s.io/{api}=true",
        ],
    )
    with made, Stack(made, webhook=False):
        yield made


def test_the_size_of_a_gang_stands_in_a_native_pod_group(
    plane: ControlPlane, version: tuple[str, str]
) -> None:
    namespace, api = "default", f"scheduling.k8s.io/{version[0]}"
    until(lambda: plane.has_default_account(namespace), bool)
    node_pool = NodePool(plane, namespace)
    node_pool.add_node("a")
    pods = [node_pool.pod(f"m{i}", schedulingGroup={"podGroupName": "g"}) for i in range(3)]
    node_pool.create(*pods[:2])
    start = f"{vocabulary.WAITING_FOR_POD_GROUP} g"
    missing = until(lambda: node_pool.condition("m0"), lambda found: "object" in found[2])
    group = {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    node_pool.post(f"apis/{api}/podgroups", group)
    short = until(lambda: node_pool.condition("m0"), lambda found: "2/3" in found[2])
    node_pool.create(pods[2])
    bound = node_pool.all_bound(3)
    assert (missing[1:], short[1:], set(bound.values())) == (
        ("WaitingForPodGroup", f"{start}: its PodGroup object does not exist"),
        ("WaitingForPodGroup", f"{start}: 2/3 pods exist"),
        {f"{namespace}-a"},
    )
