"""
What tenants used, kept where a successor finds it: in the status of the policy objects.

    leader ──now and then, where it changed──▶ TenantPolicy.status.usage      of its tenant
                                               PlatformPolicy.status.shares    groups, other tenants
    start, takeover ──▶ recall: shares as they were, faded since

A tenant whose policy is a file has its memory in the PlatformPolicy that says how tenants share;
without one it has none, and starts anew. Amounts in use are there for people: they are counted from
the pods after a restart. A share that does not change is written again before it would seem old:
whoever reads it lets it fade from then on. Writing holds nothing up, and what cannot be written is
written the next time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from cluster import errors, resources, verbs
from policies import quantity
from policies.json_fields import mapping
from policies.text import timestamp
from scheduler.model.fields import instant, rows
from scheduler.tenancy.fairshare.shares import DecayedShare, FairShares
from scheduler.tenancy.quota.tree import NOBODY

logger = logging.getLogger(__name__)

EVERY: Final = 60.0  # seconds
_RENEWALS: Final = 12  # times in one half-life that an unchanged share is written

Json = dict[str, Any]
Objects = Callable[[], Iterable[Mapping[str, Any]]]


class UsagePersistence:
    """`objects` are the policy objects as the API server has them; `epoch` is the time of day."""

    def __init__(
        self,
        api: verbs.PatchesStatus,
        shares: FairShares,
        objects: Objects,
        *,
        may_write: Callable[[], bool],
        epoch: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api, self._fair_shares, self._objects = api, shares, objects
        self._may_write, self._epoch, self._sleep = may_write, epoch, sleep
        self._knows = False  # what a predecessor wrote, so that it may be written over

    def recall(self) -> None:
        """Take over what a predecessor remembered; nothing is written before."""
        self._knows = True
        self._fair_shares.recall(recalled(self._objects()), self._epoch())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._sleep(EVERY)
            await self.write()

    async def write(self) -> None:
        """Whatever changed since it was last written."""
        if not (self._knows and self._may_write()):
            return
        for resource, name, body in self._due():
            try:
                await self._api.patch_status(resource, name, {"status": body})
            except errors.KubeError as error:
                logger.warning("usage not written", extra={"policy": name, "error": str(error)})

    def _due(self) -> list[tuple[resources.Resource, str, Json]]:
        shares = self._fair_shares.remember()
        homes, common = _homes(self._objects())
        found = []
        for tenant, obj in homes.items():
            body = self._usage(tenant, obj, shares)
            if body is not None:
                found.append((resources.TENANT_POLICIES, _name(obj), body))
        if common is not None:
            others = {name: one for name, one in shares.items() if name not in homes}
            rest = self._shares(common, others)
            if rest is not None:
                found.append((resources.PLATFORM_POLICIES, _name(common), rest))
        return found

    def _usage(
        self, tenant: str, obj: Mapping[str, Any], shares: Mapping[str, DecayedShare]
    ) -> Json | None:
        before = mapping(mapping(obj.get("status")).get("usage"))
        used = {
            name: quantity.show(name, amount)
            for name, amount in sorted(self._fair_shares.ledger.used(tenant).items())
        }
        memory = shares.get(tenant, DecayedShare(0.0, self._epoch()))
        share = _share(memory)
        same = before.get("share") == share and mapping(before.get("used")) == used
        if (same or not (before or used)) and not self._old(before, memory):
            return None
        gone = dict.fromkeys(mapping(before.get("used")).keys() - used.keys())
        return {"usage": {"used": {**used, **gone}, "share": share, "at": timestamp(memory.at)}}

    def _shares(self, common: Mapping[str, Any], shares: Mapping[str, DecayedShare]) -> Json | None:
        before = {
            str(row.get("name")): row for row in rows(mapping(common.get("status")).get("shares"))
        }
        said = {name: _share(memory) for name, memory in shares.items() if name != NOBODY}
        same = said == {name: row.get("share") for name, row in before.items()}
        if same and not any(self._old(before[name], shares[name]) for name in said):
            return None
        return {
            "shares": [
                {"name": name, "share": share, "at": timestamp(shares[name].at)}
                for name, share in sorted(said.items())
            ]
        }

    def _old(self, before: Mapping[str, Any], memory: DecayedShare) -> bool:
        renewed = max(EVERY, self._fair_shares.ledger.tree.half_life / _RENEWALS)
        return memory.share > 0 and memory.at - instant(before.get("at")) >= renewed


def recalled(objects: Iterable[Mapping[str, Any]]) -> dict[str, DecayedShare]:
    """Member -> its newest memory."""
    found: dict[str, DecayedShare] = {}
    for obj in objects:
        status = mapping(obj.get("status"))
        known = [(str(row.get("name")), row) for row in rows(status.get("shares"))]
        if "usage" in status:
            known.append((_tenant(obj), mapping(status.get("usage"))))
        for name, row in known:
            memory = DecayedShare(_number(row.get("share")), instant(row.get("at")))
            if name not in found or found[name].at < memory.at:
                found[name] = memory
    return found


def _homes(
    objects: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    """Tenants with an object of their own, the first by name; and the one for all others."""
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


def _share(memory: DecayedShare) -> str:
    """As many digits as tell tenants apart: each further one would be one more write."""
    return f"{memory.share:.3f}"


def _number(value: object) -> float:
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        return 0.0
