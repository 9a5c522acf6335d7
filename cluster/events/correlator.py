"""
Decides which Events are written, and how often: many reports in, few writes out. Pure.

    report --new--> NEW --create--> WRITTEN --the same again--> HELD --due--> series patched
                     |                 ^                                          |
                     +-- dropped       +------------------------------------------+

Reports about the same object with the same reason and note are one series: the first is created,
repeats raise its count and are written after a pause that doubles from 5 s to 5 min. A series that
was quiet for 6 minutes is forgotten, and the next report begins a new one. Each object has a budget
of new series, so that one object cannot use up the Events of the others.
"""

import re
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, Final, Self

from cluster.backoff import doubled
from cluster.errors import ClusterError
from cluster.resources import Obj

NOTE_LIMIT: Final = 1024  # bytes; the API server refuses a longer note
WORD_LIMIT: Final = 128  # bytes; of reason, action, reportingController and reportingInstance
NAME_LIMIT: Final = 253

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
QUIET: Final = 360.0

OBJECT_BURST: Final = 25.0  # new series an object may begin at once ...
OBJECT_REFILL: Final = 1.0 / 300.0  # ... and how many a second it earns back

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]*")


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """The object that an Event is about, or that it is related to."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"

    @classmethod
    def of(cls, obj: Obj) -> Self:
        """Of a raw object; a part that is missing stays empty."""
        about = obj.get("metadata") or {}
        return cls(
            kind=obj.get("kind", ""),
            name=about.get("name", ""),
            namespace=about.get("namespace", ""),
            uid=about.get("uid", ""),
            api_version=obj.get("apiVersion", "v1"),
        )

    def to_json(self) -> Obj:
        parts = {
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "apiVersion": self.api_version,
        }
        return {key: value for key, value in parts.items() if value}


@dataclass(frozen=True, slots=True)
class EventReport:
    """The content of an Event, in the shape that the API accepts; made by `report`."""

    regarding: Ref
    reason: str
    note: str
    action: str
    warning: bool = False
    related: Ref | None = None

    @property
    def key(self) -> tuple[Ref, str, str]:
        return (self.regarding, self.reason, self.note)


def report(
    regarding: Ref,
    reason: str,
    note: str,
    *,
    action: str,
    warning: bool = False,
    related: Ref | None = None,
) -> EventReport:
    """A report with its note cut to size; a reason that is no CamelCase word is a bug."""
    for field, word in (("reason", reason), ("action", action)):
        if not _REASON.fullmatch(word) or len(word) > WORD_LIMIT:
            raise ClusterError(
                f"event {field} {word[:WORD_LIMIT]!r}: want a CamelCase word "
                f"of at most {WORD_LIMIT} letters"
            )
    return EventReport(regarding, reason, cut(note, NOTE_LIMIT), action, warning, related)


def cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, never half a character; a cut text ends in ` ...`."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    return raw[: limit - 4].decode(errors="ignore") + " ..."


@dataclass(slots=True)
class Series:
    """One Event object on the server and how much of it is written."""

    report: EventReport
    name: str
    first: Any  # wall-clock times are opaque here; the recorder renders them
    last: Any
    seen_at: float
    count: int = 1
    written: int = 0
    due: float = 0.0
    pause: float = FIRST_PAUSE
    queued: bool = True

    def wrote(self, count: int, now: float) -> None:
        self.written = count
        self.due = now + self.pause
        self.pause = doubled(self.pause, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        self.queued = False


@dataclass(slots=True)
class _TokenBucket:
    left: float
    at: float


class Correlator:
    """Decides for each report: a new Event, one more of a series, or none."""

    def __init__(self, *, dropped: Counter[str], capacity: int = 4096) -> None:
        self._dropped = dropped
        self._capacity = capacity
        self._series: OrderedDict[tuple[Ref, str, str], Series] = OrderedDict()
        self._budgets: OrderedDict[Ref, _TokenBucket] = OrderedDict()

    def repeat(self, report: EventReport, *, now: float, wall: Any) -> Series | None:
        """The live series that this report continues, counted; None if it begins a new one."""
        series = self._series.get(report.key)
        if series is None or now - series.seen_at >= QUIET:
            return None
        series.count += 1
        series.last, series.seen_at = wall, now
        self._series.move_to_end(report.key)
        return series

    def affords(self, about: Ref, *, now: float) -> bool:
        """Take one new series from the object's budget, if it has one left."""
        budget = self._budgets.pop(about, None) or _TokenBucket(OBJECT_BURST, now)
        budget.left = min(OBJECT_BURST, budget.left + (now - budget.at) * OBJECT_REFILL)
        budget.at = now
        self._budgets[about] = budget
        while len(self._budgets) > self._capacity:
            self._budgets.popitem(last=False)
        if budget.left < 1.0:
            return False
        budget.left -= 1.0
        return True

    def begin(self, report: EventReport, name: str, *, now: float, wall: Any) -> Series:
        """A new series; beyond the capacity, the series without reports for longest goes."""
        series = Series(report, name, first=wall, last=wall, seen_at=now)
        self._series[report.key] = series
        self._series.move_to_end(report.key)
        while len(self._series) > self._capacity:
            _, oldest = self._series.popitem(last=False)
            if not oldest.queued:
                self._dropped["too many series"] += oldest.count - oldest.written
        return series

    def forget(self, series: Series) -> None:
        """The next report of a series that could not be written begins a new one."""
        if self._series.get(series.report.key) is series:
            del self._series[series.report.key]

    def held(self) -> list[Series]:
        """Series with repeats that are not written and not queued, soonest due first."""
        waiting = [s for s in self._series.values() if s.count > s.written and not s.queued]
        return sorted(waiting, key=lambda s: (s.due, s.name))
