import pytest

from policies.text import shown


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
