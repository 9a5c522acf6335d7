"""
Register the webhook configurations, once the webhook is ready.

    wait for the webhook --ready, with a certificate of the CA--> apply both --> done
         | timeout
         v
       an error, and nothing was registered

With `failurePolicy: Fail` a registration that comes too early blocks every pod of the cluster. An
upgrade changes the configurations in place, so that admission never pauses. Rules that the webhook
added for policies stay.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import aiohttp

from cluster import errors
from cluster.client import Client
from cluster.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from cluster.verbs import PatchKind
from policies.json_fields import JsonDict
from webhook.registration import configurations as registration
from webhook.registration import rules as sending

MANAGER: Final = "kubenexus-install"
RESOURCES: Final[Mapping[str, Resource]] = {
    "MutatingWebhookConfiguration": MUTATING_WEBHOOK_CONFIGURATIONS,
    "ValidatingWebhookConfiguration": VALIDATING_WEBHOOK_CONFIGURATIONS,
}
_EVERY: Final = 1.0
_PATIENCE: Final = 5.0


class NotInTime(Exception):
    """The deadline passed; the message names the condition and the last answer."""


async def until(
    check: Callable[[], Awaitable[str]], *, failure: str, seconds: float, every: float = _EVERY
) -> None:
    """Poll until `check` returns no objection; `NotInTime` with the last one."""
    objection = "no answer yet"
    try:
        async with asyncio.timeout(seconds):
            while objection := await check():
                await asyncio.sleep(every)
    except TimeoutError as exc:
        raise NotInTime(f"{failure} within {seconds:g} s: {objection}") from exc


async def wait_until_ready(
    url: str, authority: bytes, *, seconds: float, server_name: str | None = None
) -> None:
    """Wait until the webhook is ready, with a certificate of this CA."""
    trust = ssl.create_default_context(cadata=authority.decode())
    limit = aiohttp.ClientTimeout(total=_PATIENCE)
    async with aiohttp.ClientSession(timeout=limit) as session:

        async def check_ready() -> str:
            try:
                async with session.get(url, ssl=trust, server_hostname=server_name) as answer:
                    text = (await answer.text())[:200]
                    return "" if answer.status == 200 else f"{answer.status} {text}".strip()
            except (aiohttp.ClientError, TimeoutError, OSError) as exc:
                return str(exc) or type(exc).__name__

        await until(check_ready, failure=f"the webhook did not answer at {url}", seconds=seconds)


async def apply(client: Client, configurations: Sequence[JsonDict], authority: bytes) -> None:
    """Create or update the configurations, in this order."""
    for configuration in configurations:
        resource, name = RESOURCES[configuration["kind"]], configuration["metadata"]["name"]
        try:
            existing: JsonDict | None = await client.get(resource, name)
        except errors.Gone:
            existing = None
        await client.patch(
            resource,
            name,
            complete(configuration, existing, authority),
            kind=PatchKind.APPLY,
            field_manager=MANAGER,
            force=True,
        )


def complete(configuration: JsonDict, existing: JsonDict | None, authority: bytes) -> JsonDict:
    """The configuration to apply: with the CA bundle, and with the rules that the webhook added."""
    bundle = base64.b64encode(authority).decode()
    webhooks = [
        {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}}
        for webhook in configuration["webhooks"]
    ]
    for webhook in webhooks:
        added = (
            _registered_rules(existing) if webhook["name"] == registration.POLICY_WEBHOOK else None
        )
        if added:
            own = sending.rows_of(webhook["rules"])
            webhook["rules"] = sending.rules(own | sending.rows_of(added))
    return {**configuration, "webhooks": webhooks}


def _registered_rules(existing: JsonDict | None) -> Sequence[JsonDict] | None:
    for webhook in (existing or {}).get("webhooks") or ():
        if webhook.get("name") == registration.POLICY_WEBHOOK:
            rules: Sequence[JsonDict] | None = webhook.get("rules")
            return rules
    return None
