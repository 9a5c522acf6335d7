"""Who goes without touching promises: which of a tenant's pods, and what a group keeps."""

import pytest

from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.plan import Placed, Placement
from scheduler.tenancy.preemption.guarantees import GuaranteeKeeper
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimGroup
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import TenantNode, TenantTree
from tests.unit.scheduler.builders import a_pod

GPU = "nvidia.com/gpu"


def group(**promises: int) -> Ledger:
    """Tenants a and b under g, c beside them; each pod of `bundles` counts one GPU."""
    members = [TenantNode("g", guaranteed=_pairs(promises.get("g", 0)))]
    members += [
        TenantNode(name, "g" if name in "ab" else None, guaranteed=_pairs(promises.get(name, 0)))
        for name in "abc"
    ]
    return Ledger(TenantTree(members))


def _pairs(amount: int) -> tuple[tuple[str, int], ...]:
    return ((GPU, amount),) if amount else ()


def bundles(names: str, ledger: Ledger) -> list[VictimGroup]:
    """`a1 a2 c1`: each a pod of the tenant that it begins with, foreign to the unit."""
    found = []
    for name in names.split():
        pod = a_pod(name, gpus=1, labels={"tenant.kubenexus.io/name": name[0]})
        ledger.charge(name[0], [(GPU, 1)])
        found.append(VictimGroup(name, (Placement(pod, "n", NO_ASSIGNMENT),), other_tenant=True))
    return found


@pytest.mark.parametrize(
    ("promises", "pods", "unit", "wanted", "found"),
    [
        pytest.param({}, "a1 a2", "c", "a1 a2", "a1 a2", id="nobody was promised anything"),
        pytest.param({"a": 1}, "a1 a2", "c", "a2", "a2", id="the dearer one is in the way"),
        pytest.param({"a": 1}, "a1 a2", "c", "a1 a2", "", id="both, of which one must stay"),
        pytest.param({"g": 1}, "a1 b1", "c", "a1 b1", "", id="a group keeps what it was promised"),
        pytest.param({"g": 1}, "a1", "b", "a1", "a1", id="within a group nothing is lost to it"),
        pytest.param({"g": 2}, "a1 b1", "c", "b1", "", id="a group that has no more than that"),
    ],
)
def test_who_goes(promises: dict[str, int], pods: str, unit: str, wanted: str, found: str) -> None:
    """The unit fits when all of `wanted` are gone."""
    ledger = group(**promises)
    able = bundles(pods, ledger)
    before = ledger.state()
    needed = set(wanted.split())

    def choose(among: list[VictimGroup]) -> PreemptionPlan | None:
        chosen = tuple(one for one in among if one.key in needed)
        return PreemptionPlan(chosen, Placed(())) if len(chosen) == len(needed) else None

    sparing = GuaranteeKeeper(ledger, lambda one: {GPU: 1}, preemptor=(unit, {GPU: 1}))
    verdict = sparing.choose(able, choose)
    names = " ".join(one.key for one in verdict.groups) if verdict else ""
    assert (names, ledger.state()) == (found, before)


@pytest.mark.parametrize(
    ("less", "gone", "who"),
    [
        pytest.param({"a": 1}, {}, None, id="there is more than was promised"),
        pytest.param({"a": 2}, {}, "a", id="a tenant falls below"),
        pytest.param({"a": 1, "b": 1}, {}, "g", id="both together, their group falls below"),
        pytest.param({"a": 1}, {"a": 1}, "a", id="another one is going already"),
        pytest.param({"b": 1}, {"c": 1}, None, id="what is going is of others"),
    ],
)
def test_who_is_robbed(less: dict[str, int], gone: dict[str, int], who: str | None) -> None:
    ledger = group(a=1, g=3)
    bundles("a1 a2 b1 b2 c1", ledger)
    rows, going = ([(t, {GPU: n}) for t, n in one.items()] for one in (less, gone))
    assert ledger.breached_guarantee(rows, going) == who
