"""
One HTTP request to the API server: bytes out, bytes in, and errors of this package only.

    acquire a slot (qps) → token → request → 2xx: bytes
                                     ├ 401: read a newer token, once
                                     ├ 429 with Retry-After ≤ patience: wait, once
                                     └ else: raise one of `errors`

Calls with a body (binds, Events, patches: many and small) go over `fast_client`, which costs a
fraction of the CPU; lists, watches and all requests through a proxy go over aiohttp, which
decompresses and streams. Connections are kept alive and bounded in number; a watch has its own
outside that bound, so that watches cannot starve calls. The transport knows no objects: `client`
builds paths and bodies, `informer` reads the lines.
"""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

import aiohttp
from yarl import URL

from cluster.connection.connection import Connection
from cluster.errors import FOREIGN, KubeError, Refused, Retry, of_exception, of_status
from cluster.net.fast_client import Endpoint, FastClient, is_safe
from cluster.net.line_splitter import LineSplitter

JSON: Final = "application/json"
# Enough for thousands of calls per second. Each costs a TLS handshake on both sides and, with
# asyncio, a buffer of 256 KiB: a hundred would take longer to open than they save, and 25 MB.
CONNECTIONS: Final = 32

Sleep = Callable[[float], Awaitable[object]]
Now = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `action` names it in error messages; `target` is path and query."""

    action: str
    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON


class RateLimit:
    """At most `qps` requests per second with a burst of one second's worth; None: no limit."""

    def __init__(self, qps: float | None, *, now: Now, sleep: Sleep) -> None:
        self._qps = qps
        self._now = now
        self._sleep = sleep
        self._next = now() - 1.0

    async def wait(self) -> None:
        if self._qps is None:
            return
        now = self._now()
        # `_next` is the instant of the next free slot; one second of unused slots is kept.
        self._next = max(self._next, now - 1.0) + 1.0 / self._qps
        if self._next > now:
            await self._sleep(self._next - now)


