"""
The chapters of a release's life, each with the processes that a cluster would run for it.

    install --> answer --> work --> rotate --> widen --> upgrade --> roll_back --> uninstall

`test_chart_release` runs them in this order. Each chapter asserts its own outcome.
"""

import base64
import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import yaml

from kubenexus.dev.process import ports
from kubenexus.dev.process.child import Child
from kubenexus.install import cert_rotation
from kubenexus.install.cli import service_suffixes
from policies import vocabulary
from tests.cluster.chart_environment import (
    FULL,
    NAMESPACE,
    RELEASE,
    ChartEnv,
    Json,
    leaf,
    run,
    served,
)
from tests.cluster.chart_programs import (
    MARK,
    PodCreator,
    a_pod,
    arguments,
    creating,
    done,
    hook,
    pod_of,
    probe,
    register,
    registered,
    serve,
    started,
)
from tests.cluster.chart_service_proxy import ServiceProxy
from tests.cluster.waiting import eventually
from tests.unit.kubenexus.labeler import sysfs_trees

SECRET: Final = f"{FULL}-webhook-tls"
# Component -> a request that is not granted.
FORBIDDEN: Final = {
    "webhook": ("get", "secrets", "--all-namespaces"),
    "scheduler": ("delete", "node", "node-0", "--dry-run=server"),
    "labeler": ("get", "pods", "--all-namespaces"),
    "audit": ("delete", "pod", "held", "--namespace=default", "--dry-run=server"),
    "rotation": ("get", "secrets", f"--namespace={NAMESPACE}"),
}
TOGETHER: Final = 10  # pods that old and new replicas each admit while both serve


class Replicas:
    """The webhook's pods behind its Service, newest last."""

    def __init__(
        self, chart_env: ChartEnv, service_proxy: ServiceProxy, ending: contextlib.ExitStack
    ) -> None:
        self._chart_env, self._service_proxy, self._ending = chart_env, service_proxy, ending
        self._running: list[tuple[int, Child]] = []
        self._number = 0

    @property
    def ports(self) -> list[int]:
        return [port for port, _ in self._running]

    def add(self) -> None:
        """One as the Deployment has it now; it is an endpoint once it is ready."""
        (port,) = ports.free(1)
        self._number += 1
        child = serve(self._chart_env, port, name=f"webhook-{self._number}")
        self._ending.callback(child.kill)
        self._running.append((port, child))
        self._service_proxy.lead_to(*self.ports)

    def end_oldest(self) -> None:
        """It is no endpoint any more, and ends; the pause between the two is not waited for."""
        (_, child), *self._running = self._running
        self._service_proxy.lead_to(*self.ports)
        child.stop(grace=30)
        assert child.exit_code == 0, child.tail()


def install(chart_env: ChartEnv, *values: str) -> None:
    """The hook before it makes a certificate; a second run finds nothing to do."""
    said = [hook(chart_env, "certificates", *values).stderr for _ in range(2)]
    assert ("wrote certificate" in said[0], "up to date" in said[1]) == (True, True), said
    chart_env.release("install", *values)
    assert registered(chart_env) == []  # the webhook does not answer yet
    code, output = probe(chart_env, *values, seconds=2)
    assert (code, "was not mutated" in output) == (1, True), output


def answer(chart_env: ChartEnv, replicas: Replicas, *values: str) -> None:
    """Two replicas, with a certificate that is soon due, as if the release were two months old."""
    chart_env.apply(certificate_of(datetime.now(UTC) - timedelta(days=61)))
    chart_env.reach_by_name()
    replicas.add()
    replicas.add()
    register(chart_env, *values)
    code, said = probe(chart_env, *values)
    assert (code, "admission answers" in said) == (0, True), said


