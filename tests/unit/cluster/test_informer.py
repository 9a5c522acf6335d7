"""The picture that an informer keeps, through every way in which a watch can break."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from cluster import resources
from cluster.client import Client
from cluster.informer import SLICE_SECONDS, Entry, EventKind, Informer, WatchEvent, changes
from tests.unit.cluster import fake_api
from tests.unit.cluster.fake_api import Answer, FakeApiServer, failure, reply, stream

SeenEvent = tuple[str, str, str | None, str | None]  # kind, name, new version, old version


def an_object(name: str, version: int, uid: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        }
    }


def a_list(version: int, *objects: dict[str, Any], more: str = "") -> Answer:
    about = {"resourceVersion": str(version), "continue": more}
    return reply(
        200, {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": list(objects)}
    )


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def error(code: int) -> bytes:
    return line("ERROR", {"kind": "Status", "code": code, "message": "words", "metadata": {}})


@dataclass
class Seen:
    """Everything that an informer did until the server script ended."""

    events: list[SeenEvent] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)  # "list", or the version of a watch
    waits: list[float] = field(default_factory=list)
    store: dict[str, str] = field(default_factory=dict)
    watches: int = 0


def version_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


def follow(script: list[Answer], *, stall: float = 30.0, watch_lives: float = 0.0) -> Seen:
    """Run an informer through the script; each reading of the clock is `watch_lives` later."""
    seen = Seen()
    ticks = itertools.count()

    async def sleep(seconds: float) -> None:
        seen.waits.append(seconds)
        await asyncio.sleep(0)

    def on_event(event: WatchEvent[str]) -> None:
        seen.events.append((event.kind.value, event.key[1], event.object, event.old))

    async def main() -> None:
        async with FakeApiServer(script) as server, Client(server.connection) as client:
            informer = Informer(
                client,
                resources.PODS,
                namespace="ns",
                keep=version_of,
                on_event=on_event,
                stall=stall,
                random=lambda: 1.0,
                now=lambda: next(ticks) * watch_lives,
                sleep=sleep,
            )
            running = asyncio.create_task(informer.run())
            done = asyncio.create_task(server.exhausted.wait())
            await asyncio.wait({running, done}, return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
            running.cancel()
            await asyncio.gather(running, done, return_exceptions=True)
            if not running.cancelled() and running.exception():
                raise running.exception() or AssertionError
            for reads in server.requests:
                watching = "watch" in reads.query
                seen.reads.append(reads.query["resourceVersion"] if watching else "list")
            seen.store = {key[1]: kept for key, kept in informer.items()}
            seen.watches = informer.stats.watches

    asyncio.run(main())
    return seen


def entries(**objects: str) -> dict[tuple[str, str], Entry[str]]:
    """name="uid@version" -> a store that keeps "version"."""
    parts = {name: text.split("@") for name, text in objects.items()}
    return {("ns", name): Entry(uid, version, version) for name, (uid, version) in parts.items()}


@pytest.mark.parametrize(
    ("store", "fresh", "want"),
    [
        pytest.param({}, {}, [], id="nothing was, nothing is"),
        pytest.param({}, {"b": "u@1", "a": "v@1"}, ["ADDED a", "ADDED b"], id="new, by name"),
        pytest.param({"a": "u@1"}, {"a": "u@1"}, [], id="the same is not announced again"),
        pytest.param({"a": "u@1"}, {"a": "u@2"}, ["MODIFIED a"], id="changed while away"),
        pytest.param({"a": "u@1"}, {}, ["DELETED a"], id="gone while away"),
        pytest.param(
            {"a": "u@1"}, {"a": "w@2"}, ["DELETED a", "ADDED a"], id="replaced by a namesake"
        ),
        pytest.param(
            {"a": "u@1", "z": "u@1"},
            {"a": "u@2", "m": "u@3"},
            ["DELETED z", "MODIFIED a", "ADDED m"],
            id="what is gone comes first",
        ),
    ],
)
def test_a_new_list_against_the_store(
    store: dict[str, str], fresh: dict[str, str], want: list[str]
) -> None:
    got = [f"{e.kind} {e.key[1]}" for e in changes(entries(**store), entries(**fresh))]
    assert got == want


A1, A2, B1 = an_object("a", 1), an_object("a", 6), an_object("b", 2)
ADD_B = line("ADDED", an_object("b", 6))
MOD_B = line("MODIFIED", an_object("b", 7))
DEL_B = line("DELETED", an_object("b", 8))


@pytest.mark.parametrize(
    ("script", "events", "reads", "store"),
    [
        pytest.param(
            [a_list(5, A1), stream(ADD_B, MOD_B, DEL_B)],
            [
                ("ADDED", "a", "1", None),
                ("ADDED", "b", "6", None),
                ("MODIFIED", "b", "7", "6"),
                ("DELETED", "b", "8", "7"),
            ],
            ["list", "5", "8"],
            {"a": "1"},
            id="an object's life, then the watch resumes where it ended",
        ),
        pytest.param(
            [a_list(5, A1, more="x"), a_list(5, B1)],
            [("ADDED", "a", "1", None), ("ADDED", "b", "2", None)],
            ["list", "list", "5"],
            {"a": "1", "b": "2"},
            id="a list in two pages",
        ),
        pytest.param(
            [a_list(5, A1, more="x"), failure(410), a_list(6, B1)],
            [("ADDED", "b", "2", None)],
            ["list", "list", "list", "6"],
            {"b": "2"},
            id="a list that expired halfway leaves nothing behind",
        ),
        pytest.param(
            [a_list(5), stream(bookmark(40))],
            [],
            ["list", "5", "40"],
            {},
            id="a bookmark moves the place to resume from",
        ),
        pytest.param(
            [a_list(5), stream(ADD_B[:20], ADD_B[20:40], ADD_B[40:] + MOD_B[:9], MOD_B[9:])],
            [("ADDED", "b", "6", None), ("MODIFIED", "b", "7", "6")],
            ["list", "5", "7"],
            {"b": "7"},
            id="lines torn across chunks",
        ),
        pytest.param(
            [a_list(5), stream(ADD_B + MOD_B[:30], end="cut"), stream(MOD_B)],
            [("ADDED", "b", "6", None), ("MODIFIED", "b", "7", "6")],
            ["list", "5", "6", "7"],
            {"b": "7"},
            id="cut in the middle of a line: resumed before it",
        ),
        pytest.param(
            [a_list(5), stream(ADD_B + MOD_B[:30], end="clean"), stream(MOD_B)],
            [("ADDED", "b", "6", None), ("MODIFIED", "b", "7", "6")],
            ["list", "5", "6", "7"],
            {"b": "7"},
            id="ended in the middle of a line: resumed before it",
        ),
        pytest.param(
            [a_list(5, A1, B1), stream(error(410)), a_list(9, A2)],
            [
                ("ADDED", "a", "1", None),
                ("ADDED", "b", "2", None),
                ("DELETED", "b", "2", "2"),
                ("MODIFIED", "a", "6", "1"),
            ],
            ["list", "5", "list", "9"],
            {"a": "6"},
            id="410 as an event: listed again, the delete is not lost",
        ),
        pytest.param(
            [a_list(5, B1), failure(410), a_list(9)],
            [("ADDED", "b", "2", None), ("DELETED", "b", "2", "2")],
            ["list", "5", "list", "9"],
            {},
            id="410 as an answer: listed again, the delete is not lost",
        ),
        pytest.param(
            [a_list(5, B1), stream(error(500)), a_list(9, B1)],
            [("ADDED", "b", "2", None)],
            ["list", "5", "list", "9"],
            {"b": "2"},
            id="any other ERROR: listed again, what is the same is not announced again",
        ),
        pytest.param(
            [a_list(5), stream(b"<html>\n"), a_list(9, A1)],
            [("ADDED", "a", "1", None)],
            ["list", "5", "list", "9"],
            {"a": "1"},
            id="a line that is no JSON",
        ),
        pytest.param(
            [a_list(5), stream(b'{"type":"ADDED","object":{"metadata":{}}}\n'), a_list(9)],
            [],
            ["list", "5", "list", "9"],
            {},
            id="an object without a resourceVersion",
        ),
        pytest.param(
            [a_list(5), stream(b'["ADDED"]\n'), a_list(6), stream(line("MOVED", A1)), a_list(9)],
            [],
            ["list", "5", "list", "6", "list", "9"],
            {},
            id="JSON that is no event, and an event of no known type",
        ),
        pytest.param(
            [a_list(5, B1), stream(line("ADDED", an_object("b", 9, uid="another")))],
            [("ADDED", "b", "2", None), ("DELETED", "b", "2", "2"), ("ADDED", "b", "9", None)],
            ["list", "5", "9"],
            {"b": "9"},
            id="a namesake with another UID is another object",
        ),
        pytest.param(
            [a_list(5, B1), stream(line("ADDED", B1), line("DELETED", an_object("c", 9)))],
            [("ADDED", "b", "2", None)],
            ["list", "5", "9"],
            {"b": "2"},
            id="what is known already, and the end of what never was, are no news",
        ),
        pytest.param(
            [failure(503), fake_api.hang_up, failure(403), a_list(5, A1)],
            [("ADDED", "a", "1", None)],
            ["list", "list", "list", "list", "5"],
            {"a": "1"},
            id="a list that fails for any reason is repeated until it succeeds",
        ),
        pytest.param(
            [a_list(5), *[failure(504)] * 4, failure(504), a_list(3, A1)],
            [("ADDED", "a", "1", None)],
            ["list", "5", "5", "5", "5", "5", "list", "3"],
            {"a": "1"},
            id="a place that no watch can resume from is given up after five attempts",
        ),
    ],
)
def test_what_the_callback_receives(
    script: list[Answer], events: list[SeenEvent], reads: list[str], store: dict[str, str]
) -> None:
    seen = follow(script)
    assert (seen.events, seen.reads, seen.store) == (events, reads, store)


def test_a_hang_up_of_a_watch_resumes_without_a_list() -> None:
    # The HTTP library itself repeats a GET on a connection that closed before any answer.
    seen = follow([a_list(5), fake_api.half_headers, stream(ADD_B)])
    assert (seen.events, seen.reads) == ([("ADDED", "b", "6", None)], ["list", "5", "5", "6"])


def test_a_stream_that_ends_in_the_middle_of_a_line_is_a_fault() -> None:
    seen = follow([a_list(5), stream(ADD_B[:30])] + [failure(500)] * 3, watch_lives=10.0)
    assert seen.reads == ["list", *["5"] * 5]
    assert seen.waits == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_a_silent_watch_is_replaced() -> None:
    seen = follow([a_list(5), stream(ADD_B, end="hang"), stream(MOD_B)], stall=0.05)
    assert (seen.events[-1], seen.reads) == (("MODIFIED", "b", "7", "6"), ["list", "5", "6", "7"])


@pytest.mark.parametrize(
    ("script", "watch_lives", "waits"),
    [
        pytest.param(
            [failure(503)] * 10, 0.0, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10], id="doubling"
        ),
        pytest.param(
            [failure(429, Retry_After="30")], 0.0, [30.0], id="as long as the server requests"
        ),
        pytest.param(
            [a_list(5), *[stream(bookmark(6))] * 3],
            0.0,
            [0.1, 0.2, 0.4],
            id="watches that end at once do not spin",
        ),
        pytest.param(
            [a_list(5), *[stream(bookmark(6))] * 3],
            10.0,
            [],
            id="watches that end after a while are resumed at once",
        ),
        pytest.param(
            [a_list(5), *[stream(bookmark(6), end="cut")] * 3],
            10.0,
            [0.1, 0.1, 0.1],
            id="watches that break after a while count as first failures",
        ),
    ],
)
def test_how_long_it_waits(script: list[Answer], watch_lives: float, waits: list[float]) -> None:
    seen = follow(script, watch_lives=watch_lives)
    assert seen.waits == pytest.approx(waits)


def test_an_expired_watch_lists_again_and_a_failed_one_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = follow([a_list(5), stream(error(410)), a_list(6), failure(500, "down")])
    logged = [(vars(record)["error"], vars(record)["relist"]) for record in caplog.records]
    assert (seen.reads.count("list"), seen.watches, logged[-1]) == (
        2,
        3,
        ("watch pods ns: 500 down", False),
    )


def test_a_bug_in_the_callback_ends_the_informer() -> None:
    async def main() -> None:
        def broken(event: WatchEvent[dict[str, Any]]) -> None:
            raise ZeroDivisionError

        async with FakeApiServer([a_list(5, A1)]) as server, Client(server.connection) as client:
            await Informer(client, resources.PODS, on_event=broken).run()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


def test_the_store_is_up_to_date_when_the_callback_runs() -> None:
    known: list[object] = []

    async def main() -> None:
        script = [a_list(5, A1), stream(line("DELETED", A2), end="hang")]
        async with FakeApiServer(script) as server, Client(server.connection) as client:
            gone = asyncio.Event()

            def record(event: WatchEvent[dict[str, Any]]) -> None:
                known.append(informer.get("a", namespace="ns") is not None)
                if event.kind is EventKind.DELETED:
                    gone.set()

            informer = Informer(client, resources.PODS, on_event=record)
            running = asyncio.create_task(informer.run())
            await informer.synced.wait()
            await gone.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    assert known == [True, False]


@pytest.mark.parametrize(
    ("seconds_per_reading", "interleaved"),
    [
        pytest.param(SLICE_SECONDS, True, id="a long list: other tasks have their turns"),
        pytest.param(0.0, False, id="a short one is read at once"),
    ],
)
def test_a_long_list_is_read_in_slices(seconds_per_reading: float, interleaved: bool) -> None:
    turns: list[str] = []

    async def other() -> None:
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    async def scene() -> None:
        script = [a_list(9, *(an_object(f"p{n}", n) for n in range(5)))]
        async with FakeApiServer(script) as server, Client(server.connection) as client:
            ticks = itertools.count()
            informer: Informer[str] = Informer(
                client,
                resources.PODS,
                keep=version_of,
                on_event=lambda event: turns.append(event.key[1]),
                now=lambda: next(ticks) * seconds_per_reading,
            )
            tasks = [asyncio.create_task(informer.run()), asyncio.create_task(other())]
            await informer.synced.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scene())
    first, last = turns.index("p0"), turns.index("p4")
    between = [turn for turn in turns[first:last] if turn == "other"]
    assert (len(between) >= 3) is interleaved
    assert [turn for turn in turns if turn != "other"] == [f"p{n}" for n in range(5)]
