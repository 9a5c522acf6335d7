"""Whose turn it is between tenants."""

import pytest

from scheduler.tenancy.fairshare.shares import Memory, Shares
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Member, Tree

GPU = "nvidia.com/gpu"
TOTALS = {GPU: 100, "cpu": 1000}


def turn(tree: Tree, used: dict[str, dict[str, int]], waiting: list[str], *, at: float = 0) -> str:
    book = Ledger(tree)
    for tenant, amounts in used.items():
        book.take(tenant, amounts.items())
    shares = Shares(book)
    shares.advance(TOTALS, at)
    return " ".join(sorted(waiting, key=lambda name: shares.standing(name, {GPU: 1})))


@pytest.mark.parametrize(
    ("members", "used", "order"),
    [
        pytest.param([], {"a": {GPU: 2}, "b": {GPU: 1}}, "b a", id="who uses less goes first"),
        pytest.param(
            [Member("a", weight=3)],
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
            [Member("a", guaranteed=((GPU, 40),))],
            {"a": {GPU: 30}, "b": {GPU: 1}},
            "a b",
            id="who has less than was promised goes before all others",
        ),
        pytest.param(
            [Member("a", guaranteed=(("cpu", 40),))],
            {"a": {GPU: 30}, "b": {GPU: 1}},
            "b a",
            id="a promise of something else is no reason to go first",
        ),
        pytest.param(
            [Member("a", guaranteed=(("gpu-model/H100", 40),))],
            {"a": {GPU: 30, "gpu-model/H100": 30}, "b": {GPU: 1}},
            "a b",
            id="a promise of a kind of GPU counts for whoever asks for GPUs",
        ),
        pytest.param(
            [Member("g"), Member("a", "g"), Member("c", "g")],
            {"a": {GPU: 1}, "b": {GPU: 5}, "c": {GPU: 5}},
            "b a c",
            id="groups are compared before their tenants",
        ),
        pytest.param([], {}, "a b", id="equals go by name"),
    ],
)
def test_the_order(members: list[Member], used: dict[str, dict[str, int]], order: str) -> None:
    assert turn(Tree(members), used, sorted(order.split())) == order


def test_what_was_used_fades_by_half_in_a_half_life() -> None:
    book = Ledger(Tree([Member("a"), Member("b")], half_life=100))
    shares = Shares(book)
    book.take("a", [(GPU, 80)])
    shares.advance(TOTALS, 0)
    shares.advance(TOTALS, 1000)  # long enough to count as always
    book.give("a", [(GPU, 80)])
    book.take("b", [(GPU, 10)])
    shares.advance(TOTALS, 1000)
    before = sorted(["a", "b"], key=lambda name: shares.standing(name, {GPU: 1}))
    shares.advance(TOTALS, 1500)
    after = sorted(["a", "b"], key=lambda name: shares.standing(name, {GPU: 1}))
    assert (before, after) == (["b", "a"], ["a", "b"])


def test_a_successor_takes_over_what_was_remembered() -> None:
    book = Ledger(Tree(half_life=100))
    shares = Shares(book)
    shares.recall({"a": Memory(0.8, 0.0), "b": Memory(0.1, 0.0)}, 100)
    assert dict(shares.remember()) == {"a": Memory(0.4, 100), "b": Memory(0.05, 100)}


def test_a_tenant_that_left_long_ago_is_forgotten() -> None:
    book = Ledger(Tree(half_life=1))
    shares = Shares(book)
    shares.recall({"a": Memory(0.8, 0.0)}, 0)
    shares.advance(TOTALS, 60)
    assert dict(shares.remember()) == {}
