import contextlib
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import quantity


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", "0"),
        ("500m", "0.5"),
        ("1.5Gi", str(3 * 2**29)),
        (".5", "0.5"),
        ("5.", "5"),
        ("+2k", "2000"),
        ("-1", "-1"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("2E", "2000000000000000000"),
        ("1Ei", str(2**60)),
        ("100n", "1e-7"),
        ("1e-10", "1e-9"),
        ("0.0000000001", "1e-9"),
        ("9999999999999999999999", str(2**63 - 1)),
        ("-9999999999999999999999", str(1 - 2**63)),
        (1, "1"),
        (1.5, "1.5"),
    ],
)
def test_amounts_are_exact(text: object, want: str) -> None:
    assert quantity.parse(text) == Decimal(want)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "1 Gi",
        "1GB",
        "1gi",
        "0x10",
        "1e",
        "1e1.5",
        "--1",
        "1_000",
        "\u0661",
        True,
        None,
        [],
        "1e9999",
    ],
)
def test_an_invalid_quantity_is_rejected_with_what_is_accepted(text: object) -> None:
    with pytest.raises(quantity.QuantityError, match=r"found .* want a quantity such as 500m"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("resource", "value", "want"),
    [
        pytest.param("cpu", "1", 1000, id="CPU counts in thousandths"),
        pytest.param("cpu", "1u", 1, id="less than a thousandth of a CPU counts as one"),
        pytest.param("memory", "1Ki", 1024, id="memory counts in bytes"),
        pytest.param("memory", "1500m", 2, id="a part of a byte counts as a byte"),
        pytest.param("nvidia.com/gpu", "8", 8, id="GPUs count whole"),
    ],
)
def test_counting(resource: str, value: str, want: int) -> None:
    assert quantity.amount(resource, value) == want


@pytest.mark.parametrize(
    ("resource", "count", "want"),
    [
        ("cpu", 2000, "2"),
        ("cpu", 1500, "1500m"),
        ("memory", 2**31, "2Gi"),
        ("memory", 3 * 2**29, "1536Mi"),
        ("memory", 2**30 + 1, "1.0Gi"),
        ("memory", 7, "7"),
        ("memory", 0, "0"),
        ("ephemeral-storage", 1024, "1Ki"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource: str, count: int, want: str) -> None:
    assert quantity.show(resource, count) == want


@given(st.text(max_size=300))
def test_any_text_is_an_amount_or_our_own_error(text: str) -> None:
    with contextlib.suppress(quantity.QuantityError):
        assert abs(quantity.parse(text)) < 2**63


@given(st.integers(0, 2**62), st.sampled_from(["cpu", "memory"]))
def test_what_is_shown_exactly_reads_back(count: int, resource: str) -> None:
    shown = quantity.show(resource, count)
    assert "." in shown or quantity.amount(resource, shown) == count


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param("1" * 1_000_000, "found '1111", id="digits"),
        pytest.param("x" * 1_000_000, "found 'xxxx", id="letters"),
        pytest.param(10**5000, "found an integer of 16610 bits", id="an integer"),
        pytest.param({"a": [0] * 100_000}, "found a map, ", id="a map"),
    ],
)
def test_a_long_value_is_rejected_with_a_short_message(value: object, message: str) -> None:
    with pytest.raises(quantity.QuantityError, match=re.escape(message)) as caught:
        quantity.parse(value)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(f"cpu={'1' * 65}", "of 65 characters for cpu", id="one amount"),
        pytest.param(
            ",".join(f"a.b/{n}=1" for n in range(65)), "want amounts of at most 64", id="many"
        ),
    ],
)
def test_amounts_are_bounded_in_length_and_number(text: str, message: str) -> None:
    with pytest.raises(quantity.QuantityError, match=message):
        quantity.amounts(text)
