"""
A gunicorn worker whose threads handle complete requests only.

One loop owns every socket. It answers a plain review itself where every fact is in memory. All
other requests go to threads: a thread gets the bytes of a request and returns the bytes of a
response. `webhook.serve.decision_queues` has them in between, fair between namespaces.

    accepted --> HANDSHAKE --> READING --complete request--> DECIDING (queued) --> WRITING
                                 ^                                                   |
                                 +-------------------- keep-alive -------------------+
    a rejected request: WRITING --> DRAINING, so that the client reads the response --> closed

A slow client costs a file descriptor and a buffer, and never a thread. Limits bound both: seconds
per request, connections and bytes per worker; beyond them the worker closes the connection whose
current phase is oldest. The threaded worker of gunicorn reads inside its threads without a time
limit: as many silent clients as threads stop it.

SIGTERM closes the listeners at once, answers requests that have begun and those that arrive on open
connections within a second, each with `Connection: close`, and ends.
"""

import contextlib
import gc
import io
import logging
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial
from types import FrameType
from typing import Any, Final, cast

from gunicorn.http import RequestParser, wsgi
from gunicorn.http.errors import NoMoreData, ParseException
from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker

from webhook import metrics
from webhook.serve import client_auth, http_responses, tls
from webhook.serve.app import BODY_LIMIT
from webhook.serve.decision_queues import Answer, DecisionQueues, Waiting
from webhook.serve.http_framing import RequestFramer, RequestRejected

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 5.0  # handshake and request; the API server gives up after three
RESPONSE_SECONDS: Final = 5.0  # until the client has read the response
DRAIN_SECONDS: Final = 1.0  # how long bytes of a rejected client are read and dropped
LINGER_SECONDS: Final = 1.0  # after SIGTERM, for requests on their way
BUFFER_LIMIT: Final = 64 * 1024 * 1024  # bytes of unfinished requests, all connections together
RECEIVE_SIZE: Final = 16 * 1024  # one TLS record
ACCEPTS: Final = 16  # new connections per turn of the loop
TICK: Final = 0.5
SWEEP_SECONDS: Final = 0.1  # between two checks for overdue connections

_OVERLOADED: Final = "too many large requests wait for a decision; try again"
_CLOSED: Final = (OSError,)  # TLS errors included
_WAIT: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


class Phase(Enum):
    HANDSHAKE = auto()
    READING = auto()
    DECIDING = auto()
    WRITING = auto()
    DRAINING = auto()


def _ignore(_: object) -> None:
    """The step of a connection without a worker."""


class Connection:
    """One client: its socket, the received bytes, its phase and the deadline of the phase."""

    def __init__(self, sock: ssl.SSLSocket, peer: Any, number: int, now: float) -> None:
        self.sock = sock
        self.peer = peer
        self.number = number
        self.step: Callable[[object], None] = _ignore
        self.awaited = 0  # the selector event that it waits for; 0: none
        self.phase = Phase.HANDSHAKE
        self.since = now
        self.deadline: float | None = now + REQUEST_SECONDS
        self.client: str | None = None
        self.data = bytearray()
        self.framer = RequestFramer(body_limit=BODY_LIMIT)
        self.response = memoryview(b"")
        self.after_response = Phase.READING  # DRAINING: the connection ends
        self.between_requests = False  # whether it waits for a request that has not begun

    @property
    def idle(self) -> bool:
        return self.phase is Phase.READING and not self.data

    def enter(self, phase: Phase, now: float, seconds: float | None) -> None:
        self.phase, self.since = phase, now
        self.deadline = None if seconds is None else now + seconds


