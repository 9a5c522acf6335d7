"""
The other tenant: pods and gangs at a steady pace, each deleted once all of it is bound.

    every tick: create a pod, or the four pods of a gang ──▶ seen bound by a watch ──▶ deleted

It records how long each creation took and how long each unit waited from its last creation to the
bind of its last pod, and keeps the message of every creation that failed. The lag of its own watch
distinguishes an API server that is late with events from a scheduler that is late.
"""

import contextlib
import http.client
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed
from policies import vocabulary
from tests.cluster.pod_watch import Stream

Json = dict[str, Any]

PERIOD: Final = 0.5  # seconds between two units
GANG_EVERY: Final = 4  # units
GANG_SIZE: Final = 4
WRITERS: Final = 4
PATIENCE: Final = 180.0  # seconds after which a unit that is not bound counts as lost
NAMESPACE: Final = "neighbour"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(slots=True)
class Unit:
    pods: frozenset[str]
    created: float = 0.0
    bound: dict[str, float] = field(default_factory=dict)  # pod -> when it was seen bound

    @property
    def waited(self) -> float | None:
        """Seconds from the last creation to the last bind; None while pods are pending."""
        if not self.created or self.bound.keys() != self.pods:
            return None
        return max(0.0, max(self.bound.values()) - self.created)


class Neighbour:
    """Creates inside `with`; `finish` waits for what is pending."""

    def __init__(self, api: Api, stream: Stream, *, node_labels: Json, labels: Json) -> None:
        self._api, self._stream = api, stream
        self._node_labels, self._labels = node_labels, labels
        self._lock = threading.Lock()
        self._stop, self._closed = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(WRITERS)
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._create, self._follow)
        ]
        self.units: dict[int, Unit] = {}
        self._unit_of: dict[str, Unit] = {}
        self.creates: list[float] = []  # seconds that each took
        self._created: dict[str, float] = {}  # pod -> when, until its first event
        self.event_lags: list[float] = []  # seconds from a creation to the first event of the pod
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stop.set()
        self._closed.set()
        self._stream.close()
        for thread in self._threads:
            thread.join(30)
        self._pool.shutdown(cancel_futures=True)

    def finish(self, patience: float = PATIENCE) -> None:
        """Create no more, and wait until every unit is bound or the patience ends."""
        self._stop.set()
        end = time.monotonic() + patience
        while self.pending() and time.monotonic() < end:
            time.sleep(0.1)

    def pending(self) -> list[str]:
        """Pods of units that are not bound, though each was created."""
        with self._lock:
            return sorted(
                pod
                for unit in self.units.values()
                if unit.waited is None
                for pod in unit.pods - unit.bound.keys()
            )

    def waits(self) -> list[float]:
        with self._lock:
            return [unit.waited for unit in self.units.values() if unit.waited is not None]

    # --- creations ---

    def _create(self) -> None:
        start, number = time.monotonic(), 0
        while not self._stop.wait(max(0.0, start + number * PERIOD - time.monotonic())):
            self._pool.submit(self._create_unit, number)
            number += 1

    def _create_unit(self, number: int) -> None:
        size = GANG_SIZE if number % GANG_EVERY == GANG_EVERY - 1 else 1
        names = [f"n{number}-{member}" for member in range(size)]
        unit = Unit(frozenset(names))
        with self._lock:
            self._unit_of.update((name, unit) for name in names)
        answers = [self._create_pod(name, number, size) for name in names]
        if all(answers):
            with self._lock:
                unit.created = time.monotonic()
                self.units[number] = unit

    def _create_pod(self, name: str, number: int, size: int) -> bool:
        start = time.monotonic()
        try:
            self._api.call("POST", PODS, self._pod(name, number, size), timeout=40.0)
        except (CallFailed, OSError, http.client.HTTPException) as exc:
            with self._lock:
                self.failures.append(str(exc)[:300] or repr(exc))
            return False
        finally:
            with self._lock:
                self.creates.append(time.monotonic() - start)
        with self._lock:
            self._created[name] = time.monotonic()
        return True

    def _pod(self, name: str, number: int, size: int) -> Json:
        labels = dict(self._labels)
        if size > 1:
            labels |= {
                vocabulary.GANG_NAME_LABEL: f"n{number}",
                vocabulary.GANG_MIN_AVAILABLE_LABEL: str(size),
            }
        requests = {"cpu": "100m", "memory": "64Mi"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "schedulerName": vocabulary.SCHEDULER_NAME,
                "nodeSelector": self._node_labels,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
            },
        }

    # --- binds ---

    def _follow(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                items, version = self._stream.list()
                for pod in items:
                    self._see(pod)
                for event in self._stream.watch(version):
                    if event["type"] == "ERROR":
                        break
                    self._see(event["object"])
            self._closed.wait(0.1)

    def _see(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        with self._lock:
            if (created := self._created.pop(name, None)) is not None:
                self.event_lags.append(time.monotonic() - created)
        if not pod["spec"].get("nodeName"):
            return
        with self._lock:
            unit = self._unit_of.get(name)
            if unit is None or name in unit.bound:
                return
            unit.bound[name] = time.monotonic()
            whole = unit.bound.keys() == unit.pods
        if whole and not self._closed.is_set():
            self._pool.submit(self._delete, unit.pods)

    def _delete(self, names: Sequence[str] | frozenset[str]) -> None:
        for name in sorted(names):
            with contextlib.suppress(CallFailed, OSError, http.client.HTTPException):
                self._api.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank; 0 where there are no values."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def summary(neighbour: Neighbour) -> Json:
    """What became of its creations and its units; times in seconds."""
    creates, waits = neighbour.creates, neighbour.waits()
    return {
        "creates": len(creates),
        "failed_creates": neighbour.failures,
        "units": len(neighbour.units),
        "pending": neighbour.pending(),
        "create_seconds": _figures(creates),
        "bound_seconds": _figures(waits),
        "event_seconds": _figures(neighbour.event_lags),
    }


def _figures(values: Sequence[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p99": 0.99, "longest": 1.0}
    return {name: round(percentile(values, share), 3) for name, share in shares.items()}
