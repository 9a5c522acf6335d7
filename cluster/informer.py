"""
A complete store of one collection, kept by list and watch.

              +---------------------- expired, ERROR, malformed, or failed too often --+
              v                                                                        |
    start --> LISTING --all pages--> WATCHING --ended or broken--> WATCHING again from the
              |    ^                    |                          last resourceVersion seen
              +----+                    +--> store and callback, one event at a time
              failed: backoff

Guarantees to the callback, also across lost connections and restarts of the server:

* each object that exists is announced as ADDED once, and `synced` is set after the first list;
* each change that is seen arrives as MODIFIED with what was known before;
* each object that is gone is announced as DELETED, also when it went while no watch was open: the
  informer compares a new list with the store, and reports missing objects with their last state;
* an object of the same name with another UID is a DELETED and an ADDED, never a MODIFIED;
* an object that did not change (same resourceVersion) is not announced again.

Intermediate states may be skipped, as in any Kubernetes watch; the last state never is. Long lists
and bursts of events are read in slices: other tasks of the event loop run in between.
The store keeps only what `keep` returns for an object. The callback runs in the event loop and
must not block; an exception from it, or from `keep`, ends `run`.
Not here: queues, retries of work, indexes. The user of the informer owns those.
"""

import asyncio
import logging
import random as randomness
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, cast

import orjson

from cluster.backoff import Backoff
from cluster.client import PAGE, Client
from cluster.errors import Expired, KubeError, Retry, of_status
from cluster.net.transport import Now, Sleep
from cluster.resources import Obj, Resource

logger = logging.getLogger(__name__)

T = TypeVar("T")
Key = tuple[str, str]  # namespace ("" for what has none) and name

STEADY_SECONDS: Final = 5.0  # a watch that lived this long resets the backoff
MAX_BROKEN: Final = 5  # failed watches in a row after which the informer lists again


SLICE_SECONDS: Final = 0.02  # of one list or burst, until other tasks have a turn


