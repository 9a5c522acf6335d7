"""
Short calls over kept-alive HTTP/1.1 connections: one write out, one whole answer in.

    a free connection, a new one, or wait for one
        └▶ head and body in one write ─▶ answer, parsed as it arrives
               ├ whole ─▶ the connection is free again, unless the server ends it
               └ cut short, no HTTP, out of time, cancelled ─▶ the connection is dropped

For calls that are made thousands of times a second, each with a small body and a small answer:
a general HTTP client costs several times as much CPU a call. Not here: redirects, proxies,
compression, streams; `transport` has a general client for those. What goes wrong is raised as an
`OSError` that `errors` translates; who was not answered cannot know whether it happened.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from cluster.net.response_parser import Response, ResponseParser

KEEP_SECONDS: Final = 60.0  # how long a connection is kept that nobody uses
CLOSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is; made from its address."""

    host: str
    port: int
    authority: str
    """What the Host header says."""
    path: str
    """What stands before every path, without a slash at its end."""
    secure: bool

    @classmethod
    def of(cls, server: str) -> "Endpoint":
        parts = urlsplit(server)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        authority = parts.netloc.rpartition("@")[2]
        return cls(parts.hostname or "", port, authority, parts.path.rstrip("/"), secure)


def is_safe(text: str) -> bool:
    """Whether it can stand in the head of a request without becoming something else."""
    return text.isascii() and text.isprintable() and " " not in text


class PooledConnection(asyncio.Protocol):
    """One connection: idle, or with one call on it. After `drop` it is never used again."""

    def __init__(self, lost: Callable[["PooledConnection"], None]) -> None:
        self.idle_since = 0.0
        self.usable = True
        self.gone = asyncio.get_running_loop().create_future()
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        self._answer: asyncio.Future[Response] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def prepare(self, prepare: Callable[[socket.socket], None]) -> None:
        assert self._transport is not None
        found = self._transport.get_extra_info("socket")
        if found is not None:
            prepare(found)

    def call(self, request: bytes) -> "asyncio.Future[Response]":
        assert self._transport is not None
        if not self.usable:
            raise ConnectionResetError("the server hung up before the request")
        self._parser = ResponseParser()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self.drop()  # words nobody asked for: what comes next cannot be told apart
            return
        try:
            answer = self._parser.feed(data)
        except ConnectionError as exc:
            self._fail(exc)
            self.drop()
            return
        if answer is not None:
            self._finish(answer)

    def eof_received(self) -> None:
        answer = self._parser.ended() if self._parser is not None else None
        if answer is not None:
            self._finish(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        begun = self._parser is not None and self._parser.begun
        words = "in the middle of its answer" if begun else "without an answer"
        self._fail(exc or ConnectionResetError(f"the server hung up {words}"))
        if not self.gone.done():
            self.gone.set_result(None)
        self._lost(self)

    def drop(self) -> None:
        """At once: a polite TLS goodbye waits for a peer that may have fallen silent."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, answer: Response) -> None:
        if self._parser is not None and not self._parser.keep:
            self.drop()
        self._parser = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
        self._answer = None

    def _fail(self, exc: Exception) -> None:
        self._parser = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc)
        self._answer = None


class FastClient:
    """A bounded pool of connections to one server."""

    def __init__(
        self,
        place: Endpoint,
        *,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        limit: int,
        prepare: Callable[[socket.socket], None],
        now: Callable[[], float],
    ) -> None:
        self._place, self._limit, self._prepare, self._now = place, limit, prepare, now
        self._tls = (tls or ssl.create_default_context()) if place.secure else None
        self._name = (server_name or place.host) if place.secure else None
        self._lines: set[PooledConnection] = set()
        self._connecting = 0
        self._free: list[PooledConnection] = []  # the one used last is used first
        self._waiting: deque[asyncio.Future[PooledConnection | None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def call(self, request: bytes, *, timeout: float) -> Response:
        """The answer, whatever its status; `OSError` when there is none in time or at all."""
        async with asyncio.timeout(timeout):
            line = self._pop() or await self._obtain()
            try:
                answer = await line.call(request)
            except BaseException:
                line.drop()
                raise
            finally:
                self._release(line)
            return answer

    @property
    def lines(self) -> frozenset[PooledConnection]:
        """The connections that stand."""
        return frozenset(self._lines)

    async def close(self) -> None:
        """Calls that are under way end with `ConnectionError`."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        lines = list(self._lines)
        for line in lines:
            line.drop()
        if lines:
            await asyncio.wait([line.gone for line in lines], timeout=CLOSE_SECONDS)

    def _pop(self) -> PooledConnection | None:
        while self._free:
            line = self._free.pop()
            if line.usable:
                return line
        return None

    async def _obtain(self) -> PooledConnection:
        """A new connection where the limit allows one, else the next that becomes free."""
        while len(self._lines) + self._connecting >= self._limit:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                line: PooledConnection | None = await turn
            except BaseException:
                # What was handed over in the same instant goes to the next in line.
                if turn.done() and not turn.cancelled():
                    self._hand_on(turn.result())
                raise
            if line is not None and line.usable:
                return line
        return await self._connect()

    async def _connect(self) -> PooledConnection:
        if self._closed:
            raise ConnectionAbortedError("the client was closed")
        loop = asyncio.get_running_loop()
        self._connecting += 1
        made = False
        try:
            _, line = await loop.create_connection(
                lambda: PooledConnection(self._lost),
                self._place.host,
                self._place.port,
                ssl=self._tls,
                server_hostname=self._name,
            )
            made = True
        finally:
            self._connecting -= 1
            if not made:
                self._hand_on(None)
        if line.usable:
            self._lines.add(line)
            line.prepare(self._prepare)
        return line

    def _release(self, line: PooledConnection) -> None:
        if not line.usable:
            return  # `_lost` tells whoever waits
        self._hand_on(line)

    def _hand_on(self, line: PooledConnection | None) -> None:
        """To whoever waits longest; None: there is room for a new connection."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(line)
                return
        if line is not None and line.usable:
            line.idle_since = self._now()
            self._free.append(line)
            if self._sweep is None:
                loop = asyncio.get_running_loop()
                self._sweep = loop.call_later(KEEP_SECONDS, self.drop_unused)

    def _lost(self, line: PooledConnection) -> None:
        if line in self._lines:
            self._lines.discard(line)
            self._hand_on(None)

    def drop_unused(self) -> None:
        """Drop what nobody used for a while; runs by itself while something is kept."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = None
        before = self._now() - KEEP_SECONDS
        for line in self._free:
            if line.idle_since <= before:
                line.drop()
        self._free = [line for line in self._free if line.usable]
        if self._free:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(KEEP_SECONDS, self.drop_unused)
