import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubenexus import pki
from kubenexus.dev.process import ports
from kubenexus.pki import KeyPair
from tests.builders import a_pod
from tests.unit.webhook.serve.serving import (
    PATIENCE,
    YEAR,
    Serving,
    an_authority,
    put_pair,
    serving,
)
from webhook.registration import configurations
from webhook.serve import server
from webhook.serve.app import BODY_LIMIT
from webhook.serve.server import Options, OptionsError
from webhook.serve.tls import Certificate


def a_client(ca: KeyPair, name: str) -> KeyPair:
    return pki.client(ca, user=name, now=datetime.now(UTC), valid_for=YEAR)


def a_review(namespace: str = "") -> bytes:
    """Of a pod; without a namespace it needs nothing from the API server."""
    request = {
        "uid": "u-1",
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "object": a_pod(),
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def a_request(body: bytes, *lines: str) -> bytes:
    head = ["POST /validate HTTP/1.1", "Host: h", *lines, f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def read_all(connection: socket.socket) -> bytes:
    """Until the webhook closes."""
    got = b""
    with contextlib.suppress(ssl.SSLEOFError, ConnectionResetError):
        while data := connection.recv(65536):
            got += data
    return got


def refuses(webhook: Serving) -> bool:
    try:
        webhook.raw().close()
    except ConnectionRefusedError:
        return True
    return False


# --- The certificate. ---


def test_a_certificate_is_read_once_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    ca = an_authority()
    certificate = Certificate(*put_pair(tmp_path, ca))
    first = certificate.context()
    assert certificate.context() is first
    put_pair(tmp_path, ca)
    assert certificate.context() is not first


def test_files_caught_in_the_middle_of_a_change_keep_the_last_good_one(tmp_path: Path) -> None:
    ca = an_authority()
    cert, key = put_pair(tmp_path, ca)
    certificate = Certificate(cert, key)
    first, old_key = certificate.context(), key.read_bytes()
    put_pair(tmp_path, ca)
    key.write_bytes(old_key)  # the certificate has changed, its key has not yet
    assert certificate.context() is first
    cert.unlink()
    assert certificate.context() is first
    put_pair(tmp_path, ca)
    assert certificate.context() is not first


def test_a_client_authority_is_followed_too(tmp_path: Path) -> None:
    ca, client_ca = an_authority(), tmp_path / "client-ca.crt"
    client_ca.write_bytes(an_authority().certificate)
    certificate = Certificate(*put_pair(tmp_path, ca), client_ca=client_ca)
    first = certificate.context()
    assert certificate.context() is first
    client_ca.write_bytes(an_authority().certificate)
    assert certificate.context() is not first


def test_old_tls_is_refused(tmp_path: Path) -> None:
    context = Certificate(*put_pair(tmp_path, an_authority())).context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            {"cert_file": Path("none.crt")},
            r"none\.crt with key .* cannot be used: .*; give a PEM certificate and its key$",
            id="no certificate",
        ),
        pytest.param(
            {"client_ca": Path("none.ca")},
            r"and client CA none\.ca cannot be used: .*, and the authority's certificate as PEM$",
            id="no client authority",
        ),
        pytest.param(
            {"client_names": ("kube-apiserver",)},
            r"a client name \(kube-apiserver\) is given without .*; give the client CA as well$",
            id="a client name without a CA",
        ),
    ],
)
def test_options_that_cannot_be_served_are_one_clear_message(
    tmp_path: Path, change: dict[str, Path], want: str
) -> None:
    cert, key = put_pair(tmp_path, an_authority())
    options = {"cert_file": cert, "key_file": key, **change}
    with pytest.raises(OptionsError, match=want):
        server.main(Options(**options))  # type: ignore[arg-type]  # one field a situation


