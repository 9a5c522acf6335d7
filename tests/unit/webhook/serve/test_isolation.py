"""A fault at each step of a review: that review is denied or answered as before, and the next one
is answered by the same application."""

from typing import Any

import orjson
import pytest

from policies.pods import intent
from tests.builders import a_pod
from tests.policy_builders import a_platform_policy, a_rule, loaded
from tests.unit.webhook.serve.fakes import FakeFactSource, FakePolicies, a_body
from webhook import metrics
from webhook.admission import audit, decide, guards, profile, tenant_claims
from webhook.review import codec, patch
from webhook.serve import app as shell
from webhook.serve.app import App, create_app

Json = dict[str, Any]

INTERNAL = (
    "kubenexus/internal: the webhook failed to decide on this object; contact the cluster admin"
)


class SomePolicies(FakePolicies):
    current = loaded(
        a_platform_policy(
            classify={"workloadType": [{"when": "true", "value": "service"}]},
            defaults=[{"set": {"labels": {"cost": "42"}}}],
            validations=[a_rule("object.metadata.name != 'x'", "one")],
        )
    )


class Fault(Exception):
    """What no step expects."""


def fails(*arguments: object, **options: object) -> Any:
    raise Fault("injected")


class FailingFacts(FakeFactSource):
    facts = fails


class FailingPolicies(SomePolicies):
    unready_reason = fails


SEAMS = {
    "decision": [
        pytest.param(decide, "evaluate", "decide", id="evaluate"),
        pytest.param(decide, "_admission", "decide", id="the request"),
        pytest.param(decide, "_queue_tier", "decide", id="the queue"),
        pytest.param(audit, "annotations", "answer", id="audit annotations"),
    ],
    "mutate": [
        pytest.param(patch.Patch, "set", "decide", id="the patch"),
        pytest.param(profile, "text", "decide", id="the profile"),
        pytest.param(intent, "read", "decide", id="the intent"),
    ],
    "validate": [
        pytest.param(guards, "problems", "decide", id="guards"),
        pytest.param(decide, "members_of", "decide", id="members"),
        pytest.param(decide, "_checked", "decide", id="checks"),
        pytest.param(tenant_claims, "problems", "decide", id="tenant claims"),
    ],
    "beside": [
        pytest.param(audit, "reports", "events", id="Events"),
        pytest.param(metrics, "_of", "", id="metrics"),
    ],
}


def an_app(**changes: Any) -> App:
    """An application that knows the namespace, so that it answers in the loop too."""
    given: dict[str, Any] = {"fact_source": FakeFactSource(), "policies": SomePolicies()} | changes
    app = create_app(**given)
    app.test_client().post("/validate", data=a_body(a_pod()))
    return app


def answer(app: App, path: str, way: str) -> Json:
    body = a_body(a_pod())
    if way == "loop":
        data = app.answer_now(path, body)
        assert data is not None
    else:
        response = app.test_client().post(path, data=body)
        assert response.status_code == 200
        data = response.data
    found: Json = orjson.loads(data)["response"]
    return found


def verdict(found: Json) -> tuple[bool, str]:
    return found["allowed"], found.get("status", {}).get("message", "")


