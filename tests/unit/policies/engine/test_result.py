"""How much of an evaluation is reported."""

import pytest

from tests.policy_builders import a_platform_policy, a_tenant_policy, evaluated


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param(1, 1, id="one"),
        pytest.param(64, 64, id="as many as are reported"),
        pytest.param(65, 64, id="the first of more"),
        pytest.param(300, 64, id="the first of many more"),
    ],
)
def test_conflicts_of_two_policies(labels: int, want: int) -> None:
    """Both set the same labels to different values."""
    names = [f"k{number:03}" for number in range(labels)]
    found = evaluated(
        a_platform_policy("c", defaults=[{"set": {"labels": dict.fromkeys(names, "c")}}]),
        a_tenant_policy("t", defaults=[{"set": {"labels": dict.fromkeys(names, "t")}}]),
    )
    assert len(found.conflicts) == want
