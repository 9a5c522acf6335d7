"""
Keeps the policies in force in step with files and policy objects, in a thread of the worker.

    files ────poll────────────┐
                              ├──▶ PolicyLoader ──▶ current, metrics, report
    objects ──put_objects─────┘

The thread polls every two seconds, and at once when objects come; a poll costs a few `stat`
calls. Requests read `current` once and never wait.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from policies.engine.policyset import PolicySet
from policies.engine.status import Loaded
from policies.engine.store import PolicyLoader, Status
from policies.json_fields import Json
from webhook import metrics

logger = logging.getLogger(__name__)

Report = Callable[[Sequence[Json], Loaded], None]

POLL_SECONDS: Final = 2.0


def _discard(objects: Sequence[Json], loaded: Loaded) -> None:
    """Drops the report."""


class PolicyReloader:
    """The policies of some files and folders, and of the objects that `put_objects` brings."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        wait_for_objects: bool = False,
        report: Report = _discard,
        engine: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._loader = PolicyLoader(paths, wait_for_objects=wait_for_objects, engine=engine)
        self._report = report
        self._now = now
        self._wake = threading.Event()
        self._stopped = False

    @property
    def current(self) -> PolicySet:
        return self._loader.store.current

    def status(self) -> Status:
        return self._loader.store.status()

    def unready_reason(self) -> str | None:
        """Why no policies are in force yet; a refused newer set changes nothing in force."""
        status = self.status()
        if status.ready:
            return None
        if status.faults:
            return f"the policies have {len(status.faults)} faults, first: {status.faults[0]}"
        return "the policies have not been read yet"

    def degraded(self) -> str | None:
        """The first fault of a newer set, while the last good one is in force."""
        status = self.status()
        if not (status.ready and status.faults):
            return None
        return f"the last good policies are served; a newer set has faults: {status.faults[0]}"

    def put_objects(self, objects: Sequence[Json]) -> None:
        """The policy objects of the API server as they are now; safe from any thread."""
        self._loader.put_objects(objects)
        self._wake.set()

    def poll(self) -> bool:
        """Load what changed; whether a new set is in force."""
        loaded = self._loader.load(at=self._now())
        if loaded is None:
            return False
        status = self.status()
        metrics.policies(in_force=status.policies, faults=len(loaded.faults))
        if loaded.in_force:
            logger.info(
                "policies in force", extra={"policies": status.policies, "digest": status.digest}
            )
        for fault in loaded.faults:
            logger.error("policies refused", extra={"fault": str(fault)})
        self._report(self._loader.objects, loaded)
        return loaded.in_force

    def start(self) -> None:
        """Load the policies now, and go on polling in a thread."""
        self.poll()
        threading.Thread(target=self._run, name="policies", daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()
            try:
                self.poll()
            except Exception:
                # Without this thread no later change of a policy would count.
                logger.exception("policies cannot be loaded; those in force stay")
                metrics.internal_error("policies")
