"""Which pods are candidates for a preemptor, and what a victim group costs."""

from dataclasses import replace
from typing import Any

import pytest

from policies import vocabulary
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placement
from scheduler.model.unit import Unit, key_of
from scheduler.tenancy.preemption.candidates import (
    CandidateContext,
    PreemptionRule,
    is_candidate,
    rule_for,
    victim_groups,
)
from scheduler.tenancy.preemption.victims import PreemptionReason, VictimGroup
from tests.unit.scheduler.builders import a_pod, placed

TENANT = vocabulary.TENANT_LABEL
PREEMPTIBLE = {vocabulary.PREEMPTIBLE_LABEL: "true"}
NAME = vocabulary.SCHEDULER_NAME
NOW = 1000.0


def rule(**more: Any) -> PreemptionRule:
    fields = {"tenant": "a", "priority": 5, "gang": None, "reclaims": False, "preemptible": False}
    return PreemptionRule(**{**fields, **more})


def labels(tenant: str, **more: str) -> dict[str, str]:
    return {TENANT: tenant, **more}


@pytest.mark.parametrize(
    ("pod", "preemptor", "expected"),
    [
        pytest.param({"labels": labels("a"), "priority": 4}, {}, True, id="lower priority"),
        pytest.param({"labels": labels("a"), "priority": 5}, {}, False, id="equal priority"),
        pytest.param({"labels": labels("b"), "priority": 0}, {}, False, id="another tenant"),
        pytest.param(
            {"labels": {**labels("b"), **PREEMPTIBLE}, "priority": 9}, {}, True, id="preemptible"
        ),
        pytest.param(
            {"labels": {**labels("b"), **PREEMPTIBLE}},
            {"preemptible": True},
            False,
            id="preemptible for a preemptible preemptor",
        ),
        pytest.param({"labels": labels("b")}, {"reclaims": True}, True, id="reclaim"),
        pytest.param(
            {"labels": labels("a"), "priority": 5},
            {"reclaims": True},
            False,
            id="no reclaim within a tenant",
        ),
        pytest.param(
            {"labels": labels("b"), "priority": 2_000_000_000},
            {"reclaims": True},
            False,
            id="system-critical",
        ),
        pytest.param(
            {"labels": labels("b"), "priority": 1_999_999_999},
            {"reclaims": True},
            True,
            id="just below system-critical",
        ),
        pytest.param(
            {"labels": labels("a"), "gang": ("g", 1)},
            {"gang": GangKey("ns", "g")},
            False,
            id="the preemptor's own gang",
        ),
        pytest.param(
            {"labels": labels("a"), "gang": ("h", 1)},
            {"gang": GangKey("ns", "g")},
            True,
            id="another gang",
        ),
    ],
)
def test_candidates(pod: dict[str, Any], preemptor: dict[str, Any], expected: bool) -> None:
    assert is_candidate(a_pod(**pod), rule(**preemptor), scheduler=NAME) is expected


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"deleted": True}, id="terminating"),
        pytest.param({"annotations": {vocabulary.MIRROR_ANNOTATION: "x"}}, id="mirror"),
    ],
)
def test_pods_that_are_never_candidates(pod: dict[str, Any]) -> None:
    assert not is_candidate(a_pod(labels=labels("b"), **pod), rule(reclaims=True), scheduler=NAME)


BACKFILL = {vocabulary.BACKFILL_LABEL: "true"}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([{"priority": 5}], rule(), id="a single pod"),
        pytest.param(
            [{"gang": ("g", 2), "priority": 5}, {"gang": ("g", 2), "priority": 5}],
            rule(gang=GangKey("ns", "g")),
            id="a gang",
        ),
        pytest.param(
            [{"priority": 5}, {"priority": 5, "labels": PREEMPTIBLE}],
            rule(preemptible=True),
            id="one preemptible pod",
        ),
        pytest.param(
            [{"priority": 5, "labels": BACKFILL}, {"priority": 5}],
            rule(preemptible=True),
            id="one backfill pod",
        ),
        pytest.param(
            [{"priority": 5}, {"priority": 5, "preemptionPolicy": "Never"}],
            None,
            id="one pod that never preempts",
        ),
    ],
)
@pytest.mark.parametrize("reclaims", [False, True])
def test_the_rule_of_a_unit(
    pods: list[dict[str, Any]], expected: PreemptionRule | None, reclaims: bool
) -> None:
    made = [
        a_pod(f"p{i}", **{**row, "labels": {**labels("a"), **row.get("labels", {})}})
        for i, row in enumerate(pods)
    ]
    found = rule_for(Unit(key_of(made[0]), tuple(made)), reclaims=reclaims)
    assert found == (expected and replace(expected, reclaims=reclaims))


