from datetime import timedelta
from typing import Any

import pytest

from policies.cel.volume import volume


def nested(depth: int) -> Any:
    value: Any = "x" * 100
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        pytest.param(None, 0, 4, id="nothing"),
        pytest.param("x" * 50, 50, 60, id="a text"),
        pytest.param({"k" * 10: ["v" * 10] * 10}, 110, 150, id="keys and items"),
        pytest.param([1] * 1_000, 1_000, 3_000, id="numbers"),
        pytest.param({1: b"x" * 50, 2: timedelta(1)}, 50, 300, id="values of CEL alone"),
        pytest.param({"a": 1 << 100, "b": "x" * 50}, 50, 150, id="a number beyond 64 bits"),
        pytest.param(nested(2_000), 100, 10_000, id="nested deeply"),
    ],
)
def test_volume(value: object, least: int, most: int) -> None:
    assert least <= volume(value) <= most
