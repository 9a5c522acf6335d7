"""
Starts that are promised, on a real API server: who may go ahead, and what moves a promise.

Nodes are fake, so nothing ever ends by itself: what runs says how long it is expected to, and ends
when the test deletes it. Instants are reckoned from what the API server says of the pods.
"""

import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import self_exec
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary
from tests.cluster.court import Court
from tests.cluster.waiting import eventually
from tests.cluster.yard import Json, Yard, until

pytestmark = pytest.mark.cluster

BACKFILL = {vocabulary.BACKFILL_LABEL: "true"}
TYPE = vocabulary.WORKLOAD_TYPE_LABEL


@pytest.fixture
def court(control_plane: ControlPlane, stack: Stack) -> Iterator[Court]:
    court = Court(control_plane, stack)
    yield court
    court.close()


@pytest.fixture
def yard(court: Court) -> Yard:
    return court.yards[court.a]


def lasting(duration: str) -> dict[str, str]:
    return {vocabulary.EXPECTED_DURATION_ANNOTATION: duration}


def on(side: str, pod: Json) -> Json:
    pod["spec"]["nodeSelector"]["side"] = side
    return pod


def runs(yard: Yard, *pods: Json) -> None:
    """Until each has its node, and the time of its start."""
    yard.create(*pods)
    for pod in pods:
        eventually(partial(start, yard, pod["metadata"]["name"]), "a pod runs")


def start(yard: Yard, name: str) -> str:
    pod = yard.api.call("GET", f"/api/v1/namespaces/{yard.namespace}/pods/{name}")
    return str(pod["status"].get("startTime") or "")


def after(yard: Yard, name: str, **length: int) -> str:
    """This long after the pod began, as Events write it."""
    began = datetime.fromisoformat(start(yard, name))
    return (began + timedelta(**length)).strftime("%Y-%m-%dT%H:%M:%SZ")


def gang(court: Court, name: str, size: int) -> list[Json]:
    return [court.pod(court.a, f"{name}{i}", gang=(name, size)) for i in range(size)]


def told(yard: Yard, reason: str, start: str) -> str:
    """The note of the Event on the first pod of the gang whose pods' names begin so."""

    def notes() -> list[str]:
        return [note for pod, _, note in yard.events(reason) if pod.startswith(start)]

    return eventually(lambda: next(iter(notes()), ""), f"{reason} on {start}")


def said_of_the_start(stack: Stack, yard: Yard, pod: str) -> list[str]:
    """What `kubenexus why` says under that heading."""
    where = ("-n", yard.namespace, "--url", stack.scheduler_url)
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


def test_who_waits_at_the_head_is_told_when_and_only_short_work_goes_ahead(
    court: Court, yard: Yard, stack: Stack
) -> None:
    """One of three CPUs is free: enough for either pod, and for none that makes the gang late."""
    node, space = court.node("3"), court.a
    runs(
        yard,
        court.pod(space, "hour", annotations=lasting("1h")),
        court.pod(space, "half", annotations=lasting("30m")),
    )
    at = after(yard, "hour", hours=1)
    yard.create(*gang(court, "g", 3))
    first = (
        f"pod group {space}/g of tenant {space} is expected to start by {at},"
        f" when {space}/hour, {space}/half have ended"
    )
    assert told(yard, "StartPromised", "g") == first
    yard.create(court.pod(space, "long", annotations=lasting("2h")))
    assert "1 node(s) were held for a pod group that has waited longer" in told(
        yard, "FailedScheduling", "long"
    )
    stack.restart(SCHEDULER, crash=True)
    promised = [f"  expected by {at}", f"  waits for {space}/hour, {space}/half to end"]
    assert until(lambda: said_of_the_start(stack, yard, "g0"), bool) == promised
    assert said_of_the_start(stack, yard, "long") == [f"  promised ahead of it: {space}/g"]
    yard.create(court.pod(space, "short", annotations=lasting("10m")))
    court.bound(space, "hour", "half", "short")
    court.delete(space, "hour", "half", "short")
    assert set(court.bound(space, "g0", "g1", "g2").values()) == {node}
    court.delete(space, "g0", "g1", "g2")
    court.bound(space, "long")


def test_a_lost_node_moves_the_promise(court: Court, yard: Yard) -> None:
    """How long work takes is known by its deadline on one side, by its type on the other."""
    space = court.a
    court.platform_policy(backfill={"durations": [{"type": "batch", "duration": "2h"}]})
    left, _ = (yard.add_node(side, cpu="2", labels={"side": side}) for side in ("left", "right"))
    runs(
        yard,
        on("left", court.pod(space, "deadline", cpu="2", activeDeadlineSeconds=3600)),
        on("right", court.pod(space, "batch", cpu="2", labels={TYPE: "batch"})),
    )
    yard.create(*gang(court, "g", 2))
    unit = f"pod group {space}/g of tenant {space} is expected to start by "
    one, two = after(yard, "deadline", hours=1), after(yard, "batch", hours=2)
    assert told(yard, "StartPromised", "g") == f"{unit}{one}, when {space}/deadline have ended"
    yard.lose_node(left)
    assert told(yard, "PromiseMoved", "g") == f"{unit}{two}: node {left} is gone"


def test_work_that_overruns_is_ended_where_it_yields_and_else_moves_the_promise(
    court: Court, yard: Yard
) -> None:
    space = court.a
    court.platform_policy(backfill={"overrun": "preempt"})
    nodes = {
        side: yard.add_node(side, cpu="2", labels={"side": side}) for side in ("left", "right")
    }
    short = lasting("1s")
    runs(
        yard,
        on("left", court.pod(space, "yields", cpu="2", annotations=short, labels=BACKFILL)),
        on("right", court.pod(space, "stays", cpu="2", annotations=short)),
    )
    for side in nodes:
        yard.create(*(on(side, pod) for pod in gang(court, side, 2)))
    for side in nodes:
        told(yard, "StartPromised", side)
    unit = f"pod group {space}/%s of tenant {space}"
    assert told(yard, "PromiseMoved", "left") == (
        f"{unit % 'left'} is expected to start at a time not known yet:"
        f" {space}/yields overran its expected duration and is ended"
    )
    moved = re.escape(f"{unit % 'right'} is expected to start by ")
    why = re.escape(f": {space}/stays overran its expected duration")
    found = told(yard, "PromiseMoved", "right")
    assert re.fullmatch(rf"{moved}[-0-9]{{10}}T[:0-9]{{8}}Z{why}", found), found
    assert told(yard, "Preempted", "yields") == f"Preempted by {unit % 'left'}"
    bound = court.bound(space, "stays", "left0", "left1")
    assert {bound["left0"], bound["left1"]} == {nodes["left"]}
