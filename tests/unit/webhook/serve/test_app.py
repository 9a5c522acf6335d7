from typing import Any

import orjson
import pytest
from flask.testing import FlaskClient

from tests.builders import a_pod, in_gang
from tests.unit.webhook.serve.fakes import FakeFactSource, FakePolicies, a_body
from webhook.facts.errors import FactsUnavailable
from webhook.serve import app as shell
from webhook.serve.app import create_app
from webhook.serve.decision_queues import LIGHT_BYTES

Json = dict[str, Any]


def client(facts: FakeFactSource | None = None) -> FlaskClient:
    return create_app(facts or FakeFactSource(), FakePolicies()).test_client()


def response(to: FlaskClient, path: str, pod: Json) -> Json:
    answer = to.post(path, data=a_body(pod))
    assert answer.status_code == 200
    found: Json = orjson.loads(answer.data)["response"]
    assert found["uid"] == "u-1"
    return found


def test_mutating_answers_with_a_patch() -> None:
    got = response(client(), "/mutate", a_pod())
    assert (got["allowed"], got["patchType"], "status" in got) == (True, "JSONPatch", False)


def test_a_refusal_is_logged_without_the_object(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    response(client(), "/validate", a_pod(labels=in_gang(size="x")))
    [line] = caplog.records
    said = {key: vars(line)[key] for key in ("message", "uid", "kind", "object", "rules")}
    assert said == {
        "message": "denied",
        "uid": "u-1",
        "kind": "Pod",
        "object": "team-a/",
        "rules": ["kubenexus/gang-size"],
    }


def test_a_refusal_is_http_200_with_every_failed_rule() -> None:
    pod = a_pod(labels=in_gang(size="x"), annotations={"numa.scheduling.kubenexus.io/policy": "y"})
    got = response(client(), "/validate", pod)
    lines = got["status"]["message"].splitlines()
    assert got["allowed"] is False
    assert [line.split(":")[0] for line in lines] == [
        "kubenexus/gang-size",
        "kubenexus/numa-policy",
    ]


@pytest.mark.parametrize(
    ("broken", "want"),
    [
        pytest.param(
            FactsUnavailable("namespaces 'team-a' cannot be read: 500"),
            "kubenexus/facts: admission facts unavailable: namespaces 'team-a' cannot be read: 500; "
            "retry, and contact the cluster admin if it persists",
            id="a fact that cannot be had",
        ),
        pytest.param(
            ZeroDivisionError("secret detail"),
            "kubenexus/internal: the webhook failed to decide on this object; contact the cluster admin",
            id="a bug",
        ),
    ],
)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_every_error_refuses(broken: Exception, want: str, path: str) -> None:
    got = response(client(FakeFactSource(broken)), path, a_pod())
    assert (got["allowed"], got["status"]["message"]) == (False, want)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        pytest.param("post", "/validate", b"{", 400, "the body is not JSON", id="no JSON"),
        pytest.param(
            "post", "/validate", b"{}", 400, "the body is no AdmissionReview", id="no review"
        ),
        pytest.param("get", "/validate", b"", 405, "Method Not Allowed", id="wrong method"),
        pytest.param("get", "/else", b"", 404, "Not Found", id="no such path"),
        pytest.param(
            "post",
            "/mutate",
            b" " * (shell.BODY_LIMIT + 1),
            413,
            "Request Entity Too Large",
            id="too large",
        ),
    ],
)
def test_what_is_no_review_is_answered_in_one_line(
    method: str, path: str, body: bytes, status: int, text: str
) -> None:
    got = client().open(path, method=method, data=body)
    assert got.status_code == status
    assert got.text.startswith(text)
    assert got.text.count("\n") == 1


def test_health_and_readiness() -> None:
    waiting = client(FakeFactSource(reason="the namespaces have not been read yet"))
    answers = [waiting.get("/healthz"), waiting.get("/readyz"), client().get("/readyz")]
    assert [(a.status_code, a.text) for a in answers] == [
        (200, "ok\n"),
        (503, "the namespaces have not been read yet\n"),
        (200, "ok\n"),
    ]


def test_reviews_are_counted_by_verdict() -> None:
    here = client()
    response(here, "/validate", a_pod())
    response(here, "/validate", a_pod(labels=in_gang(size="x")))
    text = here.get("/metrics").text
    for verdict in ("allowed", "denied"):
        assert f'kubenexus_webhook_reviews_total{{path="validate",verdict="{verdict}"}}' in text


# --- At once, without WSGI. ---


def reviewed(pod: Json, **changes: Any) -> bytes:
    body = orjson.loads(a_body(pod))
    body["request"] |= changes
    return orjson.dumps(body)


def owned(pod: Json) -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(a_body(a_pod()), True, id="all facts are at hand"),
        pytest.param(
            reviewed(a_pod(), namespace="team-b"), False, id="a namespace that was never read"
        ),
        pytest.param(reviewed(a_pod(), namespace=""), False, id="no namespace"),
        pytest.param(reviewed(a_pod(), subResource="binding"), False, id="a part of an object"),
        pytest.param(
            reviewed(a_pod(), resource={"resource": "bindings"}), False, id="another's pod"
        ),
        pytest.param(
            a_body(owned(a_pod(labels=in_gang(size=None)))), False, id="the controller knows more"
        ),
        pytest.param(b"{", False, id="no review"),
        pytest.param(a_body(a_pod(annotations={"a": "x" * LIGHT_BYTES})), False, id="too large"),
    ],
)
def test_a_review_without_lookups_is_answered_in_the_loop(body: bytes, want: bool) -> None:
    app = create_app(FakeFactSource(), FakePolicies())
    assert app.answer_now("/validate", a_body(a_pod())) is None  # the namespace is not known yet
    by_wsgi = app.test_client().post("/validate", data=a_body(a_pod())).data
    got = app.answer_now("/validate", body)
    assert got == (by_wsgi if want else None)


def test_a_review_that_needs_a_lookup_is_left_to_a_thread() -> None:
    app = create_app(
        FakeFactSource(), FakePolicies(), needs_lookup=lambda review: review.name == "slow"
    )
    app.test_client().post("/validate", data=a_body(a_pod()))
    slow = a_body(a_pod()).replace(b'"namespace":', b'"name":"slow","namespace":', 1)
    assert [app.answer_now("/validate", body) is None for body in (a_body(a_pod()), slow)] == [
        False,
        True,
    ]


def test_a_namespace_that_was_lost_is_looked_up_by_others() -> None:
    facts = FakeFactSource()
    app = create_app(facts, FakePolicies())
    app.test_client().post("/validate", data=a_body(a_pod()))
    facts.error = FactsUnavailable("gone")
    refused = app.answer_now("/validate", a_body(a_pod()))
    assert refused is not None
    assert orjson.loads(refused)["response"]["allowed"] is False
    assert app.answer_now("/validate", a_body(a_pod())) is None