class WholeRequestWorker(Worker):
    """See the docstring of the module."""

    def init_process(self) -> None:
        self.prepare()
        super().init_process()

    def prepare(self) -> None:
        """Create what `run` needs, in the worker process."""
        self._poll = selectors.DefaultSelector()
        self._decisions: DecisionQueues[Connection] = DecisionQueues(
            self.cfg.threads,
            decide=self._decide_now,
            handle=self._handle,
            wake=self._wake_loop,
            failed=http_responses.rejection("500 Internal Server Error", "see the log"),
        )
        self._connections: dict[int, Connection] = {}  # number -> connection
        self._numbers = 0
        self._buffered = 0
        self._swept_at = 0.0
        self._ready: list[Connection] = []  # answered, and the next request may be in memory
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.alive = False
        self._wake_loop()

    def run(self) -> None:
        gc.collect()
        gc.freeze()  # modules and policies stay: the collector need not visit them
        self._fast_path = (
            self.wsgi.answer_now if isinstance(self.wsgi, client_auth.ClientAuth) else None
        )
        self._poll.register(self._wake, selectors.EVENT_READ, self._take_responses)
        for listener in self.sockets:
            listener.setblocking(False)
            self._poll.register(listener, selectors.EVENT_READ, self._accept)
        while self.alive and self.ppid == os.getppid():
            self._turn()
        for listener in self.sockets:
            self._poll.unregister(listener)
            listener.close()
        self._drain()

    def _drain(self) -> None:
        now = time.monotonic()
        settled, end = now + LINGER_SECONDS, now + float(self.cfg.graceful_timeout)
        while self._connections and time.monotonic() < end:
            if time.monotonic() > settled:
                for connection in [c for c in self._connections.values() if c.idle]:
                    self._close(connection)
            self._turn(0.05)
        for connection in list(self._connections.values()):
            self._close(connection)
        self._decisions.stop()

    def _turn(self, timeout: float = TICK) -> None:
        ready, self._ready = self._ready, []
        for key, _ in self._poll.select(0 if ready or self._decisions.has_light else timeout):
            key.data(key.fileobj)
        for connection in ready:
            connection.step(None)
        self._send(self._decisions.decide())
        now = time.monotonic()
        if now - self._swept_at < SWEEP_SECONDS:
            return
        self._swept_at = now
        self.notify()
        late = [
            c for c in self._connections.values() if c.deadline is not None and c.deadline < now
        ]
        for connection in late:
            self._close(connection)

    def _await(self, connection: Connection, event: int) -> None:
        """Run the next step of the connection when its socket is ready for `event`; 0: never."""
        before, connection.awaited = connection.awaited, event
        if before == event:
            return
        if not before:
            self._poll.register(connection.sock, event, connection.step)
        elif not event:
            self._poll.unregister(connection.sock)
        else:
            self._poll.modify(connection.sock, event, connection.step)

    # --- Connections. ---

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, peer = listener.accept()
            except OSError:  # no more connections, the client is gone, or no descriptor is left
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._connections) >= self.cfg.worker_connections:
                self._evict_connection(lambda connection: True)
            if len(self._connections) >= self.cfg.worker_connections:
                sock.close()  # all wait for a decision
                continue
            try:
                tls_socket = ssl_context(self.cfg).wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False
                )
            except _CLOSED:
                sock.close()
                continue
            except Exception:
                logger.exception("connection cannot be secured")
                metrics.internal_error("connection")
                sock.close()
                continue
            self._numbers += 1
            connection = Connection(tls_socket, peer, self._numbers, time.monotonic())
            connection.step = partial(self._step, connection)
            self._connections[connection.number] = connection
            self._await(connection, selectors.EVENT_READ)

    def _step(self, connection: Connection, _: object) -> None:
        if connection.number not in self._connections:
            return  # closed earlier in this turn
        try:
            self._advance(connection)
        except _WAIT as exc:
            writes = isinstance(exc, ssl.SSLWantWriteError)
            self._await(connection, selectors.EVENT_WRITE if writes else selectors.EVENT_READ)
        except _CLOSED:
            self._close(connection)
        except Exception:
            # A connection that breaks our code ends alone: the others keep their worker.
            logger.exception("connection failed", extra={"peer": str(connection.peer)})
            metrics.internal_error("connection")
            self._close(connection)

    def _advance(self, connection: Connection) -> None:
        """Run phases until one has to wait for the socket, which it raises."""
        while connection.number in self._connections:
            match connection.phase:
                case Phase.HANDSHAKE:
                    connection.sock.do_handshake()
                    connection.client = tls.client_name(connection.sock)
                    connection.phase = Phase.READING
                case Phase.READING:
                    if not self._dispatch(connection):
                        self._receive(connection, connection.sock.recv(RECEIVE_SIZE))
                case Phase.WRITING:
                    if self._write(connection):
                        return  # one response per turn: all clients get the same turns
                case Phase.DRAINING:
                    if not connection.sock.recv(RECEIVE_SIZE):
                        self._close(connection)
                    return  # one piece per turn, for the same reason
                case Phase.DECIDING:
                    return

    def _receive(self, connection: Connection, received: bytes) -> None:
        if not received:
            self._close(connection)
            return
        if connection.between_requests:
            connection.between_requests = False
            connection.enter(Phase.READING, time.monotonic(), REQUEST_SECONDS)
        connection.data += received
        self._buffered += len(received)
        if self._buffered > BUFFER_LIMIT:
            self._evict_connection(lambda other: bool(other.data))

    def _dispatch(self, connection: Connection) -> bool:
        """Answer, reject or hand on a complete request; False while bytes are missing."""
        try:
            end = connection.framer.end(connection.data)
        except RequestRejected as exc:
            self._buffered -= len(connection.data)
            connection.data.clear()
            self._start_writing(
                connection, http_responses.rejection(exc.status, exc.reason), keep=False
            )
            return True
        if end is None:
            return False
        request = bytes(connection.data[:end])
        del connection.data[:end]
        self._buffered -= end
        review = connection.framer.review(request)
        connection.framer = RequestFramer(body_limit=BODY_LIMIT)
        connection.enter(Phase.DECIDING, time.monotonic(), None)
        self._await(connection, 0)
        for other in self._decisions.put(Waiting(connection, request, review)):
            metrics.overloaded()
            overloaded = http_responses.rejection("503 Service Unavailable", _OVERLOADED)
            self._start_writing(other, overloaded, keep=False)
            if other is not connection:
                other.step(None)
        return True

    def _write(self, connection: Connection) -> bool:
        """Send the response; whether another request may follow."""
        while connection.response:
            sent = connection.sock.send(connection.response)
            connection.response = connection.response[sent:]
        self._await(connection, selectors.EVENT_READ)
        now = time.monotonic()
        if connection.after_response is Phase.DRAINING:
            with contextlib.suppress(*_CLOSED):
                connection.sock.unwrap()  # TLS close notify; the peer's is not awaited
            connection.sock.shutdown(socket.SHUT_WR)
            connection.enter(Phase.DRAINING, now, DRAIN_SECONDS)
            return False
        connection.between_requests = not connection.data
        seconds = float(self.cfg.keepalive) if connection.between_requests else REQUEST_SECONDS
        connection.enter(Phase.READING, now, seconds)
        if connection.data or connection.sock.pending():
            self._ready.append(connection)
        return True

    def _evict_connection(self, among: Callable[[Connection], bool]) -> None:
        """Close the connection whose phase is oldest, except those with a decision under way."""
        candidates = [
            c for c in self._connections.values() if c.phase is not Phase.DECIDING and among(c)
        ]
        if candidates:
            self._close(min(candidates, key=lambda c: (c.since, c.number)))

    def _close(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._buffered -= len(connection.data)
        with contextlib.suppress(KeyError, ValueError):
            self._await(connection, 0)
        connection.sock.close()

    # --- Responses. ---

    def _wake_loop(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the loop wakes up anyway
            self._waker.send(b"\0")

    def _take_responses(self, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        self._send(self._decisions.answers())

    def _send(self, answers: Iterable[Answer[Connection]]) -> None:
        for answer in answers:
            connection = answer.connection
            if connection.number in self._connections:
                self._start_writing(connection, answer.response, keep=answer.keep)
                connection.step(None)

    def _start_writing(self, connection: Connection, response: bytes, *, keep: bool) -> None:
        connection.response = memoryview(response)
        connection.after_response = Phase.READING if keep else Phase.DRAINING
        connection.enter(Phase.WRITING, time.monotonic(), RESPONSE_SECONDS)

    def _decide_now(self, waiting: Waiting[Connection]) -> tuple[bytes, bool] | None:
        """The response to a plain review; None: a thread answers the request."""
        if waiting.review is None or self._fast_path is None:
            return None
        try:
            body = self._fast_path(*waiting.review, waiting.connection.client)
        except Exception:
            logger.exception("fast path failed; a thread answers the review")
            metrics.internal_error("fast path")
            return None
        if body is None:
            return None
        keep = self.alive  # read late: SIGTERM may have come during the decision
        return http_responses.success(body, now=time.time(), keep=keep), keep

    def _handle(self, waiting: Waiting[Connection]) -> tuple[bytes, bool]:
        """In a thread: touches no socket."""
        try:
            return self._respond(waiting.connection, waiting.request)
        except (ParseException, NoMoreData, StopIteration):
            return http_responses.rejection("400 Bad Request", "this is not HTTP"), False
        except Exception:
            logger.exception("request failed")
            metrics.internal_error("request")
            return http_responses.rejection("500 Internal Server Error", "see the log"), False

    def _respond(self, connection: Connection, request: bytes) -> tuple[bytes, bool]:
        parsed = next(RequestParser(self.cfg, [request], connection.peer))
        sink = _Sink()
        response, environ = wsgi.create(
            parsed, cast(socket.socket, sink), connection.peer, ("", 0), self.cfg
        )
        environ["wsgi.multithread"] = True
        environ[client_auth.CLIENT] = connection.client
        app = cast(client_auth.Wsgi, self.wsgi)
        parts = app(cast(client_auth.Environ, environ), response.start_response)
        if not self.alive:  # read late: SIGTERM may have come during the decision
            response.force_close()
        try:
            for part in parts:
                response.write(part)
            response.close()
        finally:
            if hasattr(parts, "close"):
                parts.close()
        return sink.getvalue(), not response.should_close()


class _Sink(io.BytesIO):
    """Stands in for the socket that gunicorn writes to."""

    def sendall(self, data: bytes) -> None:
        self.write(data)

    send = sendall
