"""
The webhook under faults, seen through a real API server: what fails, and that nothing gets in.

Every test runs a load of good and bad pods (see `load`), makes its fault in the middle of it, and
continues until answers are right again. The test adds its counts to build/reliability/webhook.json,
from which `reliability` makes the table of the documentation. `KUBENEXUS_FAULT_ROUNDS` repeats
every fault so many times within one load.
"""

import base64
import contextlib
import gzip
import json
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kubenexus import pki
from kubenexus.dev.plane import key_files
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import ports
from kubenexus.dev.stack import WEBHOOK, Stack
from kubenexus.pki import KeyPair
from policies import vocabulary
from tests.builders import a_pod, in_gang
from tests.cluster import reliability
from tests.cluster.dry_run_load import Load, Outcome
from tests.cluster.waiting import PATIENCE, eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

COUNTS = Path("build") / "reliability" / reliability.FAULTS
ROUNDS = int(os.environ.get("KUBENEXUS_FAULT_ROUNDS", "1"))
HOOKS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
SERVING = f"{vocabulary.WEBHOOK_NAME}-serving"
BUILTIN_BAD = a_pod(labels={"owner": "ada", "team": "x"} | in_gang(size="many"))
POLICY_BAD = a_pod(labels={})
GOOD = a_pod(labels={"owner": "ada", "team": "x"})


class Site:
    """The webhook on its control plane, and the handles to break it."""

    def __init__(self, plane: ControlPlane, stack: Stack, namespace: str) -> None:
        self.plane, self.stack, self.namespace = plane, stack, namespace
        self.port = int(stack.webhook_url.rpartition(":")[2])

    # --- Policies. ---

    def require(self, label: str) -> None:
        """A policy that requires this label on every pod of the namespace; replaces the one before."""
        policy = {
            "apiVersion": vocabulary.POLICY_API_VERSION,
            "kind": "TenantPolicy",
            "metadata": {"name": self.namespace},
            "spec": {
                "tenant": {"name": self.namespace, "tier": "silver"},
                "namespaceSelector": {
                    "matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: self.namespace}
                },
                "validations": [
                    {
                        "name": f"has-{label}",
                        "expression": f"'{label}' in object.metadata.?labels.orValue({{}})",
                        "message": f"say the {label}",
                    }
                ],
            },
        }
        path = f"/apis/{vocabulary.POLICY_API_VERSION}/tenantpolicies/{self.namespace}"
        self.plane.api().call(
            "PATCH",
            f"{path}?fieldManager=faults&force=true",
            policy,
            content_type="application/apply-patch+yaml",
        )
        eventually(lambda: self.everywhere(f"say the {label}"), f"the policy for {label} in force")

    def everywhere(self, message: str) -> bool:
        """Whether all of many new connections, and so every worker, refuse with this message."""
        return all(message in self.direct("/validate", self.review()) for _ in range(24))

    def forget_policy(self) -> None:
        path = f"/apis/{vocabulary.POLICY_API_VERSION}/tenantpolicies/{self.namespace}"
        self.plane.api().call("DELETE", path)

    # --- The webhook, spoken to without the API server. ---

    def review(self) -> bytes:
        request = {
            "uid": "straight",
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": self.namespace,
            "object": POLICY_BAD,
        }
        return json.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        ).encode()

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(self.raw())

    def raw(self) -> socket.socket:
        return socket.create_connection((ports.HOST, self.port), timeout=PATIENCE)

    def direct(self, path: str, body: bytes, *lines: str) -> str:
        """The whole answer to one request, status line and all; empty where there is none."""
        head = [f"POST {path} HTTP/1.1", "Host: webhook", "Connection: close", *lines]
        if not any("chunked" in line for line in lines):
            head.append(f"Content-Length: {len(body)}")
        got = b""
        try:
            with self.connect() as connection:
                with contextlib.suppress(OSError):  # refused before everything was sent
                    connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
                while data := connection.recv(65536):
                    got += data
        except OSError:
            return got.decode(errors="replace")
        return got.decode(errors="replace")

    # --- Processes. ---

    def workers(self) -> set[int]:
        master = self.stack.child(WEBHOOK).pid
        children = Path(f"/proc/{master}/task/{master}/children").read_text()
        return {int(pid) for pid in children.split()}

    def kill(self, count: int) -> None:
        """Kill so many workers, and wait until as many others stand in their places."""
        before = self.workers()
        for pid in sorted(before)[:count]:
            os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: len(self.workers() - before) >= count and len(self.workers()) == len(before),
            "new workers",
        )

    # --- Certificates. ---

    def serve_with(self, ca: KeyPair, *, valid_for: timedelta = timedelta(days=1)) -> None:
        """Replace the serving certificate, as a mounted Secret does: file by file."""
        pair = pki.server(
            ca,
            common_name=vocabulary.WEBHOOK_NAME,
            names=key_files.NAMES,
            now=datetime.now(UTC) if valid_for > timedelta() else datetime.now(UTC) + valid_for,
            valid_for=abs(valid_for) if valid_for > timedelta() else timedelta(seconds=1),
        )
        key_files.write_private(self.plane.layout.certificate(SERVING), pair.certificate)
        key_files.write_private(self.plane.layout.key(SERVING), pair.key)

    def trust(self, *authorities: KeyPair) -> None:
        """What the API server accepts the webhook's certificate from."""
        bundle = base64.b64encode(b"".join(ca.certificate for ca in authorities)).decode()
        api = self.plane.api()
        for kind in KINDS:
            path = f"{HOOKS}/{kind}/{vocabulary.WEBHOOK_NAME}"
            found = api.call("GET", path)
            for webhook in found["webhooks"]:
                webhook["clientConfig"]["caBundle"] = bundle
            api.call("PUT", path, found)


