"""Connections that are kept, shared, waited for and dropped."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster.net.fast_client import IDLE_SECONDS, Endpoint, FastClient, is_safe
from cluster.net.response_parser import Response

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers every request when `let` allows it; knows its connections and requests."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer, self.connections, self.requests = answer, 0, 0
        self.let = asyncio.Event()
        self.let.set()
        self.writers: list[asyncio.StreamWriter] = []
        self.arrived = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                async with self.arrived:
                    self.requests += 1
                    self.arrived.notify_all()
                await self.let.wait()
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def seen(self, requests: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: self.requests >= requests)


def run(scene: Callable[[FastClient, Server], Awaitable[Any]], **options: Any) -> Any:
    """Play the scene against a server of this machine; the outcome of the scene."""

    async def main() -> Any:
        clock = options.pop("now", lambda: 0.0)
        server = Server(**{key: options.pop(key) for key in ("answer",) if key in options})
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        wire = FastClient(
            Endpoint.of(f"http://127.0.0.1:{port}"),
            tls=None,
            server_name=None,
            limit=options.pop("limit", 2),
            prepare=lambda sock: None,
            now=clock,
        )
        try:
            return await asyncio.wait_for(scene(wire, server), 30)
        finally:
            await wire.close()
            listening.close()
            for writer in server.writers:
                writer.close()

    return asyncio.run(main())


def test_one_call_after_the_other_shares_a_connection() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        answers = [await wire.call(REQUEST, timeout=30) for _ in range(3)]
        return answers, server.connections

    assert run(scene) == ([Response(200, b"ok")] * 3, 1)


def test_calls_beyond_the_limit_wait_for_a_connection() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        server.let.clear()
        calls = [asyncio.create_task(wire.call(REQUEST, timeout=30)) for _ in range(5)]
        await server.seen(2)
        under_way = server.requests
        server.let.set()
        await asyncio.gather(*calls)
        return under_way, server.requests, server.connections

    assert run(scene, limit=2) == (2, 5, 2)


def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        for _ in range(3):
            await wire.call(REQUEST, timeout=30)
        return server.connections

    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert run(scene, answer=closing, limit=1) == 3


def test_an_idle_connection_that_was_closed_is_replaced() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        await wire.call(REQUEST, timeout=30)
        (line,) = wire.connections
        server.writers[0].close()
        await line.gone
        return await wire.call(REQUEST, timeout=30), server.connections

    assert run(scene) == (Response(200, b"ok"), 2)


def test_bytes_outside_a_response_end_the_connection() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        await wire.call(REQUEST, timeout=30)
        (line,) = wire.connections
        server.writers[0].write(b"HTTP/1.1 408 Too Late\r\nContent-Length: 0\r\n\r\n")
        await line.gone
        return await wire.call(REQUEST, timeout=30), server.connections

    assert run(scene) == (Response(200, b"ok"), 2)


def test_a_waiting_request_gets_a_new_connection_when_one_is_lost() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        server.let.clear()
        first = asyncio.create_task(wire.call(REQUEST, timeout=30))
        await server.seen(1)
        second = asyncio.create_task(wire.call(REQUEST, timeout=30))
        server.writers[0].close()
        with pytest.raises(ConnectionError, match="without an answer"):
            await first
        server.let.set()
        return await second, server.connections

    assert run(scene, limit=1) == (Response(200, b"ok"), 2)


def test_a_call_that_is_given_up_leaves_no_answer_behind_for_the_next() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        server.let.clear()
        late = asyncio.create_task(wire.call(REQUEST, timeout=30))
        await server.seen(1)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        server.let.set()
        return await wire.call(REQUEST, timeout=30), server.connections

    assert run(scene, limit=1) == (Response(200, b"ok"), 2)


def test_a_waiting_call_that_is_given_up_passes_its_turn_on() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        server.let.clear()
        calls = [asyncio.create_task(wire.call(REQUEST, timeout=30)) for _ in range(3)]
        await server.seen(1)
        calls[1].cancel()
        server.let.set()
        got = await asyncio.gather(*calls, return_exceptions=True)
        return [type(one).__name__ for one in got], server.requests

    assert run(scene, limit=1) == (["Response", "CancelledError", "Response"], 2)


def test_a_turn_that_comes_in_the_instant_of_giving_up_is_passed_on() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        async def first() -> Response:
            answer = await wire.call(REQUEST, timeout=30)
            # The connection is handed to the second call by now, which has not run since.
            second.cancel()
            return answer

        server.let.clear()
        calls = [asyncio.create_task(first())]
        await server.seen(1)
        second, third = (asyncio.create_task(wire.call(REQUEST, timeout=30)) for _ in range(2))
        await asyncio.sleep(0)
        server.let.set()
        got = await asyncio.gather(*calls, second, third, return_exceptions=True)
        return [type(one).__name__ for one in got], server.requests, server.connections

    assert run(scene, limit=1) == (["Response", "CancelledError", "Response"], 2, 1)


def test_out_of_time() -> None:
    async def scene(wire: FastClient, server: Server) -> None:
        server.let.clear()
        await wire.call(REQUEST, timeout=0.01)

    with pytest.raises(TimeoutError):
        run(scene)


def test_a_connection_that_is_idle_for_long_is_closed() -> None:
    time = [0.0]

    async def scene(wire: FastClient, server: Server) -> Any:
        await wire.call(REQUEST, timeout=30)
        (line,) = wire.connections
        time[0] = IDLE_SECONDS - 1
        wire.drop_unused()
        kept = line.usable
        time[0] = IDLE_SECONDS
        wire.drop_unused()
        await line.gone
        return kept, wire.connections

    assert run(scene, now=lambda: time[0]) == (True, frozenset())


def test_calls_under_way_end_when_the_client_closes() -> None:
    async def scene(wire: FastClient, server: Server) -> Any:
        server.let.clear()
        calls = [asyncio.create_task(wire.call(REQUEST, timeout=30)) for _ in range(2)]
        await server.seen(1)
        await wire.close()
        got = await asyncio.gather(*calls, return_exceptions=True)
        return [isinstance(one, ConnectionError) for one in got], server.connections

    assert run(scene, limit=1) == ([True, True], 1)


@pytest.mark.parametrize(
    ("server", "want"),
    [
        pytest.param(
            "https://10.0.0.1", Endpoint("10.0.0.1", 443, "10.0.0.1", "", True), id="TLS by default"
        ),
        pytest.param("http://a:8080/", Endpoint("a", 8080, "a:8080", "", False), id="plain"),
        pytest.param(
            "https://[::1]:6443/k8s/c-1/",
            Endpoint("::1", 6443, "[::1]:6443", "/k8s/c-1", True),
            id="an address in brackets and a path before all paths",
        ),
        pytest.param(
            "https://u:p@a", Endpoint("a", 443, "a", "", True), id="no credentials in Host"
        ),
    ],
)
def test_where_the_server_is(server: str, want: Endpoint) -> None:
    assert Endpoint.of(server) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("/api/v1/pods?limit=1", True, id="a path"),
        pytest.param("/api v1", False, id="a space ends the path"),
        pytest.param("/api\r\nX: y", False, id="a line end begins a header"),
        pytest.param("/\u00fc", False, id="not ASCII"),
    ],
)
def test_what_may_stand_in_a_head(text: str, want: bool) -> None:
    assert is_safe(text) is want
