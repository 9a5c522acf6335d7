"""Usage, limits, guarantees, borrowed amounts, trials."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.policy import TierSpec
from policies.documents.tenancy import Quota, Sharing
from policies.engine.policyset import PolicyTables
from scheduler.model.over_quota import Excess
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import TenantNode, TenantTree

GPU = "nvidia.com/gpu"
TREE = TenantTree(
    [
        TenantNode("research", max=((GPU, 12),), guaranteed=((GPU, 8),)),
        TenantNode("vision", "research", weight=3, guaranteed=((GPU, 4),), max=((GPU, 8),)),
        TenantNode("speech", "research"),
        TenantNode("web", max=(("cpu", 4000),)),
        TenantNode("office", guaranteed=(("cpu", 4000),)),
        TenantNode("render", guaranteed=(("gpu-model/L4", 2),)),
    ]
)


def ledger(**used: int) -> Ledger:
    book = Ledger(TREE)
    for tenant, gpus in used.items():
        book.charge(tenant, [(GPU, gpus)])
    return book


@pytest.mark.parametrize(
    ("used", "tenant", "more", "found"),
    [
        pytest.param({}, "vision", {GPU: 8}, None, id="up to the limit is within it"),
        pytest.param(
            {"vision": 5},
            "vision",
            {GPU: 4},
            Excess("vision", GPU, 4, 5, 8),
            id="above the tenant's limit: names the tenant",
        ),
        pytest.param(
            {"vision": 8, "speech": 3},
            "speech",
            {GPU: 2},
            Excess("research", GPU, 2, 11, 12, is_group=True),
            id="a group's limit binds all its tenants together",
        ),
        pytest.param({"web": 99}, "web", {GPU: 1}, None, id="a resource without a limit"),
        pytest.param({}, "stranger", {GPU: 1000}, None, id="a tenant without a policy has none"),
        pytest.param(
            {"vision": 9},
            "vision",
            {"cpu": 1},
            None,
            id="a limit lowered below what is used refuses only more of it",
        ),
    ],
)
def test_excess(used: dict[str, int], tenant: str, more: Any, found: Any) -> None:
    assert ledger(**used).excess(tenant, more) == found


@pytest.mark.parametrize(
    ("used", "tenant", "more", "expected"),
    [
        pytest.param({}, "vision", {GPU: 4}, True, id="within its own guarantee"),
        pytest.param({"vision": 2}, "vision", {GPU: 4}, True, id="within the group's guarantee"),
        pytest.param({"vision": 2, "speech": 3}, "vision", {GPU: 4}, False, id="within neither"),
        pytest.param({"vision": 5}, "speech", {GPU: 3}, True, id="a sibling within the group's"),
        pytest.param({}, "web", {"cpu": 1}, False, id="no guarantee"),
        pytest.param({}, "vision", {"cpu": 1}, False, id="a resource that no guarantee names"),
        pytest.param(
            {},
            "vision",
            {GPU: 4, "cpu": 99},
            True,
            id="other resources are covered with guaranteed GPUs",
        ),
        pytest.param({}, "office", {"cpu": 1, "memory": 9}, True, id="and with guaranteed CPUs"),
        pytest.param(
            {}, "office", {GPU: 1, "cpu": 1}, False, id="GPUs are not covered with guaranteed CPUs"
        ),
        pytest.param(
            {}, "render", {GPU: 2, "gpu-model/L4": 2}, True, id="GPUs of a guaranteed kind"
        ),
        pytest.param({}, "render", {GPU: 2, "gpu-model/H100": 2}, False, id="GPUs of another kind"),
        pytest.param(
            {}, "render", {GPU: 3, "gpu-model/L4": 3}, False, id="too many of a guaranteed kind"
        ),
    ],
)
def test_within_guarantee(used: dict[str, int], tenant: str, more: Any, expected: bool) -> None:
    assert ledger(**used).within_guarantee(tenant, more) is expected


@pytest.mark.parametrize(
    ("used", "tenant", "resource", "expected"),
    [
        pytest.param({}, "vision", GPU, 8, id="the tenant's limit is the lower one"),
        pytest.param({"speech": 7}, "vision", GPU, 5, id="the group has less left"),
        pytest.param({"vision": 3, "speech": 1}, "vision", GPU, 5, id="the tenant has less left"),
        pytest.param({"vision": 8, "speech": 5}, "speech", GPU, -1, id="a limit below the usage"),
        pytest.param({}, "speech", GPU, 12, id="the group alone has a limit"),
        pytest.param({}, "vision", "cpu", None, id="no limit names the resource"),
    ],
)
def test_what_remains_of_a_quota(
    used: dict[str, int], tenant: str, resource: str, expected: int | None
) -> None:
    assert ledger(**used).remaining(tenant, resource) == expected


def test_only_borrowed_amounts_can_be_released() -> None:
    book = ledger(vision=6, speech=3, web=2)
    assert {
        "borrowed by vision": book.borrowed("vision"),
        "borrowed by research": book.borrowed("research"),
        "vision borrows 1": book.all_borrowed("vision", {GPU: 1}),
        "vision borrows 2, research does not": book.all_borrowed("vision", {GPU: 2}),
        "web borrows all": book.all_borrowed("web", {GPU: 2}),
        "borrowers": book.borrowers(GPU, except_for="speech"),
    } == {
        "borrowed by vision": {GPU: 2},
        "borrowed by research": {GPU: 1},
        "vision borrows 1": True,
        "vision borrows 2, research does not": False,
        "web borrows all": True,
        "borrowers": [("vision", 2), ("web", 2)],
    }


@given(
    st.lists(
        st.tuples(st.sampled_from(["vision", "speech", "web", "other"]), st.integers(1, 5)),
        max_size=12,
    )
)
def test_uncharging_leaves_nothing_and_a_new_tree_changes_no_amount(
    moves: list[tuple[str, int]],
) -> None:
    book = Ledger(TREE)
    for tenant, gpus in moves:
        book.charge(tenant, [(GPU, gpus), ("cpu", 7)])
    full = book.state()
    book.change_tree(TenantTree([TenantNode("vision", "a"), TenantNode("a", "b"), TenantNode("b")]))
    assert book.state() == full
    assert book.used("b") == book.used("vision")
    for tenant, gpus in moves:
        book.uncharge(tenant, [(GPU, gpus), ("cpu", 7)])
    assert (book.state(), list(book.members())) == ({}, [])


def test_the_tree_of_the_policies() -> None:
    sharing = Sharing.model_validate(
        {
            "halfLife": "30m",
            "tenants": [
                {"name": "research", "weight": 2, "quota": {"max": {GPU: 12}}},
                {"name": "vision", "parent": "research", "weight": 3},
            ],
        }
    )
    quotas = {"vision": Quota.model_validate({"guaranteed": {"cpu": "1500m"}, "max": {GPU: "8"}})}
    tree = TenantTree.of(PolicyTables({}, {}, {}, (), sharing=sharing, quotas=quotas))
    assert (tree.half_life, tree.path("vision"), tree.path("else")) == (
        1800.0,
        (
            TenantNode("vision", "research", 3, (("cpu", 1500),), ((GPU, 8),)),
            TenantNode("research", None, 2, (), ((GPU, 12),)),
        ),
        (TenantNode("else"),),
    )


def test_a_tenant_has_the_weight_of_its_tier_where_it_is_not_listed() -> None:
    gold = TierSpec.model_validate({"name": "gold", "rank": 2, "weight": 4})
    sharing = Sharing.model_validate({"tenants": [{"name": "vision", "weight": 2}]})
    tenants = {"vision": "gold", "speech": "gold", "web": None}
    tree = TenantTree.of(PolicyTables({"gold": gold}, {}, {}, (), sharing=sharing, tenants=tenants))
    assert [tree.member(name).weight for name in ("vision", "speech", "web")] == [2, 4, 1]


# --- trials ---

Usage = dict[str, dict[str, int]]


def usage(book: Ledger) -> Usage:
    """Every tenant and every group above it."""
    return {member: dict(book.used(member)) for member in sorted(book.members())}


@pytest.mark.parametrize(
    ("moves", "inside"),
    [
        pytest.param([], {"research": {GPU: 2}, "vision": {GPU: 2}}, id="without a move"),
        pytest.param(
            [("vision", 3)],
            {"research": {GPU: 5}, "vision": {GPU: 5}},
            id="a charge counts for the tenant and its group",
        ),
        pytest.param([("vision", -2)], {}, id="an uncharge of all usage"),
        pytest.param(
            [("vision", -2), ("speech", 4)],
            {"research": {GPU: 4}, "speech": {GPU: 4}},
            id="one tenant uncharged and another charged",
        ),
        pytest.param(
            [("vision", -3)],
            {"research": {GPU: -1}, "vision": {GPU: -1}},
            id="an uncharge of more than the usage",
        ),
        pytest.param(
            [("other", 1)],
            {"other": {GPU: 1}, "research": {GPU: 2}, "vision": {GPU: 2}},
            id="a tenant without usage before",
        ),
    ],
)
def test_a_trial_counts_inside_and_is_undone_at_its_end(
    moves: list[tuple[str, int]], inside: Usage
) -> None:
    book = ledger(vision=2)
    before = (usage(book), book.state())
    with book.trial():
        for tenant, gpus in moves:
            if gpus > 0:
                book.charge(tenant, [(GPU, gpus)])
            else:
                book.uncharge(tenant, [(GPU, -gpus)])
        counted = usage(book)
    assert (counted, (usage(book), book.state())) == (inside, before)


def test_a_trial_that_fails_is_undone() -> None:
    book = ledger(vision=2)

    def fail() -> None:
        with book.trial():
            book.charge("vision", [(GPU, 1)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (book.used("vision"), book.in_trial) == ({GPU: 2}, False)


def test_charges_after_a_trial_last() -> None:
    book = ledger()
    with book.trial():
        book.charge("vision", [(GPU, 1)])
    book.charge("vision", [(GPU, 2)])
    with book.trial():
        pass
    assert book.used("vision") == {GPU: 2}


MOVES = st.tuples(
    st.sampled_from(["vision", "speech", "web", "other"]),
    st.sampled_from([GPU, "cpu"]),
    st.integers(-4, 4),
)
TRIALS = st.recursive(MOVES, lambda inner: st.lists(inner, max_size=5), max_leaves=20)
"""A move, or a trial of moves and trials."""


def run(book: Ledger, step: Any) -> None:
    if isinstance(step, list):
        before = (usage(book), book.state())
        with book.trial():
            for inner in step:
                run(book, inner)
        assert (usage(book), book.state()) == before
        return
    tenant, resource, amount = step
    book.charge(tenant, [(resource, amount)])
    if amount % 2:
        book.uncharge(tenant, [(resource, 1)])


@given(st.lists(MOVES, max_size=6), st.lists(TRIALS, max_size=6))
def test_nested_trials_leave_the_usage_as_before(
    moves: list[tuple[str, str, int]], steps: list[Any]
) -> None:
    book = Ledger(TREE)
    for tenant, resource, amount in moves:
        book.charge(tenant, [(resource, amount)])
    run(book, steps)


@pytest.mark.parametrize(
    ("used", "requested", "within", "below"),
    [
        pytest.param({}, {GPU: 2, "cpu": 4000}, True, True, id="both resources are guaranteed"),
        pytest.param({}, {GPU: 4, "cpu": 8000}, True, True, id="as much as is guaranteed"),
        pytest.param({}, {GPU: 5, "cpu": 4000}, False, True, id="too many GPUs"),
        pytest.param({}, {GPU: 2, "cpu": 9000}, False, True, id="too much CPU"),
        pytest.param({}, {"cpu": 4000}, True, True, id="CPU alone"),
        pytest.param({}, {"memory": 1}, False, False, id="a resource that is not guaranteed"),
        pytest.param({}, {GPU: 2, "memory": 1}, True, True, id="it is covered with GPUs"),
        pytest.param(
            {GPU: 4}, {"cpu": 4000}, True, True, id="the GPUs are used up: CPU is not concerned"
        ),
        pytest.param(
            {GPU: 4},
            {GPU: 1, "cpu": 4000},
            False,
            False,
            id="the GPUs are used up: CPU is no right",
        ),
        pytest.param(
            {"cpu": 8000},
            {GPU: 1, "cpu": 1},
            False,
            True,
            id="the CPU is used up: GPUs are a right",
        ),
    ],
)
def test_a_guarantee_of_cpu_and_gpus(
    used: dict[str, int], requested: dict[str, int], within: bool, below: bool
) -> None:
    """The tenant is guaranteed 4 GPUs and 8 CPUs."""
    guaranteed = (("cpu", 8000), (GPU, 4))
    book = Ledger(TenantTree([TenantNode("t", guaranteed=guaranteed)]))
    book.charge("t", used.items())
    found = book.within_guarantee("t", requested), book.below_guarantee("t", requested)
    assert found == (within, below)
