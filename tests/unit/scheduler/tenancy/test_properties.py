"""
Random clusters and histories of two tenants, through the whole cycle, against an API server in
memory: limits are kept at every write, who goes goes for somebody who is placed, and nobody goes
in vain.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster import errors
from scheduler.tables import Tables
from tests.unit.scheduler.far_side import FarSide
from tests.unit.scheduler.table import Bench
from tests.unit.scheduler.tenancy.test_quotas import tables

pytestmark = pytest.mark.timeout(300)

GPU = "nvidia.com/gpu"
TENANTS = ("a", "b")
TENANT = "tenant.kubenexus.io/name"
FEW = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@dataclass(frozen=True, slots=True)
class Wish:
    """A unit that comes: `size` 0 is a single pod."""

    tenant: str
    size: int
    gpus: int
    priority: int
    preemptible: bool


@dataclass(frozen=True, slots=True)
class World:
    nodes: tuple[int, ...]
    limits: dict[str, int]
    promises: dict[str, int]
    wishes: tuple[Wish, ...]
    ends: tuple[int, ...] = field(default=())
    """After so many wishes, the pod of this number ends by itself."""

    def tables(self) -> Tables:
        quotas: dict[str, dict[str, Any]] = {name: {} for name in TENANTS}
        for name, amount in self.limits.items():
            quotas[name]["max"] = {GPU: amount}
        for name, amount in self.promises.items():
            quotas[name]["guaranteed"] = {GPU: min(amount, self.limits.get(name, amount))}
        return tables(**quotas)


wishes = st.builds(
    Wish,
    tenant=st.sampled_from(TENANTS),
    size=st.sampled_from((0, 0, 2, 3)),
    gpus=st.integers(1, 3),
    priority=st.sampled_from((0, 0, 5, 10)),
    preemptible=st.booleans(),
)
worlds = st.builds(
    World,
    nodes=st.lists(st.integers(2, 6), min_size=1, max_size=3).map(tuple),
    limits=st.dictionaries(st.sampled_from(TENANTS), st.integers(2, 8), max_size=2),
    promises=st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 6), max_size=2),
    wishes=st.lists(wishes, min_size=2, max_size=6).map(tuple),
    ends=st.lists(st.integers(0, 20), max_size=4).map(tuple),
)


class Watched(FarSide):
    """Looks at the limits at every bind: pods count until they are gone, ending or not."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.broken: list[str] = []

    async def bind(self, *args: Any, **more: Any) -> None:
        await super().bind(*args, **more)
        for tenant, allowed in self.world.limits.items():
            if used(self, tenant) > allowed:
                self.broken.append(f"{tenant} uses {used(self, tenant)} of {allowed}")


def used(api: FarSide, tenant: str) -> int:
    return sum(
        _gpus(pod)
        for pod in api.pods.values()
        if pod["spec"].get("nodeName") and pod["metadata"]["labels"].get(TENANT) == tenant
    )


def _gpus(pod: dict[str, Any]) -> int:
    rows = (c["resources"]["requests"].get(GPU, 0) for c in pod["spec"]["containers"])
    return sum(int(row) for row in rows)


def come(bench: Bench, number: int, wish: Wish) -> list[str]:
    labels = {TENANT: wish.tenant}
    if wish.preemptible:
        labels["workload.kubenexus.io/preemptible"] = "true"
    names = []
    for member in range(max(1, wish.size)):
        name = f"u{number}-{member}"
        more: dict[str, Any] = {"gang": (f"u{number}", wish.size)} if wish.size else {}
        bench.pod(
            name,
            labels=labels,
            owner="job",
            cpu="0",
            gpus=wish.gpus,
            priority=wish.priority,
            created=f"2026-01-01T00:{number:02}:{member:02}Z",
            **more,
        )
        names.append(name)
    return names


def end_evicted(bench: Bench) -> None:
    for name in list(bench.api.evicted):
        if name in bench.api.pods:
            bench.delete(name)
    bench.show_all()


async def go_on(bench: Bench, rounds: int = 3, seconds: float = 1.0) -> None:
    """Victims end, the watch shows everything, time passes."""
    for _ in range(rounds):
        await bench.settle(seconds)
        end_evicted(bench)
    await bench.settle(seconds)


async def play(world: World, api: FarSide) -> Bench:
    bench = Bench(api)
    start(bench, world)
    for number, wish in enumerate(world.wishes):
        come(bench, number, wish)
        await go_on(bench)
        if number < len(world.ends):
            names = sorted(name for name, node in bench.api.nodes().items() if node)
            if names:
                bench.delete(names[world.ends[number] % len(names)])
    await go_on(bench, rounds=8)
    return bench


def start(bench: Bench, world: World) -> None:
    bench.scheduler.adopt(world.tables())
    for number, gpus in enumerate(world.nodes):
        bench.node(f"n{number}", gpus=gpus)


def steps(bench: Bench, *names: str) -> tuple[int, ...]:
    counter = bench.metrics.preemption
    return tuple(int(counter.labels(name)._value.get()) for name in names)


@FEW
@given(worlds)
def test_limits_hold_and_nobody_goes_in_vain(world: World) -> None:
    api = Watched(world)
    bench = asyncio.run(play(world, api))
    evicted, in_vain = steps(bench, "evicted", "in_vain")
    cache = bench.scheduler.cache
    assert (api.broken, in_vain, len(bench.scheduler.drift())) == ([], 0, 0)
    assert evicted == len(api.evicted)
    assert len(bench.scheduler.tenancy.preempting) == len(cache.holds) == 0
    assert wholes(bench) == []


