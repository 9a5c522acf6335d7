"""The CEL conformance suite on both engines; see `cel_spec` for what counts as passed."""

from typing import Final

import pytest

from policies.cel import engines
from tests.conformance import cel_spec

# Engine -> the vectors it passes today: fewer is a loss, more moves the line.
PASSED: Final = {"cel-expr-python": 1713, "cel-python": 1166}


@pytest.mark.skipif(
    not cel_spec.VECTORS.exists(), reason="the conformance vectors are not beside the repository"
)
@pytest.mark.parametrize("name", engines.ENGINES)
def test_vectors_passed(name: str) -> None:
    outcomes = list(cel_spec.run(engines.engine(name), cel_spec.load()))
    passed = sum(outcome.passed for outcome in outcomes)
    assert (len(outcomes), passed >= PASSED[name], passed >= cel_spec.REACH.get(name, 0)) == (
        1756,
        True,
        True,
    )
