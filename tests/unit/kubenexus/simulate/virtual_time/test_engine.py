"""Small histories in virtual time, each asserted whole: when, what, which pod."""

import math
from dataclasses import replace
from typing import Any

import pytest

from kubenexus.simulate.virtual_time import engine
from kubenexus.simulate.virtual_time.engine import FIFO, GREEDY, OURS
from kubenexus.simulate.virtual_time.timeline import EntryKind, Job
from policies.documents.tenancy import Quota
from policies.engine.policyset import PolicyTables as PolicyTables
from scheduler.model.pod import OwnerRef, PodKey
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

TENANT = "tenant.kubenexus.io/name"
LASTS = "scheduling.kubenexus.io/expected-duration"
JOB = OwnerRef("Job", "j", "uid-j")


def job(
    name: str,
    *,
    arrives: float = 0.0,
    run_time: float = 100.0,
    says: float | None = None,
    tenant: str = "a",
    gpus: int = 1,
    members: int = 1,
    size: int | None = None,
    owned: bool = True,
    **more: Any,
) -> Job:
    """One that lasts as long as it says, and that a controller made."""
    said = run_time if says is None else says
    more = {
        "cpu": "0",
        "gpus": gpus,
        "labels": {TENANT: tenant},
        "annotations": {LASTS: f"{said:g}s"} if math.isfinite(said) else {},
        **more,
    }
    made = [a_pod(name, **more)] if members == 1 else a_gang(members, size=size, name=name, **more)
    owner = JOB if owned else None
    pods = tuple(replace(pod, created=arrives, owner=owner) for pod in made)
    return Job(pods, arrives, run_time)


def quotas(**by_tenant: dict[str, dict[str, Any]]) -> PlacementTables:
    found = {name: Quota.model_validate(quota) for name, quota in by_tenant.items()}
    return PlacementTables(policy=PolicyTables({}, {}, {}, (), quotas=found))


def timeline_of(
    jobs: list[Job], strategy: str = OURS, *, gpus: int = 2, tables: PlacementTables | None = None
) -> Any:
    run = engine.run([a_node("n", gpus=gpus)], jobs, strategy, tables=tables, cpu=lambda: 0.0)
    return [(one.at, str(one.kind), one.key.name) for one in run.timeline]


def arrived(at: float, name: str) -> tuple[float, str, str]:
    return at, "arrived", name


@pytest.mark.parametrize(
    ("jobs", "strategy", "want"),
    [
        pytest.param(
            [job("x"), job("y", run_time=math.inf)],
            GREEDY,
            [
                arrived(0, "x"),
                arrived(0, "y"),
                (0, "started", "x"),
                (0, "started", "y"),
                (100, "ended", "x"),
            ],
            id="a job without an end runs on",
        ),
        pytest.param(
            [job("x", gpus=2, run_time=math.inf), job("y", arrives=5)],
            GREEDY,
            [arrived(0, "x"), (0, "started", "x"), arrived(5, "y")],
            id="who waits for what never ends waits for ever",
        ),
        pytest.param(
            [job("x", gpus=2), job("g", arrives=1, members=3, size=2), job("y", arrives=2)],
            FIFO,
            [
                arrived(0, "x"),
                (0, "started", "x"),
                arrived(1, "g"),
                arrived(2, "y"),
                (100, "ended", "x"),
                (100, "started", "g"),
                (200, "ended", "g"),
                (200, "started", "y"),
                (300, "ended", "y"),
            ],
            id="a gang is over when its needed members are, even if others still wait",
        ),
        pytest.param(
            [job("x", schedulingGates=[{"name": "scheduling.kubenexus.io/gang"}], members=2)],
            OURS,
            [arrived(0, "x"), (0, "started", "x"), (100, "ended", "x")],
            id="the gate of a whole gang is lifted",
        ),
        pytest.param(
            [job("x", schedulingGates=[{"name": "somebody.else/gate"}])],
            OURS,
            [arrived(0, "x")],
            id="a gate of another controller is not",
        ),
        pytest.param(
            [
                job("x", says=50),
                job("y", run_time=90),
                job("g", arrives=1, members=2, run_time=10),
            ],
            OURS,
            [
                arrived(0, "x"),
                arrived(0, "y"),
                (0, "started", "x"),
                (0, "started", "y"),
                arrived(1, "g"),
                (1, "start estimated", "g"),
                (90, "ended", "y"),
                (100, "ended", "x"),
                (100, "started", "g"),
                (110, "ended", "g"),
            ],
            id="an overrun within the time of others moves nothing",
        ),
    ],
)
def test_histories(jobs: list[Job], strategy: str, want: list[tuple[float, str, str]]) -> None:
    assert timeline_of(jobs, strategy) == want


def test_a_guarantee_is_reclaimed_and_the_victim_starts_from_the_beginning() -> None:
    lent = [job("x", tenant="b"), job("y", tenant="b", arrives=1)]
    found = timeline_of(
        [*lent, job("mine", arrives=50, run_time=20)],
        tables=quotas(a={"guaranteed": {"nvidia.com/gpu": 1}}),
    )
    assert found == [
        arrived(0, "x"),
        (0, "started", "x"),
        arrived(1, "y"),
        (1, "started", "y"),
        arrived(50, "mine"),
        (50, "preempted", "y"),
        (80, "requeued", "y"),
        (80, "started", "mine"),
        (80, "start estimated", "y"),
        (100, "ended", "mine"),
        (100, "ended", "x"),
        (100, "started", "y"),
        (200, "ended", "y"),
    ]


