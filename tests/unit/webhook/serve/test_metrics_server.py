"""The metrics port with clients that send nothing, half of a request, or no HTTP."""

import contextlib
import socket
import threading

import pytest

from kubenexus.dev.process import ports
from tests.unit.webhook.serve.serving import PATIENCE
from webhook.serve import metrics_server
from webhook.serve.metrics_server import CONNECTIONS, HEAD_LIMIT, MetricsServer
from webhook.serve.server import wait_until

SILENT = 800


def a_server(exposition: bytes | Exception = b"figure 1\n") -> int:
    def shown() -> bytes:
        if isinstance(exposition, Exception):
            raise exposition
        return exposition

    server = MetricsServer((ports.HOST, 0), exposition=shown, content_type="text/plain")
    server.start()
    return server.port


def send(port: int, request: bytes) -> bytes:
    """Everything that the server sends until it closes."""
    answer = b""
    with socket.create_connection((ports.HOST, port), timeout=PATIENCE) as client:
        client.sendall(request)
        with contextlib.suppress(ConnectionResetError):
            while data := client.recv(65536):
                answer += data
    return answer


@pytest.mark.parametrize(
    ("request_bytes", "want"),
    [
        pytest.param(
            b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", (200, b"figure 1\n"), id="a scrape"
        ),
        pytest.param(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", (200, b"figure 1\n"), id="with a query"),
        pytest.param(b"GET /healthz HTTP/1.0\r\n\r\n", (200, b"ok\n"), id="a health check"),
        pytest.param(b"GET /else HTTP/1.1\r\n\r\n", (404, b""), id="another path"),
        pytest.param(b"POST /metrics HTTP/1.1\r\n\r\n", (405, b""), id="another method"),
        pytest.param(b"x" * (3 * HEAD_LIMIT), None, id="a head without an end"),
        pytest.param(b"\r\n\r\n", (404, b""), id="no HTTP"),
    ],
)
def test_answers(request_bytes: bytes, want: tuple[int, bytes] | None) -> None:
    head, _, body = send(a_server(), request_bytes).partition(b"\r\n\r\n")
    assert ((int(head.split()[1]), body) if head else None) == want


def test_metrics_that_cannot_be_shown_are_an_error_of_that_scrape_alone() -> None:
    port = a_server(OSError("the folder is gone"))
    answers = [send(port, b"GET /%s HTTP/1.1\r\n\r\n" % name) for name in (b"metrics", b"healthz")]
    assert [answer.split()[1] for answer in answers] == [b"500", b"200"]


def test_silent_clients_cost_no_threads_and_a_scrape_is_answered() -> None:
    port = a_server()
    send(port, b"GET /metrics HTTP/1.1\r\n\r\n")
    before = threading.active_count()
    silent = []
    try:
        for number in range(SILENT):
            client = socket.create_connection((ports.HOST, port), timeout=PATIENCE)
            silent.append(client)
            if number % 2:
                client.sendall(b"GET /metr")
        assert b"figure 1" in send(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert threading.active_count() == before
        assert sum(map(still_open, silent)) <= CONNECTIONS
    finally:
        for client in silent:
            client.close()


def still_open(client: socket.socket) -> bool:
    client.settimeout(0.0)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_a_silent_client_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "SECONDS", 0.05)
    with socket.create_connection((ports.HOST, a_server()), timeout=PATIENCE) as client:
        assert wait_until(lambda: not still_open(client), seconds=PATIENCE)
