"""Whose turn it is between tenants."""

import pytest

from scheduler.tenancy.fairshare.shares import DecayedShare, FairShares
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import TenantNode, TenantTree

GPU = "nvidia.com/gpu"
TOTALS = {GPU: 100, "cpu": 1000}


def turn(
    tree: TenantTree, used: dict[str, dict[str, int]], waiting: list[str], *, at: float = 0
) -> str:
    book = Ledger(tree)
    for tenant, amounts in used.items():
        book.charge(tenant, amounts.items())
    shares = FairShares(book)
    shares.advance(TOTALS, at)
    return " ".join(sorted(waiting, key=lambda name: shares.order(name, {GPU: 1})))


@pytest.mark.parametrize(
    ("members", "used", "order"),
    [
        pytest.param(
            [], {"a": {GPU: 2}, "b": {GPU: 1}}, "b a", id="the tenant that uses less comes first"
        ),
        pytest.param(
            [TenantNode("a", weight=3)],
            {"a": {GPU: 2}, "b": {GPU: 1}},
            "a b",
            id="a weight divides what is used",
        ),
        pytest.param(
            [],
            {"a": {GPU: 2, "cpu": 300}, "b": {GPU: 10}},
            "b a",
            id="the resource counts of which most is used",
        ),
        pytest.param(
            [TenantNode("a", guaranteed=((GPU, 40),))],
            {"a": {GPU: 30}, "b": {GPU: 1}},
            "a b",
            id="a tenant below its guarantee comes before all others",
        ),
        pytest.param(
            [TenantNode("a", guaranteed=(("cpu", 40),))],
            {"a": {GPU: 30}, "b": {GPU: 1}},
            "b a",
            id="a guarantee of another resource does not put a tenant first",
        ),
        pytest.param(
            [TenantNode("a", guaranteed=(("gpu-model/H100", 40),))],
            {"a": {GPU: 30, "gpu-model/H100": 30}, "b": {GPU: 1}},
            "a b",
            id="a guarantee of a GPU kind counts for every request of GPUs",
        ),
        pytest.param(
            [TenantNode("g"), TenantNode("a", "g"), TenantNode("c", "g")],
            {"a": {GPU: 1}, "b": {GPU: 5}, "c": {GPU: 5}},
            "b a c",
            id="groups are compared before their tenants",
        ),
        pytest.param([], {}, "a b", id="equals go by name"),
    ],
)
def test_the_order(members: list[TenantNode], used: dict[str, dict[str, int]], order: str) -> None:
    assert turn(TenantTree(members), used, sorted(order.split())) == order


def test_what_was_used_fades_by_half_in_a_half_life() -> None:
    book = Ledger(TenantTree([TenantNode("a"), TenantNode("b")], half_life=100))
    shares = FairShares(book)
    book.charge("a", [(GPU, 80)])
    shares.advance(TOTALS, 0)
    shares.advance(TOTALS, 1000)  # long enough to count as always
    book.uncharge("a", [(GPU, 80)])
    book.charge("b", [(GPU, 10)])
    shares.advance(TOTALS, 1000)
    before = sorted(["a", "b"], key=lambda name: shares.order(name, {GPU: 1}))
    shares.advance(TOTALS, 1500)
    after = sorted(["a", "b"], key=lambda name: shares.order(name, {GPU: 1}))
    assert (before, after) == (["b", "a"], ["a", "b"])


def test_a_successor_takes_over_what_was_remembered() -> None:
    book = Ledger(TenantTree(half_life=100))
    shares = FairShares(book)
    shares.recall({"a": DecayedShare(0.8, 0.0), "b": DecayedShare(0.1, 0.0)}, 100)
    assert dict(shares.remember()) == {"a": DecayedShare(0.4, 100), "b": DecayedShare(0.05, 100)}


def test_a_tenant_that_left_long_ago_is_forgotten() -> None:
    book = Ledger(TenantTree(half_life=1))
    shares = FairShares(book)
    shares.recall({"a": DecayedShare(0.8, 0.0)}, 0)
    shares.advance(TOTALS, 60)
    assert dict(shares.remember()) == {}
