"""
Start reservations on a real API server: which pods may backfill, and what moves a reservation.

Nodes are fake, so nothing ever ends by itself: what runs says how long it is expected to, and ends
when the test deletes it. Instants are reckoned from what the API server says of the pods.
"""

import itertools
import os
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import self_exec
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary
from tests.cluster.node_pool import Json, NodePool, until
from tests.cluster.tenant_env import TenantEnv
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

BACKFILL = {vocabulary.BACKFILL_LABEL: "true"}
TYPE = vocabulary.WORKLOAD_TYPE_LABEL


@pytest.fixture
def tenant_env(control_plane: ControlPlane, stack: Stack) -> Iterator[TenantEnv]:
    tenant_env = TenantEnv(control_plane, stack)
    yield tenant_env
    tenant_env.close()


@pytest.fixture
def node_pool(tenant_env: TenantEnv) -> NodePool:
    return tenant_env.node_pools[tenant_env.a]


def lasting(duration: str) -> dict[str, str]:
    return {vocabulary.EXPECTED_DURATION_ANNOTATION: duration}


def on(side: str, pod: Json) -> Json:
    pod["spec"]["nodeSelector"]["side"] = side
    return pod


def runs(node_pool: NodePool, *pods: Json) -> None:
    """Until each has its node, and the time of its start."""
    node_pool.create(*pods)
    for pod in pods:
        eventually(partial(start, node_pool, pod["metadata"]["name"]), "a pod runs")


def start(node_pool: NodePool, name: str) -> str:
    pod = node_pool.api.call("GET", f"/api/v1/namespaces/{node_pool.namespace}/pods/{name}")
    return str(pod["status"].get("startTime") or "")


def after(node_pool: NodePool, name: str, **length: int) -> str:
    """This long after the pod began, as Events write it."""
    began = datetime.fromisoformat(start(node_pool, name))
    return (began + timedelta(**length)).strftime("%Y-%m-%dT%H:%M:%SZ")


def gang(tenant_env: TenantEnv, name: str, size: int) -> list[Json]:
    return [tenant_env.pod(tenant_env.a, f"{name}{i}", gang=(name, size)) for i in range(size)]


def event_note(node_pool: NodePool, reason: str, start: str) -> str:
    """The note of the Event on the first pod of the gang whose pods' names begin so."""

    def notes() -> list[str]:
        return [note for pod, _, note in node_pool.events(reason) if pod.startswith(start)]

    return eventually(lambda: next(iter(notes()), ""), f"{reason} on {start}")


