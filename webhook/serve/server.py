"""
The webhook as a process: gunicorn with TLS, one `ClusterFacts` per worker, metrics on a port of
their own.

    master --fork--> worker: facts and policies start -> ready, or start_seconds over -> serves
       |                |
       |                +-- certificate read again when its files change, for new connections
       +-- metrics server (plain HTTP, sums of all workers)

The master replaces a worker that dies. A worker accepts no connection before it is ready, so that
the others answer meanwhile. A worker that does not become ready serves anyway: it is alive, and it
denies every review with the reason. `webhook.serve.worker` reads, answers and drains requests.
"""

import contextlib
import logging
import os
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gunicorn.app.base import BaseApplication

from cluster.connection import connection
from policies import vocabulary
from policies.engine import loader
from webhook.registration import configurations
from webhook.serve.client_auth import AccessRules, ClientAuth
from webhook.serve.metrics_server import MetricsServer
from webhook.serve.tls import Certificate

logger = logging.getLogger(__name__)

GRACE_SECONDS: Final = 10
RESTART_SECONDS: Final = 1.0  # before the successor of a worker that cannot start
# Longer than the 90 s after which the API server drops an idle connection: if the webhook closed
# first, a review could be on its way on that connection, and fail.
KEEPALIVE_SECONDS: Final = 120
SCHEDULERS: Final = (configurations.SCHEDULER_ACCOUNT,)


@dataclass(frozen=True, slots=True)
class Options:
    """How the webhook is served."""

    cert_file: Path
    """The serving certificate, PEM; read again when it changes."""
    key_file: Path
    """Its key, PEM."""
    client_ca: Path | None = None
    """The CA of the API server's client certificate, PEM; without it, every client may call."""
    client_names: tuple[str, ...] = ()
    """The common names that may send reviews; empty: every certificate of `client_ca`."""
    kubeconfig: Path | None = None
    """How to reach the API server; without it, KUBECONFIG, then the pod's service account."""
    host: str = "0.0.0.0"
    """Where to listen."""
    port: int = 8443
    """The port of the reviews, TLS."""
    metrics_port: int | None = 9443
    """The port of the metrics, plain HTTP; None: `/metrics` of the TLS port instead."""
    policies: tuple[Path, ...] = (loader.LIBRARY,)
    """Policy files and folders, read again when they change."""
    schedulers: tuple[str, ...] = SCHEDULERS
    """User names of the scheduler: they alone bind its pods and remove its gates."""
    policy_objects: bool = True
    """Whether PlatformPolicy and TenantPolicy objects of the API server count as well."""
    configuration: str = vocabulary.WEBHOOK_NAME
    """The ValidatingWebhookConfiguration whose rules follow the policies."""
    event_defaults: bool = False
    """Whether defaults that policies inject are an Event; that is one for almost every pod."""
    engine: str | None = None
    """The CEL engine; without it, the first that the platform has."""
    workers: int = 2
    """Processes. A decision holds the interpreter, so one per core is enough."""
    threads: int = 8
    """Threads per process; they overlap network waits."""
    connections: int = 512
    """Connections per process; an API server needs a few dozen. Beyond, the oldest is closed."""
    start_seconds: float = 5.0
    """The longest time that a new worker waits for facts and policies before it serves."""


class OptionsError(Exception):
    """The webhook cannot start with these options; the message says what to do."""


def main(options: Options) -> int:
    """Serve until a signal stops the process."""
    certificate = Certificate(options.cert_file, options.key_file, client_ca=options.client_ca)
    _check(options, certificate)
    kube = connection.load(options.kubeconfig)
    with metrics_folder() as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # read when webhook.metrics is imported
        _Gunicorn(options, certificate, kube).run()
    return 0


@contextlib.contextmanager
def metrics_folder() -> Iterator[str]:
    """
    A folder for the counts of all workers, removed by the process that made it.

    A forked worker that ends leaves by this frame too, and the others still count there.
    """
    folder, maker = tempfile.mkdtemp(prefix="kubenexus-webhook-"), os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)


