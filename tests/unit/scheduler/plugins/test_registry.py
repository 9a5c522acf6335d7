"""A plugin is one class in the registry: planning, events, requeueing and explaining follow."""

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import scheduler.plugins
from cluster.informer import EventKind, WatchEvent
from cluster.resources import Resource
from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.feed import Feed
from scheduler.model.assignment import Assignment
from scheduler.model.plan import NoFit, Placed
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.taints import Toleration, read_tolerations
from scheduler.model.unit import units
from scheduler.plan import planner
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.protocol import POD_EVENT, Plugin, Rejection, Relaxation
from scheduler.plugins.registry import DEFAULT, PluginSet
from scheduler.plugins.volumes.plugin import VolumePlugin
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import a_node, a_pod

UNDER_MAINTENANCE = "node(s) were under maintenance"
TOLERATES = [{"key": "maintenance", "operator": "Exists"}]
WINDOWS = Resource("example.com", "v1", "windows", "MaintenanceWindow", namespaced=False)


@dataclass(frozen=True)
class Window:
    node: str


class Maintenance(Plugin):
    """Keeps pods off nodes that a MaintenanceWindow names, unless they tolerate it."""

    events = frozenset({WINDOWS.kind})

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._nodes: set[str] = set()
        self._pods: dict[int, int] = {}  # row -> pods on it

    def feeds(self) -> Iterator[Feed]:
        yield Feed(WINDOWS, lambda obj: Window(obj["node"]), self.put, self.drop_window)

    def put(self, window: Window) -> bool:
        self._nodes.add(window.node)
        return True

    def drop_window(self, window: Window) -> bool:
        self._nodes.discard(window.node)
        return True

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._pods[row] = self._pods.get(row, 0) + 1

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._pods[row] -= 1

    def drop(self, row: int) -> None:
        self._pods.pop(row, None)

    def state(self, row: int) -> tuple[object, ...]:
        return (self._pods.get(row, 0),)

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        rejected = np.zeros_like(rows)
        rejected[[self._table.rows[name] for name in self._nodes if name in self._table.rows]] = (
            True
        )
        if not _tolerates(pod.spec):
            yield UNDER_MAINTENANCE, rows & rejected

    def depends_on_pods(self, pod: Pod) -> bool:
        return not _tolerates(pod.spec)

    def affects_equal_pods(self, pod: Pod) -> bool:
        return False

    def score(self, pod: Pod, rows: Bools) -> Ints | None:
        """Prefers nodes under maintenance, for pods that do not mind."""
        points = np.zeros(len(rows), dtype=np.int64)
        points[[self._table.rows[name] for name in self._nodes]] = 1000
        return points

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        yield "tolerate maintenance", replace(spec, tolerations=read_tolerations(TOLERATES))


def _tolerates(spec: SchedulingSpec) -> bool:
    return Toleration("maintenance", "Exists") in spec.tolerations


REGISTRY = (*DEFAULT, Maintenance)


def a_snapshot(*under_maintenance: str) -> Snapshot:
    snapshot = Snapshot.of([a_node("a"), a_node("b")], registry=REGISTRY)
    for node in under_maintenance:
        snapshot.plugins.get(Maintenance).put(Window(node))
    return snapshot


@pytest.mark.parametrize(
    ("pods", "under_maintenance", "want"),
    [
        pytest.param([a_pod("p")], ["a"], ["b"], id="the node is avoided"),
        pytest.param([a_pod("p", gpus=0)], [], ["a"], id="no maintenance, no effect"),
        pytest.param([a_pod("p", tolerations=TOLERATES)], ["b"], ["b"], id="the score decides"),
        pytest.param(
            [a_pod(f"g-{i}", gang=("g", 2)) for i in range(2)],
            ["a"],
            ["b", "b"],
            id="a gang that is placed at once avoids the node",
        ),
        pytest.param(
            [a_pod("p")],
            ["a", "b"],
            "0/2 nodes are available: 2 node(s) were under maintenance.",
            id="the reason is counted",
        ),
        pytest.param(
            [a_pod("p", cpu="99")],
            ["a"],
            "0/2 nodes are available: 2 Insufficient cpu.",
            id="the first filter in the registry gives the reason",
        ),
    ],
)
def test_planning(pods: list[Pod], under_maintenance: list[str], want: list[str] | str) -> None:
    snapshot = a_snapshot(*under_maintenance)
    match planner.plan(units(pods)[0], snapshot):
        case Placed(placements=placements):
            assert [placement.node for placement in placements] == want
        case NoFit() as misfit:
            assert misfit.text == want