def certificate_of(then: datetime) -> list[Json]:
    """The secrets that the hook would have made at that time."""
    names = [f"{FULL}-webhook{end}" for end in service_suffixes(NAMESPACE)]
    kept = cert_rotation.rotate(None, names=names, now=then)
    pairs = {SECRET: kept.leaf, f"{SECRET}-ca": kept.authority}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {
                key: base64.b64encode(value).decode()
                for key, value in {
                    "tls.crt": pair.certificate,
                    "tls.key": pair.key,
                    "ca.crt": kept.bundle,
                }.items()
            },
        }
        for name, pair in pairs.items()
    ]


def work(chart_env: ChartEnv, ending: contextlib.ExitStack) -> None:
    """Scheduler, labeler and audit do their work with the rights that the chart gives them."""
    scheduler = started(chart_env, pod_of(chart_env, "deployment", "scheduler"), name="scheduler")
    ending.callback(scheduler.stop)
    gang = {
        vocabulary.GANG_NAME_LABEL: "pair",
        vocabulary.GANG_MIN_AVAILABLE_LABEL: "2",
    }
    for name in ("pair-0", "pair-1"):
        about = {"name": name, "namespace": "default", "labels": gang}
        chart_env.apply([{**a_pod(name), "metadata": about}])
    eventually(lambda: len(placed(chart_env)) == 2, "the gang is placed")
    eventually(lambda: has_event(chart_env), "an Event says so")

    labeler = pod_of(chart_env, "daemonset", "labeler")
    (container,) = labeler["containers"]
    tree = sysfs_trees.tree(
        chart_env.folder / "sys", cpus=["0-3", "4-7"], memory=[1 << 20, 1 << 20]
    )
    words = arguments(chart_env, labeler, container, others={"--sys=/sys": f"--sys={tree}"})
    kubeconfig = chart_env.account("labeler", node="node-0")
    said = [
        run(*words, "--once", f"--node={node}", f"--kubeconfig={kubeconfig}")
        for node in ("node-0", "node-1")
    ]
    assert [one.returncode for one in said] == [0, 1], said
    assert "only the node that it runs on" in said[1].stderr
    labels = [
        chart_env.get("node", f"node-{number}")["metadata"]["labels"].get(
            vocabulary.NUMA_NODE_COUNT_LABEL
        )
        for number in (0, 1)
    ]
    assert labels == ["2", None]

    audit = pod_of(chart_env, "cronjob", "audit")
    audited = done(chart_env, audit, *audit["containers"])
    assert audited.returncode in (0, 1), audited.stderr  # 2: not everything could be read
    assert json.loads(audited.stdout) is not None
    scheduler.stop()
    attempts = {
        name: chart_env.kubectl(*words, f"--kubeconfig={chart_env.account(name)}")
        for name, words in FORBIDDEN.items()
    }
    refused = {name for name, found in attempts.items() if "Forbidden" in found.stderr}
    assert refused == set(FORBIDDEN), attempts
    # What a program is refused that it needs, it says.
    logs = [path.read_text().lower() for path in chart_env.folder.glob("*.log")]
    assert [line for text in logs for line in text.splitlines() if "forbidden" in line] == []


def placed(chart_env: ChartEnv) -> list[str]:
    pods = chart_env.get(
        "pods", "--namespace=default", f"--selector={vocabulary.GANG_NAME_LABEL}=pair"
    )
    return [name for pod in pods["items"] if (name := pod["spec"].get("nodeName"))]


def has_event(chart_env: ChartEnv) -> bool:
    found = chart_env.get("events", "--namespace=default", "--field-selector=reason=Scheduled")
    return any(one["involvedObject"]["name"] == "pair-0" for one in found["items"])


def rotate(chart_env: ChartEnv, replicas: Replicas) -> None:
    """The CronJob finds the certificate due; both replicas serve the new one, and none ends."""
    spec = pod_of(chart_env, "cronjob", "rotation")
    before = chart_env.get("secret", SECRET, f"--namespace={NAMESPACE}")["data"]
    said = [done(chart_env, spec, one) for one in (*spec["initContainers"], *spec["containers"])]
    assert [one.returncode for one in said] == [0, 0], said
    after = chart_env.get("secret", SECRET, f"--namespace={NAMESPACE}")["data"]
    changed = {key for key in after if before[key] != after[key]}
    assert changed == {"tls.crt", "tls.key"}
    chart_env.files(
        "secret", SECRET
    )  # the kubelet's part: the files of the volume follow the secret
    wanted = [leaf(after)] * len(replicas.ports)
    eventually(
        lambda: [served(port) for port in replicas.ports] == wanted, "the new certificate is served"
    )


