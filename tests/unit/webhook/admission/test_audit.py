"""Which Events a decision gives, about which object, and how long their notes are."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from cluster.events.correlator import NOTE_LIMIT, EventReport, Ref
from policies import vocabulary
from policies.engine import loader
from policies.engine.policyset import PolicySet
from policies.engine.result import ExemptedFailure, Failure, Injection
from tests.builders import a_job, a_namespace, a_pod, in_gang
from tests.policy_builders import NOW, a_compiler, a_rule, a_tenant_policy, loaded
from tests.unit.webhook.serve.fakes import FakeFactSource, FakePolicies, a_body
from webhook import metrics
from webhook.admission import audit, decide
from webhook.admission.audit import annotations, reports
from webhook.admission.decide import Decision, Facts
from webhook.registration import configurations
from webhook.review.codec import Review
from webhook.serve.app import create_app

Json = dict[str, Any]
NONE = PolicySet()
HOME = Ref("Namespace", "team-a", "team-a")
REFUSED = Decision(allowed=False, failures=(Failure("t", "r", "no"),))
NOTED = Decision(notes=(Failure("t", "r", "hm", actions=("Warn",)),))


def made(obj: Json, **more: Any) -> Review:
    group, _, version = obj["apiVersion"].rpartition("/")
    review = Review(
        uid="u",
        operation="CREATE",
        kind=obj["kind"],
        resource=f"{obj['kind'].lower()}s",
        group=group,
        version=version,
        namespace="team-a",
        name=obj["metadata"].get("name", ""),
        object=obj,
    )
    return replace(review, **more)


def stored(obj: Json, uid: str = "uid-1") -> Json:
    return {**obj, "metadata": {**obj["metadata"], "uid": uid}}


def owned(obj: Json, *, controller: bool = True, name: str = "train") -> Json:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "uid-j"}
    owners = [{**reference, "controller": controller}]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": owners}}


def generated(obj: Json) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "generateName": "train-", "name": "train-x7k2p"}}


def updated(obj: Json, **more: Any) -> Review:
    return made(obj, operation="UPDATE", old_object=stored(obj), **more)


JOB = Ref("Job", "train", "team-a", "uid-j", "batch/v1")
POD = Ref("Pod", "p", "team-a", "uid-1")
A_NAMESPACE = a_namespace()


@pytest.mark.parametrize(
    ("review", "decision", "want"),
    [
        pytest.param(
            made(owned(generated(stored(a_pod())))),
            REFUSED,
            (JOB, "CREATE Pod train-*: t/r: no"),
            id="a refused pod of a Job: the Job, and no name that is new at every try",
        ),
        pytest.param(
            made(stored(a_pod())),
            REFUSED,
            (HOME, "CREATE Pod p: t/r: no"),
            id="a denied pod without a controller: the namespace",
        ),
        pytest.param(
            made(owned(a_pod(), controller=False)),
            REFUSED,
            (HOME, "CREATE Pod p: t/r: no"),
            id="an owner that is no controller makes no pods",
        ),
        pytest.param(
            made(stored(a_job("j"), "uid-2")),
            REFUSED,
            (HOME, "CREATE Job j: t/r: no"),
            id="a refused workload: the namespace",
        ),
        pytest.param(
            made(stored(a_pod())),
            NOTED,
            (POD, "CREATE Pod p: t/r: hm"),
            id="a pod that comes to be: itself",
        ),
        pytest.param(
            made(stored(a_job("j"), "uid-2")),
            NOTED,
            (Ref("Job", "j", "team-a", "uid-2", "batch/v1"), "CREATE Job j: t/r: hm"),
            id="a workload that comes to be: itself",
        ),
        pytest.param(
            made(a_pod() | {"metadata": {"generateName": "train-"}}),
            NOTED,
            (HOME, "CREATE Pod train-*: t/r: hm"),
            id="a pod that has no name yet: the namespace",
        ),
        pytest.param(
            updated(owned(a_pod())),
            REFUSED,
            (POD, "UPDATE Pod p: t/r: no"),
            id="an update: the changed object, also with an owner",
        ),
        pytest.param(
            updated(a_pod(), subresource="status"),
            REFUSED,
            (POD, "UPDATE Pod/status p: t/r: no"),
            id="an update of a part: the whole",
        ),
        pytest.param(
            made(
                {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}},
                resource="pods",
                subresource="binding",
            ),
            REFUSED,
            (Ref("Pod", "p", "team-a"), "CREATE Binding/binding p: t/r: no"),
            id="a binding: the pod that it is for",
        ),
        pytest.param(
            updated(
                {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}},
                resource="deployments",
                subresource="scale",
                resource_api="apps/v1",
            ),
            REFUSED,
            (Ref("Deployment", "d", "team-a", "uid-1", "apps/v1"), "UPDATE Scale/scale d: t/r: no"),
            id="a scale: the workload",
        ),
        pytest.param(
            made(
                {"apiVersion": "v1", "kind": "PodExecOptions", "metadata": {}},
                operation="CONNECT",
                resource="pods",
                subresource="exec",
                name="p",
            ),
            REFUSED,
            (Ref("Pod", "p", "team-a"), "CONNECT PodExecOptions/exec p: t/r: no"),
            id="a connection: the pod",
        ),
        pytest.param(
            updated(A_NAMESPACE),
            REFUSED,
            (Ref("Namespace", "team-a", "team-a", "uid-1"), "UPDATE Namespace team-a: t/r: no"),
            id="a namespace lives in itself",
        ),
        pytest.param(
            made({"apiVersion": "v1", "kind": "Pod", "metadata": {"ownerReferences": ["x", None]}}),
            REFUSED,
            (HOME, "CREATE Pod: t/r: no"),
            id="owners of no sensible shape",
        ),
    ],
)
def test_what_an_event_is_about(review: Review, decision: Decision, want: tuple[Ref, str]) -> None:
    [event] = reports(review, decision, NONE)
    assert (event.regarding, event.note) == want


def test_one_event_a_reason_with_every_rule_of_it() -> None:
    decision = Decision(
        allowed=False,
        failures=(Failure("t", "a", "no", path="spec.x", fix="do y"), Failure("t", "b", "never")),
        notes=(
            Failure("t", "c", "hm", actions=("Warn",)),
            Failure("t", "d", "psst", actions=("Audit",)),
            Failure("t", "e", "soon", advisory=True),
        ),
        excepted=(ExemptedFailure("t", "f", "late", "migration"),),
        injections=(Injection(("spec", "nodeSelector", "pool"), "secret", "t", "defaults[0]"),),
    )
    events = reports(made(a_pod()), decision, NONE, defaults=True)
    assert [(one.reason, one.warning, one.note) for one in events] == [
        ("PolicyDenied", True, "CREATE Pod p: t/a: no (spec.x): do y; t/b: never"),
        ("PolicyWarned", True, "CREATE Pod p: t/c: hm; t/e: soon"),
        ("PolicyAudited", False, "CREATE Pod p: t/d: psst"),
        ("PolicyException", False, "CREATE Pod p: t/f excepted by late without end: migration"),
        ("DefaultsInjected", False, "CREATE Pod p: spec.nodeSelector.pool by t/defaults[0]"),
    ]
    assert {one.action for one in events} == {"Admit"}


@pytest.mark.parametrize(
    ("review", "decision"),
    [
        pytest.param(made(a_pod()), Decision(), id="nothing to report"),
        pytest.param(made(a_pod(), dry_run=True), REFUSED, id="a dry run"),
        pytest.param(
            made(a_pod()),
            Decision(injections=(Injection(("spec", "x"), 1, "t", "defaults[0]"),)),
            id="injected defaults, only on request",
        ),
    ],
)
def test_reviews_without_an_event(review: Review, decision: Decision) -> None:
    assert reports(review, decision, NONE) == ()


@pytest.mark.parametrize(
    ("failures", "shown", "end"),
    [
        pytest.param([Failure("t", "r", "x" * 5000)], 1, " ...", id="one long rule is cut"),
        pytest.param(
            [Failure("t", f"r{n}", "y" * 100) for n in range(40)],
            6,
            "; and 34 more",
            id="of many rules the rest is counted",
        ),
        pytest.param(
            [Failure("t", f"r{n}", "\u00e4\n" * 400) for n in range(9)],
            2,
            "; and 7 more",
            id="bytes count, not letters",
        ),
    ],
)
def test_a_note_is_bounded(failures: list[Failure], shown: int, end: str) -> None:
    decision = Decision(allowed=False, failures=tuple(failures))
    [event] = reports(made(a_pod("n" * 253)), decision, NONE)
    assert (event.note.count("t/r"), event.note.endswith(end)) == (shown, True)
    assert len(event.note.encode()) <= NOTE_LIMIT
    assert "\n" not in event.note


def event_reports(policies: PolicySet, pod: Json) -> tuple[EventReport, ...]:
    review = made(pod)
    decision = decide.validate(review, Facts(a_namespace(tenant="a")), policies, now=NOW)
    return reports(review, decision, policies)


RULES: Json = {
    "validations": [
        a_rule("false", "hard", message="no"),
        a_rule("false", "soft", message="hm", action="Warn"),
        a_rule("false", "quiet", message="psst", action="Audit"),
        a_rule("false", "waived", message="well"),
    ],
    "exceptions": [
        {
            "name": "late",
            "when": "true",
            "validations": ["waived"],
            "until": "2027-01-31T00:00:00Z",
            "reason": "migration",
        }
    ],
}
POLICY = Ref("TenantPolicy", "t", api_version=vocabulary.POLICY_API_VERSION)


def test_failures_give_events_that_name_the_policy_object() -> None:
    events = event_reports(loaded(a_tenant_policy("t", **RULES)), a_pod())
    assert [(one.reason, one.regarding, one.related, one.note) for one in events] == [
        ("PolicyDenied", HOME, POLICY, "CREATE Pod p: t/hard: no"),
        ("PolicyWarned", HOME, POLICY, "CREATE Pod p: t/soft: hm"),
        ("PolicyAudited", HOME, POLICY, "CREATE Pod p: t/quiet: psst"),
        (
            "PolicyException",
            HOME,
            POLICY,
            "CREATE Pod p: t/waived excepted by late until 2027-01-31T00:00:00+00:00: migration",
        ),
    ]


def test_a_policy_from_a_file_is_no_object_to_relate_to(tmp_path: Any) -> None:
    (tmp_path / "t.yaml").write_bytes(orjson.dumps(a_tenant_policy("t", **RULES)))
    policies = loader.load_files(tmp_path, compiler=a_compiler()).policies
    assert {one.related for one in event_reports(policies, a_pod())} == {None}


@pytest.mark.parametrize(
    ("decision", "want"),
    [
        pytest.param(Decision(), {"decision": "allowed"}, id="nothing found"),
        pytest.param(
            Decision(
                allowed=False,
                failures=(Failure("kubenexus", "gang-size", "no"),),
                notes=(Failure("t", "r", "hm", actions=("Audit",)),),
                audit={"tenant": "a", "failures": "t/r: hm", "exception": "x" * 9000},
            ),
            {
                "tenant": "a",
                "decision": "denied",
                "failures": "kubenexus/gang-size: no; t/r: hm",
                "exception": "x" * (audit.ANNOTATION_LIMIT - 4) + " ...",
            },
            id="every failed rule of every policy, cut to the limit",
        ),
    ],
)
def test_audit_annotations(decision: Decision, want: dict[str, str]) -> None:
    assert annotations(decision) == want


def test_the_answer_does_not_depend_on_what_becomes_of_its_events() -> None:
    events: list[EventReport] = []

    def record(report: EventReport) -> None:
        events.append(report)
        raise RuntimeError("the recorder is broken")

    client = create_app(FakeFactSource(), FakePolicies(), record=record).test_client()
    answer = client.post("/validate", data=a_body(a_pod(labels=in_gang(size="x"))))
    response = orjson.loads(answer.data)["response"]
    assert (answer.status_code, response["allowed"]) == (200, False)
    assert response["auditAnnotations"]["decision"] == "denied"
    assert [(one.reason, one.regarding) for one in events] == [("PolicyDenied", HOME)]
    assert 'kubenexus_webhook_events_total{reason="PolicyDenied"}' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("requested", "want"),
    [
        pytest.param(
            True, ["CREATE Pod p: metadata.labels.cost by kubenexus-a/defaults[0]"], id="requested"
        ),
        pytest.param(False, [], id="not requested"),
    ],
)
def test_injections_give_events_on_request(requested: bool, want: list[str]) -> None:
    class Injecting(FakePolicies):
        current = loaded(
            a_tenant_policy(
                "kubenexus-a",
                namespaceSelector={"matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: "team-a"}},
                defaults=[{"set": {"labels": {"cost": "42"}}}],
            )
        )

    events: list[EventReport] = []
    app = create_app(FakeFactSource(), Injecting(), record=events.append, event_defaults=requested)
    answer = app.test_client().post("/mutate", data=a_body(a_pod()))
    assert answer.status_code == 200
    assert [one.note for one in events] == want


def test_the_recorders_totals_become_metrics() -> None:
    def shown() -> dict[str, float]:
        rows = [line.rpartition(" ") for line in metrics.exposition().decode().splitlines()]
        return {
            name: float(value) for name, _, value in rows if "_events_" in name and name[0] != "#"
        }

    before, counts = shown(), metrics.EventCounts()
    counts.take(written=2, dropped={"refused": 1}, waiting=7)
    counts.take(written=5, dropped={"refused": 1, "queue full": 3}, waiting=4)
    after = shown()
    names = {
        "kubenexus_webhook_events_written_total": 5.0,
        'kubenexus_webhook_events_dropped_total{why="refused"}': 1.0,
        'kubenexus_webhook_events_dropped_total{why="queue full"}': 3.0,
    }
    assert {name: after[name] - before.get(name, 0.0) for name in names} == names
    assert after["kubenexus_webhook_events_waiting"] == 4.0


def test_a_dry_run_declares_no_side_effects() -> None:
    made = configurations.configurations(ca_pem=b"ca", base_url="https://127.0.0.1:1")
    said = {hook["sideEffects"] for one in made for hook in one["webhooks"]}
    assert said == {"NoneOnDryRun"}
