"""No object that an API server stores stops the scheduler: other pods are placed, nothing leaks."""

import asyncio
import contextlib
import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from cluster.informer import EventKind, WatchEvent
from scheduler.errors import ModelError
from scheduler.hostinfo import inventory
from scheduler.model import gang
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.provisioning import objects as provisioning_objects
from scheduler.tenancy.fairshare.persistence import recalled
from scheduler.tenancy.reservation import objects as reservation_objects
from tests.unit.scheduler import extreme_objects
from tests.unit.scheduler.bench import NAME, Bench
from tests.unit.scheduler.extreme_objects import QUIET
from tests.unit.scheduler.extreme_values import NODES
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations

pytestmark = pytest.mark.timeout(240)

Json = dict[str, Any]
Event = WatchEvent[Any]

TAINT = {"key": QUIET, "value": "", "effect": "NoSchedule"}
TOLERATION = {"key": QUIET, "operator": "Exists"}


class Watches:
    """A scheduler whose watches show objects of every kind."""

    def __init__(self) -> None:
        self.store = FakeReservations()
        self.bench = Bench(reservations=self.store)
        scheduler = self.bench.scheduler
        feeds = (
            *scheduler.cache.snapshot.plugins.feeds,
            scheduler.budgets.feed(),
            inventory.feed(scheduler.cache.hosts),
        )
        self.readers: dict[str, Callable[[Json], Any]] = {
            "Node": Node.read,
            "PodGroup": gang.read_native_pod_group,
            "PodGroup of scheduler-plugins": gang.read_x_k8s_pod_group,
            "ResourceReservation": reservation_objects.read,
            **{feed.resource.kind: feed.read for feed in feeds},
        }
        self._handlers: dict[str, Callable[[Event], None]] = {
            "Node": scheduler.on_node,
            "PodGroup": scheduler.groups.on_native,
            "PodGroup of scheduler-plugins": scheduler.groups.on_x,
            "ResourceReservation": scheduler.tenancy.on_reservation,
            **{feed.resource.kind: partial(scheduler.on_feed, feed) for feed in feeds},
        }
        self._shown: dict[tuple[str, str], Any] = {}

    def show(self, kind: str, obj: Json) -> None:
        name = obj["metadata"]["name"]
        if kind == "Pod":
            Pod.read(obj)
            if name in self.bench.api.pods:
                self.bench.delete(name)
            self.bench.api.pods[name] = copy.deepcopy(obj)
            self.bench.show(name)
            return
        value, old = self.readers[kind](obj), self._shown.get((kind, name))
        event = EventKind.ADDED if old is None else EventKind.MODIFIED
        self._shown[kind, name] = value
        self._handlers[kind](WatchEvent(event, ("ns", name), value, old))

    def delete_all(self) -> None:
        for name in list(self.bench.api.pods):
            self.bench.delete(name)
        for kind, name in list(self._shown):
            if kind != "Node":
                value = self._shown.pop((kind, name))
                self._handlers[kind](WatchEvent(EventKind.DELETED, ("ns", name), value, value))

    def errors(self) -> dict[str, float]:
        """Steps that failed -> how often."""
        samples = (
            sample for metric in self.bench.metrics.errors.collect() for sample in metric.samples
        )
        return {
            sample.labels["step"]: sample.value
            for sample in samples
            if sample.name.endswith("_total") and sample.value
        }


READERS: dict[str, Callable[[Json], Any]] = {
    **Watches().readers,
    "ProvisioningRequest": partial(provisioning_objects.read, scheduler=NAME),
    "TenantPolicy": lambda obj: recalled([obj]),
}


async def play(objects: list[tuple[str, Json]]) -> None:
    watches = Watches()
    bench = watches.bench
    for name in NODES:
        bench.node(name, labels={"zone": "a"})
    bench.node(QUIET, labels={QUIET: ""}, taints=[TAINT])
    for number, (kind, obj) in enumerate(objects):
        try:
            watches.show(kind, obj)
        except ModelError:
            continue  # the watch skips it
        name = f"plain-{number}"
        bench.pod(name, cpu="100m", tolerations=[TOLERATION], nodeSelector={QUIET: ""})
        await bench.settle(1.0)
        bench.show_all()
    for seconds in (1.0, 60.0):
        await bench.settle(seconds)
    assert watches.errors() == {}
    placed = {name: node for name, node in bench.api.nodes().items() if name.startswith("plain-")}
    assert set(placed.values()) <= {QUIET}, placed
    bench.show_all()
    assert len(bench.scheduler.cache_mismatches()) == 0
    watches.delete_all()
    for seconds in (1.0, 60.0, 700.0, 90_000.0):
        await bench.settle(seconds)
    assert watches.errors() == {}
    assert used(bench) == {}


def used(bench: Bench) -> dict[str, tuple[tuple[str, int], ...]]:
    """Node -> what is still charged to it."""
    table = bench.scheduler.cache.snapshot.table
    amounts = {name: table.used_at(row) for name, row in table.rows.items()}
    return {name: row for name, row in amounts.items() if row}


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(extreme_objects.clusters())
def test_other_pods_are_placed_and_nothing_is_left_behind(objects: list[tuple[str, Json]]) -> None:
    asyncio.run(play(objects))


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(extreme_objects.junk())
def test_every_json_of_another_project_is_read_or_skipped(found: tuple[str, Json]) -> None:
    kind, obj = found
    with contextlib.suppress(ModelError):  # the watch logs and skips the object
        READERS[kind](obj)
