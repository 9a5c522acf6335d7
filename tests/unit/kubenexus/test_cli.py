import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kubenexus import cli
from tests.pages import ROOT

CLUSTER = (
    "apiVersion: dev.kubenexus.io/v1alpha1\nkind: Cluster\n"
    "nodes: [{name: n, cpu: 4, memory: 8Gi}]\n"
)
POD = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  schedulerName: kubenexus-scheduler
  containers: [{name: main, resources: {requests: {cpu: 1}}}]
"""


def a_folder(root: Path, *, cluster: str | None = CLUSTER, manifest: str = POD) -> Path:
    if cluster is not None:
        (root / "cluster.yaml").write_text(cluster)
    (root / "pod.yaml").write_text(manifest)
    return root


def ran(*args: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(cli.app, [str(arg) for arg in args], prog_name="kubenexus")
    return found.exit_code, found.stdout, found.stderr


def test_a_simulation_with_a_denied_object_still_exits_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_folder(tmp_path, manifest=POD.replace("name: p}", "name: p, namespace: gone}"))
    monkeypatch.chdir(tmp_path)
    assert ran("simulate", ".") == (
        0,
        "Cluster: 1 node, 4 CPUs, 8Gi memory\n\n"
        "Pod gone/p  denied  (pod.yaml)\n"
        '  because   namespaces "gone" not found\n\n'
        "1 manifest: 0 admitted, 1 denied; pods: 0 placed.\n",
        "",
    )


def test_one_file_is_simulated_on_the_cluster_of_the_option(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    code, out, _ = ran(
        "simulate", folder / "pod.yaml", "--cluster", folder / "cluster.yaml", "-o", "json"
    )
    (manifest,) = json.loads(out)["manifests"]
    assert (code, manifest["pods"][0]["node"]) == (0, "n")


@pytest.mark.parametrize(
    ("cluster", "manifest", "want"),
    [
        pytest.param(
            None,
            POD,
            ": no cluster is described; add cluster.yaml to the folder, or pass --cluster FILE",
            id="no cluster file",
        ),
        pytest.param(
            CLUSTER,
            "a: [1\n",
            "/pod.yaml:2:1: not YAML: did not find expected ',' or ']'",
            id="broken YAML",
        ),
        pytest.param(
            CLUSTER.replace("cpu: 4", "cpu: -4"),
            POD,
            "/cluster.yaml:3:24: nodes[0].cpu: found -4, want an amount above zero",
            id="a node with negative capacity",
        ),
        pytest.param(
            CLUSTER.replace("}]", "}, {name: n, cpu: 1, memory: 1Gi}]"),
            POD,
            "/cluster.yaml:3:48: a node called 'n' is listed twice; give each node its own name",
            id="two nodes of one name",
        ),
        pytest.param(
            CLUSTER.replace("8Gi", "8GB"),
            POD,
            "/cluster.yaml:3:35: nodes[0].memory: found '8GB', want a quantity such as 500m, 2, "
            "1.5Gi or 80G",
            id="a bad quantity of a node",
        ),
        pytest.param(
            CLUSTER,
            POD.replace("cpu: 1", "cpu: one"),
            "/pod.yaml:6:57: spec.containers[0].resources.requests.cpu: found 'one', want a "
            "quantity such as 500m, 2, 1.5Gi or 80G; correct it",
            id="a bad quantity of a pod",
        ),
        pytest.param(
            CLUSTER,
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
            "spec: {replicas: 20000, template: {spec: {containers: []}}}\n",
            "/pod.yaml:4:7: makes 20000 pods, at most 10000 are simulated; request fewer",
            id="too many pods",
        ),
    ],
)
def test_bad_input_is_one_line_with_its_place(
    cluster: str | None, manifest: str, want: str, tmp_path: Path
) -> None:
    folder = a_folder(tmp_path, cluster=cluster, manifest=manifest)
    assert ran("simulate", folder) == (2, "", f"kubenexus: {folder}{want}\n")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    assert ran("simulate", path) == (
        2,
        "",
        f"kubenexus: {path}: no such file; check the path\n",
    )


def test_an_unknown_kind_is_one_line(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, manifest=POD.replace("kind: Pod", "kind: Gadget"))
    code, out, err = ran("simulate", folder)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"kubenexus: {folder}/pod.yaml:2:7: kind 'Gadget' of 'v1' is not sim")


def test_bad_input_shows_no_traceback(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, cluster=CLUSTER.replace("cpu: 4", "cpu: -4"))
    found = subprocess.run(
        [sys.executable, "-m", "kubenexus", "simulate", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    want = f"kubenexus: {folder}/cluster.yaml:3:24: nodes[0].cpu: found -4, want an amount above zero\n"
    assert (found.returncode, found.stdout, found.stderr) == (2, "", want)


def test_the_quickstart_shows_one_of_each_outcome() -> None:
    code, out, _ = ran("simulate", ROOT / "examples/quickstart", "-o", "json")
    body = json.loads(out)
    outcomes = {
        one["name"]: [pod["outcome"] for pod in one["pods"]] if one["admitted"] else "denied"
        for one in body["manifests"]
    }
    assert (code, outcomes) == (
        0,
        {
            "hello": ["placed"],
            "train": ["placed"] * 4,
            "never-complete": "denied",
            "finetune": ["placed"],
            "too-wide": ["pending"],
            "shop": ["left to another scheduler"] * 2,
        },
    )
    by_name = {pod["name"]: pod for one in body["manifests"] for pod in one["pods"]}
    assert {by_name[f"train-{index}"]["node"] for index in range(4)} == {"gpu-0"}
    assert (by_name["finetune"]["numa"], by_name["finetune"]["gpus"]) == ([0], [0, 1, 2, 3])
    assert "no single NUMA node has sufficient capacity" in by_name["too-wide"]["reasons"][0]


def test_help_and_simulate_wait_for_no_library_that_they_do_not_need() -> None:
    program = (
        "import sys; from kubenexus import cli; print([name for name in "
        "('flask', 'gunicorn', 'kubernetes', 'aiohttp', 'numpy', 'pydantic', 'cryptography') "
        "if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("command", ["simulate", "webhook", "scheduler"])
def test_each_command_explains_itself(command: str) -> None:
    code, out, err = ran(command, "--help")
    assert (code, f"kubenexus {command}" in out, err) == (0, True, "")


def test_a_webhook_without_its_certificate_names_the_missing_option(tmp_path: Path) -> None:
    code, out, err = ran("webhook", "--cert-file", tmp_path / "c", "--key-file", tmp_path / "k")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"kubenexus: the serving certificate {tmp_path}/c with key {tmp_path}/k")


def test_the_version_is_printed() -> None:
    code, out, _ = ran("--version")
    assert (code, out.startswith("kubenexus ")) == (0, True)
