"""The tenant that comes first is always the one that a comparison of all tenants finds."""

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.model.attributes import SYSTEM_CRITICAL
from scheduler.model.pod import PodKey
from scheduler.model.unit import UnitKey
from scheduler.queueing.active import ActiveQueue, ScannedTenants
from scheduler.queueing.entry import Rank
from scheduler.tenancy.fairshare.shares import DecayedShare, FairShares
from scheduler.tenancy.fairshare.tenant_order import FairShareTenants
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import TenantNode, TenantTree

GPU = "nvidia.com/gpu"
TOTALS = {GPU: 16, "cpu": 32}
NAMES = [*"abcdef", "g", "h"]  # g and h may be groups as well
TENANTS = st.sampled_from(NAMES)
PAIRS = st.sampled_from([(), ((GPU, 2),), (("cpu", 4),), (("cpu", 2), (GPU, 3))])
AMOUNTS = st.sampled_from([((GPU, 1),), (("cpu", 1),), (("cpu", 3), (GPU, 1))])
RANKS = st.sampled_from(
    [(1, 0, 1), (1, -1, 1), (0, 0, 1), (1, -SYSTEM_CRITICAL, 1), (0, -SYSTEM_CRITICAL, 1)]
)


@st.composite
def trees(draw: st.DrawFn) -> TenantTree:
    """Tenants at the top and in groups, a group in a group, tenants that are groups; half of the
    names are not listed."""
    members = []
    for name in NAMES:
        if draw(st.booleans()):
            continue
        above: dict[str, list[str | None]] = {"g": [None], "h": [None, "g"]}
        parent = above.get(name, [None, "g", "h"])
        members.append(
            TenantNode(
                name,
                draw(st.sampled_from(parent)),
                draw(st.sampled_from([1, 1, 3])),
                draw(PAIRS),
            )
        )
    return TenantTree(members, half_life=100.0)


class Order(RuleBasedStateMachine):
    """Two active queues with the same units; one compares all tenants for each pop."""

    @initialize(tree=trees())
    def begin(self, tree: TenantTree) -> None:
        self.ledger = Ledger(tree)
        self.shares = FairShares(self.ledger)
        self.charges: list[tuple[str, Any]] = []
        self.tokens: dict[UnitKey, int] = {}
        self.requests: dict[UnitKey, dict[str, int]] = {}
        self.now = 0.0
        self.numbers = itertools.count()
        self.queues = [
            ActiveQueue(self.is_current, self.requests.__getitem__, tenants)
            for tenants in (FairShareTenants(self.shares), ScannedTenants(self.shares.order))
        ]
        self.shares.advance(TOTALS, self.now)

    def is_current(self, key: UnitKey, token: int) -> bool:
        return self.tokens.get(key) == token

    @rule(units=st.lists(st.tuples(TENANTS, RANKS, AMOUNTS), min_size=3, max_size=6))
    def arrive(self, units: list[tuple[str, tuple[int, int, int], Any]]) -> None:
        for tenant, rank, amounts in units:
            number = next(self.numbers)
            key = PodKey("ns", str(number))
            whole: Rank = (*rank, float(number), key.name)
            self.tokens[key], self.requests[key] = number, dict(amounts)
            for queue in self.queues:
                queue.push(tenant, (whole, number, key), units=len(self.tokens))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.tokens)))
        del self.tokens[key]
        for queue in self.queues:
            queue.discard(key)

    @rule(charges=st.lists(st.tuples(TENANTS, AMOUNTS), min_size=1, max_size=3))
    def charge(self, charges: list[tuple[str, Any]]) -> None:
        for tenant, amounts in charges:
            self.ledger.charge(tenant, amounts)
        self.charges += charges

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def uncharge(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.charges) - 1))
        self.ledger.uncharge(*self.charges.pop(index))

    @rule(tenant=TENANTS, amounts=AMOUNTS)
    def pop_during_a_trial(self, tenant: str, amounts: Any) -> None:
        with self.ledger.trial():
            self.ledger.charge(tenant, amounts)
            self.pop()

    @rule(
        what=st.sampled_from(["time", "capacity", "recall", "policies"]),
        tenant=TENANTS,
        tree=trees(),
    )
    def change_all(self, what: str, tenant: str, tree: TenantTree) -> None:
        match what:
            case "time":
                self.now += 50.0
                self.shares.advance(TOTALS, self.now)
            case "capacity":
                self.shares.advance({**TOTALS, GPU: len(self.tokens)}, self.now)
            case "recall":
                self.shares.recall({tenant: DecayedShare(0.3, self.now + 1)}, self.now)
            case _:
                self.ledger.change_tree(tree)

    @rule(times=st.integers(1, 3))
    def pop_some(self, times: int) -> None:
        for _ in range(times):
            self.pop()

    def pop(self) -> None:
        first, expected = (queue.pop() for queue in self.queues)
        assert first == expected
        if first is not None:
            del self.tokens[first]

    @invariant()
    def holds_no_more_than_the_active_tenants(self) -> None:
        if not hasattr(self, "queues"):
            return
        heaps = [queue.__dict__["_heaps"] for queue in self.queues]
        assert list(heaps[0]) == list(heaps[1])
        kept = self.queues[0].__dict__["_tenants"].__dict__["_active"]
        assert kept.keys() <= heaps[0].keys()

    def teardown(self) -> None:
        if not hasattr(self, "queues"):
            return
        while self.tokens:
            self.pop()
        order = self.queues[0].__dict__["_tenants"].__dict__
        assert [len(queue) for queue in self.queues] == [0, 0]
        for name in ("_active", "_classes", "_levels", "_below"):
            assert not order[name]