def upgrade(chart_env: ChartEnv, replicas: Replicas, *values: str) -> None:
    """As a Deployment is rolled: one more, one fewer, until all are new."""
    path = chart_env.folder / "round.yaml"
    path.write_text(yaml.safe_dump({"policies": {"files": {"round.yaml": marking("two")}}}))
    newer = (*values, "--set=commonLabels.round=two", f"--values={path}")
    chart_env.release("upgrade", *newer)
    replicas.add()
    # Many at once: the API server keeps a connection as long as one is enough.
    with creating(chart_env, "crowd", count=8, pause=0.05) as crowd:
        replicas.end_oldest()
        before = marks(crowd)
        eventually(
            lambda: min(marks(crowd)[mark] - before[mark] for mark in ("", "two")) >= TOGETHER,
            "old and new replicas admit pods together",
        )
    replicas.add()
    replicas.end_oldest()
    register(chart_env, *newer)
    assert [one["metadata"]["labels"]["round"] for one in registered(chart_env)] == ["two", "two"]
    assert "configmaps" in judged(chart_env)  # what the webhook added is not lost


def marks(makers: Sequence[PodCreator]) -> dict[str, int]:
    return {mark: sum(one.marks[mark] for one in makers) for mark in ("", "two")}


def marking(value: str) -> Json:
    """A policy by whose label a replica that knows it differs from one that does not."""
    return {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "PlatformPolicy",
        "metadata": {"name": "round"},
        "spec": {
            "matchConstraints": {"kinds": ["Pod"], "operations": ["CREATE"]},
            "defaults": [{"set": {"labels": {MARK: value}}}],
        },
    }


def roll_back(chart_env: ChartEnv, *values: str) -> None:
    back = chart_env.helm("rollback", RELEASE, "1", "--wait", "--timeout", "150s")
    assert back.returncode == 0, back.stderr
    register(chart_env, *values)
    assert ["round" in one["metadata"]["labels"] for one in registered(chart_env)] == [False, False]


def uninstall(chart_env: ChartEnv, *values: str) -> None:
    """The hook before the end, as a process; its own account is what Helm deletes with the hook."""
    left = hook(chart_env, "cleanup", *values)
    assert (left.returncode, registered(chart_env)) == (0, []), left.stderr
    gone = chart_env.helm("uninstall", RELEASE, "--wait", "--timeout", "150s")
    assert gone.returncode == 0, gone.stderr
    objects = [
        one
        for one in chart_env.template(*values)
        if "helm.sh/hook" in (one["metadata"].get("annotations") or {})
    ]
    names = yaml.safe_dump_all(objects)
    chart_env.kubectl("delete", "--ignore-not-found", "--filename=-", input=names)


def widen(chart_env: ChartEnv) -> None:
    """A policy about a kind that is not the product's own: the webhook widens its rules."""
    policy = {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "PlatformPolicy",
        "metadata": {"name": "about-config-maps"},
        "spec": {
            "matchConstraints": {"kinds": ["ConfigMap"], "operations": ["CREATE"]},
            "validations": [{"name": "any", "expression": "true", "message": "never"}],
        },
    }
    done = chart_env.kubectl("apply", "--filename=-", input=json.dumps(policy))
    assert done.returncode == 0, done.stderr
    eventually(lambda: "configmaps" in judged(chart_env), "the webhook has ConfigMaps sent")


def judged(chart_env: ChartEnv) -> str:
    """The validating configuration's rules, as text."""
    return json.dumps(
        [one["rules"] for found in registered(chart_env) for one in found["webhooks"]]
    )
