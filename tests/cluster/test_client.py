"""What only the real API server decides: preconditions, Events it accepts, leases that change hands."""

import asyncio
import gc
import warnings
from functools import partial
from typing import Any

import pytest

from cluster import resources
from cluster.client import Client
from cluster.connection import connection
from cluster.errors import Conflict, Gone, KubeError, Refused
from cluster.events.correlator import Ref, report
from cluster.events.recorder import Recorder
from cluster.leader_election import LeaderElector
from cluster.verbs import PatchKind
from kubenexus.dev.plane.control_plane import ControlPlane

pytestmark = pytest.mark.cluster


def open_client(plane: ControlPlane, user: str = "admin") -> Client:
    return Client(connection.load(plane.kubeconfig(user)), component="test")


def a_pod(name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    spec = {"schedulerName": "nobody", "containers": containers}
    return {"metadata": {"name": name}, "spec": spec}


def test_preconditions_and_one_write_bindings(control_plane: ControlPlane, namespace: str) -> None:
    async def outcome(work: Any) -> object:
        try:
            return await work
        except KubeError as error:
            return type(error)

    async def main() -> list[object]:
        async with open_client(control_plane) as client:
            pod = await client.create(resources.PODS, a_pod("p"), namespace=namespace)
            uid = pod["metadata"]["uid"]
            marks = {"example.com/mark": "1"}
            got = [
                await outcome(client.create(resources.PODS, a_pod("p"), namespace=namespace)),
                await outcome(client.bind(namespace, "p", "n", uid="another")),
                await outcome(client.bind(namespace, "p", "n", uid=uid, annotations=marks)),
                await outcome(client.bind(namespace, "p", "m", uid=uid)),
                await outcome(client.bind(namespace, "none", "n")),
                await outcome(client.create(resources.PODS, a_pod("P!"), namespace=namespace)),
            ]
            bound = await client.get(resources.PODS, "p", namespace=namespace)
            got += [
                bound["spec"]["nodeName"],
                marks.items() <= bound["metadata"]["annotations"].items(),
            ]
            stale = await client.patch(
                resources.PODS,
                "p",
                {"status": {"conditions": [{"type": "Seen", "status": "True"}]}},
                namespace=namespace,
                subresource="status",
                kind=PatchKind.STRATEGIC,
            )
            got.append(
                {c["type"] for c in stale["status"]["conditions"]} >= {"Seen", "PodScheduled"}
            )
            got.append(await outcome(client.update(resources.PODS, pod)))
            got.append(
                await outcome(
                    client.delete(resources.PODS, "p", namespace=namespace, uid="another")
                )
            )
            got.append(
                await outcome(
                    client.delete(
                        resources.PODS, "p", namespace=namespace, uid=uid, grace_seconds=0
                    )
                )
            )
            return got

    assert asyncio.run(main()) == [
        Conflict,
        Conflict,
        None,
        Conflict,
        Gone,
        Refused,
        "n",
        True,
        True,
        Conflict,
        Conflict,
        None,
    ]


def test_events_and_their_series_are_accepted(control_plane: ControlPlane, namespace: str) -> None:
    async def main() -> tuple[object, ...]:
        async with open_client(control_plane) as client:
            about = Ref("Pod", "p", namespace, "uid-p")
            long = report(about, "FailedScheduling", "é" * 2000, action="Scheduling", warning=True)
            on_node = report(Ref("Node", f"n-{namespace}"), "Labeled", "x", action="Labeling")
            async with Recorder(client, controller="test", instance="test-0") as recorder:
                recorder.record(long)
                recorder.record(on_node)
                while recorder.written < 2 and not recorder.dropped:
                    await asyncio.sleep(0.01)
                for _ in range(4):
                    recorder.record(long)
            stored = await client.list(resources.EVENTS, namespace=namespace)
            recorded = [e for e in stored.items if e["reportingController"] == "test"]
            elsewhere = await client.list(resources.EVENTS, namespace="default")
            found = [e for e in elsewhere.items if e["regarding"]["name"] == f"n-{namespace}"]
            dropped = {why: count for why, count in recorder.dropped.items() if count}
            return [e["series"]["count"] for e in recorded], len(found), dropped

    assert asyncio.run(main()) == ([5], 1, {})


def test_a_lease_changes_hands(control_plane: ControlPlane, namespace: str) -> None:
    async def main() -> list[str]:
        heard: list[str] = []
        leads = {name: asyncio.Event() for name in ("a", "b")}

        def started(name: str) -> None:
            heard.append(name)
            leads[name].set()

        async with open_client(control_plane) as client:
            electors = {
                name: LeaderElector(
                    client,
                    name="lead",
                    namespace=namespace,
                    identity=name,
                    on_started=partial(started, name),
                    retry_seconds=0.2,
                )
                for name in leads
            }
            first = asyncio.create_task(electors["a"].run())
            await asyncio.wait_for(leads["a"].wait(), 30)
            second = asyncio.create_task(electors["b"].run())
            while not electors["b"].holder:
                await asyncio.sleep(0.01)
            heard.append(f"b sees {electors['b'].holder}")
            first.cancel()
            await asyncio.wait_for(leads["b"].wait(), 30)
            heard.append(f"a leads: {electors['a'].is_leader}")
            second.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            lease = await client.get(resources.LEASES, "lead", namespace=namespace)
            heard.append(f"changes of leader: {lease['spec']['leaseTransitions']}")
        return heard

    assert asyncio.run(main()) == ["a", "b sees a", "b", "a leads: False", "changes of leader: 1"]


def test_abandoned_requests_leave_nothing_behind(control_plane: ControlPlane) -> None:
    async def main(turns: int) -> None:
        async with open_client(control_plane) as client:
            waiting = [asyncio.create_task(client.list(resources.NODES)) for _ in range(4)]
            for _ in range(turns):  # each run interrupts them at another point of the exchange
                await asyncio.sleep(0.001)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for turns in range(20):
            asyncio.run(main(turns))
            gc.collect()
    assert [str(warning.message) for warning in caught] == []
