"""
An independent witness: sees every pod at every instant, and knows nothing of the scheduler.

    watch on pods ──▶ `see` ──▶ gangs partial since when · pods on two nodes · nodes over their size

A gang is partial while some but fewer than its minimum are bound, and it was never whole since the
last time that none was: a gang that was whole and loses a node is a matter of the node.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from policies import quantity, vocabulary
from tests.cluster.pod_watch import Stream

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class Gang:
    need: int
    members: set[str] = field(default_factory=set)  # uids that have a node
    whole: bool = False
    since: float | None = None  # partial since
    longest: float = 0.0
    times_whole: int = 0


class PodLedger:
    """What was seen. `now` in seconds; pure otherwise."""

    def __init__(self, capacity: dict[str, int]) -> None:
        self.capacity = capacity  # node -> CPU in thousandths
        self.gangs: dict[str, Gang] = {}
        self.nodes: dict[str, str] = {}  # uid -> node
        self.used: dict[str, int] = defaultdict(int)
        self.binds = 0
        self.double: list[str] = []
        self.over: list[str] = []
        self._held: dict[str, tuple[str, int]] = {}  # uid -> (node, CPU) while it occupies

    def see(self, kind: str, pod: Json, now: float) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        node = spec.get("nodeName") or ""
        gone = kind == "DELETED"
        finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if node and uid not in self.nodes:
            self.nodes[uid] = node
            self.binds += 1
        elif node and self.nodes[uid] != node:
            self.double.append(f"{pod['metadata']['name']}: {self.nodes[uid]}, then {node}")
        self._occupy(uid, "" if gone or finished else node, spec)
        leaves = gone or finished or pod["metadata"].get("deletionTimestamp") is not None
        self._count(pod, uid, bool(node) and not leaves, now)

    def _occupy(self, uid: str, node: str, spec: Json) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            self.used[held[0]] -= held[1]
        if node:
            cpu = sum(
                quantity.milli(one["resources"]["requests"]["cpu"]) for one in spec["containers"]
            )
            self._held[uid] = (node, cpu)
            self.used[node] += cpu
            if node in self.capacity and self.used[node] > self.capacity[node]:
                self.over.append(f"{node}: {self.used[node]}m of {self.capacity[node]}m")

    def _count(self, pod: Json, uid: str, counts: bool, now: float) -> None:
        labels = pod["metadata"].get("labels") or {}
        name = labels.get(vocabulary.GANG_NAME_LABEL)
        if name is None:
            return
        need = int(labels[vocabulary.GANG_MIN_AVAILABLE_LABEL])
        gang = self.gangs.setdefault(name, Gang(need))
        (gang.members.add if counts else gang.members.discard)(uid)
        have = len(gang.members)
        if have >= gang.need and not gang.whole:
            gang.whole, gang.times_whole = True, gang.times_whole + 1
        elif have == 0:
            gang.whole = False
        if 0 < have < gang.need and not gang.whole:
            gang.since = now if gang.since is None else gang.since
        elif gang.since is not None:
            gang.longest = max(gang.longest, now - gang.since)
            gang.since = None

    def partial(self) -> list[str]:
        return sorted(
            f"{name}: {len(gang.members)} of {gang.need}"
            for name, gang in self.gangs.items()
            if gang.since is not None
        )

    def longest(self) -> float:
        return max((gang.longest for gang in self.gangs.values()), default=0.0)

    def summary(self) -> dict[str, Any]:
        return {
            "gangs": len(self.gangs),
            "binds": self.binds,
            "partial": len(self.partial()),
            "longest": round(self.longest(), 1),
            "double": len(self.double),
            "over": len(self.over),
        }

    def forget_stretches(self) -> None:
        """From now on `longest` speaks of what comes."""
        for gang in self.gangs.values():
            gang.longest = 0.0


class Witness:
    """Follows the pods of a namespace in a thread, inside `with`; gaps are listed anew."""

    def __init__(self, stream: Stream, books: PodLedger) -> None:
        self._stream, self.books = stream, books
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._last: dict[str, Json] = {}  # uid -> the pod as last seen
        self.relisted = -1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._stream.close()
        self._thread.join(10)

    def read(self, view: Callable[[PodLedger], T]) -> T:
        """`view(books)`, while nothing moves."""
        with self._lock:
            return view(self.books)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except (OSError, ValueError, json.JSONDecodeError):
                time.sleep(0.1)

    def _follow(self) -> None:
        items, version = self._stream.list()
        self.relisted += 1
        with self._lock:
            known = {pod["metadata"]["uid"] for pod in items}
            now = time.monotonic()
            for pod in items:
                self.books.see("ADDED", pod, now)
            for uid, pod in list(self._last.items()):
                if uid not in known:
                    self.books.see("DELETED", pod, now)
                    del self._last[uid]
            self._last |= {pod["metadata"]["uid"]: pod for pod in items}
        for event in self._stream.watch(version):
            if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                return
            pod = event["object"]
            with self._lock:
                self.books.see(event["type"], pod, time.monotonic())
                if event["type"] == "DELETED":
                    self._last.pop(pod["metadata"]["uid"], None)
                else:
                    self._last[pod["metadata"]["uid"]] = pod
