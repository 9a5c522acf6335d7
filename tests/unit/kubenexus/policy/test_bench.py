import itertools
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubenexus.policy import bench
from kubenexus.policy.bench import BenchReport, Cost
from kubenexus.policy.errors import UsageError
from policies.engine.request import AdmissionRequest
from tests.unit.kubenexus.policy.policy_files import a_policy, a_rule, compiled

BEFORE = BenchReport("e 1", 10, Cost(2.0, 3.0, 4.0), {"a": Cost(4.0, 4.0, 4.0), "gone": Cost(1.0, 1.0, 1.0)})  # fmt: skip
AFTER = BenchReport("e 2", 10, Cost(1.0, 3.0, 12000.0), {"a": Cost(6.0, 7.0, 8.0), "b": Cost(9.0, 9.0, 9.0)})  # fmt: skip


def test_quantiles_are_those_of_the_times_measured() -> None:
    # The bench reads the clock before and after each request: request n takes n microseconds.
    ticks = itertools.chain.from_iterable((0, n * 1000) for n in itertools.cycle(range(1, 101)))
    report = bench.run(
        [AdmissionRequest.of(bench.SAMPLE, namespace={"metadata": {"name": "team"}})],
        compiled(a_policy("a"), a_policy("b", validations=[a_rule("x", "true")])),
        rounds=100,
        engine="e",
        now=datetime(2026, 1, 1, tzinfo=UTC),
        clock=lambda: next(ticks),
    )
    cost = Cost(50.0, 95.0, 99.0)
    assert report == BenchReport("e", 100, cost, {"a": cost, "b": cost})


def test_a_saved_baseline_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    file.write_text(bench.as_json(BEFORE))
    assert bench.read(file) == BEFORE
    file.write_text(bench.as_json(AFTER, BEFORE))
    assert bench.read(file) == AFTER


def test_ratios_to_the_baseline() -> None:
    assert json.loads(bench.as_json(AFTER, BEFORE))["ratios"] == {
        "a": 1.5,
        "b": None,
        bench.ALL: 0.5,
    }
    assert bench.as_text(AFTER, BEFORE) == (
        "POLICY              P50        P95        P99  P50 AGAINST BASELINE\n"
        "b                 9.0us      9.0us      9.0us  new\n"
        "a                 6.0us      7.0us      8.0us  1.50x\n"
        "all policies      1.0us      3.0us     12.0ms  0.50x\n"
        "        gone: gone\n"
        "10 requests per row, e 2\n"
        "note: the baseline was measured with e 1"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(None, "cannot be read", id="not there"),
        pytest.param("{", "is no JSON", id="no JSON"),
        pytest.param("[]", "is no baseline", id="something else"),
        pytest.param('{"format": 1, "policies": {"a": 1}}', "is damaged", id="damaged"),
    ],
)
def test_a_bad_baseline_is_one_message(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "b.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=message):
        bench.read(file)