class Transport:
    """Requests over one pool of connections. Use as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        qps: float | None = None,
        connections: int = CONNECTIONS,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._connection = connection
        self._agent = user_agent
        self._limit = connections
        self._sleep = sleep
        self._now = now
        self._pace = RateLimit(qps, now=now, sleep=sleep)
        self._endpoint = Endpoint.of(connection.server)
        self._common = (
            f" HTTP/1.1\r\nHost: {self._endpoint.authority}\r\n"
            f"User-Agent: {user_agent}\r\nAccept: {JSON}\r\n"
        )
        self._fast_client: FastClient | None = None
        self._calls: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def __aenter__(self) -> Self:
        self._calls = self._session(self._limit, accept="gzip")
        # Compression would hold small watch events back in the compressor's window.
        self._streams = self._session(0, accept="identity")
        if self._connection.proxy is None:
            self._fast_client = FastClient(
                self._endpoint,
                tls=self._connection.tls,
                server_name=self._connection.server_name,
                limit=self._limit,
                prepare=_keep_alive,
                now=self._now,
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fast_client is not None:
            await self._fast_client.close()
        for session in (self._calls, self._streams):
            if session is not None:
                await session.close()
        self._calls = self._streams = self._fast_client = None
        await _hang_up(self._sockets)

    def _session(self, limit: int, *, accept: str) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit,
            ssl=self._connection.tls or True,
            keepalive_timeout=60,
            ttl_dns_cache=60,
            socket_factory=self._socket,
        )
        headers = {"User-Agent": self._agent, "Accept": JSON, "Accept-Encoding": accept}
        return aiohttp.ClientSession(
            connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
        )

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        sock = socket.socket(family, kind, protocol)
        _keep_alive(sock)
        self._sockets.add(sock)
        return sock

    async def call(
        self, request: Request, *, timeout: float = 30.0, patience: float = 0.0
    ) -> bytes:
        """The body of a 2xx response. `patience`: the longest Retry-After to wait for, once."""
        repeats_left = {401: 1, 429: 1}
        while True:
            await self._pace.wait()
            try:
                if request.body is not None and self._fast_client is not None:
                    return await self._call_fast(self._fast_client, request, request.body, timeout)
                limits = aiohttp.ClientTimeout(total=timeout)
                async with self._request(self._calls, request, limits) as response:
                    return await _body(request, response)
            except KubeError as error:
                if not repeats_left.get(error.status or 0):
                    raise
                repeats_left[error.status or 0] -= 1
                if not await self._may_repeat(error, patience):
                    raise

    async def _may_repeat(self, error: KubeError, patience: float) -> bool:
        if isinstance(error, Retry):
            wait = error.retry_after
            if wait is None or wait > patience:
                return False
            await self._sleep(wait)
            return True
        before = await self._connection.tokens.current()
        self._connection.tokens.distrust()
        return await self._connection.tokens.current() != before

    async def _call_fast(
        self, fast_client: FastClient, request: Request, body: bytes, timeout: float
    ) -> bytes:
        token = await self._connection.tokens.current()
        if not (is_safe(request.target) and is_safe(token or "")):
            raise Refused(f"{request.action}: a space or line end in its address or token")
        credentials = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"{request.method} {self._endpoint.path}{request.target}{self._common}{credentials}"
            f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            response = await fast_client.call(head.encode("latin-1") + body, timeout=timeout)
        except FOREIGN as exc:
            raise of_exception(request.action, exc) from exc
        if 200 <= response.status < 300:
            return response.body
        raise of_status(
            request.action, response.status, response.body, retry_after=response.retry_after
        )

    @asynccontextmanager
    async def _request(
        self, session: aiohttp.ClientSession | None, request: Request, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response with a 2xx status; any other outcome is raised as one of `errors`."""
        if session is None or session.closed:
            raise Refused(f"{request.action}: the client is not open; use it inside `async with`")
        token = await self._connection.tokens.current()
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            response = await session.request(
                request.method,
                URL(f"{self._connection.server}{request.target}", encoded=True),
                data=request.body,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                server_hostname=self._connection.server_name,
                proxy=self._connection.proxy,
            )
        except FOREIGN as exc:
            raise of_exception(request.action, exc) from exc
        async with response:
            try:
                if not 200 <= response.status < 300:
                    raise await _failure(request, response)
                yield response
            finally:
                _abandon(response)

    @asynccontextmanager
    async def lines(
        self, request: Request, *, stall: float, connect: float = 30.0
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """A watch: batches of whole lines as they arrive, until the server ends the stream.

        `stall`: seconds without a single byte after which the connection counts as dead.
        """
        limits = aiohttp.ClientTimeout(
            total=None, connect=connect, sock_connect=connect, sock_read=stall
        )
        await self._pace.wait()
        try:
            async with (
                self._request(self._streams, request, limits) as response,
                aclosing(_batches(request, response.content)) as batches,
            ):
                yield batches
        except Refused as error:
            if error.status == 401:
                self._connection.tokens.distrust()  # the informer watches again by itself
            raise


def _keep_alive(sock: socket.socket) -> None:
    """Notice a peer that vanished, in about half a minute."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        option = getattr(socket, name, None)  # not every platform has all three
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _body(request: Request, response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except FOREIGN as exc:
        raise of_exception(request.action, exc) from exc


async def _failure(request: Request, response: aiohttp.ClientResponse) -> KubeError:
    try:
        body = await response.read()
    except FOREIGN:
        body = b""  # the status alone decides what the caller does next
    return of_status(
        request.action, response.status, body, retry_after=response.headers.get("Retry-After")
    )


async def _batches(
    request: Request, stream: aiohttp.StreamReader
) -> AsyncGenerator[list[bytes], None]:
    """Complete lines only: a line without its end is a stream cut short, and raises `Retry`."""
    lines = LineSplitter()
    while True:
        try:
            chunk = await stream.readany()
        except FOREIGN as exc:
            raise of_exception(request.action, exc) from exc
        if not chunk:
            break
        yield lines.feed(chunk)
        if lines.overlong:
            raise Retry(f"{request.action}: a line that does not end")
    if lines.torn:
        raise Retry(f"{request.action}: the stream ended in the middle of a line")


def _abandon(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of a response that was not read to its end; a finished one has none.

    A TLS close would wait for a peer that may not answer, and would outlive the event loop.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


async def _hang_up(sockets: WeakSet[socket.socket]) -> None:
    """Close the sockets that interrupted requests left half closed, before the loop may end."""
    for _ in range(100):
        left = [sock for sock in sockets if sock.fileno() >= 0]
        if not left:
            return
        for sock in left:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        del left, sock
        await asyncio.sleep(0.001)
