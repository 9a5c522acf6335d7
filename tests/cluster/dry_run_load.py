"""
A steady load of pod creations by dry run through the API server, and what became of each.

    sent --admitted--------> right for a good pod, wrongly admitted for a bad one
         --denied----------> right for a bad pod, wrongly refused for a good one
         --webhook failed--> refused by the API server, which could not have it judged
         --no API server---> not a matter of the webhook

Good and bad take turns in every thread, each thread on a connection that it keeps.
"""

import http.client
import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from tests.cluster.waiting import eventually

Json = dict[str, Any]

THREADS: Final = 4


class Outcome(StrEnum):
    RIGHT = "right"
    WRONGLY_ADMITTED = "wrongly admitted"
    WRONGLY_REFUSED = "wrongly refused"
    FAILED = "failed"
    UNREACHABLE = "no API server"
    UNEXPECTED = "unexpected"


class Load:
    """Runs inside `with`; `counts` says how often there was which outcome."""

    def __init__(
        self, plane: ControlPlane, namespace: str, *, good: Sequence[Json], bad: Sequence[Json]
    ) -> None:
        self._api = plane.api()
        self._path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        placed = {"namespace": namespace}
        self._pods = [
            (pod | {"metadata": pod["metadata"] | placed}, is_good)
            for pods, is_good in ((good, True), (bad, False))
            for pod in pods
        ]
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(THREADS)]
        self.counts: Counter[Outcome] = Counter()
        self.said: dict[Outcome, set[str]] = {}  # outcome -> how the messages ended

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.more(40)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int, outcome: Outcome | None = None) -> None:
        """Go on until there are so many more calls, or calls with this outcome."""
        want = self._total(outcome) + count
        eventually(lambda: self._total(outcome) >= want, f"{count} more calls of the load")

    def quiet(self, count: int = 60) -> None:
        """Go on until so many calls in a row were answered as they should be."""

        def settled() -> bool:
            right = self._total(Outcome.RIGHT)
            with self._lock:
                wrong = self._wrong()
            if wrong != seen[0]:
                seen[:] = [wrong, right]
            return right - seen[1] >= count

        with self._lock:
            seen = [self._wrong(), self.counts[Outcome.RIGHT]]
        eventually(settled, f"{count} calls in a row answered as they should be, but {self.said}")

    def _wrong(self) -> int:
        return self.counts.total() - self.counts[Outcome.RIGHT]

    def _total(self, outcome: Outcome | None) -> int:
        with self._lock:
            assert Outcome.UNEXPECTED not in self.counts, self.said
            return self.counts.total() if outcome is None else self.counts[outcome]

    def _run(self, start: int) -> None:
        for pod, good in itertools.islice(itertools.cycle(self._pods), start, None):
            if self._stop.is_set():
                return
            outcome, said = self._one(pod, good)
            with self._lock:
                self.counts[outcome] += 1
                if outcome is not Outcome.RIGHT:
                    self.said.setdefault(outcome, set()).add(said.rpartition(": ")[2])

    def _one(self, pod: Json, good: bool) -> tuple[Outcome, str]:
        try:
            self._api.call("POST", self._path, pod)
        except CallFailed as exc:
            return _refused(exc, good), str(exc)
        except (OSError, http.client.HTTPException) as exc:
            self._stop.wait(0.05)  # no use in trying faster than it can come back
            return Outcome.UNREACHABLE, repr(exc)
        return (Outcome.RIGHT if good else Outcome.WRONGLY_ADMITTED), ""


def _refused(exc: CallFailed, good: bool) -> Outcome:
    said = str(exc)
    if "denied the request" in said:
        return Outcome.WRONGLY_REFUSED if good else Outcome.RIGHT
    if "failed calling webhook" in said or "failed to call webhook" in said:
        return Outcome.FAILED
    # A server that is starting or ending answers in its own words.
    return Outcome.UNREACHABLE if exc.status >= 429 else Outcome.UNEXPECTED