# --- The process. ---


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One worker of two threads, without an API server that answers."""
    with serving(tmp_path_factory.mktemp("webhook")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, KeyPair]]:
    """With a client authority, one allowed client name, and metrics on a port of their own."""
    folder, ca = tmp_path_factory.mktemp("guarded"), an_authority()
    (folder / "client-ca.crt").write_bytes(ca.certificate)
    with serving(
        folder,
        client_ca=folder / "client-ca.crt",
        client_names=("kube-apiserver",),
        metrics_port=ports.free(1)[0],
    ) as running:
        yield running, ca


def test_it_lives_and_is_not_ready_without_an_api_server(webhook: Serving) -> None:
    answers = [webhook.request("GET", path) for path in ("/healthz", "/readyz")]
    assert answers == [(200, "ok\n"), (503, "the namespaces have not been read yet\n")]
    assert webhook.request("GET", "/metrics")[0] == 200


def test_a_review_that_needs_no_api_server_is_answered(webhook: Serving) -> None:
    status, text = webhook.request("POST", "/validate", a_review())
    assert (status, json.loads(text)["response"]["uid"]) == (200, "u-1")


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_client_of_old_tls_gets_no_connection(webhook: Serving, version: str) -> None:
    context = webhook.context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion[version]
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        webhook.connect(context)


def test_plain_http_is_not_answered(webhook: Serving) -> None:
    with webhook.raw() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"HTTP/" not in read_all(connection)


def test_a_connection_is_kept_and_takes_requests_one_after_the_other(webhook: Serving) -> None:
    request = a_request(a_review())
    with webhook.connect() as connection:
        connection.sendall(request + request[:100])
        answers = b""
        while b"u-1" not in answers:
            answers += connection.recv(65536)
        connection.sendall(request[100:] + a_request(b"{", "Connection: close"))
        answers += read_all(connection)
    assert (answers.count(b"HTTP/1.1 200 OK"), answers.count(b"HTTP/1.1 400 ")) == (2, 1)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(
            b"POST /validate HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT + 1),
            413,
            id="a body announced too large is refused before it comes",
        ),
        pytest.param(
            b"POST /validate HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 7
            + b"1\r\n",
            413,
            id="chunks without a length that become too much",
        ),
        pytest.param(b"\x00" * 100 + b"\r\n\r\n", 400, id="no HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, 431, id="an endless head"),
        pytest.param(a_request(b"[" * 100_000), 400, id="JSON nested too deep for the decoder"),
        pytest.param(
            a_request(b"[" * 500 + b"]" * 500), 400, id="JSON nested too deep for the judges"
        ),
        pytest.param(
            b"POST /validate HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\n{}\r\n0\r\n\r\n",
            400,
            id="chunks that are no review",
        ),
    ],
)
def test_what_cannot_be_taken_is_answered(webhook: Serving, data: bytes, status: int) -> None:
    with webhook.connect() as connection:
        connection.sendall(data)
        assert connection.recv(65536).startswith(f"HTTP/1.1 {status} ".encode())
    assert webhook.request("GET", "/healthz") == (200, "ok\n")


def test_slow_clients_delay_no_other_client(webhook: Serving) -> None:
    """Many more than threads, stuck in each step; all are still connected while others are served."""
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(webhook.raw()) for _ in range(20)]
        for connection in slow[10:]:
            connection.sendall(b"\x16\x03\x01")  # a handshake that never completes
        for part in (b"POST /val", a_request(a_review())[:-1]):
            for _ in range(10):
                connection = stack.enter_context(webhook.connect())
                connection.sendall(part)
                slow.append(connection)
        statuses = [webhook.request("POST", "/validate", a_review())[0] for _ in range(20)]
        for connection in slow:
            connection.setblocking(False)
            with pytest.raises((BlockingIOError, ssl.SSLWantReadError)):
                connection.recv(1)
    assert statuses == [200] * 20


def test_the_oldest_makes_way_for_a_new_connection(tmp_path: Path) -> None:
    with serving(tmp_path, connections=4) as webhook, contextlib.ExitStack() as stack:
        first, *others = (stack.enter_context(webhook.connect()) for _ in range(4))
        assert webhook.request("GET", "/healthz") == (200, "ok\n")
        assert read_all(first) == b""
        others[-1].sendall(a_request(a_review()))
        assert others[-1].recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_unfinished_bodies_are_held_up_to_a_limit(webhook: Serving) -> None:
    """More than is held is announced and almost sent; the oldest go, and small requests pass."""
    body = b" " * (BODY_LIMIT - 1)
    head = b"POST /validate HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % BODY_LIMIT
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(webhook.connect()) for _ in range(10)]
        for connection in senders:
            with contextlib.suppress(OSError):
                connection.sendall(head + body)
        assert read_all(senders[0]) == b""
        assert webhook.request("POST", "/validate", a_review())[0] == 200
        senders[-1].sendall(b" ")
        assert senders[-1].recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_new_certificate_serves_new_connections_and_open_ones_go_on(webhook: Serving) -> None:
    with webhook.connect() as before:
        old = before.getpeercert(binary_form=True)
        put_pair(webhook.options.cert_file.parent, webhook.ca)
        with webhook.connect() as after:
            assert after.getpeercert(binary_form=True) != old
        before.sendall(a_request(a_review()))
        assert before.recv(65536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("name", "path", "status"),
    [
        pytest.param("kube-apiserver", "/validate", 200, id="an allowed name"),
        pytest.param("somebody", "/validate", 403, id="another name"),
        pytest.param(None, "/validate", 403, id="no certificate"),
        pytest.param(None, "/mutate", 403, id="no certificate to mutate"),
        pytest.param(None, "/healthz", 200, id="a kubelet"),
        pytest.param("kube-apiserver", "/metrics", 404, id="metrics are elsewhere"),
    ],
)
def test_only_the_named_client_gets_reviews(
    guarded: tuple[Serving, KeyPair], name: str | None, path: str, status: int
) -> None:
    webhook, ca = guarded
    client = None if name is None else a_client(ca, name)
    body = a_review() if path in ("/validate", "/mutate") else None
    assert webhook.request("POST" if body else "GET", path, body, client=client)[0] == status


def test_a_certificate_of_another_authority_is_refused(guarded: tuple[Serving, KeyPair]) -> None:
    webhook, _ = guarded
    stranger = a_client(an_authority(), "kube-apiserver")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        webhook.request("POST", "/validate", a_review(), client=stranger)


def test_a_review_under_way_is_answered_before_the_end(tmp_path: Path) -> None:
    """It waits for an API server that is silent, so the stop comes while it is judged."""
    with serving(tmp_path) as webhook, webhook.connect() as busy, webhook.connect() as idle:
        busy.sendall(a_request(a_review("team-a")))
        webhook.api.wait_for("GET /api/v1/namespaces/team-a")
        webhook.process.terminate()
        assert server.wait_until(lambda: refuses(webhook), seconds=PATIENCE)
        busy.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):  # others are refused before it is answered
            busy.recv(1)
        busy.settimeout(PATIENCE)
        answer = read_all(busy)
        assert read_all(idle) == b""
        assert webhook.process.wait(PATIENCE) == 0
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in answer.lower()
    assert b"admission facts unavailable" in answer


def test_a_new_worker_waits_for_policies_up_to_a_limit() -> None:
    time, ready_at = [0.0], 1.0

    def sleep(seconds: float) -> None:
        time[0] += seconds

    def ready() -> bool:
        return time[0] >= ready_at

    waits = [
        server.wait_until(ready, seconds=5.0, clock=lambda: time[0], sleep=sleep),
        ready(),
    ]
    ready_at = 100.0
    waits.append(server.wait_until(ready, seconds=5.0, clock=lambda: time[0], sleep=sleep))
    assert waits == [True, True, False]


# --- The configurations. ---


def test_the_configurations_send_reviewed_kinds_and_exempt_system_pods() -> None:
    mutating, validating = configurations.configurations(
        ca_pem=b"ca", base_url="https://127.0.0.1:1"
    )
    [hook] = mutating["webhooks"]
    assert hook["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "operations": ["CREATE"],
            "scope": "Namespaced",
        }
    ]
    judges = {judge["name"]: judge for judge in validating["webhooks"]}
    sent = {
        (rule["apiGroups"][0], name)
        for judge in judges.values()
        for rule in judge["rules"]
        for name in rule["resources"]
    }
    assert {
        ("", "pods"),
        ("", "pods/ephemeralcontainers"),
        ("", "pods/resize"),
        ("", "pods/status"),
        ("", "pods/binding"),
        ("", "bindings"),
        ("", "namespaces"),
        ("batch", "jobs"),
        ("kubeflow.org", "pytorchjobs"),
        ("ray.io", "rayclusters"),
        ("apps", "deployments/scale"),
        ("policy.kubenexus.io", "platformpolicies"),
        ("policy.kubenexus.io", "tenantpolicies"),
    } <= sent
    for webhook in (hook, *judges.values()):
        [excluded] = webhook["namespaceSelector"]["matchExpressions"]
        assert (webhook["failurePolicy"], webhook["clientConfig"]["caBundle"]) == ("Fail", "Y2E=")
        assert excluded == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", "kube-node-lease", "kubenexus-system"],
        }
