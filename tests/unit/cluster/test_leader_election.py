"""Who leads: the rule as a table, and electors against a lease that others write too."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.errors import Conflict, Gone, KubeError, Retry
from cluster.leader_election import (
    Acquire,
    Decision,
    LeaderElector,
    Observed,
    Renew,
    Wait,
    decide,
    observe,
)
from cluster.resources import LEASES, Obj, Resource


def a_lease(
    holder: str = "other", *, duration: int = 15, renewed: str = "t1", turns: int = 3
) -> Obj:
    return {
        "metadata": {"name": "l", "namespace": "ns", "resourceVersion": "1"},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "renewTime": renewed,
            "leaseTransitions": turns,
        },
    }


@pytest.mark.parametrize(
    ("lease", "seen_at", "now", "want"),
    [
        pytest.param(None, None, 100.0, Acquire(0), id="there is no lease"),
        pytest.param(a_lease(""), 100.0, 100.0, Acquire(4), id="it was released"),
        pytest.param({"metadata": {}}, 100.0, 100.0, Acquire(1), id="it has no spec"),
        pytest.param(a_lease("me"), 0.0, 100.0, Renew(), id="it is held here, however old"),
        pytest.param(a_lease(), 100.0, 110.0, Wait("other", 5.0), id="the holder is alive"),
        pytest.param(a_lease(), 100.0, 114.999, Wait("other", 0.001), id="barely alive"),
        pytest.param(a_lease(), 100.0, 115.0, Acquire(4), id="silent for the whole duration"),
        pytest.param(
            a_lease(duration=60), 100.0, 115.0, Wait("other", 45.0), id="the holder's own duration"
        ),
        pytest.param(
            a_lease(renewed="1999-01-01T00:00:00Z"),
            100.0,
            101.0,
            Wait("other", 14.0),
            id="the holder's clock is not believed",
        ),
        pytest.param(a_lease(), None, 100.0, Wait("other", 15.0), id="never observed before"),
    ],
)
def test_the_rule(lease: Obj | None, seen_at: float | None, now: float, want: Decision) -> None:
    observed = None if seen_at is None else Observed((), seen_at)
    got = decide(lease, "me", now, observed)
    if isinstance(got, Wait):
        got = Wait(got.holder, round(got.seconds, 6))
    assert got == want


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(a_lease(), a_lease(), 1.0, id="nothing changed: the silence continues"),
        pytest.param(a_lease(), a_lease(renewed="t2"), 9.0, id="renewed"),
        pytest.param(a_lease(), a_lease("third"), 9.0, id="another holder"),
        pytest.param(None, a_lease(), 9.0, id="seen for the first time"),
        pytest.param(a_lease(), None, None, id="deleted"),
    ],
)
def test_when_a_change_was_seen(before: Obj | None, after: Obj | None, want: float | None) -> None:
    got = observe(observe(None, before, 1.0), after, 9.0)
    assert (got.at if got else None) == want


@dataclass
class Server:
    """One Lease with optimistic concurrency; `faults` are raised first, one a call."""

    lease: Obj | None = None
    faults: list[KubeError] = field(default_factory=list)
    version: int = 1

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        timeout: float = 30.0,
        **options: Any,
    ) -> Obj:
        self._fail()
        assert (resource, name, namespace) == (LEASES, "l", "ns")
        if self.lease is None:
            raise Gone("no lease")
        return _copy(self.lease)

    async def create(
        self, resource: Resource, obj: Mapping[str, Any], *, timeout: float = 30.0, **options: Any
    ) -> Obj:
        self._fail()
        if self.lease is not None:
            raise Conflict("taken", reason="AlreadyExists")
        return self._store(dict(obj))

    async def update(
        self, resource: Resource, obj: Mapping[str, Any], *, timeout: float = 30.0, **options: Any
    ) -> Obj:
        self._fail()
        if self.lease is None:
            raise Gone("no lease")
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("changed since")
        return self._store(dict(obj))

    def taken_by(self, holder: str) -> None:
        self._store(a_lease(holder, renewed=f"t{self.version}"))

    @property
    def holder(self) -> str | None:
        return None if self.lease is None else self.lease["spec"]["holderIdentity"]

    def _store(self, obj: Obj) -> Obj:
        self.version += 1
        self.lease = _copy(obj)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return _copy(self.lease)

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)


def _copy(obj: Obj) -> Obj:
    return {"metadata": dict(obj["metadata"]), "spec": dict(obj["spec"])}


def elect(
    server: Server, *, steps: dict[int, Callable[[], None]], seconds: int = 60
) -> list[tuple[int, str]]:
    """Run one elector for `seconds`; `steps` happen at their second. Returns what was heard."""
    heard: list[tuple[int, str]] = []
    at = [0.0]
    over = asyncio.CancelledError()

    async def sleep(duration: float) -> None:
        end = at[0] + duration
        while at[0] < end:
            at[0] += 1.0
            steps.pop(int(at[0]), lambda: None)()
            if at[0] >= seconds:
                raise over
        await asyncio.sleep(0)

    elector = LeaderElector(
        server,
        name="l",
        namespace="ns",
        identity="me",
        on_started=lambda: heard.append((int(at[0]), "leading")),
        on_lost=lambda why: heard.append((int(at[0]), f"lost: {why}")),
        now=lambda: at[0],
        sleep=sleep,
        random=lambda: 0.0,
    )

    async def main() -> None:
        await elector.run()

    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        heard.append((int(at[0]), "stopped"))
    assert not elector.is_leader
    return heard


def later(faults: int) -> list[KubeError]:
    return [Retry("down") for _ in range(faults)]


@pytest.mark.parametrize(
    ("prepare", "steps", "heard", "holder"),
    [
        pytest.param(
            lambda s: None,
            lambda s: {},
            [(0, "leading"), (60, "stopped")],
            "",
            id="alone: leads at once, releases at stop",
        ),
        pytest.param(
            lambda s: s.taken_by(""),
            lambda s: {},
            [(0, "leading"), (60, "stopped")],
            "",
            id="released by the last leader: leads at once",
        ),
        pytest.param(
            lambda s: s.taken_by("other"),
            lambda s: {},
            [(16, "leading"), (60, "stopped")],
            "",
            id="the leader is dead: replaced after the lease's duration",
        ),
        pytest.param(
            lambda s: s.taken_by("other"),
            lambda s: {n: (lambda: s.taken_by("other")) for n in range(1, 60, 5)},
            [(60, "stopped")],
            "other",
            id="the leader is alive: waits for ever",
        ),
        pytest.param(
            lambda s: None,
            lambda s: {20: lambda: s.faults.extend(later(3))},
            [(0, "leading"), (60, "stopped")],
            "",
            id="a short outage does not cost the lead",
        ),
        pytest.param(
            lambda s: None,
            lambda s: {20: lambda: s.faults.extend(later(99))},
            [(0, "leading"), (28, "lost: down")],
            "me",
            id="an outage longer than the renew deadline does",
        ),
        pytest.param(
            lambda s: None,
            lambda s: {20: lambda: s.taken_by("thief")},
            [(0, "leading"), (20, "lost: 'thief' holds the lease")],
            "thief",
            id="taken by force: noticed at the next renewal, and not taken back",
        ),
        pytest.param(
            lambda s: None,
            lambda s: {20: lambda: s.taken_by("me")},
            [(0, "leading"), (60, "stopped")],
            "",
            id="a late write of its own is no rival",
        ),
        pytest.param(
            lambda s: s.faults.extend([Conflict("raced")]),
            lambda s: {},
            [(2, "leading"), (60, "stopped")],
            "",
            id="lost a race for it: tries again",
        ),
    ],
)
def test_an_elector(
    prepare: Callable[[Server], None],
    steps: Callable[[Server], dict[int, Callable[[], None]]],
    heard: list[tuple[int, str]],
    holder: str,
) -> None:
    server = Server()
    prepare(server)
    got = elect(server, steps=steps(server))
    assert (got, server.holder) == (heard, holder)


def test_a_frozen_leader_knows_before_it_reads_the_lease() -> None:
    at = [0.0]
    known: list[bool] = []
    frozen = asyncio.Event()

    async def sleep(seconds: float) -> Any:
        for later in (9.9, 10.0):
            at[0] = later
            known.append(elector.is_leader)
        frozen.set()
        await asyncio.Event().wait()

    elector = LeaderElector(
        Server(), name="l", namespace="ns", identity="me", now=lambda: at[0], sleep=sleep
    )

    async def main() -> None:
        running = asyncio.create_task(elector.run())
        await frozen.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    assert known == [True, False]
