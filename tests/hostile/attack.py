"""
Sends the drawn requests with a bounded number of clients, and counts what the API server answers.

    stored | denied by the webhook | its internal error | refused by the API server
           | the webhook failed | no answer

The administrator keeps the namespace small meanwhile: of the stored objects the oldest are deleted,
and finalizers are removed from pods that are being deleted.
"""

import contextlib
import http.client
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed
from tests.hostile.requests import MERGE, NAMESPACE, Request, request
from webhook.serve.app import INTERNAL_FAILURE

Json = dict[str, Any]

CLIENTS: Final = 8
LIVE: Final = 250  # stored objects that are left alone
LIVE_FLOODS: Final = 2  # workloads that are left alone although they fill the quota of pods
FLOOD: Final = 20  # pods of one workload
EXAMPLES: Final = 20  # requests that are named of each bad outcome
COUNTS: Final = ("replicas", "parallelism")
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Outcome(StrEnum):
    STORED = "stored"
    DENIED = "denied by the webhook"
    INTERNAL = "denied for an internal error of the webhook"
    REFUSED = "refused by the API server"
    FAILED = "the webhook failed"
    LOST = "no answer"


class Attack:
    """Runs inside `with`, until `count` requests were sent or `stop` says so."""

    def __init__(
        self,
        user: Api,
        admin: Api,
        *,
        seed: int,
        count: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._user, self._admin = user, admin
        self._seed, self._count, self._given_up = seed, count, stop
        self._lock = threading.Lock()
        self._next = 0
        self._done = threading.Event()
        self._live: deque[str] = deque()
        self._floods: deque[str] = deque()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]
        self._janitor = threading.Thread(target=self._sweep, daemon=True)
        self.sent = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.by_verb: Counter[str] = Counter()
        self.stored_kinds: Counter[str] = Counter()
        self.examples: dict[Outcome, list[str]] = {}  # outcome -> index and message

    def __enter__(self) -> Self:
        for thread in (*self._threads, self._janitor):
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._count = 0
        self.wait()
        self._done.set()
        self._janitor.join(60)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def purge(self) -> None:
        """Delete the pods of the namespace, and all workloads that would make new ones."""
        with self._lock:
            paths = [*self._live, *self._floods]
            self._live.clear()
            self._floods.clear()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self._delete, paths))
        self._free_finalizers()
        self._quietly("DELETE", PODS, {"gracePeriodSeconds": 0})

    def _run(self) -> None:
        while (index := self._take()) is not None:
            drawn = request(self._seed, index)
            outcome, said = self._send(drawn)
            with self._lock:
                self.sent += 1
                self.outcomes[outcome] += 1
                self.by_verb[drawn.verb] += 1
                if outcome is Outcome.STORED:
                    self.stored_kinds[drawn.kind] += 1
                    self._keep(drawn)
                elif outcome in (Outcome.INTERNAL, Outcome.FAILED, Outcome.LOST):
                    rows = self.examples.setdefault(outcome, [])
                    if len(rows) < EXAMPLES:
                        rows.append(f"{index}: {said}")
            self._trim()

    def _take(self) -> int | None:
        with self._lock:
            if self._next >= self._count or self._given_up():
                return None
            self._next += 1
            return self._next - 1

    def _send(self, drawn: Request) -> tuple[Outcome, str]:
        try:
            self._user.call(
                drawn.method,
                drawn.path,
                drawn.body,
                content_type=drawn.content_type,
                timeout=60.0,
            )
        except CallFailed as exc:
            return _refusal(str(exc)), str(exc)[:400]
        except (OSError, http.client.HTTPException, ValueError) as exc:
            return Outcome.LOST, repr(exc)[:400]
        return Outcome.STORED, ""

    # --- the platform's own cleaning ---

    def _keep(self, drawn: Request) -> None:
        """Remember what was stored; called with the lock."""
        if floods(drawn):
            self._floods.append(drawn.stores or drawn.path.partition("?")[0].removesuffix("/scale"))
        elif drawn.stores:
            self._live.append(drawn.stores)

    def _trim(self) -> None:
        with self._lock:
            old = [self._live.popleft()] if len(self._live) > LIVE else []
            old += [self._floods.popleft()] if len(self._floods) > LIVE_FLOODS else []
        for path in old:
            self._delete(path)

    def _delete(self, path: str) -> None:
        body = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        self._quietly("DELETE", path, body)

    def _sweep(self) -> None:
        while not self._done.wait(2.0):
            self._free_finalizers()

    def _free_finalizers(self) -> None:
        """Pods that are being deleted go, although the tenant put finalizers on them."""
        for pod in self._quietly("GET", PODS).get("items", ()):
            about = pod["metadata"]
            if "deletionTimestamp" in about and about.get("finalizers"):
                path = f"{PODS}/{about['name']}"
                self._quietly("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)

    def _quietly(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> Json:
        with contextlib.suppress(CallFailed, OSError, http.client.HTTPException):
            return self._admin.call(method, path, body, content_type=kind, timeout=10.0)
        return {}


def floods(drawn: Request) -> bool:
    """Whether a workload makes so many pods that no quota is left for other objects."""
    if not isinstance(drawn.body, dict) or "dryRun" in drawn.path:
        return False
    spec = drawn.body.get("spec")
    counts = [spec.get(field) for field in COUNTS] if isinstance(spec, dict) else []
    return any(isinstance(count, int) and count > FLOOD for count in counts)


def _refusal(said: str) -> Outcome:
    if "failed calling webhook" in said or "failed to call webhook" in said:
        return Outcome.FAILED
    if INTERNAL_FAILURE in said:
        return Outcome.INTERNAL
    if "denied the request" in said:
        return Outcome.DENIED
    return Outcome.REFUSED


def summary(attack: Attack) -> Json:
    return {
        "sent": attack.sent,
        "outcomes": {outcome.value: attack.outcomes[outcome] for outcome in Outcome},
        "by_verb": dict(attack.by_verb.most_common()),
        "stored_by_kind": dict(attack.stored_kinds.most_common()),
        "examples": {outcome.value: rows for outcome, rows in attack.examples.items()},
    }