def wholes(bench: Bench) -> list[str]:
    """Gangs of which some members have a node, and fewer than needed, though none ended."""
    found: dict[str, list[bool]] = {}
    gone = set()
    for name, pod in bench.api.pods.items():
        found.setdefault(name.partition("-")[0], []).append(bool(pod["spec"].get("nodeName")))
        labels = pod["metadata"]["labels"]
        size = int(labels.get("pod-group.scheduling.kubenexus.io/min-available", 1))
        gone |= {name.partition("-")[0]} if members(bench, name) < size else set()
    return [unit for unit, nodes in found.items() if len(set(nodes)) > 1 and unit not in gone]


def members(bench: Bench, name: str) -> int:
    unit = name.partition("-")[0]
    return sum(other.partition("-")[0] == unit for other in bench.api.pods)


FAULTS = (
    errors.Retry("too many requests", status=429),
    errors.Retry("internal error", status=500),
    errors.Retry("timed out"),
    errors.Retry("budget", details={"causes": [{"reason": "DisruptionBudget"}]}),
    errors.Refused("forbidden", status=403),
)


class Faulty(Watched):
    """Evictions fail as drawn, both as rehearsed and in earnest."""

    def __init__(self, world: World, drawn: list[int]) -> None:
        super().__init__(world)
        self.drawn = drawn

    async def evict(self, *args: Any, **more: Any) -> None:
        number = self.drawn.pop() if self.drawn else len(FAULTS)
        if number < len(FAULTS):
            raise FAULTS[number]
        await super().evict(*args, **more)


@FEW
@given(worlds, st.lists(st.integers(0, 2 * len(FAULTS)), max_size=12))
def test_evictions_that_fail_leave_nothing_held(world: World, drawn: list[int]) -> None:
    api = Faulty(world, drawn)
    bench = asyncio.run(play(world, api))
    asyncio.run(go_on_later(bench))
    assert (api.broken, len(bench.scheduler.drift()), wholes(bench)) == ([], 0, [])
    # An attempt may have begun at the last moment; nothing is kept but for one.
    assert len(bench.scheduler.cache.holds) <= len(bench.scheduler.tenancy.preempting)


async def go_on_later(bench: Bench) -> None:
    await go_on(bench, rounds=10, seconds=40.0)


@FEW
@given(worlds, st.integers(0, 7))
def test_a_leader_killed_mid_preemption(world: World, when: int) -> None:
    """A successor knows nothing but the API: whoever was evicted for is still placed."""
    api = Watched(world)

    async def run() -> tuple[Bench, list[str]]:
        first = Bench(api)
        start(first, world)
        for number, wish in enumerate(world.wishes):
            come(first, number, wish)
            if number == min(when, len(world.wishes) - 1):
                await first.settle(1.0)
                break
            await go_on(first)
        first.leading = False
        asking = [pod for _, pods in owed(first) for pod in pods]
        heir = Bench(api)
        heir.now = first.now
        start(heir, world)
        heir.show_all()
        await go_on(heir, rounds=8)
        await go_on_later(heir)
        # Who is there no more was placed, and went for somebody else.
        return heir, [name for name in asking if not api.nodes().get(name, "placed before")]

    heir, waiting = asyncio.run(run())
    (in_vain,) = steps(heir, "in_vain")
    assert (api.broken, in_vain, len(heir.scheduler.drift()), wholes(heir)) == ([], 0, 0, [])
    assert len(heir.scheduler.tenancy.preempting) == len(heir.scheduler.cache.holds) == 0
    assert waiting == []


def owed(bench: Bench) -> list[tuple[str, list[str]]]:
    """Units for which somebody goes, each with the names of the pods that are to be placed."""
    attempts = bench.scheduler.tenancy.preempting._attempts
    return [
        (str(key), [one.pod.key.name for one in attempt.places])
        for key, attempt in attempts.items()
    ]


@FEW
@given(worlds)
def test_a_promise_that_is_wanted_is_met_where_others_borrow(world: World) -> None:
    """A tenant asks for one GPU within its promise, and the other uses more than its own."""
    api = Watched(world)

    async def run() -> tuple[bool, bool]:
        bench = await play(world, api)
        await go_on_later(bench)
        tenant, other = TENANTS
        ledger = bench.scheduler.cache.accounts.ledger
        wanted = ledger.entitled(tenant, {GPU: 1}) and ledger.excess(tenant, {GPU: 1}) is None
        singles = [
            held.pod
            for held in bench.scheduler.cache.occupants()
            if held.pod.terms.tenant == other and held.pod.gang is None
        ]
        lent = any(ledger.spares(other, {GPU: pod.shape.ask.gpus}) for pod in singles)
        lent = lent and all(bench.api.nodes().values())  # nobody waits who might be promised it
        come(bench, 50, Wish(tenant, 0, 1, 0, preemptible=False))
        await go_on(bench, rounds=3, seconds=3.0)
        return wanted and lent, bool(bench.api.nodes()["u50-0"])

    reclaimable, placed = asyncio.run(run())
    assert placed or not reclaimable
