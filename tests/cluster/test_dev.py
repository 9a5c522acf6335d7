"""The control plane itself: workloads behave, users have their rights, nothing is left behind."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubenexus import rbac
from kubenexus.clusterfile import load
from kubenexus.dev.binaries.locate import ASSETS, Binaries
from kubenexus.dev.plane.control_plane import ControlPlane
from policies import vocabulary

Kubectl = Callable[..., subprocess.CompletedProcess[str]]

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.cluster


@pytest.fixture
def stock_scheduler(control_plane: ControlPlane) -> Iterator[None]:
    control_plane.add_nodes(load.plain(2).nodes)
    control_plane.start_kube_scheduler()
    yield
    control_plane.stop_kube_scheduler()


@pytest.mark.usefixtures("stock_scheduler")
def test_deployments_run_jobs_complete_and_deleted_pods_go(
    kubectl: Kubectl, namespace: str
) -> None:
    here = f"-n={namespace}"
    kubectl("create", "deployment", "web", "--image=web", "--replicas=3", here)
    kubectl("create", "job", "batch", "--image=batch", here)
    wait = ("wait", here, "--timeout=30s")
    outcomes = [
        kubectl(*wait, "--for=condition=available", "deployment/web").stdout,
        kubectl(*wait, "--for=condition=complete", "job/batch").stdout,
        kubectl("delete", "deployment", "web", here, "--cascade=foreground").returncode,
        kubectl("get", "pods", "-l", "app=web", here, "-o", "name").stdout,
    ]
    assert outcomes == [
        "deployment.apps/web condition met\n",
        "job.batch/batch condition met\n",
        0,
        "",
    ]


def a_job(name: str, run_for: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"annotations": {vocabulary.DEV_RUN_FOR_ANNOTATION: run_for}},
                "spec": {
                    "nodeName": node,
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "c"}],
                },
            }
        },
    }


def test_a_pod_sets_how_long_it_runs(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    """A job of a second ends while one of an hour, made before it, runs on."""
    nodes = load.plain(1).nodes
    control_plane.add_nodes(nodes)
    node = nodes[0]["metadata"]["name"]
    here = f"-n={namespace}"
    jobs = [a_job("long", "1h", node), a_job("short", "1s", node)]
    manifest = {"apiVersion": "v1", "kind": "List", "items": jobs}
    kubectl("apply", "-f", "-", here, input=json.dumps(manifest))
    kubectl("wait", "--for=condition=complete", "job/short", here, "--timeout=30s")
    form = "jsonpath={range .items[*]}{.metadata.labels.job-name}={.status.phase} {end}"
    phases = kubectl("get", "pods", here, "-o", form).stdout
    assert sorted(phases.split()) == ["long=Running", "short=Succeeded"]


def test_what_a_node_was_given_is_left_alone(control_plane: ControlPlane) -> None:
    (node,) = load.plain(1).nodes
    control_plane.add_nodes([node])
    found = control_plane.api().call("GET", f"/api/v1/nodes/{node['metadata']['name']}")
    kept = {field: found["status"][field] for field in ("capacity", "allocatable")}
    assert kept == node["status"]


TEAM, SYSTEM = rbac.TENANT_NAMESPACE, vocabulary.SYSTEM_NAMESPACE
TENANT, SCHEDULER, WEBHOOK = rbac.TENANT, vocabulary.SCHEDULER_NAME, vocabulary.WEBHOOK_NAME


@pytest.mark.parametrize(
    ("user", "verb", "what", "namespace", "want"),
    [
        pytest.param(TENANT, "create", "batch/jobs", TEAM, True, id="a tenant makes jobs"),
        pytest.param(TENANT, "create", "batch/jobs", "default", False, id="only in its place"),
        pytest.param(TENANT, "get", "/secrets", TEAM, False, id="a tenant reads no secrets"),
        pytest.param(TENANT, "get", "/secrets", "default", False, id="nor those of others"),
        pytest.param(TENANT, "create", "/nodes", "", False, id="a tenant makes no nodes"),
        pytest.param(TENANT, "create", "/pods/binding", TEAM, False, id="nor binds pods"),
        pytest.param(SCHEDULER, "create", "/pods/binding", TEAM, True, id="the scheduler binds"),
        pytest.param(SCHEDULER, "patch", "/pods/status", TEAM, True, id="and reports on pods"),
        pytest.param(SCHEDULER, "delete", "/pods", TEAM, True, id="and evicts them"),
        pytest.param(SCHEDULER, "create", "/pods", TEAM, False, id="but makes none"),
        pytest.param(SCHEDULER, "list", "/secrets", "", False, id="and reads no secrets"),
        pytest.param(SCHEDULER, "update", "/nodes", "", False, id="and writes no nodes"),
        pytest.param(
            SCHEDULER, "update", "coordination.k8s.io/leases", SYSTEM, True, id="it holds a lease"
        ),
        pytest.param(
            SCHEDULER, "update", "coordination.k8s.io/leases", TEAM, False, id="only in its place "
        ),
        pytest.param(WEBHOOK, "watch", "/namespaces", "", True, id="the webhook sees namespaces"),
        pytest.param(
            WEBHOOK, "create", "events.k8s.io/events", TEAM, True, id="and reports in events"
        ),
        pytest.param(WEBHOOK, "list", "/secrets", "", False, id="and reads no secrets "),
        pytest.param(WEBHOOK, "create", "/pods/binding", TEAM, False, id="and binds nothing"),
    ],
)
def test_users_have_the_rights_they_need_and_no_others(
    control_plane: ControlPlane, user: str, verb: str, what: str, namespace: str, want: bool
) -> None:
    group, resource, *part = what.split("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": "/".join(part),
        "namespace": namespace,
    }
    answer = control_plane.api(user).call(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
    )
    assert answer["status"]["allowed"] is want


def test_a_tenant_is_refused_by_the_api_server(kubectl: Kubectl) -> None:
    done = kubectl("get", "secrets", "-n=kube-system", user=TENANT)
    assert (done.returncode, 'User "tenant" cannot list resource "secrets"' in done.stderr) == (
        1,
        True,
    )


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_a_restarted_api_server_has_its_address_and_its_data(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str, crash: bool
) -> None:
    kubectl("create", "configmap", "kept", "--from-literal=a=b", f"-n={namespace}")
    server = control_plane.server
    control_plane.restart_apiserver(crash=crash)
    found = kubectl("get", "configmap", "kept", f"-n={namespace}", "-o", "jsonpath={.data.a}")
    assert (found.stdout, control_plane.server) == ("b", server)


class Dev:
    """`kubenexus dev` as a person runs it, with a home of its own."""

    def __init__(self, home: Path, programs: Binaries) -> None:
        self._env = {
            **os.environ,
            "XDG_STATE_HOME": str(home),
            "PYTHONPATH": str(REPOSITORY),
            ASSETS: str(programs.folder),
        }
        self._kubernetes = programs.kubernetes

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "kubenexus", "dev", *args]
        return subprocess.run(argv, env=self._env, capture_output=True, text=True, timeout=120)

    def up(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self("up", f"--kubernetes={self._kubernetes}", *args)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "-o", "json").stdout)
        return found


@pytest.fixture
def dev(tmp_path: Path, kubernetes_binaries: Binaries) -> Iterator[Dev]:
    command = Dev(tmp_path, kubernetes_binaries)
    yield command
    command("down")


def ended(pid: int, *, within: float) -> bool:
    """Whether a process that is no child of this one ends, as the kernel reports without polling."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within)[0])
    finally:
        os.close(descriptor)


