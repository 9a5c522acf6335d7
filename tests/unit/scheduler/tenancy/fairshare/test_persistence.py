"""What tenants used outlives the process, in the status of the policy objects."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from cluster import errors, resources, verbs
from scheduler.tenancy.fairshare.persistence import EVERY, UsagePersistence, recalled
from scheduler.tenancy.fairshare.shares import DecayedShare, FairShares
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import TenantNode, TenantTree

Json = dict[str, Any]
NOW = 1_000_000.0
AT = "1970-01-12T13:46:40Z"


def tenant(name: str, *, policy: str = "", usage: Json | None = None) -> Json:
    return {
        "kind": "TenantPolicy",
        "metadata": {"name": policy or name},
        "spec": {"tenant": {"name": name}},
        "status": {"conditions": [], **({"usage": usage} if usage else {})},
    }


def common(**status: Any) -> Json:
    spec = {"sharing": {"tenants": [{"name": "all"}]}}
    return {"kind": "PlatformPolicy", "metadata": {"name": "c"}, "spec": spec, "status": status}


class Server:
    """Merges what is patched, as the API server does."""

    def __init__(self, *objects: Json) -> None:
        self.objects = objects
        self.writes: list[tuple[str, Json]] = []
        self.fault: Exception | None = None

    async def patch_status(
        self,
        resource: resources.Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kind: verbs.PatchKind = verbs.PatchKind.MERGE,
        **options: Any,
    ) -> Json:
        if self.fault is not None:
            raise self.fault
        self.writes.append((f"{resource.kind}/{name}", dict(body["status"])))
        [found] = [
            one
            for one in self.objects
            if (one["kind"], one["metadata"]["name"]) == (resource.kind, name)
        ]
        _merge(found, body)
        return found


def _merge(into: Json, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


class Scene:
    def __init__(self, *objects: Json) -> None:
        self.now, self.leads = NOW, True
        self.server = Server(*objects)
        tree = TenantTree([TenantNode("all"), TenantNode("a", parent="all")])
        self.shares = FairShares(Ledger(tree))
        self.remembering = UsagePersistence(
            self.server,
            self.shares,
            lambda: self.server.objects,
            may_write=lambda: self.leads,
            epoch=lambda: self.now,
        )
        self.remembering.recall()

    def use(self, tenant: str, **amounts: int) -> None:
        self.shares.ledger.charge(tenant, amounts.items())

    def write(self, seconds: float = 0.0) -> list[tuple[str, Json]]:
        """What is written after so many seconds of use."""
        self.server.writes.clear()
        self.shares.advance({"cpu": 8000}, self.now)
        self.now += seconds
        self.shares.advance({"cpu": 8000}, self.now)
        asyncio.run(self.remembering.write())
        return list(self.server.writes)


def test_a_tenant_in_its_own_policy_and_groups_in_the_common_one() -> None:
    scene = Scene(common(), tenant("a", policy="z"), tenant("a", policy="b"), tenant("idle"))
    scene.use("a", cpu=4000, memory=2**31)
    assert scene.write(3600.0) == [
        (
            "TenantPolicy/b",
            {
                "usage": {
                    "used": {"cpu": "4", "memory": "2Gi"},
                    "share": "0.250",
                    "at": "1970-01-12T14:46:40Z",
                }
            },
        ),
        (
            "PlatformPolicy/c",
            {"shares": [{"name": "all", "share": "0.250", "at": "1970-01-12T14:46:40Z"}]},
        ),
    ]


def test_what_is_used_no_longer_is_taken_out() -> None:
    scene = Scene(tenant("a"))
    scene.use("a", cpu=4000)
    scene.write()
    scene.use("a", cpu=-4000)
    scene.write()
    assert scene.server.objects[0]["status"]["usage"] == {"used": {}, "share": "0.000", "at": AT}


@pytest.mark.parametrize(
    ("seconds", "writes"),
    [
        pytest.param(EVERY, 0, id="what did not change is not written"),
        pytest.param(300.0, 1, id="before it seems old it is written again"),
    ],
)
def test_an_unchanged_share(seconds: float, writes: int) -> None:
    scene = Scene(tenant("a"))
    scene.use("a", cpu=4000)
    scene.write(100 * 3600.0)
    assert len(scene.write(seconds)) == writes


def test_a_standby_writes_nothing() -> None:
    scene = Scene(tenant("a"))
    scene.use("a", cpu=4000)
    scene.leads = False
    assert scene.write() == []


def test_nothing_is_written_over_before_it_was_read() -> None:
    scene = Scene(tenant("a"))
    scene.use("a", cpu=4000)
    fresh = UsagePersistence(
        scene.server,
        scene.shares,
        lambda: scene.server.objects,
        may_write=lambda: True,
        epoch=lambda: NOW,
    )
    asyncio.run(fresh.write())
    assert scene.server.writes == []


def test_a_write_that_fails_is_made_the_next_time() -> None:
    scene = Scene(tenant("a"))
    scene.use("a", cpu=4000)
    scene.server.fault = errors.Retry("later")
    lost = scene.write()
    scene.server.fault = None
    assert (lost, len(scene.write())) == ([], 1)


def test_a_successor_knows_what_was_used_faded_since() -> None:
    scene = Scene(common(), tenant("a"))
    scene.use("a", cpu=8000)
    scene.write(3600.0)
    heir = Scene(*scene.server.objects)
    heir.now = scene.now + 3600.0
    heir.remembering.recall()
    memory = heir.shares.remember()
    assert {name: (round(one.share, 3), one.at) for name, one in memory.items()} == {
        "a": (0.25, heir.now),
        "all": (0.25, heir.now),
    }


@pytest.mark.parametrize(
    ("objects", "known"),
    [
        pytest.param([tenant("a")], {}, id="nothing was written"),
        pytest.param(
            [tenant("a", usage={"share": "0.500", "at": AT})],
            {"a": DecayedShare(0.5, NOW)},
            id="usage",
        ),
        pytest.param(
            [
                tenant("a", policy="1", usage={"share": "0.500", "at": AT}),
                tenant("a", policy="2", usage={"share": "0.100", "at": "1970-01-01T00:00:00Z"}),
            ],
            {"a": DecayedShare(0.5, NOW)},
            id="the newest counts",
        ),
        pytest.param(
            [tenant("a", usage={"share": "much", "at": 7})],
            {"a": DecayedShare(0.0, 0.0)},
            id="what cannot be read says nothing",
        ),
    ],
)
def test_recalled(objects: list[Json], known: dict[str, DecayedShare]) -> None:
    assert recalled(objects) == known