def test_pods_of_another_scheduler_are_no_candidates() -> None:
    assert not is_candidate(a_pod(labels=labels("a")), rule(), scheduler="other")


def member(number: int, *, size: int = 2, tenant: str = "a", **more: Any) -> Placement:
    return placed(a_pod(f"g{number}", gang=("g", size), labels=labels(tenant), **more), "n")


def started(second: int) -> dict[str, Any]:
    return {"startTime": f"1970-01-01T00:00:{second:02}Z"}


def groups(
    *members: Placement, reserved: tuple[Placement, ...] = (), **more: Any
) -> list[VictimGroup]:
    ranks = {"gold": 3, "": 0}
    context = CandidateContext(
        NAME,
        NOW,
        tier_rank=lambda tier: ranks.get(tier, 0),
        reserved={GangKey("ns", "g"): reserved},
    )
    return victim_groups(members, rule(**more), context)


def test_a_gang_has_the_priority_of_its_most_important_member() -> None:
    [group] = groups(member(0, priority=1), member(1, priority=4), member(2, size=3, priority=2))
    assert (group.core, group.priority) == (True, 4)


def test_a_gang_has_the_tier_of_its_highest_member() -> None:
    gold = placed(
        a_pod("g1", gang=("g", 2), labels=labels("a", **{"tenant.kubenexus.io/tier": "gold"})),
        "n",
    )
    [group] = groups(member(0), gold)
    assert group.tier == 3


def test_the_work_lost_is_summed_over_the_pods() -> None:
    [group] = groups(member(0, status=started(10)), member(1, status=started(20)))
    assert group.work_lost == (NOW - 10) + (NOW - 20)


def test_surplus_members_are_groups_of_their_own_and_the_newest_comes_first() -> None:
    made = [member(i, created=f"2026-01-01T00:00:0{i}Z") for i in range(4)]
    found = [(group.core, [one.pod.key.name for one in group.pods]) for group in groups(*made)]
    assert found == [(False, ["g3"]), (False, ["g2"]), (True, ["g1", "g0"])]


def test_a_gang_with_a_member_that_is_no_candidate_loses_only_its_surplus() -> None:
    made = [
        member(0, created="2026-01-01T00:00:00Z", priority=9),
        *(member(i, created=f"2026-01-01T00:00:0{i}Z") for i in (1, 2)),
    ]
    assert [(group.core, len(group.pods)) for group in groups(*made)] == [(False, 1)]


@pytest.mark.parametrize(
    ("size", "pending", "expected"),
    [
        pytest.param(
            2,
            {},
            [("ns/g+reserved", "", "g2"), ("ns/g", "g0 g1", "")],
            id="surplus: before the gang is evicted",
        ),
        pytest.param(3, {}, [("ns/g", "g0 g1", "g2")], id="an incomplete gang: with its members"),
        pytest.param(2, {"priority": 9}, [("ns/g", "g0 g1", "")], id="no candidate"),
    ],
)
def test_capacity_reserved_for_pending_members(
    size: int, pending: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    reserved = (member(2, size=size, **pending),)
    found = groups(member(0, size=size), member(1, size=size), reserved=reserved)
    assert [(group.key, names(group.pods), names(group.reserved)) for group in found] == expected


def names(placements: tuple[Placement, ...]) -> str:
    return " ".join(sorted(placement.pod.key.name for placement in placements))


@pytest.mark.parametrize(
    ("tenant", "reclaims", "reason", "other_tenant"),
    [
        pytest.param("a", False, PreemptionReason.PRIORITY, False, id="same tenant"),
        pytest.param("a", True, PreemptionReason.PRIORITY, False, id="same tenant, in reclaim"),
        pytest.param("b", False, PreemptionReason.PREEMPTIBLE, True, id="preemptible"),
        pytest.param("b", True, PreemptionReason.RECLAIM, True, id="reclaim"),
    ],
)
def test_a_group_has_its_reason(
    tenant: str, reclaims: bool, reason: PreemptionReason, other_tenant: bool
) -> None:
    pod = a_pod("v", labels={**labels(tenant), **PREEMPTIBLE})
    [group] = groups(placed(pod, "n"), reclaims=reclaims)
    assert (group.reason, group.other_tenant) == (reason, other_tenant)
