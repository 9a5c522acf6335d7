"""
The chart on a real API server: lint, rendered objects, values that are refused, and what the
labeler may do. A release from its beginning to its end is `test_chart_release`'s.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubenexus.dev.binaries.locate import Binaries
from kubenexus.install import render_manifests
from policies import vocabulary
from policies.hosts import node_object
from tests.cluster import chart_environment
from tests.cluster.chart_environment import (
    CHART,
    OWN_CERTIFICATES,
    RELEASE,
    ROOT,
    ChartEnv,
    Done,
    Json,
)
from tests.cluster.waiting import eventually
from tests.unit.kubenexus.labeler import sysfs_trees

CI = sorted((CHART / "ci").glob("*.yaml"))


@pytest.fixture(scope="module")
def chart_env(
    kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartEnv]:
    with chart_environment.running(kubernetes_binaries, tmp_path_factory.mktemp("chart")) as found:
        yield found


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_lint_finds_nothing(chart_env: ChartEnv, values: Path) -> None:
    done = chart_env.helm("lint", "--strict", str(CHART), "--values", str(values))
    assert (done.returncode, "0 chart(s) failed" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_what_is_rendered_is_accepted_without_a_warning(chart_env: ChartEnv, values: Path) -> None:
    objects = chart_env.template("--values", str(values))
    done = chart_env.kubectl(
        "apply", "--dry-run=server", "--filename=-", input=yaml.safe_dump_all(objects)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(objects)


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_what_would_be_registered_is_accepted_without_a_warning(
    chart_env: ChartEnv, values: Path
) -> None:
    objects = chart_env.template("--values", str(values))
    texts = [
        one["data"]["configurations.yaml"]
        for one in objects
        if one["metadata"]["name"].endswith("-registration") and one["kind"] == "ConfigMap"
    ]
    listed = [one for text in texts for one in yaml.safe_load_all(text) if one]
    listed += [one for one in objects if one["kind"].endswith("WebhookConfiguration")]
    done = chart_env.kubectl(
        "apply", "--dry-run=server", "--filename=-", input=yaml.safe_dump_all(listed)
    )
    assert (done.returncode, done.stderr, len(listed)) == (0, "", 2)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        pytest.param("webhok.replicas=1", "'webhok' not allowed", id="a typo at the top"),
        pytest.param("webhook.replica=1", "'replica' not allowed", id="a typo below"),
        pytest.param("webhook.replicas=two", "want integer", id="a word for a number"),
        pytest.param(
            "webhook.validating.failurePolicy=Warn", "must be one of", id="an unknown choice"
        ),
    ],
)
def test_values_that_mean_nothing_are_refused(chart_env: ChartEnv, setting: str, said: str) -> None:
    done = chart_env.helm("template", RELEASE, str(CHART), "--set", setting)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def test_a_registration_with_an_untrusted_certificate_is_rejected(chart_env: ChartEnv) -> None:
    done = chart_env.helm(
        "template", RELEASE, str(CHART), OWN_CERTIFICATES, "--set=webhook.registration=withRelease"
    )
    assert (done.returncode, "certificates.caBundle" in done.stderr) == (1, True), done.stderr


def test_the_plain_manifests_are_what_the_chart_renders(chart_env: ChartEnv) -> None:
    found = render_manifests.render(str(chart_env.helm_path), ROOT)
    assert {name: (ROOT / name).read_text() for name in found} == found, "run `make manifests`"


@pytest.mark.parametrize("name", ["kubenexus.yaml", "numa-labeler-daemonset.yaml"])
def test_the_plain_manifests_are_accepted_without_a_warning(chart_env: ChartEnv, name: str) -> None:
    # The namespace must be there for the dry run; a control plane of this kind has it.
    done = chart_env.kubectl("apply", "--dry-run=server", f"--filename={ROOT / 'deploy' / name}")
    spoken = [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line]
    assert (done.returncode, spoken) == (0, [])


def test_the_kustomize_base_builds(chart_env: ChartEnv) -> None:
    done = chart_env.kubectl("kustomize", str(ROOT / "deploy"))
    plain_text = (ROOT / "deploy/kubenexus.yaml").read_text()
    built = {_identity(one) for one in yaml.safe_load_all(done.stdout)}
    assert built == {_identity(one) for one in yaml.safe_load_all(plain_text)}


def _identity(one: Json) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


LABELER_KEY = vocabulary.NUMA_NODE_COUNT_LABEL


@pytest.mark.parametrize(
    ("node", "change", "said"),
    [
        pytest.param("node-0", {"labels": {LABELER_KEY: "2"}}, "", id="its own node"),
        pytest.param(
            "node-0",
            {"annotations": {vocabulary.NUMA_TOPOLOGY_ANNOTATION: "{}"}},
            "",
            id="the annotation",
        ),
        pytest.param(
            "node-1",
            {"labels": {LABELER_KEY: "2"}},
            "only the node that it runs on",
            id="another node",
        ),
        pytest.param(
            "node-0",
            {"labels": {vocabulary.HARDWARE_TIER_LABEL: "premium"}},
            "only labels about NUMA nodes",
            id="a label that is an admin's",
        ),
        pytest.param(
            "node-0",
            {"labels": {"kubernetes.io/hostname": None}},
            "only labels about NUMA nodes",
            id="a label taken away",
        ),
        pytest.param(
            "node-0", {"annotations": {"a": "b"}}, "only the annotation", id="another annotation"
        ),
        pytest.param(
            "node-0", {"finalizers": ["a/b"]}, "labels and annotations only", id="a finalizer"
        ),
    ],
)
def test_what_the_labeler_may_write(
    chart_env: ChartEnv, labeler: Path, node: str, change: Json, said: str
) -> None:
    patch = json.dumps({"metadata": change})
    done = chart_env.kubectl(
        "patch", "node", node, f"--patch={patch}", f"--kubeconfig={labeler}", "--type=merge"
    )
    assert (done.returncode == 0, said in done.stderr) == (not said, True), done.stderr


def test_the_labeler_cannot_taint_its_node(chart_env: ChartEnv, labeler: Path) -> None:
    patch = json.dumps({"spec": {"unschedulable": True}})
    done = chart_env.kubectl(
        "patch", "node", "node-0", f"--patch={patch}", f"--kubeconfig={labeler}"
    )
    assert (done.returncode, "labels and annotations only" in done.stderr) == (1, True), done.stderr


def test_the_labeler_at_work(chart_env: ChartEnv, labeler: Path, tmp_path: Path) -> None:
    """It writes its own node's topology; a second run writes nothing, another node is denied."""
    host = sysfs_trees.tree(
        tmp_path, cpus=["0-31", "32-63"], memory=[9, 8], devices=sysfs_trees.eight_gpus()
    )

    def run_labeler(node: str) -> Done:
        options = (f"--node={node}", f"--sys={host}", f"--kubeconfig={labeler}", "--once")
        return chart_environment.run("labeler", *options)

    def metadata() -> Json:
        """Heartbeats write the status, and with it the version: the rest is compared."""
        found: Json = chart_env.get("node", "node-0", "--show-managed-fields")["metadata"]
        found["managedFields"] = [
            row for row in found["managedFields"] if row.get("subresource") != "status"
        ]
        return {**found, "resourceVersion": ""}

    first, written = run_labeler("node-0"), metadata()
    again, still = run_labeler("node-0"), metadata()
    other = run_labeler("node-1")
    topology = node_object.read(written["labels"], written["annotations"], gpus=8)
    assert topology is not None
    assert ([zone.cpu for zone in topology.zones], [gpu.zone for gpu in topology.gpus]) == (
        [32_000, 32_000],
        [0, 0, 0, 0, 1, 1, 1, 1],
    )
    assert (first.returncode, "wrote node labels" in first.stderr) == (0, True), first.stderr
    assert (again.returncode, again.stderr) == (0, "")
    assert still == written
    assert (other.returncode, "only the node that it runs on" in other.stderr) == (1, True)


@pytest.fixture(scope="module")
def labeler(chart_env: ChartEnv) -> Iterator[Path]:
    """The labeler's account as it is on node-0, with all that the chart grants and forbids it."""
    objects = [
        one
        for one in chart_env.template()
        if one["metadata"]["labels"].get("app.kubernetes.io/component") == "labeler"
        and one["kind"] != "DaemonSet"
    ]
    chart_env.apply(objects)
    kubeconfig = chart_env.account("labeler", node="node-0")
    forbidden = json.dumps({"metadata": {"annotations": {"a": "b"}}})

    def is_held() -> bool:
        # A dry run is judged like any other, and leaves nothing.
        done = chart_env.kubectl(
            "patch",
            "node",
            "node-0",
            f"--patch={forbidden}",
            f"--kubeconfig={kubeconfig}",
            "--dry-run=server",
        )
        return done.returncode == 1

    eventually(is_held, "the policy is in force")
    yield kubeconfig
    chart_env.kubectl("delete", "--filename=-", input=yaml.safe_dump_all(objects))