@pytest.fixture
def site(control_plane: ControlPlane, stack: Stack, namespace: str) -> Iterator[Site]:
    here = Site(control_plane, stack, namespace)
    here.require("owner")
    yield here
    here.forget_policy()


Fault = Callable[[Load], None]


def under_load(site: Site, name: str, fault: Fault) -> Load:
    """Make the fault in the middle of a load, and count what became of the calls."""
    load = Load(site.plane, site.namespace, good=[GOOD, GOOD], bad=[POLICY_BAD, BUILTIN_BAD])
    with load:
        for _ in range(ROUNDS):
            fault(load)
            load.quiet()
    count = load.counts
    answered = (
        count[Outcome.RIGHT] + count[Outcome.WRONGLY_ADMITTED] + count[Outcome.WRONGLY_REFUSED]
    )
    row = {"fault": name, "sent": count.total(), "answered": answered, "rounds": ROUNDS}
    left_out = (Outcome.RIGHT, Outcome.UNEXPECTED)
    row |= {one.value: count[one] for one in Outcome if one not in left_out}
    reliability.add(COUNTS, row)
    assert count[Outcome.WRONGLY_ADMITTED] == 0, load.said
    return load


def only_right(load: Load) -> None:
    assert set(load.counts) == {Outcome.RIGHT}, load.said


def test_one_worker_killed(site: Site) -> None:
    load = under_load(site, "one of two workers killed", lambda load: site.kill(1))
    assert load.counts[Outcome.WRONGLY_REFUSED] == 0, load.said


def test_all_workers_killed(site: Site) -> None:
    under_load(site, "all workers killed", lambda load: site.kill(2))


def test_the_certificate_is_rotated(site: Site) -> None:
    def rotate(load: Load) -> None:
        for _ in range(5):
            site.serve_with(site.plane.ca)
            load.more(20)

    only_right(under_load(site, "certificate rotated five times", rotate))


def test_the_authority_is_rotated(site: Site) -> None:
    old = site.plane.ca

    def rotate(load: Load) -> None:
        new = pki.authority("new", now=datetime.now(UTC), valid_for=timedelta(days=1))
        for before, after in ((old, new), (new, old)):
            site.trust(before, after)
            load.more(30)
            site.serve_with(after)
            load.more(30)
            site.trust(after)
            load.more(30)

    only_right(under_load(site, "authority rotated there and back", rotate))


def test_policies_are_swapped(site: Site) -> None:
    def swap(load: Load) -> None:
        for label in ("team", "owner", "team", "owner"):
            site.require(label)
            load.more(20)

    only_right(under_load(site, "policies swapped four times", swap))


def test_the_api_server_restarts(site: Site) -> None:
    def restart(load: Load) -> None:
        site.plane.restart_apiserver()

    load = under_load(site, "API server restarted", restart)
    assert load.counts[Outcome.FAILED] == 0, load.said


def test_an_expired_certificate_lets_nothing_in(site: Site) -> None:
    def expire(load: Load) -> None:
        site.serve_with(site.plane.ca, valid_for=timedelta(days=-1))
        site.kill(2)  # connections that were made before stay good: end them
        load.more(60, Outcome.FAILED)
        site.serve_with(site.plane.ca)

    load = under_load(site, "expired certificate, then a good one", expire)
    assert any(" is after " in said for said in load.said[Outcome.FAILED]), load.said