def test_a_pod_without_a_controller_does_not_come_back() -> None:
    found = timeline_of(
        [job("x", tenant="b", owned=False), job("mine", arrives=50, run_time=20)],
        gpus=1,
        tables=quotas(a={"guaranteed": {"nvidia.com/gpu": 1}}),
    )
    assert found[-3:] == [(50, "preempted", "x"), (80, "started", "mine"), (100, "ended", "mine")]


def test_a_gang_is_evicted_and_requeued_as_a_whole() -> None:
    found = timeline_of(
        [job("g", tenant="b", members=2, run_time=200), job("mine", arrives=50, run_time=20)],
        tables=quotas(a={"guaranteed": {"nvidia.com/gpu": 1}}),
    )
    assert found[2:] == [
        arrived(50, "mine"),
        (50, "preempted", "g"),
        (80, "requeued", "g"),
        (80, "started", "mine"),
        (80, "start estimated", "g"),
        (100, "ended", "mine"),
        (100, "started", "g"),
        (300, "ended", "g"),
    ]


def test_a_limit_holds_back_until_its_tenant_gives_back() -> None:
    found = timeline_of(
        [job("x"), job("y", arrives=10)], tables=quotas(a={"max": {"nvidia.com/gpu": 1}})
    )
    assert found == [
        arrived(0, "x"),
        (0, "started", "x"),
        arrived(10, "y"),
        (10, "over quota", "y"),
        (100, "ended", "x"),
        (100, "started", "y"),
        (200, "ended", "y"),
    ]


def test_a_unit_over_quota_is_not_retried_when_other_tenants_end() -> None:
    run = engine.run(
        [a_node("n", gpus=3)],
        [job("x"), job("y", arrives=10), job("z", tenant="b", run_time=50)],
        OURS,
        tables=quotas(a={"max": {"nvidia.com/gpu": 1}}),
        cpu=lambda: 0.0,
    )
    assert (run.decisions, run.starts[PodKey("ns", "y")]) == (4, 100)


@pytest.mark.parametrize("strategy", [FIFO, GREEDY, OURS])
def test_members_above_the_minimum_start_later_and_end_with_the_gang(strategy: str) -> None:
    run = engine.run(
        [a_node("n", gpus=2)],
        [job("y", run_time=50), job("g", arrives=1, members=2, size=1, run_time=100)],
        strategy,
        cpu=lambda: 0.0,
    )
    spans = [(one.begin, one.end) for one in run.used if one.key.name == "g"]
    assert spans == [(1, 101), (50, 101)]


def test_usage_waits_and_lost_time() -> None:
    run = engine.run(
        [a_node("n", gpus=1)],
        [job("x", tenant="b"), job("mine", arrives=50, run_time=20), job("never", gpus=2)],
        OURS,
        tables=quotas(a={"guaranteed": {"nvidia.com/gpu": 1}}),
        cpu=lambda: 0.0,
    )
    spans = [(one.key.name, one.begin, one.end, one.lost) for one in run.used]
    waits = [(one.key.name, one.begin, one.end) for one in run.waits]
    assert (spans, waits) == (
        [("x", 0, 80, True), ("mine", 80, 100, False), ("x", 100, 200, False)],
        [
            ("x", 0, 0),
            ("mine", 50, 80),
            ("x", 80, 100),
            ("never", 0, math.inf),
        ],
    )


def test_work_that_overran_is_expected_to_overrun_as_long_again() -> None:
    run = engine.run(
        [a_node("n", gpus=2)],
        [job("x", says=50, run_time=1000), job("g", arrives=1, members=2, run_time=10)],
        OURS,
        cpu=lambda: 0.0,
    )
    timeline_of = [
        one for one in run.timeline if one.kind in (EntryKind.ESTIMATED, EntryKind.DELAYED)
    ]
    why = ": ns/x overran its expected duration"
    assert [(one.at, one.text) for one in timeline_of] == [
        (1, "by 50s, when ns/x have ended"),
        (61, f"by 2m1s{why}"),
        (132, f"by 3m34s{why}"),
        (225, f"by 6m40s{why}"),
        (411, f"by 12m52s{why}"),
        (783, f"by 25m16s{why}"),
    ]
    assert run.starts[timeline_of[0].key] == 1000


def test_capacity_that_is_freed_late_is_given_to_the_unit_with_the_start_reservation() -> None:
    """However often it was tried before, and however long it would pause by itself."""
    before = [job(f"y{i}", arrives=i, run_time=300 + i, says=300) for i in range(8)]
    found = timeline_of([*before, job("g", arrives=10, members=8, run_time=10)], gpus=8)
    assert [row for row in found if row[2] == "g" and row[1] != "start estimated"] == [
        arrived(10, "g"),
        (314, "started", "g"),
        (324, "ended", "g"),
    ]
