"""Which Events are written, how often, and which reports are dropped."""

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cluster.errors import ClusterError, Conflict, Gone, KubeError, Refused, Retry
from cluster.events import correlator
from cluster.events.correlator import Correlator, EventReport, Ref, report
from cluster.events.recorder import Recorder
from cluster.resources import EVENTS, Obj, Resource

POD = Ref("Pod", "p", "ns", "uid-p")
START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def a_report(note: str = "does not fit", about: Ref = POD) -> EventReport:
    return report(about, "FailedScheduling", note, action="Scheduling", warning=True)


def by_number(count: int) -> list[EventReport]:
    """`count` reports, each about a pod of its own."""
    return [a_report(about=Ref("Pod", f"p{n}", "ns")) for n in range(count)]


@dataclass
class Server:
    """The API server's part of Events; `faults` are raised first, one a call."""

    faults: list[KubeError] = field(default_factory=list)
    calls: list[tuple[str, str, int]] = field(default_factory=list)  # verb, note, count
    bodies: list[Obj] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  # name -> note
    open: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False  # calls wait until `open`

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Obj:
        assert (resource, namespace) == (EVENTS, obj["metadata"]["namespace"])
        self.notes[obj["metadata"]["name"]] = obj["note"]
        await self._answer("create", obj["note"], obj.get("series", {"count": 1})["count"])
        self.bodies.append(dict(obj))
        return dict(obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Obj:
        await self._answer("patch", self.notes[name], body["series"]["count"])
        self.bodies.append(body)
        return dict(body)

    async def _answer(self, verb: str, note: str, count: int) -> None:
        if self.closed:
            await self.open.wait()
        self.calls.append((verb, note, count))
        if self.faults:
            raise self.faults.pop(0)


class Stage:
    """A recorder on a clock that the test moves."""

    def __init__(self, server: Server, **options: Any) -> None:
        self.server, self.at = server, 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.recorder = Recorder(
            server,
            controller="kubenexus-scheduler",
            instance="kubenexus-scheduler-0",
            clock=lambda: START + timedelta(seconds=self.at),
            now=lambda: self.at,
            sleep=self._sleep,
            random=lambda: 1.0,
            **options,
        )

    async def _sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.at + seconds, done))
        await done

    async def later(self, seconds: float) -> None:
        """Let time pass in steps of half a second, and all that it wakes run."""
        for _ in range(int(seconds * 2)):
            self.at += 0.5
            await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            due = [s for s in self._sleepers if s[0] <= self.at]
            self._sleepers = [s for s in self._sleepers if s[0] > self.at]
            for _, done in due:
                if not done.done():
                    done.set_result(None)
            await asyncio.sleep(0)


def test_an_event_as_the_api_wants_it() -> None:
    async def main() -> list[Obj]:
        stage = Stage(Server())
        async with stage.recorder as recorder:
            related = Ref("Node", "n", uid="uid-n")
            about = Ref.of({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "j"}})
            recorder.record(report(about, "Scheduled", "to n", action="Binding", related=related))
        return stage.server.bodies

    (body,) = asyncio.run(main())
    assert body.pop("metadata")["name"].startswith("j.")
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "reportingController": "kubenexus-scheduler",
        "reportingInstance": "kubenexus-scheduler-0",
        "action": "Binding",
        "reason": "Scheduled",
        "note": "to n",
        "type": "Normal",
        "regarding": {"kind": "Job", "name": "j", "apiVersion": "batch/v1"},
        "related": {"kind": "Node", "name": "n", "uid": "uid-n", "apiVersion": "v1"},
    }


def test_repeats_become_a_series_with_growing_pauses() -> None:
    async def main() -> list[tuple[str, str, int]]:
        stage = Stage(Server())
        async with stage.recorder as recorder:
            for _ in range(60):  # one report a second, for a minute
                recorder.record(a_report())
                await stage.later(1)
        return stage.server.calls

    note = "does not fit"
    assert asyncio.run(main()) == [
        ("create", note, 1),
        ("patch", note, 6),  # 5 s later
        ("patch", note, 16),  # 10 s later
        ("patch", note, 36),  # 20 s later
        ("patch", note, 60),  # the rest, at the end
    ]


