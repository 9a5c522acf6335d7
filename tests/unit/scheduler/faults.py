"""Errors on purpose: a plugin and writers that raise for marked pods, at one seam at a time."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import scheduler
from cluster.events import correlator
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.assignment import Assignment
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.plugins.protocol import Plugin, Rejection
from scheduler.plugins.registry import DEFAULT, Registry
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.fake_api import FakeApiServer

MARK = "bad"  # names of marked pods begin with it


class Bug(Exception):
    """No part of the product raises it."""


class Faults:
    """`armed` names the seams that raise for marked pods."""

    def __init__(self, *armed: str) -> None:
        self.armed = set(armed)
        self.hits = 0

    def check(self, seam: str, name: str) -> None:
        if seam in self.armed and name.startswith(MARK):
            self.hits += 1
            raise Bug(f"{seam} of {name}")

    def registry(self) -> Registry:
        """The usual plugins and one that raises."""
        return (*DEFAULT, partial(FaultyPlugin, self))

    def report(
        self, record: Callable[[correlator.EventReport], None]
    ) -> Callable[[correlator.EventReport], None]:
        def raising(report: correlator.EventReport) -> None:
            self.check(f"Event {report.reason}", report.regarding.name)
            record(report)

        return raising

    def bench(self, api: FakeApiServer | None = None, **more: Any) -> Bench:
        return Bench(api, registry=self.registry(), record=self.report, **more)


class FaultyPlugin(Plugin):
    """Raises in the middle of its changes."""

    def __init__(self, faults: Faults, table: NodeTable) -> None:
        super().__init__(table)
        self._faults = faults
        self._pods: dict[int, int] = {}  # row -> pods on it

    def put_node(
        self, node: Node, old: Node | None, pods: Iterable[tuple[Pod, Assignment]]
    ) -> None:
        self._faults.check("put node", node.name)

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._pods[row] = self._pods.get(row, 0) + 1
        self._faults.check("charge", pod.key.name)
        self._faults.check(f"charge {dict(pod.spec.requests)['cpu']}", pod.key.name)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._faults.check("uncharge", pod.key.name)
        self._pods[row] -= 1

    def drop(self, row: int) -> None:
        self._pods.pop(row, None)

    def state(self, row: int) -> tuple[object, ...]:
        return (self._pods.get(row, 0),)

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        self._faults.check("filter", pod.key.name)
        yield "never", rows & False

    def depends_on_pods(self, pod: Pod) -> bool:
        self._faults.check("queueing hint", pod.key.name)
        return True

    def affects_equal_pods(self, pod: Pod) -> bool:
        return False

    def signature(self, pod: Pod) -> tuple[object, ...]:
        self._faults.check("signature", pod.key.name)
        return ()

    def score(self, pod: Pod, rows: Bools) -> Ints | None:
        self._faults.check("score", pod.key.name)
        return None


def broken_nodes(bench: Bench) -> list[str]:
    """Nodes on which any plugin counts other pods than the cache has on them."""
    cache = bench.scheduler.cache
    before = cache.snapshot.state()
    cache.snapshot.broken.update(before)
    cache.repair()
    after = cache.snapshot.state()
    return [name for name in before if before[name] != after[name]]


SCHEDULER: Final = str(Path(scheduler.__file__).parent)

# Outside the `try` of a unit: the loop starts tasks and measures steps.
NOT_FAILING: Final = (
    "background.py:BackgroundTasks.start",
    "cycle.py:SchedulingCycle.schedule",
    "steps.py:",
)


class FaultAtCall:
    """Raises when the scheduler's code makes its n-th call of a function inside the block."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0
        self.functions: dict[str, list[int]] = {}  # -> numbers of its calls
        self.at = ""

    def __enter__(self) -> Self:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        # A generator is called again when it is closed, where no error is raised.
        generator = code.co_flags & inspect.CO_GENERATOR
        if event != "call" or generator or not code.co_filename.startswith(SCHEDULER):
            return
        name = f"{Path(code.co_filename).name}:{code.co_qualname}"
        if name.startswith(NOT_FAILING):
            return
        self.calls += 1
        self.functions.setdefault(name, []).append(self.calls)
        if self.calls == self.number:
            sys.setprofile(None)
            self.at = name
            raise Bug(name)