TestOrder = Order.TestCase
TestOrder.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_tenant_that_is_put_while_its_group_is_above_its_guarantee_comes_first_afterwards() -> (
    None
):
    """The usage of the group is above its guarantee for a moment, in which b is put."""
    tree = TenantTree(
        [TenantNode("g", guaranteed=(("cpu", 2),)), TenantNode("a", "g"), TenantNode("b", "g")]
    )
    shares = FairShares(Ledger(tree))
    shares.advance({"cpu": 10}, 0.0)
    tenants, scanned = FairShareTenants(shares), ScannedTenants(shares.order)
    order: list[tuple[str, str]] = []

    def put(tenant: str) -> None:
        for each in (tenants, scanned):
            each.put(tenant, (1, 0, 1, 0.0, ""), {"cpu": 1})

    put("c")
    put("a")
    order.append((tenants.first(), scanned.first()))
    shares.ledger.charge("a", (("cpu", 3),))
    put("b")
    shares.ledger.uncharge("a", (("cpu", 3),))
    for each in (tenants, scanned):
        each.discard("a")
    order.append((tenants.first(), scanned.first()))
    shares.ledger.charge("b", (("cpu", 3),))
    order.append((tenants.first(), scanned.first()))
    assert order == [("a", "a"), ("b", "b"), ("c", "c")]


class Counted(FairShares):
    """Counts how often a share is computed."""

    computed = 0

    def share(self, member: str) -> float:
        self.computed += 1
        return super().share(member)


@pytest.mark.parametrize("groups", [0, 1, 20])
def test_a_pop_computes_the_shares_of_the_charged_path_only(groups: int) -> None:
    """Linear in the tenants, at the top of the tree and in groups."""

    def computed(tenants: int) -> int:
        names = [f"t{i}" for i in range(tenants)]
        members = [TenantNode(f"g{i}") for i in range(groups)]
        members += [TenantNode(n, f"g{i % groups}") for i, n in enumerate(names) if groups]
        shares = Counted(Ledger(TenantTree(members)))
        shares.advance({"cpu": 1_000}, 0.0)
        queue = ActiveQueue(
            lambda key, token: True, lambda key: {"cpu": 1}, FairShareTenants(shares)
        )
        for i, name in enumerate(names):
            queue.push(name, ((1, 0, 1, 0.0, name), i, PodKey("ns", name)), units=tenants)
        order = []
        while (key := queue.pop()) is not None:
            order.append(key.name)
            shares.ledger.charge(key.name, (("cpu", 1),))
        assert sorted(order) == sorted(names)
        return shares.computed

    assert computed(2_000) <= 12 * 2_000
