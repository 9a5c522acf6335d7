"""
Plain HTTP for scrapes: `/metrics` and `/healthz` on a port of their own, in one thread.

    accepted ──head complete──▶ response ──▶ closed
        │ SECONDS over, or CONNECTIONS newer ones
        └──▶ closed

A silent client costs a file descriptor, for seconds: there is no thread per connection, and a
connection beyond the limit closes the oldest. The thread belongs to the process that starts the
workers. A worker that is forked during a scrape inherits its socket, so a connection ends by
`shutdown`, which the client sees at once.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

CONNECTIONS: Final = 32  # a handful of scrapers, and the kubelet
SECONDS: Final = 5.0  # for the request, and again for the response
HEAD_LIMIT: Final = 8 * 1024

_END: Final = b"\r\n\r\n"


class MetricsServer:
    """Serves `exposition()`; `start` once the port may be opened."""

    def __init__(
        self, address: tuple[str, int], *, exposition: Callable[[], bytes], content_type: str
    ) -> None:
        self._exposition = exposition
        self._content_type = content_type
        self._open: dict[asyncio.Task[None], None] = {}  # oldest first
        self._listener = socket.create_server(address, backlog=CONNECTIONS)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def _run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Serve until cancelled."""
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=HEAD_LIMIT)
        async with server:
            await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in a task
        while len(self._open) >= CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        self._open[task] = None
        try:
            await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # silent, gone, or no HTTP
        except asyncio.CancelledError:
            pass  # the task ends here: it made place for a newer connection
        finally:
            self._open.pop(task, None)
            _close(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(SECONDS):
            head = await reader.readuntil(_END)
        writer.write(self._response(head))
        async with asyncio.timeout(SECONDS):
            await writer.drain()
            writer.write_eof()
            await reader.read(HEAD_LIMIT)  # the client has read the response and closes

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in (b"/metrics", b"/healthz"):
            return _written("404 Not Found", b"")
        if method != b"GET":
            return _written("405 Method Not Allowed", b"")
        if path == b"/healthz":
            return _written("200 OK", b"ok\n")
        try:
            return _written("200 OK", self._exposition(), self._content_type)
        except Exception:
            logger.exception("metrics cannot be shown")
            return _written("500 Internal Server Error", b"see the log\n")


def _written(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _close(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, AttributeError):  # gone, or never connected
        writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    writer.transport.abort()
