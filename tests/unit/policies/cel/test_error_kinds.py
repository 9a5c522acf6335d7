from typing import get_args

import pytest

from policies.cel import error_kinds
from policies.cel.protocol import ErrorKind


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        pytest.param(
            'NOT_FOUND: Key not found in map : "a"',
            "missing-key",
            'Key not found in map : "a"',
            id="the status is cut off",
        ),
        pytest.param("INVALID_ARGUMENT: divide by zero", "divide", "divide by zero", id="divide"),
        pytest.param("modulus or divide by zero", "divide", "modulus or divide by zero", id="both"),
        pytest.param(
            "INTERNAL: Iteration budget exceeded [INTERNAL]",
            "budget",
            "Iteration budget exceeded",
            id="the status behind is cut off",
        ),
        pytest.param(
            "UNKNOWN: [function] no answer", "function", "no answer", id="our own tag is read back"
        ),
        pytest.param(
            "UNKNOWN: [nonsense] no answer", "other", "[nonsense] no answer", id="a foreign tag"
        ),
        pytest.param(
            'NOT_FOUND: Key not found in map : "divide by zero"',
            "missing-key",
            'Key not found in map : "divide by zero"',
            id="what the object says does not choose the kind",
        ),
        pytest.param("something new", "other", "something new", id="unknown words"),
    ],
)
def test_kind_of_a_text(text: str, kind: ErrorKind, message: str) -> None:
    error = error_kinds.evaluation_error(text)
    assert (error.kind, error.message) == (kind, message)


def test_every_kind_survives_its_tag() -> None:
    for kind in get_args(ErrorKind):
        assert (
            error_kinds.evaluation_error(f"UNKNOWN: {error_kinds.tagged(kind, 'why')}").kind == kind
        )
