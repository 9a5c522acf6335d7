"""What an attack's figures mean, as a table of situations."""

from typing import Any

import pytest

from tests.hostile import report
from tests.hostile.neighbour import percentile

Json = dict[str, Any]

GOOD: Json = {
    "attack": {"sent": 20_000, "outcomes": {"stored": 9_000, "webhook failed": 0}},
    "ends": [],
    "lease": {"before": ("a", 3), "after": ["a", 3]},
    "neighbour": {
        "creates": 1_400,
        "failed_creates": [],
        "units": 800,
        "pending": [],
        "create_seconds": {"p50": 0.01, "p99": 0.9, "longest": 1.5},
        "bound_seconds": {"p50": 0.1, "p99": 4.9, "longest": 6.0},
    },
}


def but(**parts: Json) -> Json:
    return GOOD | {name: {**GOOD[name], **part} for name, part in parts.items()}


@pytest.mark.parametrize(
    ("result", "want"),
    [
        pytest.param(GOOD, [], id="the other tenant notices nothing"),
        pytest.param(
            GOOD | {"ends": [{"process": "webhook worker", "sent": 12, "said": "SIGABRT"}]},
            ["webhook worker ended after 12 objects: SIGABRT"],
            id="a process ends",
        ),
        pytest.param(
            but(lease={"after": ["b", 4]}),
            ["the lease changed hands: ('a', 3), then ['b', 4]"],
            id="another scheduler leads",
        ),
        pytest.param(
            but(neighbour={"failed_creates": ["500 at 127.0.0.1:1", "500 at 127.0.0.1:2"]}),
            ["2 creations of the neighbour failed: 500 at "],
            id="a creation of the other tenant fails",
        ),
        pytest.param(
            but(neighbour={"pending": ["n1-0"]}),
            ["pods of the neighbour are still pending: ['n1-0']"],
            id="a unit of the other tenant is not bound in the end",
        ),
        pytest.param(
            but(neighbour={"units": 0}), ["the neighbour created nothing"], id="no other tenant"
        ),
    ],
)
def test_what_must_not_be(result: Json, want: list[str]) -> None:
    assert report.problems(result) == want


def test_the_long_form_compares_the_times_of_the_other_tenant_with_their_bounds() -> None:
    late = {"p50": 0.1, "p99": 5.0, "longest": 9.0}
    assert report.slow(GOOD) == []
    assert report.slow(but(neighbour={"bound_seconds": late, "create_seconds": late})) == [
        "create_seconds p99 is 5.0 s, want less than 1 s",
        "bound_seconds p99 is 5.0 s, want less than 5 s",
    ]


def test_the_table_shows_the_attack_and_the_other_tenant() -> None:
    assert report.table(GOOD).splitlines() == [
        "| Measured | |",
        "| --- | ---: |",
        "| requests sent | 20,000 |",
        "| … stored | 9,000 |",
        "| … webhook failed | 0 |",
        "| processes that ended | 0 |",
        "| changes of leader | 0 |",
        "| creations of the other tenant | 1,400 |",
        "| … that failed | 0 |",
        "| … p50, p99, longest | 0.01 s, 0.90 s, 1.50 s |",
        "| units of the other tenant | 800 |",
        "| … p50, p99, longest until bound | 0.10 s, 4.90 s, 6.00 s |",
    ]


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [0.0, 50.0, 99.0, 99.0]
    assert percentile([], 0.99) == 0.0
