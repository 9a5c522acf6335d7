"""
Writes ResourceReservations: create, status, delete. Each reports whether the API server has it.

`create` retries for a few seconds, because a bind waits for it. The caller retries the other two.
The writer decides nothing and keeps no state.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cluster import backoff, errors, resources, verbs

logger = logging.getLogger(__name__)

Name = tuple[str, str]  # namespace, name

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 2.0
_KIND: Final = resources.RESOURCE_RESERVATIONS


class ReservationClient(verbs.Creates, verbs.Patches, verbs.PatchesStatus, verbs.Deletes, Protocol):
    """The verbs that the writer needs."""


@dataclass(frozen=True, slots=True)
class Created:
    """The uid of the object, or why it was not created."""

    uid: str = ""
    why: str = ""


class ReservationWriter:
    """`may_write` is called before each write."""

    def __init__(
        self,
        api: ReservationClient,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api = api
        self._now = now
        self._may_write = may_write
        self.sleep = sleep

    async def create(self, body: Mapping[str, Any], *, seconds: float) -> Created:
        """Create the object, or give an existing one this spec."""
        metadata = body["metadata"]
        try:
            created = await backoff.retry(
                lambda: self._put(body, metadata["namespace"], metadata["name"]),
                backoff=backoff.Backoff(first=FIRST_WAIT, most=LONGEST_WAIT),
                sleep=self.sleep,
                now=self._now,
                deadline=self._now() + seconds,
                may_write=self._may_write,
            )
        except backoff.MayNotWrite:
            return Created(why="another scheduler leads")
        except errors.KubeError as error:
            return Created(why=str(error))
        return Created(uid=str(created["metadata"]["uid"]))

    async def _put(self, body: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
        try:
            return await self._api.create(_KIND, body, namespace=namespace)
        except errors.Conflict as error:
            if not error.exists:
                raise
            # From an earlier attempt for the same leader, or this one if its response was lost.
            return await self._api.patch(_KIND, name, {"spec": body["spec"]}, namespace=namespace)

    async def update_status(self, name: Name, status: Mapping[str, Any]) -> bool:
        """True also for an object that does not exist."""
        return await self._write(
            name,
            lambda: self._api.patch_status(
                _KIND, name[1], {"status": dict(status)}, namespace=name[0]
            ),
        )

    async def delete(self, name: Name) -> bool:
        return await self._write(name, lambda: self._api.delete(_KIND, name[1], namespace=name[0]))

    async def _write(self, name: Name, write: Callable[[], Awaitable[object]]) -> bool:
        if not self._may_write():
            return True  # the leader writes it
        try:
            await write()
        except errors.Gone:
            return True
        except errors.KubeError as error:
            logger.warning(
                "cannot write reservation",
                extra={"reservation": "/".join(name), "error": str(error)},
            )
            return False
        return True
