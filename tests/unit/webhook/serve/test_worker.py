"""The worker's loop in a thread of the test, over real TLS, with an app that the test controls."""

import contextlib
import gc
import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from gunicorn.config import Config

from kubenexus.dev.process import ports
from tests.unit.webhook.serve.serving import PATIENCE, an_authority, put_pair
from webhook import metrics
from webhook.serve import decision_queues
from webhook.serve import worker as workers
from webhook.serve.client_auth import AccessRules, ClientAuth, Environ
from webhook.serve.server import wait_until
from webhook.serve.worker import WholeRequestWorker


@dataclass
class App:
    """Answers at once what says so, and by WSGI the rest, which waits until `go` is set."""

    go: threading.Event = field(default_factory=threading.Event)
    order: list[bytes] = field(default_factory=list)
    begun: list[bytes] = field(default_factory=list)  # by WSGI
    hold: threading.Event = field(default_factory=threading.Event)  # cleared: the loop waits
    entered: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.hold.set()

    def answer_now(self, path: str, body: bytes) -> bytes | None:
        if body == b"broken":
            raise ZeroDivisionError
        if not body.startswith(b"quick"):
            return None
        self.order.append(body)
        self.entered.set()
        self.hold.wait(PATIENCE)
        return body

    def __call__(self, environ: Environ, start_response: object) -> list[bytes]:
        body: bytes = environ["wsgi.input"].read()
        self.begun.append(body.strip())
        self.go.wait(PATIENCE)
        assert callable(start_response)
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


@dataclass(frozen=True)
class Running:
    app: App
    worker: WholeRequestWorker
    address: tuple[str, int]
    context: ssl.SSLContext

    def connect(self) -> ssl.SSLSocket:
        raw = socket.create_connection(self.address, timeout=PATIENCE)
        return self.context.wrap_socket(raw, server_hostname=ports.HOST)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with serving(tmp_path) as found:
        yield found


@contextmanager
def serving(folder: Path) -> Iterator[Running]:
    ca = an_authority()
    cert, key = put_pair(folder, ca)
    config = Config()
    for name, value in {"certfile": str(cert), "keyfile": str(key), "threads": 2}.items():
        config.set(name, value)
    app, listener = App(), socket.create_server((ports.HOST, 0))
    address = listener.getsockname()
    log: Any = logging.getLogger()
    nothing: Any = None  # the worker requests `wsgi` from its application, which is given below
    worker = WholeRequestWorker(1, os.getppid(), [listener], nothing, 30, config, log)
    worker.wsgi = cast(Any, ClientAuth(app, AccessRules()))
    worker.prepare()
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        context = ssl.create_default_context(cadata=ca.certificate.decode())
        yield Running(app, worker, address, context)
    finally:
        app.go.set()
        worker.handle_exit(0, None)
        thread.join(PATIENCE)
        for part in (worker.tmp, worker._poll, worker._wake, worker._waker):
            part.close()  # otherwise the end of the process does
        gc.unfreeze()
    assert not thread.is_alive()


def a_request(body: bytes) -> bytes:
    return b"POST /validate HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def read_until(connection: ssl.SSLSocket, end: bytes) -> bytes:
    got = b""
    while not got.endswith(end):
        data = connection.recv(65536)
        assert data, got
        got += data
    return got