def start_lines(stack: Stack, node_pool: NodePool, pod: str) -> list[str]:
    """What `kubenexus why` says under that heading."""
    where = ("-n", node_pool.namespace, "--url", stack.scheduler_url)
    done = subprocess.run(
        [*self_exec.COMMAND, "why", f"pod/{pod}", *where],
        env=self_exec.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    _, _, rest = done.stdout.partition("\nStart\n")
    return list(itertools.takewhile(lambda line: line.startswith("  "), rest.splitlines()))


def test_the_head_of_the_queue_gets_an_estimate_and_only_short_work_is_backfilled(
    tenant_env: TenantEnv, node_pool: NodePool, stack: Stack
) -> None:
    """One of three CPUs is free: enough for either pod, and for none that makes the gang late."""
    node, space = tenant_env.node("3"), tenant_env.a
    runs(
        node_pool,
        tenant_env.pod(space, "hour", annotations=lasting("1h")),
        tenant_env.pod(space, "half", annotations=lasting("30m")),
    )
    at = after(node_pool, "hour", hours=1)
    node_pool.create(*gang(tenant_env, "g", 3))
    first = (
        f"pod group {space}/g of tenant {space} is expected to start by {at},"
        f" when {space}/hour, {space}/half have ended"
    )
    assert event_note(node_pool, "StartEstimated", "g") == first
    # A restarted scheduler knows the order of arrival from creation times, which count seconds.
    time.sleep(1.1)
    node_pool.create(tenant_env.pod(space, "long", annotations=lasting("2h")))
    assert "1 node(s) were held for a pod group that has waited longer" in event_note(
        node_pool, "FailedScheduling", "long"
    )
    stack.restart(SCHEDULER, crash=True)
    reserved = [f"  expected by {at}", f"  waits for {space}/hour, {space}/half to end"]
    assert until(lambda: start_lines(stack, node_pool, "g0"), bool) == reserved
    assert start_lines(stack, node_pool, "long") == [f"  start reserved ahead of it: {space}/g"]
    node_pool.create(tenant_env.pod(space, "short", annotations=lasting("10m")))
    tenant_env.bound(space, "hour", "half", "short")
    tenant_env.delete(space, "hour", "half", "short")
    assert set(tenant_env.bound(space, "g0", "g1", "g2").values()) == {node}
    tenant_env.delete(space, "g0", "g1", "g2")
    tenant_env.bound(space, "long")


def test_a_lost_node_moves_the_start_reservation(
    tenant_env: TenantEnv, node_pool: NodePool
) -> None:
    """How long work takes is known by its deadline on one side, by its type on the other."""
    space = tenant_env.a
    tenant_env.platform_policy(backfill={"durations": [{"type": "batch", "duration": "2h"}]})
    left, _ = (
        node_pool.add_node(side, cpu="2", labels={"side": side}) for side in ("left", "right")
    )
    runs(
        node_pool,
        on("left", tenant_env.pod(space, "deadline", cpu="2", activeDeadlineSeconds=3600)),
        on("right", tenant_env.pod(space, "batch", cpu="2", labels={TYPE: "batch"})),
    )
    node_pool.create(*gang(tenant_env, "g", 2))
    unit = f"pod group {space}/g of tenant {space} is expected to start by "
    one, two = after(node_pool, "deadline", hours=1), after(node_pool, "batch", hours=2)
    assert (
        event_note(node_pool, "StartEstimated", "g")
        == f"{unit}{one}, when {space}/deadline have ended"
    )
    node_pool.lose_node(left)
    assert event_note(node_pool, "StartDelayed", "g") == f"{unit}{two}: node {left} was deleted"


def test_work_that_overruns_is_ended_where_it_yields_and_else_moves_the_start_reservation(
    tenant_env: TenantEnv, node_pool: NodePool
) -> None:
    space = tenant_env.a
    tenant_env.platform_policy(backfill={"overrun": "preempt"})
    nodes = {
        side: node_pool.add_node(side, cpu="2", labels={"side": side}) for side in ("left", "right")
    }
    short = lasting("1s")
    runs(
        node_pool,
        on("left", tenant_env.pod(space, "yields", cpu="2", annotations=short, labels=BACKFILL)),
        on("right", tenant_env.pod(space, "stays", cpu="2", annotations=short)),
    )
    for side in nodes:
        node_pool.create(*(on(side, pod) for pod in gang(tenant_env, side, 2)))
    for side in nodes:
        event_note(node_pool, "StartEstimated", side)
    unit = f"pod group {space}/%s of tenant {space}"
    assert event_note(node_pool, "StartDelayed", "left") == (
        f"{unit % 'left'} is expected to start at a time not known yet:"
        f" {space}/yields overran its expected duration and is evicted"
    )
    moved = re.escape(f"{unit % 'right'} is expected to start by ")
    why = re.escape(f": {space}/stays overran its expected duration")
    found = event_note(node_pool, "StartDelayed", "right")
    assert re.fullmatch(rf"{moved}[-0-9]{{10}}T[:0-9]{{8}}Z{why}", found), found
    assert event_note(node_pool, "Preempted", "yields") == (
        f"Preempted by {unit % 'left'}: this pod overran its expected duration"
    )
    bound = tenant_env.bound(space, "stays", "left0", "left1")
    assert {bound["left0"], bound["left1"]} == {nodes["left"]}
