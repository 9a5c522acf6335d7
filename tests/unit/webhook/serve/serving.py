"""
The webhook as a real process on loopback, beside an API server that takes requests and is silent.

What needs an answer from the API server is then under way for as long as the webhook waits for
it, which is what tests of draining need; everything else must work without one.
"""

import http.client
import json
import os
import queue
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubenexus import pki
from kubenexus.dev.plane.control_plane import healthy
from kubenexus.dev.process import ports, self_exec
from kubenexus.pki import KeyPair
from webhook.serve.server import Options, wait_until

PATIENCE = 60.0
YEAR = timedelta(days=365)
_START = "import sys; from pathlib import PosixPath; from webhook.serve.server import Options, main; sys.exit(main({}))"


class SilentServer:
    """Accepts, reads and never answers; `request_lines` has the first line of every request."""

    def __init__(self) -> None:
        self._listener = socket.create_server((ports.HOST, 0))
        self.url = f"http://{ports.HOST}:{self._listener.getsockname()[1]}"
        self.request_lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._taken: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self._listener.accept()
                self._taken.append(taken)
                threading.Thread(target=self._read, args=(taken,), daemon=True).start()

    def _read(self, taken: socket.socket) -> None:
        with suppress(OSError):
            while data := taken.recv(65536):
                self.request_lines.put(data.split(b"\r\n")[0].decode())

    def wait_for(self, line: str) -> None:
        """Until a request for this path arrived."""
        while not self.request_lines.get(timeout=PATIENCE).startswith(line):
            pass

    def close(self) -> None:
        for one in (self._listener, *self._taken):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@dataclass(frozen=True)
class Serving:
    """A running webhook."""

    process: subprocess.Popen[bytes]
    options: Options
    api: SilentServer
    ca: KeyPair
    log: Path

    def context(self, client: KeyPair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca.certificate.decode())
        if client is not None:
            folder = self.log.parent
            cert, key = folder / "client.crt", folder / "client.key"
            cert.write_bytes(client.certificate)
            key.write_bytes(client.key)
            context.load_cert_chain(cert, key)
        return context

    def connect(
        self, context: ssl.SSLContext | None = None, *, timeout: float = PATIENCE
    ) -> ssl.SSLSocket:
        raw = self.raw(timeout=timeout)
        return (context or self.context()).wrap_socket(raw, server_hostname=ports.HOST)

    def raw(self, *, timeout: float = PATIENCE, **options: Any) -> socket.socket:
        return socket.create_connection((ports.HOST, self.options.port), timeout=timeout)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        client: KeyPair | None = None,
    ) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(
            ports.HOST, self.options.port, context=self.context(client), timeout=PATIENCE
        )
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def an_authority() -> KeyPair:
    return pki.authority("ca", now=datetime.now(UTC), valid_for=YEAR)


def put_pair(folder: Path, ca: KeyPair, *, valid_for: timedelta = YEAR) -> tuple[Path, Path]:
    """A new serving certificate in the folder's files."""
    pair = pki.server(
        ca, common_name="webhook", names=[ports.HOST], now=datetime.now(UTC), valid_for=valid_for
    )
    cert, key = folder / "tls.crt", folder / "tls.key"
    cert.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return cert, key


@contextmanager
def serving(folder: Path, **changes: Any) -> Iterator[Serving]:
    """The webhook with one worker of two threads; `changes` are options."""
    ca, api = an_authority(), SilentServer()
    cert, key = put_pair(folder, ca)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(_kubeconfig(api.url))
    [port] = ports.free(1)
    plain = Options(
        cert, key, kubeconfig=kubeconfig, host=ports.HOST, port=port, metrics_port=None,
        policy_objects=False, workers=1, threads=2, start_seconds=0.0,
    )  # fmt: skip
    options = replace(plain, **changes)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START.format(repr(options))],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=self_exec.environment(os.environ),
        )
    try:
        url = f"https://{ports.HOST}:{port}/healthz"
        assert wait_until(lambda: healthy(url), seconds=PATIENCE), log.read_text()
        yield Serving(process, options, api, ca, log)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            api.close()


def _kubeconfig(url: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