def test_requests_in_a_row_are_answered_in_their_order(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(b"".join(a_request(b"quick %d" % number) for number in range(50)))
        got = read_until(connection, b"quick 49")
    assert (got.count(b"HTTP/1.1 200 OK\r\n"), got.count(b"Connection: keep-alive\r\n")) == (50, 50)
    assert running.app.order == [b"quick %d" % number for number in range(50)]


def test_a_busy_client_shares_the_worker_with_others(running: Running) -> None:
    """Another client sends one request after many of the first, and is answered before the last."""
    with running.connect() as many, running.connect() as one:
        many.sendall(b"".join(a_request(b"quick %d" % number) for number in range(3_000)))
        one.sendall(a_request(b"quick single"))
        read_until(one, b"quick single")
        read_until(many, b"quick 2999")
    assert running.app.order.index(b"quick single") < 2_999


def test_a_request_that_waits_delays_no_other(running: Running) -> None:
    """More of them than there are threads; the loop continues to answer fast requests."""
    waiting = [running.connect() for _ in range(3)]
    for connection in waiting:
        connection.sendall(a_request(b"slow"))
    with running.connect() as quick:
        quick.sendall(a_request(b"quick"))
        read_until(quick, b"quick")
    running.app.go.set()
    assert [read_until(connection, b"slow")[:15] for connection in waiting] == [
        b"HTTP/1.1 200 OK"
    ] * 3
    for connection in waiting:
        connection.close()


def test_what_fails_at_once_is_tried_by_wsgi(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(workers.logger, "exception", logged.append)
    running.app.go.set()
    with running.connect() as connection:
        connection.sendall(a_request(b"broken"))
        assert read_until(connection, b"broken").startswith(b"HTTP/1.1 200 OK\r\n")
    assert logged == ["fast path failed; a thread answers the review"]


def test_an_open_connection_gets_its_last_answer_when_the_end_has_come(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(a_request(b"quick"))
        read_until(connection, b"quick")
        running.worker.handle_exit(0, None)
        connection.sendall(a_request(b"quick last"))
        assert b"Connection: close\r\n" in read_until(connection, b"quick last")
        assert connection.recv(1) == b""


# --- Fairness between namespaces. ---


def of_namespace(namespace: str, name: str, size: int = 0) -> bytes:
    return a_request(f'quick {name} "namespace":"{namespace}"'.encode().ljust(size))


def names(app: App) -> list[str]:
    return [body.split()[1].decode() for body in app.order]


def test_a_small_review_passes_a_flood_of_another_namespace(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty of the flood are complete before the small one is; the first holds the loop."""
    monkeypatch.setattr(decision_queues, "TURN_SECONDS", 0.0)  # one decision between two polls
    running.app.hold.clear()
    flood = [running.connect() for _ in range(40)]
    with running.connect() as one:
        for number, connection in enumerate(flood):
            connection.sendall(of_namespace("flood", f"flood-{number}", 1_000))
        assert running.app.entered.wait(PATIENCE)
        one.sendall(of_namespace("other", "small"))
        running.app.hold.set()
        read_until(one, b'"namespace":"other"')
    for connection in flood:
        connection.recv(1)
        connection.close()
    # The loop may have taken one more of the flood before it polled its sockets again.
    assert names(running.app).index("small") <= 2


def test_large_reviews_of_a_namespace_wait_for_each_other_and_hold_up_no_other(
    running: Running,
) -> None:
    flood = [running.connect() for _ in range(4)]
    for connection in flood:
        connection.sendall(a_request(b'{"namespace":"flood"}'.ljust(3 * 1024 * 1024)))
    with running.connect() as large, running.connect() as small:
        large.sendall(a_request(b'{"namespace":"other"}'.ljust(200_000)))
        small.sendall(of_namespace("flood", "small"))
        read_until(small, b'"namespace":"flood"')
        assert wait_until(lambda: len(running.app.begun) == 2, seconds=PATIENCE)
        begun = sorted(running.app.begun)
        running.app.go.set()
        read_until(large, b" " * 100)
    for connection in flood:
        connection.recv(1)
        connection.close()
    assert begun == [b'{"namespace":"flood"}', b'{"namespace":"other"}']


def test_requests_beyond_the_bytes_that_may_wait_get_a_retry_answer(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_queues, "BYTES_LIMIT", 500_000)
    before = rejections()
    flood = [running.connect() for _ in range(6)]
    for connection in flood:
        connection.sendall(a_request(b'{"namespace":"flood"}'.ljust(200_000)))
    with running.connect() as small:
        small.sendall(of_namespace("flood", "small"))
        read_until(small, b'"namespace":"flood"')
        assert wait_until(lambda: rejections() == before + 3, seconds=PATIENCE)
        running.app.go.set()
    answers = [connection.recv(20)[:12] for connection in flood]
    for connection in flood:
        connection.close()
    # One is decided and two wait.
    assert sorted(answers) == [b"HTTP/1.1 200"] * 3 + [b"HTTP/1.1 503"] * 3


def rejections() -> float:
    name = "kubenexus_webhook_overload_rejections_total "
    lines = metrics.exposition().decode().splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_connection_that_breaks_the_worker_ends_alone(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running.connect() as bad, running.connect() as good:
        with monkeypatch.context() as patched:
            patched.setattr(workers.WholeRequestWorker, "_dispatch", broken_once())
            bad.sendall(a_request(b"quick"))
            with contextlib.suppress(ConnectionResetError):
                assert bad.recv(1) == b""
        good.sendall(a_request(b"quick good"))
        read_until(good, b"quick good")


def broken_once() -> Any:
    def dispatch(worker: WholeRequestWorker, connection: workers.Connection) -> bool:
        if connection.data:
            raise ZeroDivisionError
        return False

    return dispatch
