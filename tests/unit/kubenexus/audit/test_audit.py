"""What an audit finds, counts and prints."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.errors import Gone, Refused
from kubenexus import cli as root
from kubenexus.audit import cli, report, validate
from kubenexus.audit import kinds as discovery
from kubenexus.audit.scan import NoNamespace, Scan, Totals
from kubenexus.audit.validate import Violation
from policies import vocabulary
from policies.engine.policyset import PolicySet
from tests.builders import a_job, a_namespace, a_pod, a_template, in_gang
from tests.policy_builders import NOW, a_rule, a_tenant_policy, loaded
from tests.unit.kubenexus.audit.fake_cluster import FakeCluster
from webhook.admission import decide
from webhook.admission.decide import Facts
from webhook.review import patch

Json = dict[str, Any]
HOME = a_namespace(tenant="a")
NONE = PolicySet()


def admitted(pod: Json, policies: PolicySet = NONE) -> Json:
    """The pod as admission would have stored it."""
    review = validate.review(pod, discovery_of("Pod"))
    return patch.apply(pod, decide.mutate(review, Facts(HOME), policies, now=NOW).patch)


def discovery_of(kind: str) -> Any:
    [found] = [one for one in asyncio.run(discovery.kinds(FakeCluster({}))) if one.kind == kind]
    return found


def scanned(
    cluster: FakeCluster, policies: PolicySet = NONE, **options: Any
) -> tuple[list[str], Totals]:
    rows: list[Violation] = []
    totals = asyncio.run(Scan(cluster, policies, now=NOW, **options).run(rows.append))
    return [f"{row.namespace} {row.object} {row.action} {row.rule_name}" for row in rows], totals


def rules() -> PolicySet:
    return loaded(
        a_tenant_policy(
            "t",
            validations=[
                a_rule("object.metadata.name != 'bad'", "hard", message="no"),
                a_rule("object.metadata.name != 'odd'", "soft", message="hm", action="Warn"),
                a_rule("object.metadata.name != 'shy'", "quiet", message="psst", action="Audit"),
                a_rule("object.metadata.name != 'spared'", "waived", message="well"),
            ],
            exceptions=[
                {"name": "e", "when": "true", "validations": ["waived"], "reason": "migration"}
            ],
        )
    )


def test_kinds_are_found_in_the_version_that_has_them() -> None:
    found = asyncio.run(discovery.kinds(FakeCluster({})))
    assert [f"{one} {one.version}" for one in found] == [
        "pods v1",
        "cronjobs.batch v1",
        "jobs.batch v1",
        "jobsets.jobset.x-k8s.io v1alpha2",
    ]


@pytest.mark.parametrize(
    ("named", "want"),
    [
        pytest.param(["ConfigMap"], ["configmaps"], id="of any group"),
        pytest.param(["x.io/ConfigMap"], [], id="of a group that has none"),
        pytest.param(["*"], [], id="a star names nothing"),
        pytest.param(["Namespace"], [], id="what lives in no namespace"),
        pytest.param(["Event"], [], id="what is never judged"),
    ],
)
def test_kinds_that_policies_name_are_audited_too(named: list[str], want: list[str]) -> None:
    usual = asyncio.run(discovery.kinds(FakeCluster({})))
    found = asyncio.run(discovery.kinds(FakeCluster({}), named))
    assert [str(one) for one in found if one not in usual] == want


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(a_pod("good"), [], id="a good pod"),
        pytest.param(a_pod("bad"), ["team-a pod/bad Deny t/hard"], id="a rule that denies"),
        pytest.param(a_pod("odd"), ["team-a pod/odd Warn t/soft"], id="a rule that warns"),
        pytest.param(a_pod("shy"), ["team-a pod/shy Audit t/quiet"], id="a rule that is audited"),
        pytest.param(a_pod("spared"), [], id="an exception lets it pass"),
        pytest.param(
            a_pod("p", labels=in_gang(size="x")),
            ["team-a pod/p Deny kubenexus/gang-size"],
            id="a rule of the product's own",
        ),
        pytest.param(
            a_pod("p", labels={vocabulary.TIER_LABEL: "gold"}),
            ["team-a pod/p Deny kubenexus/tier"],
            id="a tier that the namespace does not give",
        ),
        pytest.param(
            a_pod(
                "p",
                schedulerName=vocabulary.SCHEDULER_NAME,
                nodeName="n",
                annotations={vocabulary.NUMA_ASSIGNED_ANNOTATION: "{}"},
            ),
            [],
            id="a pod that has been placed since is no request to preset a node",
        ),
        pytest.param(
            a_pod("bad", annotations={vocabulary.MIRROR_ANNOTATION: "x"}),
            [],
            id="a kubelet's own pod never passes admission",
        ),
        pytest.param(a_pod("bad", namespace="kube-system"), [], id="an excluded namespace"),
        pytest.param(
            a_pod("bad", namespace="going"), [], id="a namespace that was deleted meanwhile"
        ),
    ],
)
def test_violations_of_a_pod(obj: Json, want: list[str]) -> None:
    spaces = [HOME, a_namespace("kube-system", tenant="a")]
    cluster = FakeCluster({"namespaces": spaces, "pods": [obj]})
    assert scanned(cluster, rules(), excluded=["kube-system"])[0] == want


def test_workloads_are_validated_as_well() -> None:
    job = a_job("train", pod=a_pod(labels=in_gang(size=4)), parallelism=2)
    cluster = FakeCluster({"namespaces": [HOME], "jobs": [job]})
    assert scanned(cluster)[0] == ["team-a job.batch/train Deny kubenexus/gang-size"]


def test_a_gang_sized_by_its_controller_passes_and_the_controller_is_read_once() -> None:
    template = a_pod(labels=in_gang(size=None))
    job = a_job("train", pod=template, parallelism=2)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train"}
    pods = [
        {
            **a_pod(f"train-{n}"),
            **a_template(template),
            "metadata": {
                **template["metadata"],
                "name": f"train-{n}",
                "ownerReferences": [{**reference, "controller": True}],
            },
        }
        for n in range(3)
    ]
    cluster = FakeCluster({"namespaces": [HOME], "pods": pods, "jobs": [job]})
    assert scanned(cluster)[0] == []
    assert cluster.requests.count("get jobs train") == 1
    job["metadata"]["uid"] = "another Job of the same name"
    assert len(scanned(cluster)[0]) == 3


def test_a_list_that_starts_over_validates_nothing_twice() -> None:
    pods = [a_pod(f"p{n}", labels=in_gang(size="x")) for n in range(5)]
    objects = {"namespaces": [HOME], "pods": pods}
    whole = FakeCluster(objects)
    again = FakeCluster(objects, restarts=frozenset({"pods"}))
    rows, totals = scanned(again)
    assert (rows, totals) == scanned(whole)
    assert (len(rows), totals.objects) == (5, 5)


def test_one_namespace_alone() -> None:
    there = a_namespace("team-b")
    pods = [a_pod("p", labels=in_gang(size="x"), namespace=name) for name in ("team-a", "team-b")]
    cluster = FakeCluster({"namespaces": [HOME, there], "pods": pods})
    rows, totals = scanned(cluster, namespace="team-b")
    assert rows == ["team-b pod/p Deny kubenexus/gang-size"]
    assert totals.namespaces == {"team-b"}


def test_a_namespace_that_came_meanwhile_is_read_once() -> None:
    pods = [a_pod("bad"), a_pod("odd")]
    cluster = FakeCluster({"namespaces": [HOME], "pods": pods}, late=frozenset({"team-a"}))
    assert [row.split()[-1] for row in scanned(cluster, rules())[0]] == ["t/hard", "t/soft"]
    assert cluster.requests.count("get namespaces team-a") == 1


@pytest.mark.parametrize("where", ["pods", "/apis", "/apis/batch/v1", "namespaces"])
def test_an_unreadable_kind_ends_the_audit(where: str) -> None:
    cluster = FakeCluster({"namespaces": [HOME]}, broken={where: Refused("403 Forbidden")})
    with pytest.raises(Refused):
        scanned(cluster)


@pytest.mark.parametrize(("where", "kinds"), [("/apis/batch/v1", 2), ("jobs", 4)])
def test_a_kind_that_is_uninstalled_meanwhile_is_skipped(where: str, kinds: int) -> None:
    cluster = FakeCluster({"namespaces": [HOME]}, broken={where: Gone("404")})
    assert scanned(cluster)[1].kinds == kinds


def test_a_namespace_that_does_not_exist_is_no_clean_one() -> None:
    with pytest.raises(NoNamespace, match="there is no namespace 'nowhere'; check --namespace"):
        scanned(FakeCluster({"namespaces": [HOME]}), namespace="nowhere")


# --- what is printed ---


def a_scan() -> tuple[report.Table, list[str], Totals]:
    pods = [
        admitted(a_pod("good")),
        admitted(a_pod("odd")),
        a_pod("p1", namespace="team-b", labels=in_gang(size="x")),
        a_pod("p2", namespace="team-b", labels=in_gang(size="y")),
        admitted(a_pod("spared")),
    ]
    pods = [
        pod | {"metadata": pod["metadata"] | {"uid": f"uid-{pod['metadata']['name']}"}}
        for pod in pods
    ]
    cluster = FakeCluster({"namespaces": [HOME, a_namespace("team-b", tenant="b")], "pods": pods})
    table, lines = report.Table(limit=2), []

    def take(row: Violation) -> None:
        table.take(row)
        lines.append(report.row_json(row))

    totals = asyncio.run(Scan(cluster, rules(), now=NOW).run(take))
    return table, lines, totals


def test_the_table_is_sorted_and_has_totals() -> None:
    table, _, totals = a_scan()
    lines = list(table.lines(totals))
    assert lines[0].split() == ["NAMESPACE", "OBJECT", "ACTION", "RULE", "MESSAGE"]
    assert [line.split()[:4] for line in lines[1:3]] == [
        ["team-a", "pod/odd", "Warn", "t/soft"],
        ["team-b", "pod/p1", "Deny", "kubenexus/gang-size"],
    ]
    assert lines[1].endswith("  t/soft               hm")
    assert lines[3:] == [
        "... and 1 more; -o json shows all",
        "",
        "RULE                 ACTION  VIOLATIONS",
        "kubenexus/gang-size  Deny    2",
        "t/soft               Warn    1",
        "",
        "3 violations in 3 of 5 objects: 4 kinds, 2 namespaces. Allowed by exceptions: 1. "
        "Pods that bypassed admission: 2.",
    ]


def test_the_table_is_sorted_by_namespace_then_object() -> None:
    table = report.Table()
    for namespace, kind in (("b", "Pod"), ("a", "Pod"), ("a", "Job")):
        table.take(Violation(namespace, kind, "", "x", "t", "r", "Deny"))
    rows = [line.split()[:2] for line in table.lines(Totals(violations=3))]
    assert rows[1:4] == [["a", "job/x"], ["a", "pod/x"], ["b", "pod/x"]]


def test_a_clean_cluster_is_one_line() -> None:
    assert list(report.Table().lines(Totals(kinds=1, namespaces={"a"}, objects=1))) == [
        "0 violations in 0 of 1 object: 1 kind, 1 namespace."
    ]


def test_programs_get_a_line_each_and_the_sums_last() -> None:
    _, lines, totals = a_scan()
    assert json.loads(lines[0]) == {
        "type": "violation",
        "namespace": "team-a",
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "odd",
        "uid": "uid-odd",
        "policy": "t",
        "rule": "soft",
        "action": "Warn",
        "message": "hm",
        "path": "",
        "fix": "",
    }
    assert json.loads(report.summary_json(totals)) == {
        "type": "summary",
        "kinds": 4,
        "namespaces": 2,
        "objects": 5,
        "failing": 3,
        "violations": 3,
        "excepted": 1,
        "notAdmitted": 2,
        "rules": [
            {"rule": "kubenexus/gang-size", "action": "Deny", "violations": 2},
            {"rule": "t/soft", "action": "Warn", "violations": 1},
        ],
    }


def test_pods_that_admission_never_saw_are_listed_on_request() -> None:
    cluster = FakeCluster({"namespaces": [HOME], "pods": [a_pod("new"), admitted(a_pod("seen"))]})
    assert scanned(cluster, list_not_admitted=True)[0] == [
        "team-a pod/new Audit kubenexus/not-admitted"
    ]


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param(
            ["--kubeconfig", "none.yaml"], "none.yaml", id="a kubeconfig that is not there"
        ),
        pytest.param(
            ["-n", "kube-system"],
            "kubenexus: namespace 'kube-system' is excluded from admission, so it is not audited; "
            "name another, or set the excluded ones with --exclude-namespace\n",
            id="a namespace that admission excludes",
        ),
    ],
)
@pytest.mark.parametrize("app", [cli.app, root.app], ids=["by itself", "mounted"])
def test_a_bad_invocation_is_one_clear_message(
    args: list[str], want: str, app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    got = CliRunner().invoke(app, args if app is cli.app else ["audit", *args])
    assert (got.exit_code, got.stdout, got.stderr.count("\n")) == (2, "", 1)
    assert want in got.stderr


def queued(obj: Json, queue: str, **metadata: Any) -> Json:
    labels = {**(obj["metadata"].get("labels") or {}), vocabulary.QUEUE_NAME_LABEL: queue}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels, **metadata}}


def in_cluster(kind: str, name: str, spec: Json, **metadata: Any) -> Json:
    return {"kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def a_pod_of(job: Json, tier: str) -> Json:
    made = a_pod("p", labels={vocabulary.TIER_LABEL: tier})
    reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    reference |= {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [reference]}}


@pytest.mark.parametrize(
    ("queue", "tier", "want"),
    [
        pytest.param("gpu", "gold", [], id="the tier of its Job's queue"),
        pytest.param("gpu", "silver", [], id="a lower one"),
        pytest.param(
            "none",
            "gold",
            [
                "team-a pod/p Deny kubenexus/tier",
                "team-a pod/p Warn kubenexus/queue",
                "team-a job.batch/j Warn kubenexus/queue",
            ],
            id="a queue that does not exist gives none",
        ),
    ],
)
def test_the_tier_of_a_queue_is_audited(queue: str, tier: str, want: list[str]) -> None:
    job = queued(a_job(), queue, uid="1")
    gold = {vocabulary.TIER_LABEL: "gold"}
    cluster = FakeCluster(
        {
            "namespaces": [HOME],
            "pods": [a_pod_of(job, tier)],
            "jobs": [job],
            "localqueues": [
                in_cluster("LocalQueue", "gpu", {"clusterQueue": "q"}, namespace="team-a")
            ],
            "clusterqueues": [
                in_cluster("ClusterQueue", "q", {"namespaceSelector": {}}, labels=gold)
            ],
        },
        kueue=True,
    )
    assert scanned(cluster)[0] == want


@pytest.mark.parametrize("kueue", [False, True])
def test_no_controller_is_read_where_there_are_no_queues(kueue: bool) -> None:
    job = queued(a_job(), "gpu", uid="1")
    elsewhere = in_cluster("LocalQueue", "gpu", {"clusterQueue": "q"}, namespace="other")
    objects = {"namespaces": [HOME], "pods": [a_pod_of(job, "bronze")], "jobs": [job]}
    cluster = FakeCluster(objects | {"localqueues": [elsewhere]}, kueue=kueue)
    rows, _ = scanned(cluster)
    assert (rows, [row for row in cluster.requests if row.startswith("get")]) == (
        ["team-a job.batch/j Warn kubenexus/queue"],
        [],
    )
