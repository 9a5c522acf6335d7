"""
The other end of the wire, scripted: a real local socket that answers well, badly or not at all.

Each request takes the next answer of the script. A request beyond the script gets no answer and
sets `exhausted`: all that came before it has then been digested by the program under test.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import orjson

from cluster.connection.connection import Connection, FixedToken, Tokens

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body) if self.body else None


def reply(status: int, body: object = None, **headers: str) -> Answer:
    """A whole answer; `body` is JSON unless it is bytes already."""
    content = body if isinstance(body, bytes) else orjson.dumps(body or {})
    lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()

    return send


def failure(status: int, message: str = "words", reason: str = "Why", **headers: str) -> Answer:
    body = {"kind": "Status", "code": status, "message": message, "reason": reason}
    return reply(status, body, **headers)


def stream(*chunks: bytes, end: str = "clean") -> Answer:
    """A chunked answer: `end` is "clean", "cut" (the connection drops) or "hang" (silence)."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
            await asyncio.sleep(
                0
            )  # a read of its own for each chunk, as server as the kernel allows
        if end == "hang":
            await silence(writer)
        if end == "clean":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            writer.close()

    return send


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def half_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    await writer.drain()
    writer.close()


async def half_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"kind":')
    await writer.drain()
    writer.close()


async def no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    await writer.drain()
    writer.close()


@dataclass
class FakeApiServer:
    script: Iterable[Answer]
    tokens: Tokens = field(default_factory=FixedToken)
    requests: list[Request] = field(default_factory=list)
    exhausted: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._script = iter(self.script)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def connection(self) -> Connection:
        port = self._server.sockets[0].getsockname()[1]
        return Connection(server=f"http://127.0.0.1:{port}", tokens=self.tokens)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while not writer.is_closing():
                self.requests.append(await _read(reader))
                answer = next(self._script, None)
                if answer is None:
                    self.exhausted.set()
                    await silence(writer)
                else:
                    await answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the program under test hung up, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, body)
