"""Figures of a run, worked out by hand."""

import math

import pytest

from kubenexus.simulate.virtual_time import wait_statistics
from kubenexus.simulate.virtual_time.timeline import EntryKind, Job, Run, Span, TimelineEntry
from scheduler.model.pod import PodKey
from scheduler.tenancy.quota.tree import TenantNode, TenantTree
from tests.unit.scheduler.builders import a_gang, a_pod

HALVES = {"a": 0.5, "b": 0.5}


def key(name: str) -> PodKey:
    return PodKey("ns", name)


def used(tenant: str, begin: float, end: float, gpus: int, *, lost: bool = False) -> Span:
    return Span(key(tenant), tenant, begin, end, gpus, 1000 * gpus, lost)


def waits(name: str, tenant: str, begin: float, end: float) -> Span:
    return Span(key(name), tenant, begin, end, 1)


USED = [used("a", 0, 7200, 2), used("b", 0, 7200, 1), used("a", 7200, 7300, 1)]
WAITS = [waits("x", "a", 0, 7200), waits("y", "b", 0, 7200), waits("z", "a", 7200, 7300)]


def test_how_full_and_how_fair() -> None:
    found: tuple[object, ...] = (
        wait_statistics.utilisation(USED, WAITS, 4, until=7200.0),
        wait_statistics.utilisation(USED, [], 4, until=7200.0),
        wait_statistics.deviation(USED, WAITS, HALVES, until=7200.0),
        wait_statistics.deviation(USED, WAITS, {"a": 0.4, "b": 0.4, "c": 0.2}, until=7200.0),
        wait_statistics.deviation(USED, WAITS, HALVES, until=3599.0),
        wait_statistics.quantile([4.0, 1.0, 3.0, 2.0], 0.5),
        wait_statistics.quantile([], 0.5),
    )
    assert found == (0.75, 1.0, pytest.approx(50 / 3), None, None, 2.0, 0.0)


def test_the_largest_tenth_of_the_gangs_and_never_a_single_pod() -> None:
    small = [Job(tuple(a_gang(2, name=f"g{i}", gpus=1)), float(i), 60.0) for i in range(19)]
    large = Job(tuple(a_gang(2, name="large", gpus=4)), 50.0, 60.0)
    alone = Job((a_pod("alone", gpus=8),), 0.0, 60.0)
    assert wait_statistics.largest([*small, large, alone]) == [large, small[0]]


def test_a_row_for_each_tenant_and_one_for_all() -> None:
    pods = {
        name: a_pod(name, gpus=1, labels={"tenant.kubenexus.io/name": name[0]})
        for name in ("a1", "a2", "b1")
    }
    jobs = [Job((pod,), 0.0, 60.0) for pod in pods.values()]
    run = Run(
        starts={key("a1"): 0.0, key("b1"): 30.0},
        used=[used("a", 0, 100, 3, lost=True), used("b", 30, math.inf, 1)],
        waits=[
            waits("a1", "a", 0, 0),
            waits("a1", "a", 100, 120),
            waits("a2", "a", 0, math.inf),
            waits("b1", "b", 0, 30),
        ],
        timeline=[
            TimelineEntry(0.0, EntryKind.ESTIMATED, key("b1"), "b"),
            TimelineEntry(10.0, EntryKind.DELAYED, key("b1"), "b"),
            TimelineEntry(20.0, EntryKind.DELAYED, key("b1"), "b"),
            TimelineEntry(100.0, EntryKind.PREEMPTED, key("a1"), "a"),
        ],
    )
    found = wait_statistics.tenant_statistics(
        jobs, run, {"a": 0.75, "b": 0.25}, until=130.0, measure=wait_statistics.gpus
    )
    assert found == (
        wait_statistics.TenantStatistics(
            "a", 2, 1, 20.0, math.inf, math.inf, 300.0, 0.75, 0.75, 1, 300.0, 0, 0
        ),
        wait_statistics.TenantStatistics(
            "b", 1, 0, 30.0, 30.0, 30.0, 100.0, 0.25, 0.25, 0, 0.0, 1, 1
        ),
        wait_statistics.TenantStatistics(
            "all", 3, 1, 30.0, math.inf, math.inf, 400.0, 1.0, 1.0, 1, 300.0, 1, 1
        ),
    )


def test_fair_shares_follow_the_weights_of_tenants_with_jobs() -> None:
    tree = TenantTree(
        [
            TenantNode("research", weight=3),
            TenantNode("vision", "research", weight=2),
            TenantNode("language", "research"),
            TenantNode("idle", "research", weight=9),
        ]
    )
    found = wait_statistics.fair_shares(tree, ["vision", "language", "shop"])
    assert found == {"vision": 0.5, "language": 0.25, "shop": 0.25}
