"""
Keeps the rules of the registered configuration in step with the policies in force.

    policies change --+
    configuration ----+--> look --lacks rows--> write own and present rows
    time passes ------+          --has more---> seen so for long? --> write own rows alone
                                 --equal------> nothing

Only the rules of one webhook are written, with a JSON patch that fails where somebody else wrote
first: certificates, selectors and failure policies stay whoever's they are. Every worker of every
replica looks, and those that agree find the work done. Rows are added at once and taken away late,
so that replicas with older policies do not fight those with newer ones. A group of the API that
does not answer keeps what is registered, and delays nothing else. A configuration that is not
there, or that this program may not write, is left alone and looked at again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from cluster import discovery, errors, resources
from cluster.client import Client
from cluster.discovery import Served
from cluster.informer import Informer
from cluster.verbs import PatchKind
from policies import vocabulary
from webhook import metrics
from webhook.registration import configurations, rules
from webhook.registration.rules import Kinds, RegisteredRule

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]

LOOK_SECONDS: Final = 10.0  # how soon a kind that was installed after its policy is found
_UNPROCESSABLE: Final = 422  # what a failed test of a JSON patch is answered with
LEAVE_SECONDS: Final = 60.0  # how long rows that no policy here needs are left


class RuleSync:
    """Follows the validating configuration of one API server; `run` it in the client's loop."""

    def __init__(
        self,
        client: Client,
        *,
        kinds: Callable[[], Kinds | None],
        name: str = vocabulary.WEBHOOK_NAME,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kinds` are those that the policies in force name; None while there are none in force."""
        self._client, self._kinds, self._name, self._now = client, kinds, name, now
        self._wake = asyncio.Event()
        self._configuration = Informer[resources.Obj](
            client,
            resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
            on_event=lambda event: self._wake.set(),
            field_selector=f"metadata.name={name}",
        )
        self._surplus = SurplusRules()
        self._last_warning = ""

    def wake(self) -> None:
        """The policies changed; from the loop's own thread."""
        self._wake.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._configuration.run())
            while True:
                try:
                    await self.look()
                except errors.KubeError as exc:
                    self._warn(str(exc))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
                self._wake.clear()

    async def look(self) -> None:
        """Write the rules where they are not as they should be."""
        kinds, found = self._kinds(), self._configuration.get(self._name)
        place = _place(found)
        if kinds is None or found is None or place is None:
            return
        served: list[Served] = []
        unavailable: list[errors.KubeError] = []
        if rules.needs_discovery(kinds):
            served = await discovery.served(self._client, on_unavailable=unavailable.append)
        wanted = rules.wanted(kinds, served)
        present = rules.rows_of(found["webhooks"][place].get("rules") or ())
        if unavailable:  # registered rules may belong to the group that did not answer
            self._warn(str(unavailable[0]))
            wanted |= present
        rows = self._surplus.kept(wanted, present, now=self._now())
        metrics.RULES_MISSING.set(len(wanted - present))
        if rows == present:
            return
        try:
            await self._client.patch(
                resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
                self._name,
                changes(found, place, rows),
                kind=PatchKind.JSON,
            )
        except errors.Refused as exc:
            if exc.status != _UNPROCESSABLE:
                raise
            return  # somebody wrote first; the watch brings it, and with it the next look
        metrics.RULES_MISSING.set(0)
        logger.info(
            "rules registered",
            extra={"added": len(rows - present), "removed": len(present - rows)},
        )

    def _warn(self, problem: str) -> None:
        """Once, however often it is met."""
        if problem != self._last_warning:
            logger.warning("rules may be missing", extra={"error": problem})
        self._last_warning = problem


class SurplusRules:
    """What is registered beyond what is wanted, and since when."""

    def __init__(self) -> None:
        self._since: float | None = None

    def kept(
        self, wanted: frozenset[RegisteredRule], present: frozenset[RegisteredRule], *, now: float
    ) -> frozenset[RegisteredRule]:
        """The rows that should stand there now."""
        if present <= wanted:
            self._since = None
            return wanted
        self._since = now if self._since is None else self._since
        return wanted if now - self._since >= LEAVE_SECONDS else wanted | present


def changes(
    configuration: Json, place: int, rows: frozenset[RegisteredRule]
) -> list[dict[str, Any]]:
    """The patch; it fails where the configuration is no longer the one that was looked at."""
    at = f"/webhooks/{place}"
    version = configuration["metadata"]["resourceVersion"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "test", "path": f"{at}/name", "value": configurations.JUDGED},
        {"op": "replace", "path": f"{at}/rules", "value": rules.rules(rows)},
    ]


def _place(configuration: Json | None) -> int | None:
    """Which of the configuration's webhooks has the rules that follow the policies."""
    names = [one.get("name") for one in (configuration or {}).get("webhooks") or ()]
    return names.index(configurations.JUDGED) if configurations.JUDGED in names else None
