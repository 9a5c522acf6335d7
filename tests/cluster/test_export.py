"""What `kubenexus policy export --vap` writes, on a real kube-apiserver: taken, and obeyed alike."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.policy.explain import cel_syntax
from kubenexus.policy.export import export
from kubenexus.policy.export.cel import FUNCTIONS, called
from policies import vocabulary
from policies.cel import engines
from policies.documents import label_selectors
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest
from tests.builders import a_container, a_pod
from tests.cluster.exported_functions import EXPRESSIONS

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PRIORITY, OVERHEAD = 1000, {"podFixed": {"cpu": "10m"}}
CLASSES: tuple[Json, ...] = (
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": PRIORITY},
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h", "overhead": OVERHEAD},
)
PATIENCE = 60.0  # how long the API server may take to learn of a policy

SMALL = f"""
apiVersion: {vocabulary.POLICY_API_VERSION}
kind: PlatformPolicy
metadata: {{name: NAME}}
spec:
  namespaceSelector: {{matchLabels: {{{label_selectors.NAMESPACE_NAME}: NAME}}}}
  matchConditions:
  - {{name: not-exempt, expression: "!('exempt' in variables.labels)"}}
  variables:
  - {{name: labels, expression: "has(object.metadata.labels) ? object.metadata.labels : {{}}"}}
  - name: team
    expression: |-
      // Teams name themselves.
      'team' in variables.labels ? variables.labels['team'] : 'none'
  defaults:
  - when: "variables.team == 'none' ? true : false  // nobody said"
    set:
      schedulerName: {vocabulary.SCHEDULER_NAME}
      labels:
        team: {{expression: "'team-' + object.metadata.name"}}
        example.com/exported: "yes"
      nodeSelector: {{disk: ssd}}
      annotations: {{{vocabulary.NUMA_POLICY_ANNOTATION}: best-effort}}
      tolerations:
      - {{key: gpu, operator: Exists, effect: NoExecute, tolerationSeconds: 5}}
      schedulingGates: [example.com/gate]
      priorityClassName: NAME
      runtimeClassName: NAME
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 5
            preference: {{matchExpressions: [{{key: a, operator: Exists}}]}}
  - when: "'second' in variables.labels"
    set: {{labels: {{team: fallback, example.com/second: "2"}}}}
  - when: "'example.com/second' in variables.labels"
    set: {{labels: {{example.com/third: "3"}}}}
  - when: "'forced' in variables.labels"
    override: true
    set: {{nodeSelector: {{disk: nvme}}}}
  validations:
  - name: own-images
    expression: object.spec.containers.all(c, c.image.startsWith('registry.local/'))
    messageExpression: "'images of ' + object.metadata.name + ' come from elsewhere'"
  - name: mixed
    expression: size([1, 'a', object.metadata.name]) == 3
  - name: few-cpus
    expression: |-
      object.spec.containers.all(c, !has(c.resources.requests) || !('cpu' in c.resources.requests)
        || quantity(c.resources.requests['cpu']).isLessThan(quantity('100')))
    message: ask for less than 100 cpu
  - {{name: no-team, expression: variables.team != 'team-warned', message: watch out, action: Warn}}
  - {{name: gpus, expression: gpus(object) < 2}}
  exceptions:
  - {{name: trusted, when: "'trusted' in variables.labels", reason: known, validations: [own-images]}}