def group_of(leader: int) -> set[int]:
    """The processes of one session: a component and its helpers."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == leader:
                    found.add(int(entry.name))
            except ProcessLookupError:
                continue
    return found


PLANE = ["etcd", "kube-apiserver", "kube-controller-manager", "kwok", "kube-scheduler"]


def test_up_status_kubectl_down(dev: Dev, tmp_path: Path) -> None:
    described = tmp_path / "cluster.yaml"
    described.write_text(
        f"apiVersion: {vocabulary.CLUSTER_FILE_API_VERSION}\nkind: Cluster\n"
        "namespaces: [{name: team-z, tenant: z, tier: silver}]\n"
        "nodes: [{name: big, count: 2, cpu: 64, memory: 256Gi}]\n"
    )
    first = dev.up("--no-webhook", "--no-scheduler", f"--cluster={described}")
    assert first.returncode == 0, first.stderr
    again, status = dev.up("--nodes=1"), dev.status()
    tier = vocabulary.TIER_LABEL.replace(".", "\\.")
    query = ("get", "namespace", "team-z", "-o", f"jsonpath={{.metadata.labels.{tier}}}")
    seen = dev("kubectl", *query)
    refused = dev("kubectl", "--as-user", TENANT, "get", "nodes")
    down, twice = dev("down"), dev("down")
    assert (
        again.stdout.splitlines()[0],
        (status["well"], status["nodes_ready"]),
        [each["name"] for each in status["components"] if each["ready"]],
        (seen.stdout, seen.returncode),
        refused.returncode,
        [name in down.stdout for name in PLANE],
        twice.stdout,
        dev("status").returncode,
    ) == (
        "The plane 'default' is up already.",
        (True, 2),
        PLANE,
        ("silver", 0),
        1,
        [True] * 5,
        "The plane 'default' was not up.\n",
        1,
    )


def test_nothing_outlives_a_supervisor_that_is_killed(dev: Dev) -> None:
    started = dev.up("--nodes=1")
    assert started.returncode == 0, started.stderr
    status = dev.status()
    processes = {pid for each in status["components"] for pid in group_of(each["pid"])}
    os.kill(status["supervisor"], signal.SIGKILL)
    left = {pid for pid in processes if not ended(pid, within=15)}
    after = dev.status()
    down = dev("down")
    assert (len(processes) >= 6, left, after["phase"], down.returncode) == (True, set(), "down", 0)


def test_a_process_that_ends_is_started_again(dev: Dev) -> None:
    started = dev.up("--nodes=0", "--no-webhook", "--no-scheduler", "--no-kube-scheduler")
    assert started.returncode == 0, started.stderr
    (before,) = [each for each in dev.status()["components"] if each["name"] == "kwok"]
    os.kill(before["pid"], signal.SIGKILL)
    assert ended(before["pid"], within=15)
    after = before
    for _ in range(50):
        (after,) = [each for each in dev.status()["components"] if each["name"] == "kwok"]
        if after["ready"]:
            break
    assert (after["ready"], after["restarts"], after["pid"] != before["pid"]) == (True, 1, True)
