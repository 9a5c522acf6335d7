"""
Which unschedulable pods a change may help, found out in slices.

    nodes_changed, cluster_event   note a change and give it the next number
    add, discard                   a class of pods waits because a plan has failed, or no longer
    slice                          tests classes against what changed since their last test

Each row has the number of its last change and each class the number of its last test. Together they
say which rows a class is tested against, so changes that arrive between two slices are merged, no
class is tested twice against one change, and memory does not grow with changes.

A test runs over all rows at once. Most classes need none: bounds that are computed for many classes
at once drop those that request more than any changed row has free (`_drop_hopeless`).

A round tests every class against the changes noted before it began, the class that waits longest
for its test first. The cycle plans nothing within a round, so no unit overtakes an older one that
the round is about to find fitting. Changes noted within a round wait for the next one.
"""

import itertools
import logging
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools, Ints
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.resources import PODS
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.plugins.protocol import QueueingHint

SLICE: Final = 3_000_000
"""Work of one slice, in rows: 20 ms at most on a slow core."""

_TEST: Final = 8192  # what a test costs besides its rows, in rows
_BOUNDED: Final = ("cpu", "memory", PODS, "ephemeral-storage", *sorted(filters.GPUS))
_NOT_REQUESTED: Final = np.iinfo(np.int64).min
_MOST_BATCHES: Final = 8  # last tests that are told apart when bounds are computed
_MOST_KINDS: Final = 64  # kinds of static filters whose bounds one slice computes
_SPARE_KINDS: Final = 1024  # beyond twice the classes that wait
_MASK_BYTES: Final = 16 * 2**20  # of all kept results of static filters

_UNKNOWN: Final = -1  # the static kind of a class that was not tested since nodes changed
_NO_ROW: Final = -1
_MANY_ROWS: Final = -2

logger = logging.getLogger(__name__)


class PodClass(Protocol):
    """Pods that fit the same nodes."""

    @property
    def pod(self) -> Pod:
        """Any of them."""
        ...

    @property
    def queued(self) -> bool:
        """Units with such pods are about to be planned, so they need no test."""
        ...


C = TypeVar("C", bound=PodClass)


