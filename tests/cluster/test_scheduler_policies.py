"""The scheduler follows the policy objects of a real API server, as they are now."""

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.cluster.node_pool import NodePool
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., subprocess.CompletedProcess[str]]

POLICY = {
    "apiVersion": vocabulary.POLICY_API_VERSION,
    "kind": "PlatformPolicy",
    "metadata": {"name": "rows"},
    "spec": {"topologyLevels": [{"name": "row", "labels": ["example.com/row"]}]},
}


@pytest.fixture
def node_pool(control_plane: ControlPlane, stack: Stack, namespace: str) -> Iterator[NodePool]:
    made = NodePool(control_plane, namespace)
    yield made
    made.close()


def test_a_level_that_a_policy_adds_is_known_at_once(node_pool: NodePool, kubectl: Kubectl) -> None:
    rows = {
        node_pool.add_node("a", cpu="2", labels={"example.com/row": "1"}): "1",
        node_pool.add_node("b", cpu="3", labels={"example.com/row": "2"}): "2",
        node_pool.add_node("c", cpu="2", labels={"example.com/row": "2"}): "2",
        node_pool.add_node("d", cpu="9"): "",
    }
    together = {vocabulary.CO_LOCATE_ANNOTATION: "strict:row"}
    node_pool.create(
        *(node_pool.pod(f"p{i}", gang=("g", 4), annotations=together) for i in range(4))
    )
    unknown = "co-locate names the topology level row, which no policy names"
    eventually(lambda: unknown in node_pool.condition("p0")[2], "the reason why the gang waits")
    try:
        got = kubectl("apply", "-f", "-", input=json.dumps(POLICY))
        assert got.returncode == 0, got.stderr
        assert {rows.get(node) for node in node_pool.all_bound(4).values()} == {"2"}
    finally:
        kubectl("delete", "platformpolicy", "rows", "--ignore-not-found")
