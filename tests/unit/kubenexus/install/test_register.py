import asyncio
import base64
from typing import Any

import pytest

from kubenexus.install import register
from webhook.registration import configurations as registration
from webhook.registration import rules

AUTHORITY = b"the authority"


def configurations() -> list[dict[str, Any]]:
    return registration.configurations(ca_pem=b"", base_url="https://127.0.0.1")


def policy_webhook(configuration: dict[str, Any]) -> dict[str, Any]:
    (found,) = [
        one for one in configuration["webhooks"] if one["name"] == registration.POLICY_WEBHOOK
    ]
    webhook: dict[str, Any] = found
    return webhook


def test_every_webhook_gets_the_ca_bundle_and_keeps_all_else() -> None:
    for wanted in configurations():
        made = register.complete(wanted, None, AUTHORITY)
        bundles = {one["clientConfig"].pop("caBundle") for one in made["webhooks"]}
        for one in wanted["webhooks"]:
            one["clientConfig"].pop("caBundle")
        assert (bundles, made) == ({base64.b64encode(AUTHORITY).decode()}, wanted)


def test_rules_that_the_webhook_added_stay() -> None:
    _, wanted = configurations()
    _, found = configurations()
    added = rules.rule("", ["configmaps"], ["CREATE"])
    policy_webhook(found)["rules"].append(added)
    made = policy_webhook(register.complete(wanted, found, AUTHORITY))
    assert rules.rows_of(made["rules"]) == rules.rows_of([*policy_webhook(wanted)["rules"], added])


def test_rules_that_are_no_webhooks_to_add_are_as_the_release_has_them() -> None:
    _, wanted = configurations()
    _, found = configurations()
    for one in found["webhooks"]:
        if one["name"] != registration.POLICY_WEBHOOK:
            one["rules"] = []
    made = register.complete(wanted, found, AUTHORITY)
    assert [one["rules"] for one in made["webhooks"]] == [
        one["rules"] for one in wanted["webhooks"]
    ]


def test_waiting_ends_when_there_is_no_objection() -> None:
    said = iter(["not yet", "still not", ""])

    async def objection() -> str:
        return next(said)

    asyncio.run(register.until(objection, failure="it did not come", seconds=60, every=0))
    assert list(said) == []


def test_a_timeout_has_the_last_objection() -> None:
    async def objection() -> str:
        return "503 no policies yet"

    with pytest.raises(register.NotInTime) as caught:
        asyncio.run(register.until(objection, failure="it did not come", seconds=0.05, every=0.01))
    assert str(caught.value) == "it did not come within 0.05 s: 503 no policies yet"