def test_fifty_slow_clients(site: Site) -> None:
    def crawl(load: Load) -> None:
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(site.raw()) for _ in range(25)]
            halting = [stack.enter_context(site.connect()) for _ in range(25)]
            let_go = [threading.Thread(target=_drip, args=(one,)) for one in (*silent, *halting)]
            for thread in let_go:
                thread.start()
            load.more(60)
            for thread in let_go:
                thread.join(PATIENCE)
            assert not any(thread.is_alive() for thread in let_go), "a slow client was kept"

    only_right(under_load(site, "fifty slow clients", crawl))


def _drip(connection: socket.socket) -> None:
    """Send a byte now and then, the first ones of something that never ends, until let go."""
    connection.settimeout(0.2)
    for byte in (
        b"\x16\x03\x01\x02\x00\x01\x00"
        if not isinstance(connection, ssl.SSLSocket)
        else (b"POST /validate HTTP/1.1\r\nX-Slow: " + b"x" * 10_000)
    ):
        try:
            connection.sendall(bytes([byte]))
            if not connection.recv(1):
                return
        except TimeoutError:
            continue
        except OSError:
            return
    connection.settimeout(PATIENCE)
    with contextlib.suppress(OSError):
        connection.recv(1)


MIB = 1024 * 1024
CHUNKED = "Transfer-Encoding: chunked"


def a_malformed(site: Site) -> list[tuple[bytes, tuple[str, ...], str]]:
    """Body, header lines, and how the answer begins."""
    good = site.review()
    chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
    return [
        (b" " * (8 * MIB), (), "HTTP/1.1 413"),
        (b" " * (100 * MIB), (), "HTTP/1.1 413"),
        (chunk * 8 + b"0\r\n\r\n", (CHUNKED,), "HTTP/1.1 413"),
        (gzip.compress(b" " * (100 * MIB)), ("Content-Encoding: gzip",), "HTTP/1.1 400"),
        (b"", (), "HTTP/1.1 400"),
        (good[:-10], (), "HTTP/1.1 400"),
        (b"[" * 10_000 + b"]" * 10_000, (), "HTTP/1.1 400"),
        (good.replace(b'"uid": "straight"', b'"uid": NaN'), (), "HTTP/1.1 400"),
        (good.replace(b"straight", rb"\ud800"), (), "HTTP/1.1 400"),
        (good.replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), (), "HTTP/1.1 400"),
        (good.replace(b'"uid"', b'"vid"'), (), "HTTP/1.1 400"),
        (good.replace(b'"kind": "AdmissionReview"', b'"kind": "Pod"'), (), "HTTP/1.1 400"),
        (good.replace(b'"containers": [', b'"x": %s, "containers": [' % (b"9" * 400)), (), ""),
        (good.replace(b'"labels": {}', b'"labels": {"owner": "a"}, "labels": {}'), (), ""),
        (good, ("Content-Type: text/html",), ""),
        (good, ("Content-Length: 5",), "HTTP/1.1 400"),
        (good, ("Expect: something",), "HTTP/1.1 4"),
    ]


def test_oversize_and_malformed_bodies(site: Site) -> None:
    """None gets a yes and none disturbs the load."""
    answers: list[tuple[str, str]] = []

    def send(load: Load) -> None:
        for body, lines, want in a_malformed(site):
            answers.append((want, site.direct("/validate", body, *lines)))

    only_right(under_load(site, "oversize and malformed bodies", send))
    assert [got[:40] for want, got in answers if not got.startswith(want or "HTTP/1.1 ")] == []
    assert [got for _, got in answers if '"allowed":true' in got or " 500 " in got[:20]] == []


def test_a_stop_answers_what_is_under_way(site: Site) -> None:
    """A stop and a start under load: what fails is what came while no process listened."""

    def restart(load: Load) -> None:
        site.stack.child(WEBHOOK).stop(grace=20.0)
        assert site.stack.child(WEBHOOK).exit_code == 0
        site.stack.child(WEBHOOK).start()
        site.stack.wait(WEBHOOK)

    load = under_load(site, "webhook stopped and started", restart)
    # A connection that the kernel had taken in but no process accepted yet is reset, not refused.
    unheard = {"connection refused", "connection reset by peer"}
    assert load.said.get(Outcome.FAILED, set()) <= unheard, load.said
