"""
The chart's certificate from cert-manager, for real: its controller and its cainjector run as
processes, with its own kinds, against the API server of the test.

They run with an admin's rights, because the chart grants cert-manager nothing. How the webhook is
reached: see `chart_environment`.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from kubenexus.dev.binaries import locate
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.binaries.progress import Lines
from kubenexus.dev.errors import DevError
from kubenexus.dev.process import ports
from kubenexus.dev.process.child import Child, stop_all
from tests.cluster import chart_environment
from tests.cluster.chart_environment import FULL, NAMESPACE, ChartEnv, Json, leaf, served
from tests.cluster.chart_programs import PodCreator, creating, probe, register, serve
from tests.cluster.waiting import eventually

KINDS = Path(__file__).with_name("cert_manager")
NAME = f"{FULL}-webhook"
SECRET = f"{NAME}-tls"
AFTER = 40  # pods that are made after the new certificate is served

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def chart_env(
    kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartEnv]:
    folder = tmp_path_factory.mktemp("certificates")
    try:
        programs = locate.tool("cert-manager", env=os.environ, show=Lines(print))
    except DevError as exc:
        pytest.fail(str(exc), pytrace=False)
    kinds = [yaml.safe_load(path.read_text()) for path in sorted(KINDS.glob("*.yaml"))]
    with chart_environment.running(kubernetes_binaries, folder, kinds=kinds) as found:
        (metrics,) = ports.free(1)
        common = [f"--kubeconfig={found.plane.kubeconfig()}", "--leader-elect=false"]
        options = {
            "controller": [
                f"--metrics-listen-address={ports.HOST}:{metrics}",
                f"--cluster-resource-namespace={NAMESPACE}",
            ],
            "cainjector": [],
        }
        children = [
            Child(name, [str(programs / name), *common, *more], log=folder / f"{name}.log")
            for name, more in options.items()
        ]
        for child in children:
            child.start()
        yield found
        stop_all(children)


def secret(chart_env: ChartEnv, *, unlike: str = "") -> dict[str, str] | None:
    """What cert-manager has issued; None until it has, and while it is still this certificate."""
    done = chart_env.kubectl("get", "secret", SECRET, f"--namespace={NAMESPACE}", "--output=json")
    data: dict[str, str] = json.loads(done.stdout)["data"] if done.returncode == 0 else {}
    is_there = data.get("ca.crt") and data.get("tls.crt", unlike) != unlike
    return data if is_there else None


def bundles(chart_env: ChartEnv, *configurations: str) -> set[str]:
    """Every authority that the configurations let the API server trust."""
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    return {
        one["clientConfig"].get("caBundle", "")
        for found in chart_env.get(kinds)["items"]
        if found["metadata"]["name"] in configurations
        for one in found["webhooks"]
    }


def renew(chart_env: ChartEnv) -> None:
    """What `cmctl renew` does."""
    certificate = chart_env.get("certificate", NAME, f"--namespace={NAMESPACE}")
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "renewal was asked for",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": certificate["metadata"]["generation"],
    }
    ready = certificate["status"]["conditions"]
    change = {"status": {"conditions": [*ready, condition]}}
    done = chart_env.kubectl(
        "patch",
        "certificate",
        NAME,
        f"--namespace={NAMESPACE}",
        "--subresource=status",
        "--type=merge",
        f"--patch={json.dumps(change)}",
    )
    assert done.returncode == 0, done.stderr


def unused(chart_env: ChartEnv) -> list[Json]:
    """The release's configurations once more, for objects that no test makes, without a bundle."""
    known = chart_env.get("configmap", f"{FULL}-registration", f"--namespace={NAMESPACE}")
    found = [one for one in yaml.safe_load_all(known["data"]["configurations.yaml"]) if one]
    for one in found:
        one["metadata"]["name"] = "unused"
        for webhook in one["webhooks"]:
            webhook["objectSelector"] = {"matchLabels": {"nobody": "has-this"}}
    return found


def made(makers: Sequence[PodCreator]) -> int:
    return sum(one.made for one in makers)


def test_a_certificate_is_issued_injected_served_and_renewed_without_a_failed_pod(
    chart_env: ChartEnv,
) -> None:
    (port,) = ports.free(1)
    values = (f"--set=webhook.service.port={port}",)
    chart_env.release("install", *values)
    issued = eventually(lambda: secret(chart_env), "cert-manager issues the certificate")
    chart_env.reach_by_name()
    webhook = serve(chart_env, port)
    try:
        assert served(port) == leaf(issued)
        chart_env.apply(unused(chart_env))
        eventually(lambda: bundles(chart_env, "unused") == {issued["ca.crt"]}, "the CA is injected")
        register(chart_env, *values)
        assert bundles(chart_env, NAME) == {issued["ca.crt"]}
        code, said = probe(chart_env, *values)
        assert code == 0, said

        # Each makes ten pods a second and more.
        with creating(chart_env, "created", count=3, pause=0.02) as makers:
            renew(chart_env)
            renewed = eventually(
                lambda: secret(chart_env, unlike=issued["tls.crt"]),
                "cert-manager renews the certificate",
            )
            # The kubelet's part: the files of the volume follow the secret.
            chart_env.files("secret", SECRET)
            eventually(lambda: served(port) == leaf(renewed), "the new certificate is served")
            before = made(makers)
            eventually(lambda: made(makers) >= before + AFTER, "pods are made afterwards")
    finally:
        webhook.stop()
