"""Plans whose pods wait for volumes: which pod is bound when, and which is planned meanwhile."""

import asyncio
from typing import Any

from cluster import errors, resources
from cluster.informer import EventKind, WatchEvent
from policies import vocabulary
from scheduler.plugins.volumes.informers import feeds
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.plugins.volumes.builders import (
    CLASSES,
    MADE,
    a_claim,
    a_csi_volume,
    mounting,
)

Json = dict[str, Any]


class Claims:
    """Claims by name; the API server rejects a write to `rejected`."""

    def __init__(self, *names: str, rejected: str = "") -> None:
        self.objects = {name: a_claim(name, class_name=MADE) for name in names}
        self._rejected = rejected

    async def get(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        return self.objects[name]

    async def patch(
        self,
        resource: resources.Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        if name == self._rejected:
            raise errors.Refused("forbidden")
        about = self.objects[name]["metadata"]
        about["annotations"].update(body["metadata"]["annotations"])
        about["resourceVersion"] = "2"
        return self.objects[name]


def put(bench: Bench, *objects: Json) -> None:
    known = {f.resource.kind: f for f in feeds(bench.scheduler.cache.snapshot.volumes.store)}
    for obj in objects:
        feed = known[obj["kind"]]
        event = WatchEvent(EventKind.MODIFIED, ("", obj["metadata"]["name"]), feed.read(obj), None)
        bench.scheduler.on_feed(feed, event)


def a_bench(claims: Claims) -> Bench:
    bench = Bench(storage=claims)
    bench.node("a", labels={vocabulary.HOSTNAME_LABEL: "a"})
    put(bench, *CLASSES, *claims.objects.values())
    return bench


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def bind(bench: Bench, name: str) -> None:
    """The volume is made, and the watches show it."""
    claim = a_claim(name, class_name=MADE, selected="a", volume=f"pv-{name}", version="3")
    put(bench, a_csi_volume(f"pv-{name}", claim=name), claim)


def test_a_pod_is_bound_when_its_volume_is_and_does_not_block_others() -> None:
    async def story() -> tuple[dict[str, str], int, dict[str, str]]:
        claims = Claims("data")
        bench = a_bench(claims)
        bench.pod("p", volumes=mounting("data"))
        bench.pod("plain")
        await bench.scheduler.drain()
        await turns()
        before, in_flight = bench.api.nodes(), bench.scheduler.binding_cycles.pods_in_flight
        put(bench, claims.objects["data"])
        bind(bench, "data")
        await bench.settle()
        return before, in_flight, bench.api.nodes()

    before, in_flight, after = asyncio.run(story())
    assert (before, in_flight) == ({"p": "", "plain": "a"}, 0)
    assert after == {"p": "a", "plain": "a"}


def test_no_member_is_bound_when_one_gets_no_volume() -> None:
    async def story() -> tuple[dict[str, str], int, int]:
        bench = a_bench(Claims("c0", "c1", rejected="c1"))
        for number in range(2):
            bench.pod(f"g-{number}", gang=("g", 2), volumes=mounting(f"c{number}"))
        await bench.scheduler.drain()
        await turns()
        bind(bench, "c0")
        await turns()
        await turns()
        return (
            bench.api.nodes(),
            bench.scheduler.cache.assumed(),
            bench.scheduler.binding_cycles.pods_in_flight,
        )

    assert asyncio.run(story()) == ({"g-0": "", "g-1": ""}, 0, 0)


def test_a_new_pvc_activates_the_pod_that_waits_for_it() -> None:
    async def story() -> dict[str, str]:
        bench = a_bench(Claims())
        bench.pod("p", volumes=mounting("data"))
        await bench.settle()
        put(bench, a_csi_volume("pv"), a_claim(volume="pv"))
        await bench.settle(20.0)
        return bench.api.nodes()

    assert asyncio.run(story()) == {"p": "a"}
