"""
Keeps the policies that are served in step with their files and with the API server's objects.

    files ----poll----+
                      +--> reading --compile--> LoadResult --offer--> store
    objects --offer---+                            |
                                                   +-- faults: the last good set stays, and says so

One thread a worker looks every few seconds, or at once when objects are offered; a look costs a
few `stat` calls. Requests read `current` once and never wait.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from policies.cel import engines
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.loader import Reading
from policies.engine.policyset import PolicySet
from policies.engine.status import Loaded
from policies.engine.store import FileWatch, Status, Store
from webhook import metrics

logger = logging.getLogger(__name__)

Objects = tuple[Mapping[str, Any], ...]
Report = Callable[[Objects, Loaded], None]

POLL_SECONDS: Final = 2.0


def _discard(objects: Objects, loaded: Loaded) -> None:
    """Drops the report."""


class PolicyReloader:
    """Serves the policies of some files and folders, and of the objects it is offered."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        wait_for_objects: bool = False,
        report: Report = _discard,
        engine: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._files = FileWatch(paths)
        self._reading = Reading()
        self._objects: Objects | None = None if wait_for_objects else ()
        self._offered: Objects | None = None
        self._engine, self._report, self._now = engine, report, now
        self._store = Store()
        self._wake = threading.Event()
        self._stopped = False

    @property
    def current(self) -> PolicySet:
        return self._store.current

    def status(self) -> Status:
        return self._store.status()

    def unready_reason(self) -> str | None:
        """Why nothing can be judged yet; a refused newer set is no reason to stop judging."""
        status = self._store.status()
        if status.ready:
            return None
        if status.faults:
            return f"the policies have {len(status.faults)} faults, first: {status.faults[0]}"
        return "the policies have not been read yet"

    def degraded(self) -> str | None:
        """What stands in the way of a newer set, while the last good one is served."""
        status = self._store.status()
        if not (status.ready and status.faults):
            return None
        return f"the last good policies are served; a newer set has faults: {status.faults[0]}"

    def offer(self, objects: Objects) -> None:
        """The policy objects that the API server holds now; from any thread."""
        self._offered = objects
        self._wake.set()

    def poll(self) -> bool:
        """Take what changed; whether a new set is in force."""
        offered, self._offered = self._offered, None
        reading = self._files.poll()
        if reading is None and offered is None:
            return False
        self._reading = self._reading if reading is None else reading
        self._objects = self._objects if offered is None else offered
        if self._objects is None:
            return False  # without the objects the set would not be whole
        return self._load(self._reading + loader.read_objects(self._objects), self._objects)

    def _load(self, reading: Reading, objects: Objects) -> bool:
        # A compiler of its own for each set: what it remembers goes with the set that used it.
        result = loader.compile_all(reading, compiler=Compiler(engines.engine(self._engine)))
        taken = self._store.offer(result, at=self._now())
        status = self._store.status()
        metrics.POLICIES.set(status.policies)
        metrics.POLICY_FAULTS.set(len(result.problems))
        if taken:
            logger.info(
                "policies in force", extra={"policies": status.policies, "digest": status.digest}
            )
        for fault in result.problems:
            logger.error("policies refused", extra={"fault": str(fault)})
        self._report(objects, Loaded(taken, result.problems))
        return taken

    def start(self) -> None:
        """Read the policies now, and go on looking in a thread."""
        self.poll()
        threading.Thread(target=self._look, name="policies", daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def _look(self) -> None:
        while not self._stopped:
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()
            self.poll()