def _check(options: Options, certificate: Certificate) -> None:
    if options.client_names and options.client_ca is None:
        raise OptionsError(
            f"a client name ({', '.join(options.client_names)}) is given without the CA "
            "that signs it; give the client CA as well"
        )
    try:
        certificate.context()
    except (OSError, ssl.SSLError) as exc:
        beside = f" and client CA {options.client_ca}" if options.client_ca else ""
        raise OptionsError(
            f"the serving certificate {options.cert_file} with key {options.key_file}{beside} "
            f"cannot be used: {exc}; give a PEM certificate and its key"
            + (", and the authority's certificate as PEM" if options.client_ca else "")
        ) from exc


class _Gunicorn(BaseApplication):
    def __init__(
        self, options: Options, certificate: Certificate, kube: connection.Connection
    ) -> None:
        self._options = options
        self._certificate = certificate
        self._connection = kube
        self._stop_facts: Callable[[], None] | None = None  # in a worker that serves
        super().__init__()

    def load_config(self) -> None:
        options = self._options
        settings: dict[str, Any] = {
            "bind": f"{options.host}:{options.port}",
            "workers": options.workers,
            "threads": options.threads,
            "worker_class": "webhook.serve.worker.WholeRequestWorker",
            "worker_connections": options.connections,
            "backlog": 512,
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,
            "keepalive": KEEPALIVE_SECONDS,
            "timeout": 30,
            "graceful_timeout": GRACE_SECONDS,
            "limit_request_line": 4094,
            "certfile": str(options.cert_file),
            "keyfile": str(options.key_file),
            "ssl_context": self._tls,
            "when_ready": self._serve_metrics,
            "child_exit": _forget_worker,
            "worker_exit": self._stop,
            # A socket in the home folder that takes commands; the product does not use it.
            "control_socket_disable": True,
            "accesslog": None,
            "loglevel": "warning",
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Runs in each worker after the fork; a successor that cannot start harms no other."""
        served = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"], "served")
        try:
            app = self._load()
        except Exception:
            if not served.exists():
                raise  # the first start fails: gunicorn ends, and says why
            # gunicorn would end all workers: its code for this exit is not ours.
            logger.critical("a new worker cannot start; the next one is tried", exc_info=True)
            time.sleep(RESTART_SECONDS)
            os._exit(1)
        served.touch()
        return app

    def _load(self) -> ClientAuth:
        from webhook.facts.cluster_facts import ClusterFacts
        from webhook.policy_source.reloader import PolicyReloader
        from webhook.serve.app import create_app

        options = self._options
        policies = PolicyReloader(
            options.policies,
            wait_for_objects=options.policy_objects,
            report=lambda objects, loaded: facts.report_policies(objects, loaded),
            engine=options.engine,
        )
        facts = ClusterFacts(
            self._connection,
            schedulers=options.schedulers,
            instance=f"{socket.gethostname()}-{os.getpid()}",
            put_policy_objects=policies.put_objects if options.policy_objects else None,
            kinds=lambda: policies.current.kinds if policies.status().ready else None,
            configuration=options.configuration,
        )
        self._stop_facts = facts.stop
        facts.start()
        policies.start()
        wait_until(
            lambda: not (policies.unready_reason() or facts.unready_reason()),
            seconds=options.start_seconds,
        )
        app = create_app(
            facts,
            policies,
            record=facts.record,
            event_defaults=options.event_defaults,
            needs_lookup=facts.needs_lookup,
        )
        access = AccessRules(
            require_certificate=options.client_ca is not None,
            names=frozenset(options.client_names),
            metrics=options.metrics_port is None,
        )
        return ClientAuth(app, access)

    def _tls(self, config: object, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        return self._certificate.context()

    def _stop(self, server: object, worker: object) -> None:
        """Runs in a worker that ends: writes the queued Events."""
        if self._stop_facts is not None:
            self._stop_facts()

    def _serve_metrics(self, server: object) -> None:
        from webhook import metrics

        port = self._options.metrics_port
        if port is not None:
            MetricsServer(
                (self._options.host, port),
                exposition=metrics.exposition,
                content_type=metrics.CONTENT_TYPE,
            ).start()


def wait_until(
    ready: Callable[[], bool],
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether `ready` became true in time."""
    end = clock() + seconds
    while not ready():
        if clock() >= end:
            return False
        sleep(0.02)
    return True


def _forget_worker(server: Any, worker: object) -> None:
    """Runs in the master after a worker has ended, however it ended."""
    from webhook import metrics

    metrics.forget_workers(tuple(server.WORKERS))