"""


def load(path: Path) -> PolicySet:
    loaded = loader.load_files(path, compiler=Compiler(engines.engine()))
    assert loaded.problems == ()
    return loaded.policies


@pytest.fixture(scope="module")
def own_namespace(control_plane: ControlPlane, kubectl: Kubectl) -> Iterator[str]:
    """One namespace for the module: the server takes a second to learn of each policy."""
    name = "test-export"
    api = control_plane.api()
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    classes = [obj | {"metadata": {"name": name}} for obj in CLASSES]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": classes})
    made = kubectl("create", "-f", "-", input=text)
    assert made.returncode == 0, made.stderr
    end = time.monotonic() + PATIENCE
    while not control_plane.has_default_account(name):
        assert time.monotonic() < end, f"namespace {name} got no service account"
        time.sleep(0.02)
    yield name
    api.call("DELETE", f"/api/v1/namespaces/{name}")
    kubectl("delete", "-f", "-", input=text)


@pytest.fixture(scope="module")
def small(own_namespace: str, tmp_path_factory: pytest.TempPathFactory) -> PolicySet:
    file = tmp_path_factory.mktemp("policies") / "small.yaml"
    file.write_text(SMALL.replace("NAME", own_namespace))
    return load(file)


@pytest.fixture(scope="module")
def in_force(small: PolicySet, own_namespace: str, kubectl: Kubectl) -> Iterator[PolicySet]:
    """The export applied, and known to the API server; removed afterwards."""
    text = export.as_yaml(export.export(small, now=NOW))
    applied = kubectl("apply", "-f", "-", input=text)
    try:
        assert applied.returncode == 0, applied.stderr
        await_policies(kubectl, own_namespace)
        yield small
    finally:
        kubectl("delete", "--ignore-not-found", "-f", "-", input=text)


def await_policies(kubectl: Kubectl, namespace: str) -> None:
    """Each of the three policies has been seen at work; the server learns of them one by one."""
    end = time.monotonic() + PATIENCE
    probe = a_pod("warned", namespace=namespace, containers=[foreign()])
    while True:
        refused = dry_run(kubectl, probe)
        let_in = dry_run(kubectl, a_pod("warned", namespace=namespace))
        mutated = '"disk": "ssd"' in let_in.stdout
        if "own-images" in refused.stderr and "watch out" in let_in.stderr and mutated:
            return
        assert time.monotonic() < end, f"policies are not obeyed: {refused} {let_in}"
        time.sleep(0.1)


def foreign() -> Json:
    return a_container(cpu="1") | {"image": "elsewhere.example/app:1"}


def dry_run(kubectl: Kubectl, pod: Json) -> subprocess.CompletedProcess[str]:
    return kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(pod))


def accepted(kubectl: Kubectl, text: str) -> list[str]:
    got = kubectl("create", "--dry-run=server", "-o", "name", "-f", "-", input=text)
    assert got.returncode == 0, got.stderr
    return got.stdout.split()


def test_the_server_takes_the_export_of_a_policy(
    small: PolicySet, own_namespace: str, kubectl: Kubectl
) -> None:
    group = "admissionregistration.k8s.io"
    names = [
        f"validatingadmissionpolicy.{group}/kubenexus-{own_namespace}",
        f"validatingadmissionpolicybinding.{group}/kubenexus-{own_namespace}",
        f"validatingadmissionpolicy.{group}/kubenexus-{own_namespace}-warn",
        f"validatingadmissionpolicybinding.{group}/kubenexus-{own_namespace}-warn",
        f"mutatingadmissionpolicy.{group}/kubenexus-{own_namespace}",
        f"mutatingadmissionpolicybinding.{group}/kubenexus-{own_namespace}",
    ]
    assert accepted(kubectl, export.as_yaml(export.export(small, now=NOW))) == names


def test_the_server_takes_what_the_library_exports(kubectl: Kubectl) -> None:
    exported = export.export(load(loader.LIBRARY), now=NOW)
    unexplained = [one.policy for one in exported if not one.documents and not one.left]
    documents = [document for one in exported for document in one.documents]
    taken = accepted(kubectl, export.as_yaml(exported)) if documents else []
    assert (unexplained, len(taken)) == ([], len(documents))


def test_the_server_knows_every_function_that_an_export_may_use(
    own_namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    rules = [{"name": f"f{n}", "expression": text} for n, text in enumerate(EXPRESSIONS)]
    policy = {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "PlatformPolicy",
        "metadata": {"name": f"{own_namespace}-functions"},
        "spec": {"validations": rules},
    }
    file = tmp_path / "functions.yaml"
    file.write_text(json.dumps(policy))
    exported = export.export(load(file), now=NOW)
    trees = [tree for text in EXPRESSIONS if (tree := cel_syntax.parse(text)) is not None]
    used = {called(node) for tree in trees for node in cel_syntax.walk(tree) if node.kind == "call"}
    assert (used, len(exported[0].documents[0]["spec"]["validations"])) == (
        set(FUNCTIONS),
        len(rules),
    )
    assert len(accepted(kubectl, export.as_yaml(exported))) == 2


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod(), id="a bare pod gets every default"),
        pytest.param(
            a_pod(labels={"team": "a"}), id="a condition that does not hold writes nothing"
        ),
        pytest.param(a_pod(nodeSelector={"disk": "hdd"}), id="what the user said is kept"),
        pytest.param(
            a_pod(nodeSelector={"disk": "hdd"}, labels={"forced": ""}), id="unless it is overridden"
        ),
        pytest.param(
            a_pod(annotations={vocabulary.NUMA_POLICY_FAMILIES[1].name: "none"}),
            id="another spelling of the same key counts",
        ),
        pytest.param(
            a_pod(labels={"second": "", "team": "a"}), id="a default that reads what another writes"
        ),
        pytest.param(a_pod(labels={"second": ""}), id="the first default of a field wins"),
        pytest.param(a_pod(labels={"exempt": ""}), id="a match condition passes the pod by"),
        pytest.param(
            a_pod(
                tolerations=[
                    {
                        "key": "gpu",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": 5,
                    }
                ]
            ),
            id="an item that is there is not added again",
        ),
        pytest.param(a_pod(containers=[foreign()]), id="a bad image is refused"),
        pytest.param(
            a_pod(containers=[foreign()], labels={"trusted": ""}), id="an exception lets it pass"
        ),
        pytest.param(
            a_pod(containers=[foreign(), a_container("two", cpu="101")]), id="two rules fail"
        ),
    ],
)
def test_the_server_decides_as_kubenexus_does(
    in_force: PolicySet, own_namespace: str, kubectl: Kubectl, pod: Json
) -> None:
    pod = pod | {"metadata": pod["metadata"] | {"namespace": own_namespace}}
    found = evaluate(
        AdmissionRequest.of(pod, namespace={"metadata": {"name": own_namespace}}), in_force, now=NOW
    )
    got = dry_run(kubectl, pod)
    if not found.allowed:
        messages = [row.message in got.stderr for row in found.failures[:1] if row.denies]
        assert (got.returncode, messages) == (1, [True]), got.stderr
        return
    assert got.returncode == 0, got.stderr
    assert fields(json.loads(got.stdout)) == fields(dict(found.object or {}))


def fields(pod: Json) -> Json:
    """The fields that the policy writes, without what the API server adds to every pod."""
    metadata, spec = pod["metadata"], pod["spec"]
    own = [row for row in spec.get("tolerations", ()) if row["key"] == "gpu"]
    scheduler = spec.get("schedulerName", "default-scheduler")
    return {
        "labels": metadata.get("labels") or {},
        "annotations": metadata.get("annotations") or {},
        "tolerations": own,
        "schedulerName": scheduler,
        **{
            key: spec.get(key)
            for key in (
                "nodeSelector",
                "affinity",
                "schedulingGates",
                "priorityClassName",
                "runtimeClassName",
            )
        },
    }


def test_a_stored_pod_has_the_defaults_and_a_bad_one_is_not_stored(
    in_force: PolicySet, own_namespace: str, kubectl: Kubectl
) -> None:
    good = a_pod("good", namespace=own_namespace)
    bad = a_pod("bad", namespace=own_namespace, containers=[foreign()])
    created = [kubectl("create", "-f", "-", input=json.dumps(pod)) for pod in (good, bad)]
    stored = json.loads(kubectl("get", "pods", "-n", own_namespace, "-o", "json").stdout)["items"]
    assert [got.returncode for got in created] == [0, 1]
    assert "own-images: images of bad come from elsewhere" in created[1].stderr
    assert [
        (
            pod["metadata"]["name"],
            pod["metadata"]["labels"]["team"],
            pod["spec"]["priority"],
            pod["spec"]["overhead"],
        )
        for pod in stored
    ] == [("good", "team-good", PRIORITY, OVERHEAD["podFixed"])]
