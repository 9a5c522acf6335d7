"""Before the policies have been read there is nothing to judge by: everything is refused."""

from dataclasses import dataclass, field

import orjson
import pytest

from policies.engine.policyset import PolicySet
from tests.builders import a_namespace
from tests.fuzz import corpus
from webhook.admission.decide import Facts
from webhook.review.codec import Review
from webhook.serve.app import create_app


class FakeClusterFacts:
    def facts(self, review: Review) -> Facts:
        return Facts(a_namespace())

    def unready_reason(self) -> str | None:
        return None


@dataclass
class Starting:
    """Policies that come in force between two checks, as they do beside running requests."""

    reasons: list[str | None] = field(default_factory=list)
    current: PolicySet = field(default_factory=PolicySet)

    def unready_reason(self) -> str | None:
        return self.reasons.pop(0)

    def degraded(self) -> str | None:
        return None


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_review_before_the_policies_is_refused(path: str) -> None:
    app = create_app(FakeClusterFacts(), Starting(["the policies have not been read yet", None]))
    answer = app.test_client().post(path, data=corpus.seeds()[1])
    response = orjson.loads(answer.data)["response"]
    assert (answer.status_code, response["allowed"], response["status"]["message"]) == (
        200,
        False,
        "kubenexus/facts: admission facts unavailable: the policies have not been read yet; "
        "retry, and contact the cluster admin if it persists",
    )
