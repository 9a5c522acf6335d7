"""ResourceReservations before the webhook: who may write them, what is wrong, what is worth knowing."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from policies import vocabulary
from policies.checks.reservation import ReservationFacts
from policies.engine.policyset import PolicySet, PolicyTables
from tests.builders import a_namespace
from webhook.admission import decide
from webhook.admission.decide import Facts
from webhook.admission.guards import TrustedUsers
from webhook.review.codec import Review

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
MANAGER, TENANT_USER = TrustedUsers(manages_tenants=True), TrustedUsers()
NODE: Json = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}
GROUND = ReservationFacts.of([NODE], [], {"a"}, exclude="ns/r")
NONE = PolicySet()
HOME = a_namespace("ns")
WHOLE: Json = {"tenant": "a", "nodes": ["n"], "until": "2026-07-01T00:00:00Z"}
GROUP: Json = {
    "podGroup": {
        "name": "g",
        "leader": "u",
        "members": 1,
        "resources": {"cpu": "1"},
        "places": [{"node": "n"}],
    },
    "until": "2026-07-01T00:00:00Z",
}


def a_review(spec: Json, old: Json | None = None) -> Review:
    def made(spec: Json | None) -> Json | None:
        return None if spec is None else {**about, "spec": spec}

    about = {
        "apiVersion": vocabulary.API_VERSION,
        "kind": "ResourceReservation",
        "metadata": {"namespace": "ns", "name": "r"},
    }
    return Review(
        uid="u",
        operation="CREATE" if old is None else "UPDATE",
        kind="ResourceReservation",
        group=vocabulary.GROUP,
        version="v1alpha1",
        resource="resourcereservations",
        namespace="ns",
        name="r",
        user={"username": "eve"},
        object=made(spec),
        old_object=made(old),
    )


RIGHT = (
    "kubenexus/reservation-right: 'eve' reserves capacity for a tenant, and does not manage tenants"
    " (spec.tenant): ask a user who may update tenantpolicies.policy.kubenexus.io"
)
ALONE = (
    "kubenexus/reservation: written by the scheduler alone; reserve for a tenant: nodes, or count"
    " and resources (spec.podGroup): correct it and apply it again"
)
PAST = (
    "kubenexus/reservation: found 2026-05-01T00:00:00Z, which has passed; want a time after"
    " 2026-06-01T00:00:00Z (spec.until): correct it and apply it again"
)


@pytest.mark.parametrize(
    ("review", "trust", "reservation_facts", "refused", "warned"),
    [
        pytest.param(a_review(WHOLE), MANAGER, GROUND, [], [], id="a sound one"),
        pytest.param(
            a_review(WHOLE), TENANT_USER, GROUND, [RIGHT], [], id="by a user of a namespace"
        ),
        pytest.param(
            a_review({**WHOLE, "until": "2026-05-01T00:00:00Z"}),
            MANAGER,
            GROUND,
            [PAST],
            [],
            id="over",
        ),
        pytest.param(a_review(GROUP), MANAGER, GROUND, [ALONE], [], id="in the scheduler's name"),
        pytest.param(
            a_review(GROUP),
            TrustedUsers(is_scheduler=True),
            GROUND,
            [],
            [],
            id="by the scheduler itself",
        ),
        pytest.param(
            a_review({**WHOLE, "tenant": "b"}),
            MANAGER,
            GROUND,
            [],
            ["no namespace or policy names tenant 'b': no pod can use the reserved capacity"],
            id="for no tenant",
        ),
        pytest.param(
            a_review({**WHOLE, "nodes": ["x"]}),
            MANAGER,
            GROUND,
            [],
            ["there is no node x"],
            id="on no node",
        ),
        pytest.param(
            a_review({**WHOLE, "nodes": ["x"]}),
            MANAGER,
            None,
            [],
            [],
            id="nothing is known of nodes",
        ),
    ],
)
def test_verdicts(
    review: Review,
    trust: TrustedUsers,
    reservation_facts: ReservationFacts | None,
    refused: list[str],
    warned: list[str],
) -> None:
    facts = Facts(namespace=HOME, trust=trust, reservation_facts=reservation_facts)
    found = decide.validate(review, facts, NONE, now=NOW)
    assert ([one.line() for one in found.failures], list(found.warnings)) == (refused, warned)


def test_a_tenant_that_a_policy_names_is_known() -> None:
    facts = Facts(namespace=HOME, trust=MANAGER, reservation_facts=GROUND)
    policies = PolicySet(tables=replace(PolicyTables.of(()), tenants={"b": None}))
    found = decide.validate(a_review({**WHOLE, "tenant": "b"}), facts, policies, now=NOW)
    assert found.warnings == ()