class Requeueing(Generic[C]):
    """The classes that wait, each in a slot, and what changed since their last test."""

    def __init__(self, snapshot: Snapshot, memo: Memo, *, budget: int = SLICE) -> None:
        self._snapshot = snapshot
        self._memo = memo
        self._budget = budget
        self._changes = 0  # the number of the latest change
        self._changed: Ints = np.zeros(0, dtype=np.int64)  # row -> its last change
        self._events: dict[str, int] = {}  # kind of object -> its last change
        self._done = 0  # every class was tested against the changes up to this one
        self._round: int | None = None  # the round tests against the changes up to this one
        self._slots: dict[C, int] = {}
        self._free_slots: list[int] = []
        self._classes: list[C | None] = []  # slot -> class
        self._tested: Ints = np.zeros(
            0, dtype=np.int64
        )  # slot -> last change it was tested against
        self._waiting: Bools = np.zeros(0, dtype=np.bool_)
        self._amounts: Ints = np.zeros((0, len(_BOUNDED)), dtype=np.int64)
        self._statics: NDArray[np.int32] = np.zeros(0, dtype=np.int32)  # slot -> static kind
        self._event_codes: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._event_sets: list[frozenset[str]] = [frozenset()]  # code -> events that may help
        self._kinds = _StaticKinds(snapshot, memo)

    def __len__(self) -> int:
        return len(self._slots)

    # --- what changes ---

    def nodes_changed(self, nodes: Iterable[str]) -> None:
        """Capacity may have become free on these nodes."""
        table = self._snapshot.table
        missing = len(table.alive) - len(self._changed)
        if missing > 0:
            self._changed = np.concatenate([self._changed, np.zeros(missing, dtype=np.int64)])
        rows = [row for node in nodes if (row := table.rows.get(node)) is not None]
        if rows:
            self._changes += 1
            self._changed[rows] = self._changes

    def cluster_event(self, kind: str) -> None:
        """An object of this kind, which is not a node, has changed."""
        self._changes += 1
        self._events[kind] = self._changes

    def add(self, pods: C) -> None:
        """A plan with these pods has failed on the nodes as they are now."""
        slot = self._slots.get(pods)
        if slot is None:
            slot = self._slots[pods] = self._new_slot()
            self._classes[slot] = pods
            self._waiting[slot] = True
            self._statics[slot] = _UNKNOWN
            requests = dict(pods.pod.spec.requests)
            self._amounts[slot] = [requests.get(name, _NOT_REQUESTED) for name in _BOUNDED]
        self._tested[slot] = self._changes
        self._event_codes[slot] = self._event_code(pods.pod)

    def discard(self, pods: C) -> None:
        slot = self._slots.pop(pods, None)
        if slot is not None:
            self._classes[slot] = None
            self._waiting[slot] = False
            self._free_slots.append(slot)

    # --- tests ---

    @property
    def pending(self) -> bool:
        """Whether `slice` has something to do."""
        return self._round is not None or self._done < self._changes

    @property
    def in_round(self) -> bool:
        """Whether classes are still to be tested against changes that were noted before."""
        return self._round is not None

    def slice(self) -> list[tuple[C, QueueingHint]]:
        """The classes that what changed may help, among those that one slice tests."""
        if not self.pending:
            return []
        budget = self._budget
        if self._round is None:
            self._round = self._changes
        untested = np.flatnonzero(self._waiting & (self._tested < self._round))
        untested = self._drop_hopeless(untested)
        untested = untested[np.argsort(self._tested[untested], kind="stable")]
        hints: list[tuple[C, QueueingHint]] = []
        for slot in map(int, untested):
            pods = self._classes[slot]
            if pods is None:
                continue
            if not pods.queued:
                if budget <= 0:
                    return hints
                budget -= _TEST + len(self._snapshot.table.alive)
                if (hint := self._test(slot, pods.pod)) is not QueueingHint.NONE:
                    hints.append((pods, hint))
            self._tested[slot] = self._changes
        self._done, self._round = self._round, None
        return hints

    def end_round(self) -> None:
        """An error came in a slice: no class waits for the changes noted so far any longer."""
        self._done, self._round = self._changes, None

    def _test(self, slot: int, pod: Pod) -> QueueingHint:
        if pod.spec.unsupported:
            return QueueingHint.NONE
        try:
            rows = filters.open_rows(self._snapshot, pod.spec, self._memo)
            self._statics[slot] = self._kinds.code(pod.spec)
        except Exception:
            # The planner meets the same error, and the unit alone is quarantined for it.
            logger.exception("queueing hint failed", extra={"pod": str(pod.key)})
            return QueueingHint.LIKELY
        changed = self._changed_rows(int(self._tested[slot]))
        if (rows & changed).any():
            return QueueingHint.LIKELY if (rows & ~changed).any() else QueueingHint.FITS
        relevant = self._last_events()[self._event_codes[slot]] > self._tested[slot]
        return QueueingHint.PERHAPS if relevant and rows.any() else QueueingHint.NONE

    def _changed_rows(self, since: int) -> Bools:
        changed: Bools = np.zeros_like(self._snapshot.table.alive)
        changed[: len(self._changed)] = self._changed > since
        return changed

    # --- bounds over many classes ---

    def _drop_hopeless(self, slots: Ints) -> Ints:
        """The classes that may pass their test; the others have failed it."""
        if not len(slots):
            return slots
        self._forget_statics()
        kept = [self._within_bounds(batch, rows) for batch, rows in self._batches(slots)]
        left = np.concatenate(kept)
        dropped = np.zeros_like(self._waiting)
        dropped[slots] = True
        dropped[left] = False
        self._tested[dropped] = self._changes
        return left

    def _batches(self, slots: Ints) -> Iterator[tuple[Ints, Bools]]:
        """The classes with the same rows to test, and at least these rows."""
        alive, tested = self._snapshot.table.alive, self._tested[slots]
        by_event = self._last_events()[self._event_codes[slots]] > tested
        if by_event.any():
            yield slots[by_event], alive
        slots, tested = slots[~by_event], tested[~by_event]
        moments, _ = _distinct(tested)
        # The oldest are tested as if all were as old as the first of them.
        starts = [*moments[:1], *moments[1:][-_MOST_BATCHES + 1 :]]
        for start, end in itertools.pairwise([*starts, self._changes + 1]):
            batch = slots[(tested >= start) & (tested < end)]
            yield batch, alive & self._changed_rows(int(start))

    def _within_bounds(self, slots: Ints, rows: Bools) -> Ints:
        index = np.flatnonzero(rows)
        if not len(index):
            return slots[:0]
        bounded = np.flatnonzero((self._amounts[slots] != _NOT_REQUESTED).any(axis=0))
        names = [_BOUNDED[column] for column in bounded]
        amounts = self._amounts[np.ix_(slots, bounded)]
        most = np.array([self._snapshot.table.free(name)[index].max() for name in names])
        within = (amounts <= most).all(axis=1)
        slots, amounts = slots[within], amounts[within]
        statics = self._statics[slots]
        keep = statics == _UNKNOWN
        known = np.flatnonzero(~keep)
        codes, inverse = _distinct(statics[known])
        possible, bounds = self._kinds.bounds(codes, names, rows)
        keep[known] = possible[inverse] & (amounts[known] <= bounds[inverse]).all(axis=1)
        kept: Ints = slots[keep]
        return kept

    def _forget_statics(self) -> None:
        if self._kinds.renew(len(self._slots)):
            self._statics[:] = _UNKNOWN

    # --- events ---

    def _event_code(self, pod: Pod) -> int:
        events = self._snapshot.plugins.requeueing_events(pod)
        if events not in self._event_sets:
            self._event_sets.append(events)
        return self._event_sets.index(events)

    def _last_events(self) -> Ints:
        """For each set of events the last change among them."""
        last = [
            max((self._events.get(kind, 0) for kind in kinds), default=0)
            for kinds in self._event_sets
        ]
        numbers: Ints = np.array(last, dtype=np.int64)
        return numbers

    # --- slots ---

    def _new_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._classes.append(None)
        if len(self._classes) > len(self._tested):
            extra = max(64, len(self._tested))
            self._tested = np.concatenate([self._tested, np.zeros(extra, dtype=np.int64)])
            self._waiting = np.concatenate([self._waiting, np.zeros(extra, dtype=np.bool_)])
            more = np.zeros((extra, len(_BOUNDED)), dtype=np.int64)
            self._amounts = np.concatenate([self._amounts, more])
            self._statics = np.concatenate([self._statics, np.zeros(extra, dtype=np.int32)])
            self._event_codes = np.concatenate([self._event_codes, np.zeros(extra, dtype=np.int32)])
        return len(self._classes) - 1