def counted(step: str) -> float:
    name = f'kubenexus_webhook_internal_errors_total{{step="{step}"}} '
    lines = metrics.exposition().decode().splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@pytest.mark.parametrize("way", ["loop", "WSGI"])
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(("where", "name", "step"), SEAMS["decision"])
def test_a_fault_on_the_way_to_the_decision_denies_that_review(
    where: Any,
    name: str,
    step: str,
    path: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert_denied(where, name, step, path, way, monkeypatch, caplog)


@pytest.mark.parametrize("way", ["loop", "WSGI"])
@pytest.mark.parametrize(
    ("path", "where", "name", "step"),
    [
        pytest.param(f"/{path}", *row.values, id=f"{path}: {row.id}")
        for path in ("mutate", "validate")
        for row in SEAMS[path]
    ],
)
def test_a_fault_of_one_path_denies_that_review(
    path: str,
    where: Any,
    name: str,
    step: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert_denied(where, name, step, path, way, monkeypatch, caplog)


def assert_denied(
    where: Any,
    name: str,
    step: str,
    path: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, before = an_app(), counted(step)
    with monkeypatch.context() as patched:
        patched.setattr(where, name, fails)
        assert verdict(answer(app, path, way)) == (False, INTERNAL)
    assert counted(step) == before + 1
    [line] = [row for row in caplog.records if row.message == "admission decision failed"]
    assert line.exc_info is not None
    assert line.exc_info[0] is Fault
    assert answer(app, path, way)["allowed"]


@pytest.mark.parametrize("way", ["loop", "WSGI"])
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(("where", "name", "step"), SEAMS["beside"])
def test_a_fault_beside_the_decision_changes_no_answer(
    where: Any, name: str, step: str, path: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, before = an_app(), counted(step)
    want = answer(app, path, way)
    with monkeypatch.context() as patched:
        patched.setattr(where, name, fails)
        assert answer(app, path, way) == want
    assert counted(step) == before + (1 if step else 0)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"fact_source": FailingFacts()}, id="facts"),
        pytest.param({"policies": FailingPolicies()}, id="the state of the policies"),
        pytest.param({"now": fails}, id="the clock"),
    ],
)
def test_a_fault_of_what_the_application_was_given_denies(changes: Json) -> None:
    assert verdict(answer(an_app(**changes), "/validate", "WSGI")) == (False, INTERNAL)


def test_an_event_that_cannot_be_recorded_changes_no_answer() -> None:
    assert answer(an_app(record=fails, event_defaults=True), "/mutate", "loop")["allowed"]


def test_a_lookup_that_fails_to_be_needed_is_left_to_a_thread() -> None:
    app = an_app(needs_lookup=fails)
    assert app.answer_now("/validate", a_body(a_pod())) is None
    assert answer(app, "/validate", "WSGI")["allowed"]


def test_a_body_on_which_the_parser_fails_is_no_review(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, before = an_app(), counted("parse")
    with monkeypatch.context() as patched:
        patched.setattr(codec, "_review", fails)
        assert app.answer_now("/validate", a_body(a_pod())) is None
        got = app.test_client().post("/validate", data=a_body(a_pod()))
    assert (got.status_code, got.text) == (400, "the body cannot be read; see the log\n")
    assert counted("parse") == before + 1
    assert any(row.exc_info for row in caplog.records)


class FailingProgram:
    """An engine that raises what no engine may."""

    source, references, result_type = "true", frozenset[str](), "bool"
    evaluate = evaluate_tagged = fails


@pytest.mark.parametrize("part", ["validations", "defaults", "classify", "matchConditions"])
def test_a_rule_whose_engine_fails_denies_that_review(part: str) -> None:
    rules: dict[str, Json] = {
        "validations": {"validations": [a_rule("object.metadata.name != 'y'", "one")]},
        "defaults": {"defaults": [{"when": "object.metadata.name != 'y'", "set": {"labels": {"a": "b"}}}]},
        "classify": {"classify": {"workloadType": [{"when": "object.metadata.name != 'y'", "value": "batch"}]}},
        "matchConditions": {"matchConditions": [a_rule("object.metadata.name != 'y'", "one")]},
    }  # fmt: skip
    policies = SomePolicies()
    policies.current = loaded(a_platform_policy(**rules[part]))
    [policy] = policies.current.for_namespace("team-a", {})
    for compiled in (
        *policy.conditions,
        *(row.expression for row in policy.validations),
        *(row.when for row in policy.defaults if row.when is not None),
        *(row.when for row in policy.workload_types),
    ):
        object.__setattr__(compiled, "program", FailingProgram())
    path = "/mutate" if part == "defaults" else "/validate"
    app = create_app(FakeFactSource(), policies)
    found = orjson.loads(app.test_client().post(path, data=a_body(a_pod())).data)["response"]
    assert verdict(found) == (False, INTERNAL)
    assert shell.INTERNAL_FAILURE in INTERNAL
