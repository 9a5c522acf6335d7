"""
ResourceReservations, written: create, status, delete. Each says whether the API has it now.

What cannot be reached is tried again here for a few seconds where somebody waits for it, and by the
caller where nobody does. Nothing is decided and nothing is remembered.
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
    """The verbs that reservations are written with."""


@dataclass(frozen=True, slots=True)
class Created:
    """The object that is there now, or why there is none."""

    uid: str = ""
    why: str = ""


class ReservationWriter:
    """`may_write` is asked before each write."""

    def __init__(
        self,
        api: ReservationClient,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api, self._now, self._may_write = api, now, may_write
        self.sleep = sleep

    async def create(self, body: Mapping[str, Any], *, seconds: float) -> Created:
        """Whether it is there, as it should be."""
        about = body["metadata"]
        try:
            made = await backoff.retry(
                lambda: self._put(body, about["namespace"], about["name"]),
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
        return Created(uid=str(made["metadata"]["uid"]))

    async def _put(self, body: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
        try:
            return await self._api.create(_KIND, body, namespace=namespace)
        except errors.Conflict as error:
            if not error.exists:
                raise
            # Of an earlier attempt for the same leader, or of this one, whose answer was lost.
            return await self._api.patch(_KIND, name, {"spec": body["spec"]}, namespace=namespace)

    async def tell(self, name: Name, status: Mapping[str, Any]) -> bool:
        """Whether nothing is left to be said: an object that is gone has no status."""
        return await self._done(
            name,
            lambda: self._api.patch_status(
                _KIND, name[1], {"status": dict(status)}, namespace=name[0]
            ),
        )

    async def delete(self, name: Name) -> bool:
        return await self._done(name, lambda: self._api.delete(_KIND, name[1], namespace=name[0]))

    async def _done(self, name: Name, write: Callable[[], Awaitable[object]]) -> bool:
        if not self._may_write():
            return True  # whoever leads says it
        try:
            await write()
        except errors.Gone:
            return True
        except errors.KubeError as error:
            logger.warning(
                "reservation not written",
                extra={"reservation": "/".join(name), "error": str(error)},
            )
            return False
        return True
