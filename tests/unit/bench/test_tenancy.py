"""The tenancy benchmark, small: the same jobs under all strategies, and figures worked out by hand."""

import math

import pytest

from kubenexus.simulate.virtual_time import engine
from kubenexus.simulate.virtual_time.engine import FIFO, GREEDY, OURS, Job
from scheduler.model.gang import GangKey
from scheduler.model.pod import PodKey
from tests.bench import tenancy_figures, tenancy_plot, tenancy_report, tenancy_trace
from tests.unit.scheduler.builders import a_gang, a_node, a_pod


def lasting(seconds: int) -> dict[str, str]:
    return {"scheduling.kubenexus.io/expected-duration": f"{seconds}s"}


def jobs() -> list[Job]:
    """A gang that needs both GPUs comes while one is in use; small ones keep coming behind it."""
    first = Job((a_pod("first", cpu="0", gpus=1, annotations=lasting(100)),), 0.0, 100.0)
    gang = a_gang(2, cpu="0", gpus=1, annotations=lasting(50), created="2026-01-01T00:00:10Z")
    small = [
        Job(
            (a_pod(f"s{at}", cpu="0", gpus=1, annotations=lasting(85), created=_at(at)),),
            float(at),
            85.0,
        )
        for at in (12, 90, 175)
    ]
    return [first, Job(tuple(gang), 10.0, 50.0), *small]


def _at(seconds: int) -> str:
    return f"2026-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"


@pytest.mark.parametrize(
    ("strategy", "starts"),
    [
        pytest.param(FIFO, (0, 100, 150, 150, 235), id="fifo: all jobs behind the gang wait"),
        pytest.param(GREEDY, (0, 260, 12, 97, 175), id="greedy: the gang waits for all of them"),
        pytest.param(OURS, (0, 100, 12, 150, 175), id="ours: jobs that end in time are backfilled"),
    ],
)
def test_strategies(strategy: str, starts: tuple[float, ...]) -> None:
    found = engine.run([a_node("n", gpus=2)], jobs(), strategy, cpu=lambda: 0.0)
    names = ("first", "g", "s12", "s90", "s175")
    keys = [GangKey("ns", n) if n == "g" else PodKey("ns", n) for n in names]
    assert tuple(found.starts[key] for key in keys) == starts


def test_work_has_the_requested_demand() -> None:
    gangs = [tenancy_trace.Gang(2, 1000, 1024, 1, 600), tenancy_trace.Gang(1, 500, 512, 8, 60)]
    found = tenancy_trace.work(gangs, 16, demand=1.1, hours=2, seed=5)
    requested = sum(
        len(one.pods) * one.run_time * one.pods[0].spec.host_request.gpus for one in found
    )
    assert requested == pytest.approx(1.1 * 16 * 7200, rel=0.05)
    assert {one.pods[0].attributes.tenant for one in found} == {"a", "b", "c"}
    assert [one.run_time for one in found] == [one.pods[0].attributes.duration for one in found]


def test_guesses_change_the_expected_durations_and_nothing_else() -> None:
    gangs = [tenancy_trace.Gang(2, 1000, 1024, 1, 600), tenancy_trace.Gang(1, 500, 512, 8, 60)]
    guess = tenancy_trace.Guess(sigma=0.5, silent=0.5)
    true, said = (
        tenancy_trace.work(gangs, 16, demand=1.1, hours=9, seed=5, guess=one)
        for one in (None, guess)
    )

    def same(one: Job) -> tuple[object, ...]:
        return one.key, one.arrives, one.run_time, one.gpus

    assert [same(one) for one in said] == [same(one) for one in true]
    factors = [
        one.run_time / one.pods[0].attributes.duration
        for one in said
        if one.pods[0].attributes.duration
    ]
    silent = len(said) - len(factors)
    assert (0.4 < silent / len(said) < 0.6, 0.8 < sorted(factors)[len(factors) // 2] < 1.25) == (
        True,
        True,
    )


def test_a_report_of_a_small_run() -> None:
    nodes = [a_node("n", gpus=2)]
    samples = []
    for strategy in engine.STRATEGIES:
        run = engine.run(nodes, jobs(), strategy, cpu=iter(range(10**6)).__next__)
        figures = tenancy_figures.figures(jobs(), run, 2, {"": 1})
        assert figures["never"] == 0
        assert math.isfinite(figures["wait_p95"])
        samples.append(
            {"demand": 1.1, "seed": 1, "strategy": strategy, "hours": 1.0, "gpus": 2, **figures}
        )
    results = {
        "at": "2026-01-01",
        "code": "x",
        "machine": {"cores": 2, "python": "3"},
        "samples": samples,
    }
    judged = {row.figure: row.holds for row in tenancy_report.report(results)}
    assert judged["p95 wait of the largest tenth of gangs, ours / greedy"]
    assert "| 110 % | ours |" in tenancy_report.markdown(results)
    svg = tenancy_plot.svg(samples)
    assert all(f">{strategy}</text>" in svg for strategy in engine.STRATEGIES)
    assert "guessed" not in tenancy_report.markdown(results)
    guessed = {**samples[-1], "guessed": True, "large_p95": 1e6}
    both = [*samples, guessed]
    with_guess = {**results, "samples": both}
    assert tenancy_report.report(with_guess) == tenancy_report.report(results)
    assert "| ours, durations guessed | " in tenancy_report.markdown(with_guess)
    assert tenancy_plot.svg(both) == tenancy_plot.svg(samples)