@pytest.mark.parametrize(
    ("pause", "want"),
    [
        pytest.param(359, [("create", "x", 1), ("patch", "x", 2)], id="within six minutes"),
        pytest.param(360, [("create", "x", 1), ("create", "x", 1)], id="after six minutes"),
    ],
)
def test_how_long_a_series_lives(pause: float, want: list[tuple[str, str, int]]) -> None:
    async def main() -> list[tuple[str, str, int]]:
        stage = Stage(Server())
        async with stage.recorder as recorder:
            recorder.record(a_report("x"))
            await stage.settle()
            stage.at += pause
            recorder.record(a_report("x"))
            await stage.settle()
        return stage.server.calls

    assert asyncio.run(main()) == want


@pytest.mark.parametrize(
    ("faults", "calls", "dropped"),
    [
        pytest.param([], 1, {}, id="written"),
        pytest.param([Retry("later")], 2, {}, id="tried again"),
        pytest.param([Retry("later")] * 9, 4, {"unreachable": 1}, id="given up in the end"),
        pytest.param([Refused("no")], 1, {"refused": 1}, id="refused for good"),
        pytest.param([Gone("namespace")], 1, {"refused": 1}, id="its namespace is gone"),
        pytest.param(
            [Retry("maybe"), Conflict("taken", reason="AlreadyExists")],
            2,
            {},
            id="the first attempt had arrived after all",
        ),
    ],
)
def test_what_a_fault_costs(faults: list[KubeError], calls: int, dropped: dict[str, int]) -> None:
    async def main() -> tuple[int, dict[str, int]]:
        stage = Stage(Server(faults=list(faults)))
        async with stage.recorder as recorder:
            recorder.record(a_report())
            await stage.later(20)
        return len(stage.server.calls), {k: v for k, v in recorder.dropped.items() if v}

    assert asyncio.run(main()) == (calls, dropped)


def test_an_event_that_expired_on_the_server_is_created_again() -> None:
    async def main() -> list[tuple[str, str, int]]:
        stage = Stage(Server())
        async with stage.recorder as recorder:
            recorder.record(a_report("x"))
            await stage.settle()
            stage.server.faults = [Gone("expired")]
            recorder.record(a_report("x"))
            await stage.later(10)
        return stage.server.calls

    assert asyncio.run(main()) == [("create", "x", 1), ("patch", "x", 2), ("create", "x", 2)]


@pytest.mark.parametrize(
    ("reports", "options", "written", "dropped"),
    [
        pytest.param(
            [a_report(f"note {n}") for n in range(40)],
            {},
            25,
            {"object too noisy": 15},
            id="one noisy object has a budget",
        ),
        pytest.param(by_number(40), {}, 40, {}, id="many objects do not share it"),
        pytest.param(
            by_number(40), {"capacity": 10}, 10, {"queue full": 30}, id="the queue is bounded"
        ),
    ],
)
def test_a_storm_is_bounded(
    reports: list[EventReport], options: dict[str, int], written: int, dropped: dict[str, int]
) -> None:
    async def main() -> tuple[int, dict[str, int]]:
        stage = Stage(Server(), **options)
        async with stage.recorder as recorder:
            for each in reports:
                recorder.record(each)
        return recorder.written, {k: v for k, v in recorder.dropped.items() if v}

    assert asyncio.run(main()) == (written, dropped)


def test_closing_does_not_wait_for_a_dead_server() -> None:
    async def main() -> tuple[int, dict[str, int]]:
        stage = Stage(Server(closed=True), close_seconds=0.05)
        async with stage.recorder as recorder:
            for each in by_number(10):
                recorder.record(each)
            await stage.settle()
        recorder.record(a_report())
        return recorder.written, dict(recorder.dropped)

    assert asyncio.run(main()) == (0, {"closed": 11})


