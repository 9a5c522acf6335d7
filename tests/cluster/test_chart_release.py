"""
A release from its beginning to its end, with every hook and every program run as a process, while
pods are made all the time. How this differs from a real installation: see `chart_environment`.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from kubenexus import rbac
from kubenexus.dev.binaries import locate
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.binaries.progress import Lines
from kubenexus.dev.errors import DevError
from kubenexus.dev.process import ports
from policies import vocabulary
from tests.cluster import chart_environment, chart_release_steps
from tests.cluster.chart_environment import (
    CHART,
    FULL,
    NAMESPACE,
    OWN_CERTIFICATES,
    RELEASE,
    ChartEnv,
    Json,
    run,
)
from tests.cluster.chart_programs import a_pod, creating, registered
from tests.cluster.chart_release_steps import Replicas, judged
from tests.cluster.chart_service_proxy import ServiceProxy
from tests.cluster.waiting import eventually
from webhook.registration import configurations


@pytest.fixture(scope="module")
def chart_env(
    kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartEnv]:
    with chart_environment.running(
        kubernetes_binaries, tmp_path_factory.mktemp("release")
    ) as found:
        yield found


def leftovers(chart_env: ChartEnv) -> list[str]:
    """Every object of the release that is still there."""
    kinds = (
        "deployments,daemonsets,jobs,cronjobs,services,configmaps,secrets,serviceaccounts,roles,"
        "rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets,networkpolicies,"
        "validatingwebhookconfigurations,mutatingwebhookconfigurations,priorityclasses,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings,customresourcedefinitions"
    )
    done = chart_env.kubectl("get", kinds, "--all-namespaces", "--output=name")
    assert done.returncode == 0, done.stderr
    return [
        line for line in done.stdout.splitlines() if FULL in line or vocabulary.POLICY_GROUP in line
    ]


@pytest.mark.timeout(900)
def test_a_release_is_installed_changed_and_removed_while_pods_are_made_all_the_time(
    chart_env: ChartEnv,
) -> None:
    (port,) = ports.free(1)
    values = (
        OWN_CERTIFICATES,
        f"--set=webhook.service.port={port},audit.enabled=true,priorityClass.create=true",
        "--set=webhook.workers=1,hooks.timeoutSeconds=60",
    )
    # A gate that only this product's scheduler would lift.
    held = a_pod("held", vocabulary.GANG_GATE, "example.com/other")
    chart_env.apply([{**held, "metadata": {"name": "held", "namespace": "default"}}])
    with contextlib.ExitStack() as ending:
        ending.enter_context(creating(chart_env, "created", count=2, pause=0.2))
        service_proxy = ending.enter_context(ServiceProxy(port))
        chart_release_steps.install(chart_env, *values)
        replicas = Replicas(chart_env, service_proxy, ending)
        chart_release_steps.answer(chart_env, replicas, *values)
        chart_release_steps.work(chart_env, ending)
        chart_release_steps.rotate(chart_env, replicas)
        chart_release_steps.widen(chart_env)
        chart_release_steps.upgrade(chart_env, replicas, *values)
        chart_release_steps.roll_back(chart_env, *values)
        chart_release_steps.uninstall(chart_env, *values)
    eventually(lambda: leftovers(chart_env) == [], f"nothing is left: {leftovers(chart_env)}")
    spec = chart_env.get("pod", "held", "--namespace", "default")["spec"]
    assert spec["schedulingGates"] == [{"name": "example.com/other"}]


def garbage(name: str) -> Json:
    data = {"tls.crt": "bm8=", "tls.key": "bm8=", "ca.crt": "bm8="}
    about = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data}


def test_hooks_that_cannot_do_their_work_fail_and_say_why(
    chart_env: ChartEnv, tmp_path: Path
) -> None:
    chart_env.apply([garbage("mine"), garbage("mine-ca")])
    admin = f"--kubeconfig={chart_env.plane.kubeconfig()}"
    (port,) = ports.free(1)
    (tmp_path / "ca.crt").write_bytes(chart_env.plane.ca.certificate)
    wanted = configurations.configurations(
        ca_pem=chart_env.plane.ca.certificate, base_url=f"https://{ports.HOST}:{port}"
    )
    (tmp_path / "wanted.yaml").write_text(yaml.safe_dump_all(wanted))
    attempts = {
        "certificates": [admin, f"--namespace={NAMESPACE}", "--secret=mine", "--service=it"],
        "register": [
            admin,
            f"--configurations={tmp_path / 'wanted.yaml'}",
            f"--ca-file={tmp_path / 'ca.crt'}",
            f"--url=https://{ports.HOST}:{port}/readyz",
            "--timeout=1",
        ],
        "probe": [admin, "--timeout=1"],
        "cleanup": [f"--kubeconfig={chart_env.plane.kubeconfig(rbac.TENANT)}", "--timeout=1"],
    }
    done = {name: run("install", name, *arguments) for name, arguments in attempts.items()}
    reasons = {
        "certificates": "the secrets mine and mine-ca hold no certificates of this program",
        "register": "the webhook did not answer at https://",
        "probe": "a pod in default was not mutated",
        "cleanup": "403",
    }
    said = {name: (one.returncode, reasons[name] in one.stderr) for name, one in done.items()}
    assert said == dict.fromkeys(reasons, (1, True)), done
    assert not [one for one in done.values() if "Traceback" in one.stderr]
    names = [
        one["metadata"]["name"] for one in chart_env.get("validatingwebhookconfigurations")["items"]
    ]
    assert names == []


def test_rules_that_the_webhook_added_survive_an_upgrade_of_a_registration_with_the_release(
    chart_env: ChartEnv,
) -> None:
    # No webhook answers here: with Fail, the next test could make no pod.
    values = [
        "--set=webhook.registration=withRelease,webhook.mutating.failurePolicy=Ignore",
        "--set=webhook.validating.failurePolicy=Ignore",
    ]
    chart_env.release("install", *values)
    added = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
        "scope": "Namespaced",
    }
    change = [{"op": "add", "path": "/webhooks/0/rules/-", "value": added}]
    done = chart_env.kubectl(
        "patch",
        "validatingwebhookconfiguration",
        f"{FULL}-webhook",
        "--type=json",
        f"--patch={json.dumps(change)}",
        "--field-manager=kubenexus",
    )
    assert done.returncode == 0, done.stderr
    chart_env.release("upgrade", *values, "--set=commonLabels.round=two")
    labels = [one["metadata"]["labels"].get("round") for one in registered(chart_env)]
    assert (labels, "configmaps" in judged(chart_env)) == (["two", "two"], True)
    gone = chart_env.helm("uninstall", RELEASE, "--wait", "--timeout", "150s")
    assert (gone.returncode, registered(chart_env)) == (0, []), gone.stderr


@pytest.fixture(scope="module")
def helm_3(chart_env: ChartEnv) -> ChartEnv:
    """The same control plane, with the Helm before this one."""
    try:
        folder = locate.tool("helm-3", env=os.environ, show=Lines(print))
    except DevError as exc:
        pytest.fail(str(exc), pytrace=False)
    return dataclasses.replace(chart_env, helm_path=folder / "helm")


@pytest.mark.parametrize(
    "values", sorted((CHART / "ci").glob("*.yaml")), ids=lambda path: path.stem
)
def test_helm_3_finds_no_fault_and_renders_the_same(
    chart_env: ChartEnv, helm_3: ChartEnv, values: Path
) -> None:
    found = helm_3.helm("lint", "--strict", str(CHART), f"--values={values}")
    assert (found.returncode, "0 chart(s) failed" in found.stdout) == (0, True), found.stdout
    rendered = [by_name(one.template(f"--values={values}")) for one in (chart_env, helm_3)]
    assert rendered[0] == rendered[1]


def by_name(objects: list[Json]) -> Mapping[tuple[str, str], Json]:
    """Which of two hooks of the same weight comes first is Helm's own business."""
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def test_helm_3_installs_upgrades_rolls_back_and_uninstalls(helm_3: ChartEnv) -> None:
    typo = helm_3.helm("install", RELEASE, str(CHART), "--set=webhok.replicas=1")
    assert (typo.returncode, "webhok" in typo.stderr) == (1, True), typo.stderr
    values = (OWN_CERTIFICATES, "--set=webhook.replicas=1,scheduler.replicas=1")
    helm_3.release("install", *values)
    helm_3.release("upgrade", *values, "--set=commonLabels.round=two")
    assert labels(helm_3).get("round") == "two"
    back = helm_3.helm("rollback", RELEASE, "1", "--wait", "--timeout", "150s")
    assert (back.returncode, "round" in labels(helm_3)) == (0, False), back.stderr
    gone = helm_3.helm("uninstall", RELEASE, "--wait", "--timeout", "150s")
    assert gone.returncode == 0, gone.stderr
    eventually(lambda: leftovers(helm_3) == [], f"nothing is left: {leftovers(helm_3)}")


def labels(chart_env: ChartEnv) -> Json:
    found = chart_env.get("deployment", f"{FULL}-webhook", f"--namespace={NAMESPACE}")
    about: Json = found["metadata"]["labels"]
    return about
