from datetime import UTC, datetime
from typing import Any

import pytest

from policies.documents.faults import Fault
from policies.engine import status as conditions
from policies.engine.status import Loaded

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, tzinfo=UTC)
EARLIER = "2026-01-01T00:00:00Z"
MINE = Fault("TenantPolicy/a", 0, 0, "spec", "wrong")
THEIRS = Fault("TenantPolicy/b", 0, 0, "spec", "wrong too")


def an_object(status: Json | None = None) -> Json:
    obj: Json = {"kind": "TenantPolicy", "metadata": {"name": "a", "generation": 3}}
    return obj if status is None else obj | {"status": status}


def row(
    kind: str, holds: bool, reason: str, message: str, since: str = "2026-01-02T00:00:00Z"
) -> Json:
    return {
        "type": kind,
        "status": str(holds),
        "reason": reason,
        "message": message,
        "observedGeneration": 3,
        "lastTransitionTime": since,
    }


def good(since: str = "2026-01-02T00:00:00Z") -> Json:
    return {
        "observedGeneration": 3,
        "conditions": [
            row("Compiled", True, "Valid", "every expression compiles", since),
            row("Ready", True, "InForce", "in force", since),
        ],
    }


@pytest.mark.parametrize(
    ("obj", "loaded", "want"),
    [
        pytest.param(an_object(), Loaded(True), good(), id="a new policy in force"),
        pytest.param(
            an_object(good(EARLIER)), Loaded(True), None, id="nothing changed, nothing is written"
        ),
        pytest.param(
            an_object(good(EARLIER)),
            Loaded(False, (MINE, THEIRS)),
            {
                "observedGeneration": 3,
                "conditions": [
                    row("Compiled", False, "Invalid", "TenantPolicy/a: spec: wrong"),
                    row("Ready", False, "Invalid", "not in force: it has faults of its own"),
                ],
            },
            id="faults of its own",
        ),
        pytest.param(
            an_object(good(EARLIER)),
            Loaded(False, (THEIRS,)),
            {
                "observedGeneration": 3,
                "conditions": [
                    row("Compiled", True, "Valid", "every expression compiles", EARLIER),
                    row(
                        "Ready",
                        False,
                        "PolicySetRejected",
                        "the last good set stays in force until these are corrected: TenantPolicy/b",
                    ),
                ],
            },
            id="kept back by another policy's faults",
        ),
        pytest.param(
            an_object(good(EARLIER) | {"observedGeneration": 2}),
            Loaded(True),
            good(EARLIER),
            id="a new generation of the same verdict keeps its time",
        ),
    ],
)
def test_status(obj: Json, loaded: Loaded, want: Json | None) -> None:
    assert conditions.status(obj, loaded, now=NOW) == want
