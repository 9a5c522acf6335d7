"""Victims that leave guarantees intact: which pods of a tenant, and what a group keeps."""

import pytest

from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.plan import Placed, Placement
from scheduler.tenancy.preemption.guarantees import GuaranteeKeeper
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimGroup
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import TenantNode, TenantTree
from tests.unit.scheduler.builders import a_pod

GPU = "nvidia.com/gpu"


def ledger_of(**guarantees: int) -> Ledger:
    """Tenants a and b under g, c beside them; each victim uses one GPU."""
    members = [TenantNode("g", guaranteed=_pairs(guarantees.get("g", 0)))]
    members += [
        TenantNode(name, "g" if name in "ab" else None, guaranteed=_pairs(guarantees.get(name, 0)))
        for name in "abc"
    ]
    return Ledger(TenantTree(members))


def _pairs(amount: int) -> tuple[tuple[str, int], ...]:
    return ((GPU, amount),) if amount else ()


def victim_groups(names: str, ledger: Ledger) -> list[VictimGroup]:
    """`a1 a2 c1*`: each a pod of the tenant that its name begins with, not the preemptor's; a star
    marks a pending pod with reserved capacity, which is not charged."""
    found = []
    for name in names.split():
        pod = a_pod(name, gpus=1, labels={"tenant.kubenexus.io/name": name[0]})
        placement = Placement(pod, "n", NO_ASSIGNMENT)
        if name.endswith("*"):
            found.append(VictimGroup(name, (), (placement,), other_tenant=True))
        else:
            ledger.charge(name[0], [(GPU, 1)])
            found.append(VictimGroup(name, (placement,), other_tenant=True))
    return found


@pytest.mark.parametrize(
    ("guarantees", "pods", "preemptor", "in_the_way", "expected"),
    [
        pytest.param({}, "a1 a2", "c", "a1 a2", "a1 a2", id="no guarantees"),
        pytest.param({"a": 1}, "a1 a2", "c", "a2", "a2", id="the more expensive one is in the way"),
        pytest.param({"a": 1}, "a1 a2", "c", "a1 a2", "", id="both are in the way, one must stay"),
        pytest.param({"g": 1}, "a1 b1", "c", "a1 b1", "", id="a group keeps its guarantee"),
        pytest.param({"g": 1}, "a1", "b", "a1", "a1", id="a preemptor of the same group"),
        pytest.param({"g": 2}, "a1 b1", "c", "b1", "", id="a group at its guarantee"),
        pytest.param({"a": 1}, "a1 a2*", "c", "a2*", "a2*", id="reserved beyond the guarantee"),
        pytest.param({"a": 2}, "a1 a2*", "c", "a2*", "", id="reserved within the guarantee"),
        pytest.param({"a": 1}, "a1 a2 a3*", "c", "a2 a3*", "a2 a3*", id="reserved and used"),
        pytest.param({"a": 2}, "a1 a2 a3*", "c", "a2 a3*", "", id="reserved, and used in part"),
    ],
)
def test_victims(
    guarantees: dict[str, int], pods: str, preemptor: str, in_the_way: str, expected: str
) -> None:
    """The preemptor fits when all of `in_the_way` are evicted."""
    ledger = ledger_of(**guarantees)
    able = victim_groups(pods, ledger)
    before = ledger.state()
    needed = set(in_the_way.split())

    def choose(among: list[VictimGroup]) -> PreemptionPlan | None:
        chosen = tuple(one for one in among if one.key in needed)
        return PreemptionPlan(chosen, Placed(())) if len(chosen) == len(needed) else None

    keeper = GuaranteeKeeper(ledger, lambda one: {GPU: 1}, preemptor=(preemptor, {GPU: 1}))
    plan = keeper.choose(able, choose)
    names = " ".join(one.key for one in plan.groups) if plan else ""
    assert (names, ledger.state()) == (expected, before)


@pytest.mark.parametrize(
    ("released", "leaving", "breached"),
    [
        pytest.param({"a": 1}, {}, None, id="above the guarantee"),
        pytest.param({"a": 2}, {}, "a", id="a tenant falls below its guarantee"),
        pytest.param(
            {"a": 1, "b": 1}, {}, "g", id="both together: their group falls below its guarantee"
        ),
        pytest.param({"a": 1}, {"a": 1}, "a", id="another pod is leaving"),
        pytest.param({"b": 1}, {"c": 1}, None, id="a pod of another tenant is leaving"),
    ],
)
def test_breached_guarantee(
    released: dict[str, int], leaving: dict[str, int], breached: str | None
) -> None:
    ledger = ledger_of(a=1, g=3)
    victim_groups("a1 a2 b1 b2 c1", ledger)
    rows, leaving_rows = (
        [(tenant, {GPU: amount}) for tenant, amount in amounts.items()]
        for amounts in (released, leaving)
    )
    assert ledger.breached_guarantee(rows, leaving_rows) == breached


@pytest.mark.parametrize(
    ("guarantees", "pods", "sufficient", "expected"),
    [
        pytest.param(
            {"a": 1},
            "a1 a2 b1",
            ["a1 a2", "a2 b1"],
            "a2 b1",
            id="without the more expensive pod of a tenant it does not fit, without the other it does",
        ),
        pytest.param(
            {"a": 2},
            "a1 a2 a3 b1",
            ["a1 a3", "a1 a2", "a2 a3", "a3 b1"],
            "a3 b1",
            id="after a set that was searched before",
        ),
        pytest.param({"a": 2}, "a1 a2 a3 b1", ["a1 a3", "a1 a2", "a2 a3"], "", id="no valid set"),
    ],
)
def test_sets_of_victims_are_tried_until_one_leaves_guarantees_intact(
    guarantees: dict[str, int], pods: str, sufficient: list[str], expected: str
) -> None:
    """The preemptor fits without any of the `sufficient` sets; the search returns the first."""
    ledger = ledger_of(**guarantees)
    able = victim_groups(pods, ledger)

    def search(among: list[VictimGroup]) -> PreemptionPlan | None:
        by_key = {group.key: group for group in among}
        for names in map(str.split, sufficient):
            if by_key.keys() >= set(names):
                return PreemptionPlan(tuple(by_key[name] for name in names), Placed(()))
        return None

    keeper = GuaranteeKeeper(ledger, lambda one: {GPU: 1}, preemptor=("c", {GPU: 1}))
    plan = keeper.choose(able, search)
    assert (" ".join(group.key for group in plan.groups) if plan else "") == expected
