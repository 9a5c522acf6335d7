"""
A release from its beginning to its end, with every hook run as a process, while pods are made all
the time. How this differs from a real installation: see `chart_rig`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubenexus.dev import ports, rbac
from kubenexus.dev.binaries import Binaries
from policies import vocabulary
from tests.cluster import chart_rig
from tests.cluster.chart_programs import Creating, a_pod, probe, register, registered, serve
from tests.cluster.chart_rig import FULL, NAMESPACE, OWN_CERTIFICATES, RELEASE, Json, Rig, run
from tests.cluster.waiting import eventually
from webhook import registration


@pytest.fixture(scope="module")
def rig(kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with chart_rig.running(kubernetes_binaries, tmp_path_factory.mktemp("release")) as found:
        yield found


def leftovers(rig: Rig) -> list[str]:
    """Every object of the release that is still there."""
    kinds = (
        "deployments,daemonsets,jobs,cronjobs,services,configmaps,secrets,serviceaccounts,roles,"
        "rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets,networkpolicies,"
        "validatingwebhookconfigurations,mutatingwebhookconfigurations,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings,customresourcedefinitions"
    )
    done = rig.kubectl("get", kinds, "--all-namespaces", "--output=name")
    assert done.returncode == 0, done.stderr
    return [
        line for line in done.stdout.splitlines() if FULL in line or vocabulary.POLICY_GROUP in line
    ]


@pytest.mark.timeout(900)
def test_a_release_comes_changes_and_goes_while_pods_are_made_all_the_time(rig: Rig) -> None:
    (port,) = ports.free(1)
    values = (OWN_CERTIFICATES, f"--set=webhook.service.port={port},audit.enabled=true")
    # A gate that only this product's scheduler would lift.
    held = a_pod("held", vocabulary.GANG_GATE, "example.com/other")
    rig.apply([{**held, "metadata": {"name": "held", "namespace": "default"}}])
    creating = Creating(rig)
    creating.start()
    webhook = None
    try:
        make_certificate(rig, *values)
        rig.release("install", *values)
        assert registered(rig) == []  # nobody answers yet
        rig.hook_rights("register", *values)
        code, said = probe(rig, seconds=2)
        assert (code, "was not seen by mutation" in said) == (1, True), said

        rig.reach_by_name()
        webhook = serve(rig, port)
        register(rig, port, *values)
        code, said = probe(rig)
        assert (code, "admission answers" in said) == (0, True), said
        audited = run("audit", f"--kubeconfig={rig.account('audit')}", "--output=json")
        assert audited.returncode in (0, 1), audited.stderr  # 2: not everything could be read
        widen(rig)

        rig.release("upgrade", *values, "--set=commonLabels.round=two")
        register(rig, port, *values)
        assert [one["metadata"]["labels"]["round"] for one in registered(rig)] == ["two", "two"]
        assert "configmaps" in judged(rig)  # what the webhook added is not lost
        back = rig.helm("rollback", RELEASE, "1", "--wait", "--timeout", "150s")
        assert back.returncode == 0, back.stderr
        register(rig, port, *values)
        assert ["round" in one["metadata"]["labels"] for one in registered(rig)] == [False, False]

        clean_up(rig, *values)
        assert registered(rig) == []
        gone = rig.helm("uninstall", RELEASE, "--wait", "--timeout", "150s")
        assert gone.returncode == 0, gone.stderr
    finally:
        if webhook is not None:
            webhook.stop()
        creating.stop()
    assert creating.failures == []
    assert creating.made > 0
    eventually(lambda: leftovers(rig) == [], f"nothing is left: {leftovers(rig)}")
    spec = rig.get("pod", "held", "--namespace", "default")["spec"]
    assert spec["schedulingGates"] == [{"name": "example.com/other"}]


def make_certificate(rig: Rig, *values: str) -> None:
    """What the hook before an installation does; a second run finds nothing to do."""
    rig.hook_rights("certificates", *values)
    arguments = (
        f"--kubeconfig={rig.account('certificates')}",
        f"--namespace={NAMESPACE}",
        f"--secret={FULL}-webhook-tls",
        f"--service={FULL}-webhook",
    )
    said = [run("install", "certificates", *arguments) for _ in range(2)]
    assert [done.returncode for done in said] == [0, 0], said
    assert ("written" in said[0].stderr, "good as it is" in said[1].stderr) == (True, True), said


def widen(rig: Rig) -> None:
    """A policy about a kind that is not the product's own: the webhook widens its rules."""
    policy = {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "ClusterPolicy",
        "metadata": {"name": "about-config-maps"},
        "spec": {
            "matchConstraints": {"kinds": ["ConfigMap"], "operations": ["CREATE"]},
            "validations": [{"name": "any", "expression": "true", "message": "never"}],
        },
    }
    done = rig.kubectl("apply", "--filename=-", input=json.dumps(policy))
    assert done.returncode == 0, done.stderr
    eventually(lambda: "configmaps" in judged(rig), "the webhook has ConfigMaps sent")


