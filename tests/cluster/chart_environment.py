"""
What the chart's tests stand on: Helm, a control plane of their own, and processes that run with
the rights of the chart's service accounts.

Fake nodes run nothing. So the hook Jobs of a release succeed without having done anything, and the
pods of its Deployments serve no client. The tests therefore run each program as a process of this
machine, with a token of the account that its pod has, and with the arguments that its pod has.
What differs from a real installation, all of it:

    the webhook's Service    is turned into an ExternalName for `localhost`, and its port is the
                             process's: there is no network in which pods could be reached. The API
                             server still requires the certificate of <service>.<namespace>.svc
    files of volumes         lie in a folder of this machine
    --kubeconfig             in place of the account's mounted token
"""

import base64
import contextlib
import functools
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.clusterfile import load
from kubenexus.dev.binaries import locate
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.binaries.progress import Lines
from kubenexus.dev.errors import DevError
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import ports, self_exec

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "kubenexus"
RELEASE = "nexus"
NAMESPACE = "nexus-system"
FULL = "nexus-kubenexus"
OWN_CERTIFICATES = "--set=certManager.enabled=false"

Json = dict[str, Any]
Done = subprocess.CompletedProcess[str]


# Kinds of other operators that the chart can use: only that they exist matters here.
FOREIGN = (
    ("cert-manager.io", "v1", "Certificate", "certificates"),
    ("cert-manager.io", "v1", "Issuer", "issuers"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
)


def a_kind(group: str, version: str, kind: str, plural: str) -> Json:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": free},
                }
            ],
        },
    }


@dataclass(frozen=True, slots=True)
class ChartEnv:
    plane: ControlPlane
    helm_path: Path
    folder: Path

    def helm(self, *args: str, timeout: float = 180.0) -> Done:
        command = [str(self.helm_path), *args, "--namespace", NAMESPACE]
        command += ["--kubeconfig", str(self.plane.kubeconfig())]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)

    def release(self, verb: str, *args: str) -> Done:
        """Install or upgrade the release; `verb` is which."""
        done = self.helm(verb, RELEASE, str(CHART), "--wait", "--timeout", "150s", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def template(self, *args: str) -> list[Json]:
        return [one for one in yaml.safe_load_all(_rendered(self, args)) if one]

    def kubectl(self, *args: str, input: str | None = None) -> Done:
        return self.plane.kubectl(*args, input=input)

    def get(self, *args: str) -> Json:
        done = self.kubectl("get", *args, "--output=json")
        assert done.returncode == 0, done.stderr
        found: Json = json.loads(done.stdout)
        return found

    def apply(self, objects: Sequence[Json]) -> None:
        done = self.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(objects))
        assert done.returncode == 0, done.stderr

    def hook_rights(self, component: str, *values: str) -> None:
        """Make a hook's account and roles, which Helm has only while the hook runs."""
        kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        self.apply(
            [
                one
                for one in self.template(*values)
                if one["kind"] in kinds
                and one["metadata"]["labels"]["app.kubernetes.io/component"] == component
            ]
        )

    def account(self, component: str, *, node: str | None = None) -> Path:
        """A kubeconfig for a component's service account; bound to a node where one is given."""
        bound = [f"--bound-object-name={node}", "--bound-object-kind=Node"] if node else []
        name = f"{FULL}-{component}"
        token = self.kubectl("create", "token", name, "--namespace", NAMESPACE, *bound)
        assert token.returncode == 0, token.stderr
        path = self.folder / f"{component}{'-' + node if node else ''}.kubeconfig"
        path.write_text(yaml.safe_dump(self._kubeconfig(token.stdout.strip())))
        return path

    def _kubeconfig(self, token: str) -> Json:
        ca = base64.b64encode(self.plane.ca.certificate).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.plane.server, "certificate-authority-data": ca},
                }
            ],
        }

    def files(self, kind: str, name: str) -> Path:
        """The folder with the files of a secret or ConfigMap, as a volume would have them."""
        found = self.get(kind, name, "--namespace", NAMESPACE)
        link = self.folder / f"{kind}-{name}"
        # Swapped in one step, as a kubelet does.
        folder = self.folder / f"{kind}-{name}-{found['metadata']['resourceVersion']}"
        folder.mkdir(exist_ok=True)
        for key, value in (found.get("data") or {}).items():
            data = base64.b64decode(value) if kind == "secret" else value.encode()
            (folder / key).write_bytes(data)
        scratch = self.folder / f".{kind}-{name}"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(folder)
        scratch.replace(link)
        return link

    def reach_by_name(self) -> None:
        """Let the API server find the webhook's Service on this machine."""
        change = {"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": None}}
        change["spec"]["clusterIPs"] = None
        done = self.kubectl(
            "patch", "service", f"{FULL}-webhook", "--namespace", NAMESPACE,
            "--type=merge", f"--patch={json.dumps(change)}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@functools.cache
def _rendered(chart_env: ChartEnv, args: tuple[str, ...]) -> str:
    done = chart_env.helm("template", RELEASE, str(CHART), *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def served(port: int) -> bytes:
    """The certificate that a port of this machine shows."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((ports.HOST, port)))


def leaf(data: Mapping[str, str]) -> bytes:
    """The certificate of a secret's data; its authorities follow it in the same text."""
    pem = base64.b64decode(data["tls.crt"]).decode()
    return ssl.PEM_cert_to_DER_cert(pem[: pem.index("-----END") + len("-----END CERTIFICATE-----")])


def run(*args: str, timeout: float = 60.0) -> Done:
    """One `kubenexus` command, as a hook's container runs it."""
    return subprocess.run(
        [sys.executable, "-m", "kubenexus", *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=self_exec.environment({"PATH": "/usr/bin:/bin"}),
    )


@contextlib.contextmanager
def running(
    kubernetes: Binaries, folder: Path, *, kinds: Sequence[Json] | None = None
) -> Iterator[ChartEnv]:
    """A control plane with three nodes, Helm, and the kinds of other operators."""
    plane = ControlPlane(binaries=kubernetes, folder=folder / "plane", for_tests=True)
    try:
        helm = locate.tool("helm", env=os.environ, show=Lines(print)) / "helm"
        plane.start()
    except DevError as exc:
        pytest.fail(str(exc), pytrace=False)
    try:
        plane.start_kube_scheduler()
        plane.add_nodes(load.plain(3).nodes)
        chart_env = ChartEnv(plane, helm, folder)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        chart_env.apply([space, *(kinds or (a_kind(*row) for row in FOREIGN))])
        yield chart_env
    finally:
        plane.stop()