def _distinct(values: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """The distinct values, sorted, and the place of each value among them."""
    # `np.unique` imports `numpy.ma` on its first call, which takes longer than a slice.
    ordered = np.sort(values).astype(np.int64)
    first: Bools = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    distinct = ordered[first]
    return distinct, np.searchsorted(distinct, values)


class _StaticKinds:
    """
    Specs that the static filters treat alike, numbered, and the rows that each kind leaves.

    A kind that is pinned to one row costs a number instead of a mask. Valid until nodes change, or
    until most kinds are those of classes that wait no longer.
    """

    def __init__(self, snapshot: Snapshot, memo: Memo) -> None:
        self._snapshot = snapshot
        self._memo = memo
        self._at = -1
        self._codes: dict[Hashable, int] = {}
        self._only: list[int] = []  # code -> the only row, _NO_ROW or _MANY_ROWS
        self._masks: list[Bools | None] = []  # code -> its rows, if they are many and kept
        self._bytes = 0

    def renew(self, classes: int) -> bool:
        """Whether the numbers have lost their meaning; `classes` wait."""
        is_small = len(self._codes) <= 2 * classes + _SPARE_KINDS
        if self._at == self._snapshot.table.statics and is_small:
            return False
        self._at = self._snapshot.table.statics
        self._codes.clear()
        self._only.clear()
        self._masks.clear()
        self._bytes = 0
        return True

    def code(self, spec: SchedulingSpec) -> int:
        key = filters.static_key(self._snapshot, spec)
        code = self._codes.get(key)
        if code is None:
            rows = filters.candidates(self._snapshot, spec, self._memo)
            first = np.flatnonzero(rows)[:2]
            many = len(first) > 1 and self._bytes < _MASK_BYTES
            code = self._codes[key] = len(self._only)
            self._only.append(
                _MANY_ROWS if len(first) > 1 else int(first[0]) if len(first) else _NO_ROW
            )
            self._masks.append(rows if many else None)
            self._bytes += rows.nbytes if many else 0
        return code

    def bounds(self, codes: Ints, names: list[str], rows: Bools) -> tuple[Bools, Ints]:
        """For each kind whether it may take one of these rows, and the most that is free there."""
        only = np.array(self._only, dtype=np.int64)[codes]
        free = [self._snapshot.table.free(name) for name in names]
        bounds = np.full((len(codes), len(names)), np.iinfo(np.int64).max)
        possible: Bools = only == _MANY_ROWS
        pinned = np.flatnonzero(only >= 0)
        possible[pinned] = rows[only[pinned]]
        for column, amounts in enumerate(free):
            bounds[pinned, column] = amounts[only[pinned]]
        for place in np.flatnonzero(only == _MANY_ROWS)[:_MOST_KINDS]:
            mask = self._masks[codes[place]]
            if mask is not None:
                index = np.flatnonzero(rows & mask)
                possible[place] = len(index) > 0
                bounds[place] = [amounts[index].max(initial=0) for amounts in free]
        return possible, bounds
