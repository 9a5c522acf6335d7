"""`kubenexus why` against a running scheduler: directly, and what is said about others."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import self_exec
from kubenexus.dev.stack import Stack
from tests.cluster.node_pool import NodePool, until

pytestmark = pytest.mark.cluster


@pytest.fixture
def node_pool(control_plane: ControlPlane, namespace: str, stack: Stack) -> Iterator[NodePool]:
    node_pool = NodePool(control_plane, namespace)
    yield node_pool
    node_pool.close()


def why(
    stack: Stack, node_pool: NodePool, pod: str, *more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *self_exec.COMMAND,
            "why",
            pod,
            "-n",
            node_pool.namespace,
            "--url",
            stack.scheduler_url,
            *more,
        ],
        env=self_exec.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_pod_that_waits(stack: Stack, node_pool: NodePool) -> None:
    node = node_pool.add_node("a", cpu="2")
    node_pool.create(node_pool.pod("big", cpu="3"))
    until(lambda: node_pool.condition("big"), lambda found: bool(found[1]))
    text = why(stack, node_pool, "pod/big").stdout.splitlines()
    assert text[0].startswith(f"pod {node_pool.namespace}/big: unschedulable for ")
    assert f"  {node_pool.condition('big')[2]}" == text[1]
    assert f"  request at most 2 cpu instead of 3: node {node} has it" in text
    assert f"  {node}: requests 3 cpu, free 2" in text


def test_a_gang_that_lacks_capacity(stack: Stack, node_pool: NodePool) -> None:
    node_pool.add_node("a", cpu="2")
    node_pool.create(*(node_pool.pod(f"m{i}", gang=("g", 3)) for i in range(3)))
    until(lambda: node_pool.condition("m0"), lambda found: bool(found[1]))
    found = json.loads(why(stack, node_pool, "m0", "-o", "json").stdout)
    assert (found["gang"]["size"], found["gang"]["bound"]) == (3, 0)
    assert [row["pod"] for row in found["gang"]["members"]] == ["m0", "m1", "m2"]
    assert "waiting for pod group g: 2/3 members fit" in found["message"]
    assert "free capacity for 1 more pod of pod group g" in found["changes"]


def test_a_pod_that_has_its_node_and_one_that_is_not_there(
    stack: Stack, node_pool: NodePool
) -> None:
    node = node_pool.add_node("a")
    node_pool.create(node_pool.pod("one"))
    node_pool.all_bound(1)
    placed = why(stack, node_pool, "pods/one")
    absent = why(stack, node_pool, "pod/nobody")
    assert (placed.stdout, absent.returncode) == (
        f"pod {node_pool.namespace}/one is on node {node}\n",
        2,
    )
    assert f"pod {node_pool.namespace}/nobody is unknown" in absent.stderr
