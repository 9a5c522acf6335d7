"""
Short calls over keep-alive HTTP/1.1 connections: one write out, one complete response in.

    an idle connection, a new one, or wait for one
        └▶ head and body in one write ─▶ response, parsed as it arrives
               ├ complete ─▶ the connection is idle again, unless the server ends it
               └ cut short, no HTTP, out of time, cancelled ─▶ the connection is dropped

For calls that are made thousands of times per second, each with a small body and a small response:
a general HTTP client costs several times as much CPU per call. Not here: redirects, proxies,
compression, streams; `transport` has a general client for those. Every failure is an `OSError` that
`errors` translates; a call without a response may have been carried out.
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

IDLE_SECONDS: Final = 60.0  # after which an idle connection is dropped
CLOSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of the server; made from its URL."""

    host: str
    port: int
    authority: str
    """The Host header."""
    path: str
    """The prefix of every path, without a slash at its end."""
    secure: bool

    @classmethod
    def of(cls, server: str) -> "Endpoint":
        parts = urlsplit(server)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        authority = parts.netloc.rpartition("@")[2]
        return cls(parts.hostname or "", port, authority, parts.path.rstrip("/"), secure)


def is_safe(text: str) -> bool:
    """Whether the text can be part of a request head without changing its structure."""
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
        self._response: asyncio.Future[Response] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def prepare(self, prepare: Callable[[socket.socket], None]) -> None:
        assert self._transport is not None
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            prepare(sock)

    def call(self, request: bytes) -> "asyncio.Future[Response]":
        assert self._transport is not None
        if not self.usable:
            raise ConnectionResetError("the server hung up before the request")
        self._parser = ResponseParser()
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._response

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self.drop()  # bytes without a request: the next response cannot be separated from them
            return
        try:
            response = self._parser.feed(data)
        except ConnectionError as exc:
            self._fail(exc)
            self.drop()
            return
        if response is not None:
            self._finish(response)

    def eof_received(self) -> None:
        response = self._parser.ended() if self._parser is not None else None
        if response is not None:
            self._finish(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        begun = self._parser is not None and self._parser.begun
        when = "in the middle of its answer" if begun else "without an answer"
        self._fail(exc or ConnectionResetError(f"the server hung up {when}"))
        if not self.gone.done():
            self.gone.set_result(None)
        self._lost(self)

    def drop(self) -> None:
        """At once: a TLS close would wait for a peer that may not answer."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, response: Response) -> None:
        if self._parser is not None and not self._parser.keep:
            self.drop()
        self._parser = None
        if self._response is not None and not self._response.done():
            self._response.set_result(response)
        self._response = None

    def _fail(self, exc: Exception) -> None:
        self._parser = None
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc)
        self._response = None


class FastClient:
    """A bounded pool of connections to one server."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        limit: int,
        prepare: Callable[[socket.socket], None],
        now: Callable[[], float],
    ) -> None:
        self._endpoint = endpoint
        self._limit = limit
        self._prepare = prepare
        self._now = now
        self._tls = (tls or ssl.create_default_context()) if endpoint.secure else None
        self._name = (server_name or endpoint.host) if endpoint.secure else None
        self._connections: set[PooledConnection] = set()
        self._connecting = 0
        self._idle: list[PooledConnection] = []  # last in, first out
        self._waiting: deque[asyncio.Future[PooledConnection | None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def call(self, request: bytes, *, timeout: float) -> Response:
        """The response with any status; `OSError` when there is none in time."""
        async with asyncio.timeout(timeout):
            connection = self._pop() or await self._obtain()
            try:
                response = await connection.call(request)
            except BaseException:
                connection.drop()
                raise
            finally:
                self._release(connection)
            return response

    @property
    def connections(self) -> frozenset[PooledConnection]:
        """The open connections."""
        return frozenset(self._connections)

    async def close(self) -> None:
        """Running calls end with `ConnectionError`."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        connections = list(self._connections)
        for connection in connections:
            connection.drop()
        if connections:
            gone = [connection.gone for connection in connections]
            await asyncio.wait(gone, timeout=CLOSE_SECONDS)

    def _pop(self) -> PooledConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _obtain(self) -> PooledConnection:
        """A new connection where the limit allows one, else the next that becomes free."""
        while len(self._connections) + self._connecting >= self._limit:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                connection: PooledConnection | None = await turn
            except BaseException:
                # A connection handed over in the same moment goes to the next caller.
                if turn.done() and not turn.cancelled():
                    self._hand_on(turn.result())
                raise
            if connection is not None and connection.usable:
                return connection
        return await self._connect()

    async def _connect(self) -> PooledConnection:
        if self._closed:
            raise ConnectionAbortedError("the client was closed")
        loop = asyncio.get_running_loop()
        self._connecting += 1
        made = False
        try:
            _, connection = await loop.create_connection(
                lambda: PooledConnection(self._lost),
                self._endpoint.host,
                self._endpoint.port,
                ssl=self._tls,
                server_hostname=self._name,
            )
            made = True
        finally:
            self._connecting -= 1
            if not made:
                self._hand_on(None)
        if connection.usable:
            self._connections.add(connection)
            connection.prepare(self._prepare)
        return connection

    def _release(self, connection: PooledConnection) -> None:
        if not connection.usable:
            return  # `_lost` wakes the next caller
        self._hand_on(connection)

    def _hand_on(self, connection: PooledConnection | None) -> None:
        """Pass the connection to the longest waiting caller; None: it may open a new one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is not None and connection.usable:
            connection.idle_since = self._now()
            self._idle.append(connection)
            if self._sweep is None:
                loop = asyncio.get_running_loop()
                self._sweep = loop.call_later(IDLE_SECONDS, self.drop_unused)

    def _lost(self, connection: PooledConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._hand_on(None)

    def drop_unused(self) -> None:
        """Drop connections that were idle too long; reschedules itself while any is idle."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = None
        before = self._now() - IDLE_SECONDS
        for connection in self._idle:
            if connection.idle_since <= before:
                connection.drop()
        self._idle = [connection for connection in self._idle if connection.usable]
        if self._idle:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(IDLE_SECONDS, self.drop_unused)
