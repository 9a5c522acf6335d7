"""
Keeps the registered rules in step with the policies in force.

    policies change --+
    configuration ----+--> compare --rules missing--> write required and registered rules
    10 s pass --------+            --rules surplus--> for a minute? --> write required rules alone
                                   --equal----------> nothing

It writes only the rules of one webhook, with a JSON Patch that fails where another writer was
first; certificates, selectors and failure policies stay. Every worker of every replica compares,
and those that agree find the work done. It adds rules at once and removes them late, so that
replicas with older policies do not fight those with newer ones. A group of the API that does not
answer keeps its registered rules, and delays no other. A configuration that does not exist, or that
this program may not write, is left alone and compared again later.
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

COMPARE_SECONDS: Final = 10.0  # how soon a kind that was installed after its policy is found
_UNPROCESSABLE: Final = 422  # the status of a failed test of a JSON Patch
SURPLUS_SECONDS: Final = 60.0  # how long rules that no policy needs stay


class RuleSync:
    """Watches the validating configuration; `run` it in the loop of the client."""

    def __init__(
        self,
        client: Client,
        *,
        kinds: Callable[[], Kinds | None],
        name: str = vocabulary.WEBHOOK_NAME,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kinds` are those that the policies in force name; None while no set is in force."""
        self._client = client
        self._kinds = kinds
        self._name = name
        self._now = now
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
        """The policies changed; call it in the thread of the loop."""
        self._wake.set()

    async def run(self) -> None:
        """Keep the rules in step until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._configuration.run())
            while True:
                try:
                    await self.sync()
                except errors.KubeError as exc:
                    self._warn(str(exc))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), COMPARE_SECONDS)
                self._wake.clear()

    async def sync(self) -> None:
        """Write the rules where they differ from the required ones."""
        kinds = self._kinds()
        configuration = self._configuration.get(self._name)
        index = _webhook_index(configuration)
        if kinds is None or configuration is None or index is None:
            return
        served: list[Served] = []
        unavailable: list[errors.KubeError] = []
        if rules.needs_discovery(kinds):
            served = await discovery.served(self._client, on_unavailable=unavailable.append)
        required = rules.required(kinds, served)
        registered = rules.rows_of(configuration["webhooks"][index].get("rules") or ())
        if unavailable:  # registered rules may belong to the group that did not answer
            self._warn(str(unavailable[0]))
            required |= registered
        rows = self._surplus.rows(required, registered, now=self._now())
        metrics.rules_missing(len(required - registered))
        if rows == registered:
            return
        try:
            await self._client.patch(
                resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
                self._name,
                changes(configuration, index, rows),
                kind=PatchKind.JSON,
            )
        except errors.Refused as exc:
            if exc.status != _UNPROCESSABLE:
                raise
            return  # another writer was first; its write wakes this loop again
        metrics.rules_missing(0)
        logger.info(
            "rules registered",
            extra={"added": len(rows - registered), "removed": len(registered - rows)},
        )

    def _warn(self, problem: str) -> None:
        """Log a problem once, not at every comparison."""
        if problem != self._last_warning:
            logger.warning("rules may be missing", extra={"error": problem})
        self._last_warning = problem


class SurplusRules:
    """Registered rules beyond the required ones, and since when."""

    def __init__(self) -> None:
        self._since: float | None = None

    def rows(
        self,
        required: frozenset[RegisteredRule],
        registered: frozenset[RegisteredRule],
        *,
        now: float,
    ) -> frozenset[RegisteredRule]:
        """The rules to register now."""
        if registered <= required:
            self._since = None
            return required
        self._since = now if self._since is None else self._since
        return required if now - self._since >= SURPLUS_SECONDS else required | registered


def changes(
    configuration: Json, index: int, rows: frozenset[RegisteredRule]
) -> list[dict[str, Any]]:
    """The patch; it fails where the configuration changed since it was read."""
    at = f"/webhooks/{index}"
    version = configuration["metadata"]["resourceVersion"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "test", "path": f"{at}/name", "value": configurations.POLICY_WEBHOOK},
        {"op": "replace", "path": f"{at}/rules", "value": rules.rules(rows)},
    ]


def _webhook_index(configuration: Json | None) -> int | None:
    """The index of the webhook whose rules follow the policies."""
    names = [webhook.get("name") for webhook in (configuration or {}).get("webhooks") or ()]
    return (
        names.index(configurations.POLICY_WEBHOOK)
        if configurations.POLICY_WEBHOOK in names
        else None
    )