def test_closing_tries_each_event_once() -> None:
    async def main() -> tuple[int, dict[str, int]]:
        stage = Stage(Server(faults=[Retry("later") for _ in range(9)]))
        async with stage.recorder as recorder:
            recorder.record(a_report())
        dropped = {why: count for why, count in recorder.dropped.items() if count}
        return len(stage.server.calls), dropped

    assert asyncio.run(main()) == (1, {"unreachable": 1})


def test_reports_from_other_threads_and_from_before_the_start() -> None:
    async def main() -> int:
        recorder = Recorder(Server(), controller="c", instance="i")
        reports = by_number(20)
        recorder.record(reports[0])
        async with recorder:
            await asyncio.sleep(0)
            threads = [threading.Thread(target=recorder.record, args=(r,)) for r in reports[1:]]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        return recorder.written

    assert asyncio.run(main()) == 20


def test_writes_keep_the_pace() -> None:
    async def main() -> list[int]:
        stage = Stage(Server(), qps=10.0, writers=1)
        got = []
        async with stage.recorder as recorder:
            for each in by_number(30):
                recorder.record(each)
            for _ in range(3):
                await stage.settle()
                got.append(recorder.written)
                await stage.later(1)
            stage.at += 60
            await stage.settle()
        return got

    first, second, third = asyncio.run(main())
    assert (first, second - first <= 11, third - second <= 11) == (10, True, True)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("short", "short", id="short enough"),
        pytest.param("x" * 1024, "x" * 1024, id="just short enough"),
        pytest.param("x" * 1025, "x" * 1020 + " ...", id="one byte too long"),
        pytest.param("é" * 600, "é" * 510 + " ...", id="on a border of characters"),
        pytest.param("x" + "é" * 600, "x" + "é" * 509 + " ...", id="never half a character"),
    ],
)
def test_a_note_is_cut(text: str, want: str) -> None:
    got = a_report(text).note
    assert (got, len(got.encode()) <= correlator.NOTE_LIMIT) == (want, True)


@pytest.mark.parametrize("word", ["", "lowerCase", "Two Words", "Dot.ted", "X" * 129])
def test_a_reason_that_is_no_word(word: str) -> None:
    with pytest.raises(ClusterError, match="want a CamelCase word"):
        report(POD, word, "note", action="Scheduling")


def test_names_are_short_enough_and_differ() -> None:
    async def main() -> list[str]:
        stage = Stage(Server())
        async with stage.recorder as recorder:
            about = Ref("Pod", "p" * 253, "ns")
            recorder.record(a_report("one", about))
            recorder.record(a_report("two", about))
        return [body["metadata"]["name"] for body in stage.server.bodies]

    names = asyncio.run(main())
    assert (len(set(names)), max(map(len, names))) == (2, 253)


def test_the_memory_of_series_is_bounded_and_what_it_forgets_is_counted() -> None:
    dropped: Counter[str] = Counter()
    correlator = Correlator(dropped=dropped, capacity=2)
    for number, each in enumerate(by_number(3)):
        series = correlator.begin(each, f"e{number}", now=0.0, wall=None)
        series.wrote(1, now=0.0)
        correlator.repeat(each, now=1.0, wall=None)
    assert (dropped, [s.name for s in correlator.held()]) == ({"too many series": 1}, ["e1", "e2"])


def test_recorders_that_share_write_one_event() -> None:
    """Two recorders of one report choose the same name; the second finds it taken and stops."""

    async def main() -> tuple[list[str], list[int]]:
        server = Server()
        dropped = []
        for _ in range(2):
            stage = Stage(server, shared=True)
            async with stage.recorder as recorder:
                recorder.record(a_report())
                recorder.record(a_report("another note"))
            dropped.append(stage.recorder.dropped.total())
            server.faults = [
                Conflict("taken", reason="AlreadyExists"),
                Conflict("taken", reason="AlreadyExists"),
            ]
        return [body["metadata"]["name"] for body in server.bodies], dropped

    names, dropped = asyncio.run(main())
    assert (len(names), len(set(names)), dropped) == (2, 2, [0, 0])
    assert all(name.startswith("p.") and len(name) <= 253 for name in names)
