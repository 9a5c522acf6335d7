"""
KubeNexus itself on a control plane: the webhook and the scheduler as child processes.

    kinds, certificate --> webhook --ready--> webhook configurations --> scheduler --ready--> up

The configurations are registered once the webhook is ready, so that no pod is denied meanwhile. The
API server calls the webhook on 127.0.0.1, under a certificate of the plane's
own authority.
"""

import contextlib
import http.client
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Self

from kubenexus.dev.api import Object, path_of
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane import key_files
from kubenexus.dev.plane.control_plane import ControlPlane, await_ready, healthy
from kubenexus.dev.process import ports, self_exec
from kubenexus.dev.process.child import Child, stop_all
from policies import vocabulary
from policies.documents import crds
from webhook.registration import configurations

WEBHOOK: Final = "webhook"
SCHEDULER: Final = "scheduler"


class Stack:
    def __init__(
        self,
        plane: ControlPlane,
        *,
        webhook: bool = True,
        scheduler: bool = True,
        webhook_options: Sequence[str] = (),
        command: Sequence[str] = self_exec.COMMAND,
        deadline: float = 60.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.plane = plane
        self._command = tuple(command)
        self._webhook_options = tuple(webhook_options)
        self._wanted = {WEBHOOK: webhook, SCHEDULER: scheduler}
        self._deadline = deadline
        self._now = now
        self._children: dict[str, Child] = {}  # component -> its process
        self._health: dict[str, str] = {}  # component -> its readiness endpoint
        self._registered: list[Object] = []
        self.webhook_url = ""
        self.webhook_metrics_url = ""
        self.scheduler_url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def children(self) -> tuple[Child, ...]:
        return tuple(self._children.values())

    def health_urls(self) -> dict[str, str]:
        return dict(self._health)

    def child(self, name: str) -> Child:
        """The process called `webhook` or `scheduler`."""
        return self._children[name]

    def start(self) -> None:
        try:
            if self._wanted[WEBHOOK]:
                self._start_webhook()
            if self._wanted[SCHEDULER]:
                self._start_scheduler()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Delete the registration, then stop both: no API server calls a stopped webhook."""
        api = self.plane.api()
        for item in self._registered:
            with contextlib.suppress(OSError, http.client.HTTPException, CallFailed):
                api.call("DELETE", path_of(item))
        self._registered.clear()
        stop_all(self.children, grace=5.0)
        self._children.clear()

    def restart(self, name: str, *, crash: bool = False) -> None:
        """End and start one of the two with the same arguments, and wait until it is ready."""
        child = self._children[name]
        child.kill() if crash else child.stop()
        child.start()
        self.wait(name)

    def wait(self, name: str) -> None:
        url = self._health[name]
        await_ready([self._children[name]], lambda: healthy(url), deadline=self._deadline)

    def _start_webhook(self) -> None:
        for kind in crds.definitions():
            self.plane.api().apply(kind)
        at, (port, metrics) = self.plane.layout, ports.free(2)
        pair = key_files.serving(self.plane.ca, vocabulary.WEBHOOK_NAME, now=self._now())
        # The user of the same name has its own pair: this one serves.
        name = f"{vocabulary.WEBHOOK_NAME}-serving"
        key_files.write_private(at.certificate(name), pair.certificate)
        key_files.write_private(at.key(name), pair.key)
        self.webhook_url = f"https://{ports.HOST}:{port}"
        self.webhook_metrics_url = f"http://{ports.HOST}:{metrics}"
        self._launch(
            WEBHOOK,
            f"--kubeconfig={self.plane.kubeconfig(vocabulary.WEBHOOK_NAME)}",
            f"--host={ports.HOST}",
            f"--port={port}",
            f"--cert-file={at.certificate(name)}",
            f"--key-file={at.key(name)}",
            f"--metrics-port={metrics}",
            f"--scheduler-user={vocabulary.SCHEDULER_NAME}",
            *self._webhook_options,
            health=f"{self.webhook_url}/readyz",
        )
        api = self.plane.api()
        for item in configurations.configurations(
            ca_pem=self.plane.ca.certificate,
            base_url=self.webhook_url,
            schedulers=(vocabulary.SCHEDULER_NAME,),
        ):
            api.apply(item)
            self._registered.append(item)

    def _start_scheduler(self) -> None:
        (port,) = ports.free(1)
        self.scheduler_url = f"http://{ports.HOST}:{port}"
        self._launch(
            SCHEDULER,
            f"--kubeconfig={self.plane.kubeconfig(vocabulary.SCHEDULER_NAME)}",
            f"--host={ports.HOST}",
            f"--port={port}",
            health=f"{self.scheduler_url}/readyz",
        )

    def _launch(self, name: str, *args: str, health: str) -> None:
        child = Child(
            name,
            [*self._command, name, *args],
            log=self.plane.layout.log(name),
            env=self_exec.environment(os.environ),
        )
        child.log.unlink(missing_ok=True)
        child.start()
        self._children[name], self._health[name] = child, health
        self.wait(name)