class Slices:
    """Lets other tasks of the event loop run after each slice of a long loop."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._until = now() + SLICE_SECONDS

    async def pause(self) -> None:
        if self._now() >= self._until:
            await asyncio.sleep(0)
            self._until = self._now() + SLICE_SECONDS


class EventKind(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change. `object` and `old` are what `keep` made of the states after and before.

    DELETED carries in `object` the last state known; `old` is None for ADDED alone.
    """

    kind: EventKind
    key: Key
    object: T
    old: T | None


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One object in the store."""

    uid: str
    version: str
    value: T


@dataclass(slots=True)
class Stats:
    """Counters for metrics."""

    watches: int = 0  # watches tried
    events: int = 0  # changes announced

    @property
    def restarts(self) -> int:
        """Watches tried after the first."""
        return max(0, self.watches - 1)


def changes(
    store: Mapping[Key, Entry[T]], fresh: Mapping[Key, Entry[T]]
) -> Iterator[WatchEvent[T]]:
    """The differences of a new list from the store: deletes first, each part ordered by key.

    Deletes come first so that their capacity is free before new objects request it.
    """
    for key in sorted(store):
        now, was = fresh.get(key), store[key]
        if now is None or now.uid != was.uid:
            yield WatchEvent(EventKind.DELETED, key, was.value, was.value)
    for key in sorted(fresh):
        now, known = fresh[key], store.get(key)
        if known is None or known.uid != now.uid:
            yield WatchEvent(EventKind.ADDED, key, now.value, None)
        elif known.version != now.version:
            yield WatchEvent(EventKind.MODIFIED, key, now.value, known.value)


class Informer(Generic[T]):
    """Start `run()` as a task and cancel it to stop; read the store at any time."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        on_event: Callable[[WatchEvent[T]], None],
        keep: Callable[[Obj], T] | None = None,
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        page: int = PAGE,
        stall: float = 120.0,
        lifetime: int = 300,
        random: Callable[[], float] = randomness.random,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.stats = Stats()
        self._client = client
        self._on_event = on_event
        # Without `keep` the whole object is kept, and T is the raw object by the caller's choice.
        self._keep = keep or (lambda obj: cast(T, obj))
        self._namespace = namespace
        self._fields = field_selector
        self._labels = label_selector
        self._page = page
        self._stall = stall
        self._lifetime = lifetime
        self._random = random
        self._now = now
        self._sleep = sleep
        self._store: dict[Key, Entry[T]] = {}
        self._version: str | None = None  # where the next watch begins; None: list first
        self._backoff = Backoff(random)
        self._broken_watches = 0  # in a row, since the last list
        self._watching_since: float | None = None

    def __len__(self) -> int:
        return len(self._store)

    def get(self, name: str, *, namespace: str = "") -> T | None:
        entry = self._store.get((namespace, name))
        return None if entry is None else entry.value

    def values(self) -> Iterable[T]:
        return (entry.value for entry in self._store.values())

    def items(self) -> Iterable[tuple[Key, T]]:
        return ((key, entry.value) for key, entry in self._store.items())

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            self._watching_since = None
            failure: KubeError | None = None
            try:
                if self._version is None:
                    await self._list()
                await self._watch(self._version or "")
            except KubeError as error:
                failure = error
            delay = self._next_step(failure)
            if delay:
                await self._sleep(delay)

    def _next_step(self, failure: KubeError | None) -> float:
        """Decide whether to list or to watch next; returns the seconds until then."""
        since = self._watching_since
        steady = since is not None and self._now() - since >= STEADY_SECONDS
        if steady:
            self._backoff.reset()
            self._broken_watches = 0
        if failure is None:
            # The server ends a long watch as configured; a watch that ends at once must back off.
            return 0.0 if steady else self._backoff.next()
        self._broken_watches += 1
        relist = (
            isinstance(failure, Expired | _MalformedEvent) or self._broken_watches >= MAX_BROKEN
        )
        if relist:
            self._version = None
        logger.warning(
            "watch interrupted",
            extra={"watched": str(self.resource), "error": str(failure), "relist": relist},
        )
        return self._backoff.next(failure)

    async def _list(self) -> None:
        fresh: dict[Key, Entry[T]] = {}
        version = ""
        slices = Slices(self._now)
        async for page in self._client.pages(
            self.resource,
            namespace=self._namespace,
            field_selector=self._fields,
            label_selector=self._labels,
            limit=self._page,
        ):
            if page.first:
                fresh.clear()
            for obj in page.items:
                key, uid, object_version = _identity(obj)
                known = self._store.get(key)
                same = known is not None and known.uid == uid and known.version == object_version
                fresh[key] = (
                    known if known and same else Entry(uid, object_version, self._keep(obj))
                )
                await slices.pause()
            version = page.resource_version
        for event in changes(self._store, fresh):
            self._commit(event, fresh.get(event.key))
            await slices.pause()
        self._version = version
        self._broken_watches = 0
        self.synced.set()

    async def _watch(self, version: str) -> None:
        # Lifetimes differ so that the many watches of a server do not end together.
        lifetime = int(self._lifetime * (1.0 + self._random()))
        self.stats.watches += 1
        async with self._client.watch(
            self.resource,
            resource_version=version,
            namespace=self._namespace,
            field_selector=self._fields,
            label_selector=self._labels,
            lifetime=lifetime,
            stall=self._stall,
        ) as stream:
            self._watching_since = self._now()
            slices = Slices(self._now)
            async for lines in stream:
                for line in lines:
                    self._read_line(line)
                    await slices.pause()

    def _read_line(self, line: bytes) -> None:
        kind, obj = _decode(self.resource, line)
        key, uid, version = _identity(obj)
        if kind != "BOOKMARK":
            self._apply(kind, obj, key, uid, version)
        self._version = version

    def _apply(self, kind: str, obj: Obj, key: Key, uid: str, version: str) -> None:
        known = self._store.get(key)
        if known is not None and known.uid != uid:
            self._commit(WatchEvent(EventKind.DELETED, key, known.value, known.value), None)
            known = None
        if kind == EventKind.DELETED:
            if known is not None:
                event = WatchEvent(EventKind.DELETED, key, self._keep(obj), known.value)
                self._commit(event, None)
            return
        if known is not None and known.version == version:
            return
        entry = Entry(uid, version, self._keep(obj))
        if known is None:
            self._commit(WatchEvent(EventKind.ADDED, key, entry.value, None), entry)
        else:
            self._commit(WatchEvent(EventKind.MODIFIED, key, entry.value, known.value), entry)

    def _commit(self, event: WatchEvent[T], entry: Entry[T] | None) -> None:
        """The store first, so that a callback that reads it sees the announced state."""
        if event.kind is EventKind.DELETED:
            self._store.pop(event.key, None)
        elif entry is not None:
            self._store[event.key] = entry
        self.stats.events += 1
        self._on_event(event)


class _MalformedEvent(Retry):
    """The stream sent a line that no API server sends: list again."""


def _decode(resource: Resource, line: bytes) -> tuple[str, Obj]:
    """One line of a watch as kind and object; raises for ERROR and for malformed lines."""
    try:
        event = orjson.loads(line)
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise _reported(resource, obj)
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise _MalformedEvent(f"watch {resource}: unknown event type {str(kind)[:40]!r}")
        _identity(obj)
    except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
        start = line[:80].decode("utf-8", "replace")
        raise _MalformedEvent(f"watch {resource}: a line that is no event: {start!r}") from exc
    return kind, obj


def _reported(resource: Resource, status: Any) -> KubeError:
    """The error of an ERROR event. 410: the history is gone; after any other, listing is safe."""
    code = status.get("code") if isinstance(status, dict) else None
    error = of_status(f"watch {resource}", code or 500, orjson.dumps(status))
    return error if isinstance(error, Expired) else _MalformedEvent(str(error), status=error.status)


def _identity(obj: Obj) -> tuple[Key, str, str]:
    metadata = obj["metadata"]
    return (
        (metadata.get("namespace", ""), metadata.get("name", "")),
        metadata.get("uid", ""),
        metadata["resourceVersion"],
    )
