"""Facts and policies for an application under test, and the body of a review."""

from dataclasses import dataclass
from typing import Any

import orjson

from policies.engine.policyset import PolicySet
from tests.builders import a_namespace
from webhook.admission.decide import Facts
from webhook.review.codec import Review

Json = dict[str, Any]


@dataclass
class FakeFactSource:
    """Facts of one namespace; `error` is raised in place of facts."""

    error: Exception | None = None
    reason: str | None = None

    def facts(self, review: Review) -> Facts:
        if self.error is not None:
            raise self.error
        return Facts(a_namespace(review.namespace))

    def unready_reason(self) -> str | None:
        return self.reason


class FakePolicies:
    current = PolicySet()

    def unready_reason(self) -> str | None:
        return None

    def degraded(self) -> str | None:
        return None


def a_body(pod: Json) -> bytes:
    request = {
        "uid": "u-1",
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team-a",
        "object": pod,
    }
    return orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )
