"""
The fuzz target: the application from bytes to bytes, with real policies and a small cluster.

`Target.run` answers with the HTTP status and raises `Broken` where the webhook violates its
contract: an exception, a wrong uid, an answer that the API server could not read, or one that
differs where a review is answered at once.
"""

import base64
import io
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson

from policies.cel import engines
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from tests.builders import a_job, a_namespace, a_pod, a_template, in_gang
from tests.policy_builders import a_platform_policy, a_rule, a_tenant_policy
from webhook.admission import guards
from webhook.admission.decide import Facts
from webhook.admission.guards import TrustedUsers
from webhook.review import codec
from webhook.review.codec import Review
from webhook.serve.app import INTERNAL_FAILURE, create_app

ROOT: Final = Path(__file__).parents[2]
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)

Json = dict[str, Any]


class Broken(AssertionError):
    """The webhook violated its contract."""


def a_deployment() -> Json:
    """What is scaled: a gang of six."""
    template = a_template(a_pod(labels=in_gang("g", 6)))
    spec = {"replicas": 8, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "p"}, "spec": spec}


class FakeClusterFacts:
    """Knows one namespace, one controller, one pod and one workload that is scaled."""

    def __init__(self) -> None:
        self._facts = [
            Facts(
                namespace=a_namespace(tenant="a", tier="gold"),
                owner=a_job(pod=a_pod(labels=in_gang("g", None)), parallelism=4),
                bound_pod=a_pod(schedulerName="kubenexus-scheduler"),
                trust=TrustedUsers(is_scheduler=trusted, manages_tenants=trusted),
            )
            for trusted in (False, True)
        ]

    def facts(self, review: Review) -> Facts:
        found = self._facts[len(review.name) % 2]
        return replace(found, owner=a_deployment()) if guards.needs_scaled(review) else found

    def unready_reason(self) -> str | None:
        return None


class Policies:
    """The shipped policies, and a tenant with rules, defaults and limits."""

    def __init__(self, engine: str | None = None) -> None:
        self.current = policies(engine)

    def unready_reason(self) -> str | None:
        return None

    def degraded(self) -> str | None:
        return None


@lru_cache
def policies(engine: str | None) -> PolicySet:
    rules = json.loads((ROOT / "tests" / "data" / "pod-rules.json").read_text("utf-8"))["rules"]
    tenant = a_tenant_policy(
        validations=rules,
        defaults=[
            {
                "set": {
                    "labels": {"cost-center": "42"},
                    "annotations": {"for": {"expression": "object.metadata.name"}},
                    "nodeSelector": {"pool": "a"},
                    "tolerations": [{"key": "pool", "operator": "Exists"}],
                    "affinity": {"podAffinity": {}},
                    "priorityClassName": "low",
                    "schedulingGates": ["example.io/gate"],
                    "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}},
                }
            }
        ],
        gang={"maxSize": 8},
    )
    others = a_platform_policy(
        "others",
        matchConstraints={
            "kinds": ["Service", "PodExecOptions", "Scale"],
            "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"],
        },
        validations=[a_rule("request.name != 'bad' && request.userInfo.username != 'eve'")],
    )
    reading = loader.read_files([loader.LIBRARY]) + loader.read_objects((tenant, others))
    loaded = loader.compile_all(reading, compiler=Compiler(engines.engine(engine)))
    if loaded.problems:
        raise ValueError("\n".join(str(problem) for problem in loaded.problems))
    return loaded.policies


class Target:
    """The application, called as a server would call it, by both of its doors."""

    def __init__(self, engine: str | None = None) -> None:
        logging.getLogger("webhook").setLevel(logging.CRITICAL)
        app = create_app(FakeClusterFacts(), Policies(engine), now=lambda: NOW)
        self._app: Callable[..., Any] = app
        self._answer_now = app.answer_now

    def run(self, path: str, body: bytes) -> int:
        statuses: list[str] = []
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "fuzz",
            "SERVER_PORT": "443",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
        }
        parts = self._app(environ, lambda status, headers, exc=None: statuses.append(status))
        answer = b"".join(parts)
        status = int(statuses[0].split()[0])
        prompt = self._answer_now(path, body)
        if prompt is not None and (status, prompt) != (200, answer):
            raise Broken(
                f"two doors, two answers: {statuses[0]} {answer[:200]!r}, {prompt[:200]!r}"
            )
        if status == 200:
            check(body, orjson.loads(answer))
        elif status not in (400, 413) or answer.count(b"\n") != 1:
            raise Broken(f"answered {statuses[0]} {answer[:200]!r}")
        return status


def check(body: bytes, answer: Json) -> None:
    """Whether the API server could read it, and whether it carries the uid of the request."""
    uid = orjson.loads(body)["request"]["uid"]
    response = answer["response"]
    if (answer["apiVersion"], answer["kind"]) != (codec.API_VERSION, "AdmissionReview"):
        raise Broken(f"not a review: {answer!r:.200}")
    if response["uid"] != uid or not isinstance(response["allowed"], bool):
        raise Broken(f"answered {response!r:.200} for uid {uid!r}")
    if not response["allowed"] and (
        not response["status"]["message"] or INTERNAL_FAILURE in response["status"]["message"]
    ):
        raise Broken(f"refused without a reason of the object: {response['status']!r:.300}")
    if ("patch" in response) != ("patchType" in response):
        raise Broken("a patch without its type, or a type without a patch")
    if "patch" in response:
        operations = orjson.loads(base64.b64decode(response["patch"], validate=True))
        if not operations or not all({"op", "path"} <= set(one) for one in operations):
            raise Broken(f"no JSON patch: {operations!r:.200}")