def test_a_trial_charges_the_plugin_and_undoes_it() -> None:
    snapshot = a_snapshot()
    plugin, before = snapshot.plugins.get(Maintenance), snapshot.state()
    row = snapshot.table.rows["a"]
    with snapshot.trial():
        snapshot.place(a_pod("p"), "a")
        charged = plugin.state(row)
    assert (charged, snapshot.state()) == ((1,), before)
    snapshot.charge(a_pod("p"), "a")
    snapshot.drop_node("a")
    assert plugin.state(row) == (0,)


def window_event(bench: Bench, node: str, kind: EventKind = EventKind.ADDED) -> None:
    feeds = bench.scheduler.cache.snapshot.plugins.feeds
    feed = next(feed for feed in feeds if feed.resource is WINDOWS)
    window = Window(node)
    bench.scheduler.on_feed(feed, WatchEvent(kind, ("", node), window, window))


def a_bench() -> Bench:
    bench = Bench(registry=REGISTRY)
    bench.node("a")
    window_event(bench, "a")
    bench.pod("p")
    return bench


def test_the_event_of_the_pod_names_the_reason() -> None:
    async def story() -> list[tuple[str, str]]:
        bench = a_bench()
        await bench.settle()
        return bench.events("FailedScheduling")

    text = "0/1 nodes are available: 1 node(s) were under maintenance."
    assert asyncio.run(story()) == [("p", text)]


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        pytest.param("MaintenanceWindow", 1, id="an event of the plugin's kind"),
        pytest.param("StorageClass", 0, id="an event of another plugin's kind"),
        pytest.param("*", 1, id="an event of unknown kind"),
    ],
)
def test_cluster_events_requeue_the_pod(kind: str, bound: int) -> None:
    async def story() -> tuple[int, int]:
        bench = a_bench()
        await bench.settle(60.0)
        before = bench.api.binds
        bench.scheduler.cache.snapshot.plugins.get(Maintenance).drop_window(Window("a"))
        bench.scheduler.cluster_event(kind)
        await bench.settle(1.0)
        return before, bench.api.binds

    assert asyncio.run(story()) == (0, bound)


def test_a_watch_event_of_the_plugin_requeues_the_pod() -> None:
    async def story() -> int:
        bench = a_bench()
        await bench.settle(60.0)
        window_event(bench, "a", EventKind.DELETED)
        await bench.settle(1.0)
        return bench.api.binds

    assert asyncio.run(story()) == 1


def test_explain_names_the_reason_and_the_change_that_would_help() -> None:
    async def story() -> dict[str, Any] | None:
        bench = a_bench()
        await bench.settle()
        return bench.scheduler.explain("ns", "p")

    answer = asyncio.run(story())
    assert answer is not None
    assert answer["message"] == "0/1 nodes are available: 1 node(s) were under maintenance."
    assert answer["reasons"] == [{"reason": UNDER_MAINTENANCE, "nodes": 1}]
    assert answer["nearest"] == {"node": "a", "reasons": [UNDER_MAINTENANCE], "short": []}
    assert answer["changes"] == ["tolerate maintenance: 1 node would do"]


# --- the list ---


def plugin_classes() -> set[type[Plugin]]:
    found = set()
    for module in pkgutil.walk_packages(scheduler.plugins.__path__, "scheduler.plugins."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, Plugin) and kind is not Plugin and kind.__module__ == module.name:
                found.add(kind)
    return found


def test_every_plugin_is_listed_once() -> None:
    assert len(set(DEFAULT)) == len(DEFAULT)
    assert set(DEFAULT) == plugin_classes()


def test_filters_keep_the_order_of_kube_scheduler() -> None:
    assert [kind.__name__ for kind in DEFAULT if isinstance(kind, type)] == [
        "NodeNames",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResources",
        "VolumePlugin",
        "InterPod",
        "DynamicResources",
        "DeclaredFeatures",
        "PlacementPolicy",
        "ImageLocality",
        "NumaTopology",
    ]


@pytest.mark.parametrize("kind", [VolumePlugin, DynamicResources])
def test_every_object_that_a_filter_reads_requeues_pods(
    kind: type[VolumePlugin] | type[DynamicResources],
) -> None:
    plugin = kind(NodeTable())
    assert {POD_EVENT, *(feed.resource.kind for feed in plugin.feeds())} == plugin.events


def test_a_plugin_is_called_for_the_methods_that_it_overrides_alone() -> None:
    table = NodeTable()
    without, plugins = PluginSet(table), PluginSet(table, REGISTRY)
    more = {
        name: len(methods) - len(getattr(without, name))
        for name, methods in vars(plugins).items()
        if name not in {"registry", "_all", "_dependent"}
    }
    assert {name for name, count in more.items() if count} == {
        "feeds",
        "charge",
        "uncharge",
        "drop",
        "state",
        "stateful_filters",
        "depends_on_pods",
        "affects_equal_pods",
        "score",
        "relaxations",
    }
