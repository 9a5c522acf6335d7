from datetime import UTC, datetime, timedelta, timezone

import pytest

from policies.text import shown, timestamp


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("", "''"),
        ("x" * 40, f"'{'x' * 40}'"),
        ("x" * 41, f"'{'x' * 40}'..."),
        (None, "None"),
        (True, "True"),
        (-7, "-7"),
        (1e30, "1e+30"),
        pytest.param(10**5000, "an integer of 16610 bits", id="an integer"),
        ([["x"]], "a list"),
        ({"a": 1}, "a map"),
    ],
)
def test_a_value_in_a_message_is_short_however_large_it_is(value: object, want: str) -> None:
    assert shown(value) == want


EAST = timezone(timedelta(hours=23, minutes=59))
WEST = timezone(-timedelta(hours=23, minutes=59))


@pytest.mark.parametrize(
    ("at", "want"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1.9, "1970-01-01T00:00:01Z"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "2026-01-01T00:00:00Z"),
        (datetime(7, 1, 1, tzinfo=UTC), "0007-01-01T00:00:00Z"),
        (1e12, "9999-12-31T23:59:59Z"),
        (float(2**63), "9999-12-31T23:59:59Z"),
        (float("inf"), "9999-12-31T23:59:59Z"),
        (float("nan"), "9999-12-31T23:59:59Z"),
        (datetime.max.replace(tzinfo=WEST), "9999-12-31T23:59:59Z"),
        (-1e12, "0001-01-01T00:00:00Z"),
        (float("-inf"), "0001-01-01T00:00:00Z"),
        (datetime.min.replace(tzinfo=EAST), "0001-01-01T00:00:00Z"),
    ],
)
def test_every_time_has_a_timestamp(at: datetime | float, want: str) -> None:
    assert timestamp(at) == want
