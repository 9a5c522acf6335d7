"""
Keeps the policies that are served in step with their files.

    files --poll--> reading --compile--> LoadResult --offer--> store
                                            |
                                            +-- faults: the last good set stays, and says so

One thread a worker looks every few seconds; a look costs a few `stat` calls. Requests read
`current` once and never wait.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from policies import expression, loader
from policies.compiler import Compiler
from policies.policyset import PolicySet
from policies.store import FileWatch, Status, Store

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0


class Keeper:
    """Serves the policies of some files and folders."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        engine: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._files = FileWatch(paths)
        self._engine = engine
        self._store = Store()
        self._now = now
        self._stopped = threading.Event()

    @property
    def current(self) -> PolicySet:
        return self._store.current

    def status(self) -> Status:
        return self._store.status()

    def not_ready(self) -> str | None:
        """Why nothing can be judged yet; a refused newer set is no reason to stop judging."""
        status = self._store.status()
        if status.ready:
            return None
        if status.refused:
            return f"the policies have {len(status.refused)} faults, first: {status.refused[0]}"
        return "the policies have not been read yet"

    def poll(self) -> bool:
        """Take what changed; whether a new set is in force."""
        reading = self._files.poll()
        if reading is None:
            return False
        # A compiler of its own for each set: what it remembers goes with the set that used it.
        result = loader.compile_all(reading, compiler=Compiler(expression.engine(self._engine)))
        taken = self._store.offer(result, at=self._now())
        status = self._store.status()
        if taken:
            logger.info(
                "policies in force", extra={"policies": status.policies, "digest": status.digest}
            )
        for fault in result.problems:
            logger.error("policies refused", extra={"fault": str(fault)})
        return taken

    def start(self) -> None:
        """Read the policies now, and go on looking in a thread."""
        self.poll()
        threading.Thread(target=self._look, name="policies", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _look(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            self.poll()
