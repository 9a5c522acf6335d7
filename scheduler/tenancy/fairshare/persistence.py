"""
Writes the decayed shares of tenants to the status of policy objects, for a successor to read.

    leader ──every minute, if changed──▶ TenantPolicy.status.usage      of its tenant
                                         PlatformPolicy.status.shares   groups, other tenants
    start, takeover ──▶ recall: the written shares, decayed since

The share of a tenant whose policy is a file is in the PlatformPolicy with `spec.sharing`; without
such an object the share starts at 0 after a restart. Amounts in use are written for people: after a
restart the scheduler counts them from the pods. An unchanged share is written again several times
per half-life, because a reader lets it decay from its time on. A failed write is retried by the
next one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from cluster import errors, resources, verbs
from policies import quantity
from policies.json_fields import mapping
from policies.text import timestamp
from scheduler.errors import reraise
from scheduler.model.fields import instant, rows
from scheduler.tenancy.fairshare.shares import DecayedShare, FairShares
from scheduler.tenancy.quota.tree import NO_TENANT

logger = logging.getLogger(__name__)

EVERY: Final = 60.0  # seconds
_RENEWALS: Final = 12  # writes of an unchanged share per half-life

Json = dict[str, Any]
Objects = Callable[[], Iterable[Mapping[str, Any]]]


class UsagePersistence:
    """`objects` lists the policy objects in the API server; `epoch` is the time of day."""

    def __init__(
        self,
        api: verbs.PatchesStatus,
        shares: FairShares,
        objects: Objects,
        *,
        may_write: Callable[[], bool],
        epoch: Callable[[], float],
        failed: Callable[[Exception], None] = reraise,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._failed = failed
        self._api = api
        self._shares = shares
        self._objects = objects
        self._may_write = may_write
        self._epoch = epoch
        self._sleep = sleep
        self._recalled = False  # a predecessor's shares, which `write` overwrites

    def recall(self) -> None:
        """Take over a predecessor's shares; nothing is written before."""
        self._recalled = True
        self._shares.recall(recalled(self._objects()), self._epoch())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._sleep(EVERY)
            try:
                await self.write()
            except Exception as error:
                self._failed(error)

    async def write(self) -> None:
        """Write what changed since the last write."""
        if not (self._recalled and self._may_write()):
            return
        for resource, name, body in self._due():
            try:
                await self._api.patch_status(resource, name, {"status": body})
            except errors.KubeError as error:
                logger.warning(
                    "usage status not written", extra={"policy": name, "error": str(error)}
                )

    def _due(self) -> list[tuple[resources.Resource, str, Json]]:
        shares = self._shares.remember()
        homes, common = _homes(self._objects())
        due = []
        for tenant, obj in homes.items():
            body = self._usage(tenant, obj, shares)
            if body is not None:
                due.append((resources.TENANT_POLICIES, _name(obj), body))
        if common is not None:
            others = {name: share for name, share in shares.items() if name not in homes}
            rest = self._common_shares(common, others)
            if rest is not None:
                due.append((resources.PLATFORM_POLICIES, _name(common), rest))
        return due

    def _usage(
        self, tenant: str, obj: Mapping[str, Any], shares: Mapping[str, DecayedShare]
    ) -> Json | None:
        before = mapping(mapping(obj.get("status")).get("usage"))
        used = {
            name: quantity.show(name, amount)
            for name, amount in sorted(self._shares.ledger.used(tenant).items())
        }
        decayed = shares.get(tenant, DecayedShare(0.0, self._epoch()))
        share = _share(decayed)
        same = before.get("share") == share and mapping(before.get("used")) == used
        if (same or not (before or used)) and not self._old(before, decayed):
            return None
        gone = dict.fromkeys(mapping(before.get("used")).keys() - used.keys())
        return {"usage": {"used": {**used, **gone}, "share": share, "at": timestamp(decayed.at)}}

    def _common_shares(
        self, common: Mapping[str, Any], shares: Mapping[str, DecayedShare]
    ) -> Json | None:
        before = {
            str(row.get("name")): row for row in rows(mapping(common.get("status")).get("shares"))
        }
        current = {name: _share(decayed) for name, decayed in shares.items() if name != NO_TENANT}
        same = current == {name: row.get("share") for name, row in before.items()}
        if same and not any(self._old(before[name], shares[name]) for name in current):
            return None
        return {
            "shares": [
                {"name": name, "share": share, "at": timestamp(shares[name].at)}
                for name, share in sorted(current.items())
            ]
        }

    def _old(self, before: Mapping[str, Any], decayed: DecayedShare) -> bool:
        renewed = max(EVERY, self._shares.ledger.tree.half_life / _RENEWALS)
        return decayed.share > 0 and decayed.at - instant(before.get("at")) >= renewed


def recalled(objects: Iterable[Mapping[str, Any]]) -> dict[str, DecayedShare]:
    """Member -> its newest share."""
    newest: dict[str, DecayedShare] = {}
    for obj in objects:
        status = mapping(obj.get("status"))
        written = [(str(row.get("name")), row) for row in rows(status.get("shares"))]
        if "usage" in status:
            written.append((_tenant(obj), mapping(status.get("usage"))))
        for name, row in written:
            decayed = DecayedShare(_number(row.get("share")), instant(row.get("at")))
            if name not in newest or newest[name].at < decayed.at:
                newest[name] = decayed
    return newest


def _homes(
    objects: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    """The object of each tenant, the first by name; and the object for all others."""
    homes: dict[str, Mapping[str, Any]] = {}
    common: Mapping[str, Any] | None = None
    for obj in sorted(objects, key=_name):
        if obj.get("kind") == resources.TENANT_POLICIES.kind:
            homes.setdefault(_tenant(obj), obj)
        elif common is None and mapping(obj.get("spec")).get("sharing"):
            common = obj
    return homes, common


def _name(obj: Mapping[str, Any]) -> str:
    return str(mapping(obj.get("metadata")).get("name"))


def _tenant(obj: Mapping[str, Any]) -> str:
    return str(mapping(mapping(obj.get("spec")).get("tenant")).get("name"))


def _share(decayed: DecayedShare) -> str:
    """Three digits distinguish tenants; each further digit would cause more writes."""
    return f"{decayed.share:.3f}"


def _number(value: object) -> float:
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        return 0.0
