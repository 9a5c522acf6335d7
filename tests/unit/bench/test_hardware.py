"""The hardware benchmark on a trace of a few hosts: what is replayed, judged, shown and drawn."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench import bench_hardware, hardware_plot, hardware_report
from tests.bench.hardware_planning import FABRIC, NUMA, PLAIN, Case, all_cases, measure, ratios
from tests.bench.hardware_replay import OURS, POLICIES, replay
from tests.bench.hardware_trace import Task, Trace, TraceError, arrivals, read
from tests.unit.bench import measurements

HOSTS = """sn,cpu_milli,memory_mib,gpu,model
big,96000,393216,8,G2
rich,104000,524288,2,T4
poor,16000,122880,2,P100
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
one,4000,4096,1,1000,
shared,4000,4096,1,460,
none,4000,4096,0,0,
two,40000,4096,1,1000,
three,8000,4096,2,1000,P100|T4
"""


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(HOSTS)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    return read(tmp_path, "default")


def test_only_whole_gpu_tasks_are_read(trace: Trace) -> None:
    assert (trace.gpus, trace.tasks) == (
        12,
        (
            Task(4000, 4096, 1),
            Task(40000, 4096, 1),
            Task(8000, 4096, 2, ("P100", "T4")),
        ),
    )


def test_arrivals_are_the_trace_and_then_drawn_from_it(trace: Trace) -> None:
    found = arrivals(trace, demand=1.3, seed=1)
    assert found[:3] == list(trace.tasks)
    assert sum(task.gpus for task in found[:-1]) < 1.3 * 12 <= sum(task.gpus for task in found)
    assert found == arrivals(trace, demand=1.3, seed=1) != arrivals(trace, demand=1.3, seed=2)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_replay_is_a_value(trace: Trace, policy: str) -> None:
    one = replay(trace, policy, seed=3)
    requested = [requested for requested, _ in one.curve]
    assert one == replay(trace, policy, seed=3)
    assert requested == sorted(requested)
    assert 0.0 < one.rate_at(1.0) <= one.rate <= 1.0
    placed = sum(gpus * (tasks - dropped) for gpus, tasks, dropped in one.dropped)
    assert placed == round(one.rate * trace.gpus)


def test_a_requested_gpu_model_is_respected(trace: Trace) -> None:
    only = Trace(trace.hosts, (Task(1000, 1024, 1, ("G2",)),))
    assert replay(only, OURS, seed=1).dropped == ((1, 16, 8),)


def test_a_trace_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TraceError):
        read(tmp_path, "default")
    code = bench_hardware.main(["--part", "trace", "--trace", str(tmp_path)])
    assert (code, "give their folder with --trace" in capsys.readouterr().err) == (2, True)


def test_planning_is_measured_beside_the_plain_planner() -> None:
    cases = all_cases((60,), pods=32)
    found = list(measure(cases, rounds=1))
    kinds = [(one["gang"], one["kind"]) for one in found]
    assert kinds == [
        *((1, kind) for kind in (PLAIN, NUMA)),
        *((gang, kind) for gang in (4, 16) for kind in (PLAIN, NUMA, FABRIC)),
    ]
    assert all(one["plan_us"] > 0 for one in found)
    assert ratios(found, Case(60, 4, PLAIN)) == [1.0]


def test_the_figures_of_the_hardware_benchmark() -> None:
    found = hardware_report.report(measurements.hardware())
    assert [(row.measured, row.holds, row.spread) for row in found] == [
        (-2.0, False, "-2.00 to 1.00"),
        (2.9, True, "2.50 to 3.50"),
    ]


def test_the_tables_of_the_page() -> None:
    trace, planning = (
        hardware_report.markdown(measurements.hardware(), part) for part in ("trace", "planning")
    )
    assert "| default | ours | 97.00 (95.00-99.00) | 96.00 (94.00-98.00) | 75.00" in trace
    assert "| gangs of 4 on 1,000 nodes | fabric | 29 (25-70) | 5 (5-5) | 7 (7-7) |" in planning


def test_the_plot_shows_every_policy() -> None:
    svg = hardware_plot.svg(measurements.hardware()["trace"], "title")
    drawn = ElementTree.fromstring(svg)
    texts = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    lines = [group.get("id") for group in drawn.iter("{http://www.w3.org/2000/svg}g")]
    assert {OURS, "random", "best-fit"} <= set(lines)
    assert {"title", "ours 97.0 %", "random 97.5 %", "best-fit 90.0 %"} <= texts


def test_the_same_measurements_give_the_same_bytes() -> None:
    svg, again = (hardware_plot.svg(measurements.hardware()["trace"], "title") for _ in range(2))
    assert svg == again
    assert "dc:date" not in svg