def judged(rig: Rig) -> str:
    """The validating configuration's rules, as text."""
    return json.dumps([one["rules"] for found in registered(rig) for one in found["webhooks"]])


def clean_up(rig: Rig, *values: str) -> None:
    """What the hook before the end does, with the hook's rights."""
    rig.hook_rights("cleanup", *values)
    secret = f"{FULL}-webhook-tls"
    done = run(
        "install",
        "cleanup",
        f"--kubeconfig={rig.account('cleanup')}",
        f"--configuration={FULL}-webhook",
        f"--namespace={NAMESPACE}",
        f"--secret={secret}",
        f"--secret={secret}-ca",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # The hook's own account, which Helm deletes with the hook.
    objects = [
        one
        for one in rig.template(*values)
        if "helm.sh/hook" in (one["metadata"].get("annotations") or {})
    ]
    names = yaml.safe_dump_all(objects)
    rig.kubectl("delete", "--ignore-not-found", "--filename=-", input=names)


def garbage(name: str) -> Json:
    data = {"tls.crt": "bm8=", "tls.key": "bm8=", "ca.crt": "bm8="}
    about = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data}


def test_hooks_that_cannot_do_their_work_fail_and_say_why(rig: Rig, tmp_path: Path) -> None:
    rig.apply([garbage("mine"), garbage("mine-ca")])
    admin = f"--kubeconfig={rig.plane.kubeconfig()}"
    (port,) = ports.free(1)
    (tmp_path / "ca.crt").write_bytes(rig.plane.ca.certificate)
    wanted = registration.configurations(
        ca_pem=rig.plane.ca.certificate, base_url=f"https://{ports.HOST}:{port}"
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
        "cleanup": [f"--kubeconfig={rig.plane.kubeconfig(rbac.TENANT)}", "--timeout=1"],
    }
    done = {name: run("install", name, *arguments) for name, arguments in attempts.items()}
    reasons = {
        "certificates": "the secrets mine and mine-ca hold no certificates of this program",
        "register": "the webhook did not answer at https://",
        "probe": "a pod in default was not seen by mutation",
        "cleanup": "403",
    }
    said = {name: (one.returncode, reasons[name] in one.stderr) for name, one in done.items()}
    assert said == dict.fromkeys(reasons, (1, True)), done
    assert not [one for one in done.values() if "Traceback" in one.stderr]
    names = [one["metadata"]["name"] for one in rig.get("validatingwebhookconfigurations")["items"]]
    assert names == []


def test_rules_that_the_webhook_added_survive_an_upgrade_of_a_registration_with_the_release(
    rig: Rig,
) -> None:
    # Nobody answers here: with Fail, the next test could make no pod.
    values = [
        "--set=webhook.registration=withRelease,webhook.mutating.failurePolicy=Ignore",
        "--set=webhook.validating.failurePolicy=Ignore",
    ]
    rig.release("install", *values)
    added = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
        "scope": "Namespaced",
    }
    change = [{"op": "add", "path": "/webhooks/0/rules/-", "value": added}]
    done = rig.kubectl(
        "patch",
        "validatingwebhookconfiguration",
        f"{FULL}-webhook",
        "--type=json",
        f"--patch={json.dumps(change)}",
        "--field-manager=kubenexus",
    )
    assert done.returncode == 0, done.stderr
    rig.release("upgrade", *values, "--set=commonLabels.round=two")
    labels = [one["metadata"]["labels"].get("round") for one in registered(rig)]
    assert (labels, "configmaps" in judged(rig)) == (["two", "two"], True)
    gone = rig.helm("uninstall", RELEASE, "--wait", "--timeout", "150s")
    assert (gone.returncode, registered(rig)) == (0, []), gone.stderr
