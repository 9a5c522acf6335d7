"""
A gunicorn worker that spends a thread on whole requests only.

One loop owns every socket. It answers a plain review itself where nobody has to be waited for, one
a connection and turn; for all else threads get the bytes of a request and give back those of an
answer.

    accepted --> SHAKING --> READING --whole request--> JUDGING (a thread) --> WRITING
                                ^  +------- a review, facts at hand -------------^ |
                                +-------------------- kept alive ------------------+
    a refused request: WRITING --> DRAINING, so that the client reads the answer --> closed

However slowly a client shakes hands, sends or reads, it costs a file descriptor and a buffer, and
nobody waits for it. What it can hold is bounded: seconds a request, connections and bytes a
worker; who has been at it longest makes way. gunicorn's own threaded worker reads inside its
threads without a time limit: as many silent clients as threads bring it to a halt.

SIGTERM closes the listeners at once, answers what has begun and what comes on open connections
within a moment, each with `Connection: close`, and ends.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, cast

from gunicorn.http import RequestParser, wsgi
from gunicorn.http.errors import NoMoreData, ParseException
from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker

from webhook.serve import client_auth, http_responses, tls
from webhook.serve.app import BODY_LIMIT
from webhook.serve.http_framing import RequestFramer, RequestRejected

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 5.0  # handshake and request; the API server itself gives up after three
ANSWER_SECONDS: Final = 5.0  # until the client has taken the answer
DRAIN_SECONDS: Final = 1.0  # what a refused client still sends is dropped for so long
LINGER_SECONDS: Final = 1.0  # after SIGTERM, for requests already on their way
HELD_LIMIT: Final = 64 * 1024 * 1024  # bytes of unfinished requests, all connections together
RECEIVE: Final = 16 * 1024  # as much as TLS gives at a time
ACCEPTS: Final = 16  # new connections in a row, before others get their turn
TICK: Final = 0.5
SWEEP_SECONDS: Final = 0.1  # between looks for who is late

_CLOSED: Final = (OSError,)  # what TLS objects to among it
_WAIT: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


class Phase(Enum):
    SHAKING = auto()
    READING = auto()
    JUDGING = auto()
    WRITING = auto()
    DRAINING = auto()


def _nothing(_: object) -> None:
    """Until a worker follows the connection."""


class Connection:
    """One client: its socket, what has come from it, and what it must be doing until when."""

    def __init__(self, sock: ssl.SSLSocket, peer: Any, number: int, now: float) -> None:
        self.sock, self.peer, self.number = sock, peer, number
        self.step: Callable[[object], None] = _nothing
        self.awaited = 0  # the event of its socket that it waits for; 0: none
        self.phase = Phase.SHAKING
        self.since = now
        self.deadline: float | None = now + REQUEST_SECONDS
        self.client: str | None = None
        self.data = bytearray()
        self.framer = RequestFramer(body_limit=BODY_LIMIT)
        self.answer = memoryview(b"")
        self.then = Phase.READING  # what follows the answer; DRAINING: the connection ends
        self.kept = False  # whether it waits for another request, which has not begun

    @property
    def idle(self) -> bool:
        return self.phase is Phase.READING and not self.data

    def enter(self, phase: Phase, now: float, seconds: float | None) -> None:
        self.phase, self.since = phase, now
        self.deadline = None if seconds is None else now + seconds


class WholeRequestWorker(Worker):
    """See the module's docstring."""

    def init_process(self) -> None:
        self.prepare()
        super().init_process()

    def prepare(self) -> None:
        """What `run` needs in the process that serves."""
        self._poll = selectors.DefaultSelector()
        self._pool = ThreadPoolExecutor(self.cfg.threads, thread_name_prefix="review")
        self._connections: dict[int, Connection] = {}  # number -> connection
        self._numbers = 0
        self._held = 0
        self._swept = 0.0
        self._more: list[Connection] = []  # answered, and their next request may have come already
        self._done: SimpleQueue[tuple[Connection, bytes, bool]] = SimpleQueue()  # from threads
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.alive = False
        self._awake()

    def run(self) -> None:
        gc.collect()
        gc.freeze()  # modules and policies stay: looking through them time and again is in vain
        self._fast_path = (
            self.wsgi.answer_now if isinstance(self.wsgi, client_auth.ClientAuth) else None
        )
        self._poll.register(self._wake, selectors.EVENT_READ, self._finish)
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
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _turn(self, timeout: float = TICK) -> None:
        more, self._more = self._more, []
        for key, _ in self._poll.select(0 if more else timeout):
            key.data(key.fileobj)
        for connection in more:
            connection.step(None)
        now = time.monotonic()
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        self.notify()
        late = [
            c for c in self._connections.values() if c.deadline is not None and c.deadline < now
        ]
        for connection in late:
            self._close(connection)

    def _await(self, connection: Connection, event: int) -> None:
        """Have the connection's next step taken when its socket is ready for `event`; 0: never."""
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
            except OSError:  # none is left, it went away, or there is no descriptor for it
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._connections) >= self.cfg.worker_connections:
                self._make_way(lambda connection: True)
            try:
                shaking = ssl_context(self.cfg).wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False
                )
            except _CLOSED:
                sock.close()
                continue
            self._numbers += 1
            connection = Connection(shaking, peer, self._numbers, time.monotonic())
            connection.step = partial(self._step, connection)
            self._connections[connection.number] = connection
            self._await(connection, selectors.EVENT_READ)

    def _step(self, connection: Connection, _: object) -> None:
        if connection.number not in self._connections:
            return  # closed earlier in the same turn
        try:
            self._go_on(connection)
        except _WAIT as exc:
            writes = isinstance(exc, ssl.SSLWantWriteError)
            self._await(connection, selectors.EVENT_WRITE if writes else selectors.EVENT_READ)
        except _CLOSED:
            self._close(connection)

    def _go_on(self, connection: Connection) -> None:
        """As far as it goes without waiting; what has to be waited for is raised."""
        while connection.number in self._connections:
            match connection.phase:
                case Phase.SHAKING:
                    connection.sock.do_handshake()
                    connection.client = tls.client_name(connection.sock)
                    connection.phase = Phase.READING
                case Phase.READING:
                    if not self._take(connection):
                        self._keep(connection, connection.sock.recv(RECEIVE))
                case Phase.WRITING:
                    if self._write(connection):
                        return  # one answer a turn: who asks much has no more of it than others
                case Phase.DRAINING:
                    if not connection.sock.recv(RECEIVE):
                        self._close(connection)
                    return  # one piece a turn: who floods has no more of it than others
                case Phase.JUDGING:
                    return

    def _keep(self, connection: Connection, received: bytes) -> None:
        if not received:
            self._close(connection)
            return
        if connection.kept:
            connection.kept = False
            connection.enter(Phase.READING, time.monotonic(), REQUEST_SECONDS)
        connection.data += received
        self._held += len(received)
        if self._held > HELD_LIMIT:
            self._make_way(lambda other: bool(other.data))

    def _take(self, connection: Connection) -> bool:
        """Answer or refuse a whole request, or hand it on; False while more has to come."""
        try:
            end = connection.framer.end(connection.data)
        except RequestRejected as exc:
            self._held -= len(connection.data)
            connection.data.clear()
            self._answered(connection, http_responses.refusal(exc.status, exc.reason), keep=False)
            return True
        if end is None:
            return False
        request = bytes(connection.data[:end])
        del connection.data[:end]
        self._held -= end
        review = connection.framer.review(request)
        connection.framer = RequestFramer(body_limit=BODY_LIMIT)
        body = self._answer_now(connection, review)
        if body is not None:
            keep = self.alive  # asked late: the end may have come while the app judged
            answer = http_responses.success(body, now=time.time(), keep=keep)
            self._answered(connection, answer, keep=keep)
            return True
        connection.enter(Phase.JUDGING, time.monotonic(), None)
        self._await(connection, 0)
        self._pool.submit(self._judge, connection, request)
        return True

    def _write(self, connection: Connection) -> bool:
        """Send the answer; whether another request may follow it."""
        while connection.answer:
            sent = connection.sock.send(connection.answer)
            connection.answer = connection.answer[sent:]
        self._await(connection, selectors.EVENT_READ)
        now = time.monotonic()
        if connection.then is Phase.DRAINING:
            with contextlib.suppress(*_CLOSED):
                connection.sock.unwrap()  # says that the end is meant; an answer is not awaited
            connection.sock.shutdown(socket.SHUT_WR)
            connection.enter(Phase.DRAINING, now, DRAIN_SECONDS)
            return False
        connection.kept = not connection.data
        patience = float(self.cfg.keepalive) if connection.kept else REQUEST_SECONDS
        connection.enter(Phase.READING, now, patience)
        if connection.data or connection.sock.pending():
            self._more.append(connection)
        return True

    def _make_way(self, among: Callable[[Connection], bool]) -> None:
        """Close who has been at it longest; who is being judged stays."""
        others = [
            c for c in self._connections.values() if c.phase is not Phase.JUDGING and among(c)
        ]
        if others:
            self._close(min(others, key=lambda c: (c.since, c.number)))

    def _close(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._held -= len(connection.data)
        with contextlib.suppress(KeyError, ValueError):
            self._await(connection, 0)
        connection.sock.close()

    # --- Answers. ---

    def _awake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyhow
            self._waker.send(b"\0")

    def _finish(self, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        with contextlib.suppress(Empty):
            while True:
                connection, answer, keep = self._done.get_nowait()
                if connection.number in self._connections:
                    self._answered(connection, answer, keep=keep)
                    connection.step(None)

    def _answered(self, connection: Connection, answer: bytes, *, keep: bool) -> None:
        connection.answer = memoryview(answer)
        connection.then = Phase.READING if keep else Phase.DRAINING
        connection.enter(Phase.WRITING, time.monotonic(), ANSWER_SECONDS)

    def _answer_now(self, connection: Connection, review: tuple[str, bytes] | None) -> bytes | None:
        """The body that answers a plain review; None: a thread answers the request."""
        if review is None or self._fast_path is None:
            return None
        try:
            return self._fast_path(*review, connection.client)
        except Exception:
            logger.exception("fast path failed; a thread answers the review")
            return None

    def _judge(self, connection: Connection, request: bytes) -> None:
        """In a thread: no socket is touched here."""
        try:
            answer, keep = self._respond(connection, request)
        except (ParseException, NoMoreData, StopIteration):
            answer, keep = http_responses.refusal("400 Bad Request", "this is not HTTP"), False
        except Exception:
            logger.exception("a request could not be answered")
            answer, keep = http_responses.refusal("500 Internal Server Error", "see the log"), False
        self._done.put((connection, answer, keep))
        self._awake()

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
        if not self.alive:  # asked late: the end may have come while the app judged
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
    """Takes what gunicorn would write to a socket."""

    def sendall(self, data: bytes) -> None:
        self.write(data)

    send = sendall
