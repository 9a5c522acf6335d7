"""Configuration of the control plane: rights, command lines, stages, and sources of programs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus import rbac
from kubenexus.dev import api
from kubenexus.dev.binaries import locate, versions
from kubenexus.dev.errors import StartFailed, UsageError
from kubenexus.dev.plane import control_plane, flags
from kubenexus.dev.plane.control_plane import PortTaken, await_ready
from kubenexus.dev.plane.flags import Layout, Ports
from kubenexus.dev.process import ports
from kubenexus.dev.process.child import Child
from policies import vocabulary

AT = Layout(Path("/plane"))
PORTS = Ports(1, 2, 3, 4, 5, 6)


def _grants(user: str) -> list[tuple[str, str, str]]:
    """(namespace or '*', resource, verb) of a user, from the objects themselves."""
    objects = rbac.development_objects()
    roles = {
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item["rules"]
        for item in objects
        if item["kind"].endswith("Role")
    }
    found = []
    for item in objects:
        if user not in [subject["name"] for subject in item.get("subjects", ())]:
            continue
        namespace = item["metadata"].get("namespace")
        for rule in roles[item["roleRef"]["kind"], namespace, item["roleRef"]["name"]]:
            found += [
                (namespace or "*", resource, verb)
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ]
    return found


@pytest.mark.parametrize(
    "user", [vocabulary.SCHEDULER_NAME, vocabulary.WEBHOOK_NAME, rbac.KWOK, rbac.TENANT]
)
def test_no_component_reads_secrets_or_has_wildcards(user: str) -> None:
    grants = _grants(user)
    bad = [each for each in grants if "secrets" in each[1] or "*" in (each[1], each[2])]
    assert (bool(grants), bad) == (True, [])


def test_a_tenant_has_rights_in_one_namespace_alone() -> None:
    assert {namespace for namespace, _, _ in _grants(rbac.TENANT)} == {rbac.TENANT_NAMESPACE}


def test_the_webhook_writes_events_the_status_of_policies_and_its_own_registration() -> None:
    writes = {
        resource for _, resource, verb in _grants(vocabulary.WEBHOOK_NAME) if verb not in rbac.READ
    }
    queries = {"subjectaccessreviews"}  # a query in the form of a create; nothing is stored
    own = "validatingwebhookconfigurations"
    assert writes - queries == {"events", "platformpolicies/status", "tenantpolicies/status", own}
    [grant] = [rule for rule in rbac.WEBHOOK_RULES if own in rule["resources"]]
    assert grant["resourceNames"] == [vocabulary.WEBHOOK_NAME]


def test_the_scheduler_holds_leases_in_the_system_namespace_alone() -> None:
    leases = {
        (namespace, verb)
        for namespace, resource, verb in _grants(vocabulary.SCHEDULER_NAME)
        if resource == "leases"
    }
    system = vocabulary.SYSTEM_NAMESPACE
    assert leases == {(system, "get"), (system, "create"), (system, "update")}


@pytest.mark.parametrize("for_tests", [True, False])
def test_etcd_skips_fsync_in_tests_only(for_tests: bool) -> None:
    line = flags.etcd(AT, PORTS, unsafe_no_fsync=for_tests)
    assert ("--unsafe-no-fsync" in line) is for_tests


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(flags.etcd(AT, PORTS, unsafe_no_fsync=False), id="etcd"),
        pytest.param(flags.apiserver(AT, PORTS), id="kube-apiserver"),
        pytest.param(flags.controller_manager(AT, PORTS, user="u"), id="kube-controller-manager"),
        pytest.param(flags.kwok(AT, PORTS, user="u"), id="kwok"),
        pytest.param(flags.scheduler(AT, PORTS, user="u", config=None), id="kube-scheduler"),
    ],
)
def test_everything_listens_on_the_loopback_address(line: list[str]) -> None:
    addresses = [
        option
        for option in line
        if option.split("=")[0]
        in ("--bind-address", "--server-address", "--listen-client-urls", "--listen-peer-urls")
    ]
    assert addresses
    assert all("127.0.0.1" in option for option in addresses)


def _stages() -> dict[str, dict[str, Any]]:
    return {
        stage["metadata"]["name"]: stage["spec"]
        for stage in yaml.safe_load_all(control_plane.STAGES.read_text())
    }


def test_the_run_time_of_a_pod_is_read_from_the_annotation_of_the_vocabulary() -> None:
    delay = _stages()["pod-complete"]["delay"]
    assert delay == {
        "durationMilliseconds": 1000,
        "durationFrom": {
            "expressionFrom": f'.metadata.annotations["{vocabulary.DEV_RUN_FOR_ANNOTATION}"]'
        },
    }


def test_no_stage_writes_the_capacity_of_a_node() -> None:
    written = [stage["next"].get("statusTemplate", "") for stage in _stages().values()]
    assert not [text for text in written if "capacity" in text or "allocatable" in text]


@pytest.mark.parametrize(
    ("item", "want"),
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}},
            "/api/v1/namespaces/a",
            id="of the core group",
        ),
        pytest.param(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "r", "namespace": "n"},
            },
            "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles/r",
            id="of a group, in a namespace",
        ),
    ],
)
def test_the_address_of_an_object(item: dict[str, Any], want: str) -> None:
    assert api.path_of(item) == want


def test_an_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        versions.programs("1.2.3")
    assert str(caught.value) == "Kubernetes 1.2.3 is not known here; known are 1.37.1, 1.36.4."


def _assets(folder: Path, version: str, *, without: str = "") -> Path:
    folder.mkdir()
    for program in versions.programs("1.37.1"):
        if program.name != without:
            path = folder / program.name
            path.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
            path.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "without", "want"),
    [
        pytest.param("1.37.1", "", None, id="all of it"),
        pytest.param("1.37.1", "kwok", "it lacks kwok.", id="a program is missing"),
        pytest.param("1.30.0", "", "is 1.30.0 and 1.37.1 is wanted", id="another version"),
    ],
)
def test_whether_the_folder_of_the_environment_is_used(
    tmp_path: Path, version: str, without: str, want: str | None
) -> None:
    folder = _assets(tmp_path / "assets", version, without=without)
    said = locate.assets_objection("1.37.1", {locate.ASSETS: str(folder)})
    assert (said is None) if want is None else (said is not None and want in said)


def test_free_ports_are_different_and_can_be_listened_on() -> None:
    found = ports.free(20)
    assert (len(set(found)), all(map(ports.is_free, found))) == (20, True)


@pytest.mark.parametrize(
    ("script", "kind", "what"),
    [
        pytest.param("echo broken; exit 3", StartFailed, "ended with exit code 3", id="it ends"),
        pytest.param(
            "echo bind: address already in use; exit 1", PortTaken, "ended", id="its port is taken"
        ),
        pytest.param("echo slow; sleep 60", StartFailed, "was not ready within 0.2 s", id="slow"),
    ],
)
def test_a_failed_start_has_the_reason(
    tmp_path: Path, script: str, kind: type[StartFailed], what: str
) -> None:
    child = Child("program", ["sh", "-c", script], log=tmp_path / "log")
    child.start()
    with pytest.raises(StartFailed) as caught:
        await_ready([child], lambda: False, deadline=0.2 if "slow" in script else 30)
    child.kill()
    said = script.split(";")[0].removeprefix("echo ")
    message = str(caught.value)
    assert (type(caught.value), what in message, message.endswith(said)) == (kind, True, True)


def test_a_closed_health_endpoint_is_not_healthy() -> None:
    (port,) = ports.free(1)
    urls = [f"{scheme}://127.0.0.1:{port}/healthz" for scheme in ("http", "https")]
    assert not any(map(control_plane.healthy, urls))
