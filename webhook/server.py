"""
The webhook as a process: gunicorn with TLS, one `ClusterWorld` a worker, metrics on a port of
their own.

    master --fork--> worker: world and policies start -> create_app -> gthread serves
       |                |
       |                +-- certificate read anew when its files change, for new connections
       +-- metrics server (plain HTTP, all workers added up)

A worker that dies is replaced by the master. SIGTERM stops accepting and lets running reviews
finish. Nothing here knows about policy.
"""

import os
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from gunicorn.app.base import BaseApplication

from cluster import connection
from policies import loader
from webhook import registration

GRACE_SECONDS: Final = 10
SCHEDULERS: Final = (registration.SCHEDULER_ACCOUNT,)


@dataclass(frozen=True, slots=True)
class Options:
    """How the webhook is served."""

    cert_file: Path
    """The serving certificate, PEM; followed when it is replaced."""
    key_file: Path
    """Its key, PEM."""
    kubeconfig: Path | None = None
    """How to reach the API server; without it, KUBECONFIG, then the pod's service account."""
    host: str = "0.0.0.0"
    """Where to listen."""
    port: int = 8443
    """The port of the reviews, TLS."""
    metrics_port: int | None = 9443
    """The port of the metrics, plain HTTP; None for none beside `/metrics` of the TLS port."""
    policies: tuple[Path, ...] = (loader.LIBRARY,)
    """Policy files and folders, followed when they change."""
    schedulers: tuple[str, ...] = SCHEDULERS
    """Users that the scheduler may be: they alone bind its pods and lift its gates."""
    policy_objects: bool = True
    """Whether ClusterPolicy and TenantPolicy objects of the API server count as well."""
    engine: str | None = None
    """The CEL engine; without it, the first that the platform has."""
    workers: int = 2
    """Processes. Judging holds the interpreter, so one a core is enough."""
    threads: int = 8
    """Threads a process; they overlap network waits."""


class OptionsError(Exception):
    """The webhook cannot start as asked; the message says what to do."""


class Certificate:
    """The TLS context of the certificate files, made anew when they change."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._files = (cert_file, key_file)
        self._stamp: tuple[tuple[int, int, int], ...] | None = None
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def context(self) -> ssl.SSLContext:
        """The current context; files caught in the middle of a change keep the last good one."""
        with self._lock:
            try:
                stamp = tuple(_stamp(path) for path in self._files)
                if stamp != self._stamp or self._context is None:
                    self._context, self._stamp = self._load(), stamp
            except (OSError, ssl.SSLError):
                if self._context is None:
                    raise
            return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        return context


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def main(options: Options) -> int:
    """Serve until told to stop."""
    certificate = Certificate(options.cert_file, options.key_file)
    try:
        certificate.context()
    except (OSError, ssl.SSLError) as exc:
        raise OptionsError(
            f"the serving certificate {options.cert_file} with key {options.key_file} "
            f"cannot be used: {exc}; give a PEM certificate and its key"
        ) from exc
    where = connection.load(options.kubeconfig)
    folder = tempfile.mkdtemp(prefix="kubenexus-webhook-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # read when webhook.metrics is imported
    try:
        _Gunicorn(options, certificate, where).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


class _Gunicorn(BaseApplication):
    def __init__(
        self, options: Options, certificate: Certificate, where: connection.Connection
    ) -> None:
        self._options, self._certificate, self._where = options, certificate, where
        super().__init__()

    def load_config(self) -> None:
        options = self._options
        settings: dict[str, Any] = {
            "bind": f"{options.host}:{options.port}",
            "workers": options.workers,
            "threads": options.threads,
            "worker_class": "gthread",
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,
            "keepalive": 75,
            "timeout": 30,
            "graceful_timeout": GRACE_SECONDS,
            "limit_request_line": 4094,
            "certfile": str(options.cert_file),
            "keyfile": str(options.key_file),
            "ssl_context": self._tls,
            "when_ready": self._serve_metrics,
            "child_exit": _forget_worker,
            "accesslog": None,
            "loglevel": "warning",
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Runs in each worker after the fork."""
        from webhook.app import create_app
        from webhook.keeper import Keeper
        from webhook.world import ClusterWorld

        options = self._options
        keeper = Keeper(
            options.policies,
            wait_for_objects=options.policy_objects,
            tell=lambda objects, loaded: world.tell(objects, loaded),
            engine=options.engine,
        )
        world = ClusterWorld(
            self._where,
            schedulers=options.schedulers,
            instance=f"{socket.gethostname()}-{os.getpid()}",
            offer=keeper.offer if options.policy_objects else None,
        )
        world.start()
        keeper.start()
        return create_app(world, keeper)

    def _tls(self, config: object, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        return self._certificate.context()

    def _serve_metrics(self, server: object) -> None:
        port = self._options.metrics_port
        if port is not None:
            serve = ThreadingHTTPServer((self._options.host, port), _Metrics).serve_forever
            threading.Thread(target=serve, name="metrics", daemon=True).start()


class _Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        from webhook import metrics

        known = self.path in ("/metrics", "/healthz")
        body = metrics.exposition() if self.path == "/metrics" else b"ok\n" if known else b""
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", metrics.CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Scrapes are not worth a line."""


def _forget_worker(server: object, worker: Any) -> None:
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]  # prometheus-client leaves it untyped
