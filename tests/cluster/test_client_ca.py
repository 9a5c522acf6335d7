"""A webhook that answers the API server alone, which proves its name with a client certificate."""

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kubenexus import pki
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane import key_files, kubeconfig
from kubenexus.dev.plane.control_plane import APISERVER, ControlPlane
from kubenexus.dev.stack import Stack
from kubenexus.pki import KeyPair
from policies import vocabulary
from tests.builders import a_pod
from tests.cluster.waiting import eventually
from tests.fuzz import corpus

pytestmark = pytest.mark.cluster

NAME = "apiserver-webhook-client"
PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


@dataclass(frozen=True)
class Site:
    plane: ControlPlane
    stack: Stack
    folder: Path
    ca: KeyPair

    def certificate(self, name: str, ca: KeyPair) -> Path:
        """A file with a client certificate and its key."""
        pair = pki.client(ca, user=name, now=datetime.now(UTC), valid_for=key_files.VALID_FOR)
        file = self.folder / f"{name}-{len(list(self.folder.iterdir()))}.pem"
        key_files.write_private(file, pair.certificate + pair.key)
        return file

    def request(self, method: str, path: str, shown: Path | None = None) -> tuple[int, str]:
        """Status and body; status 0 where the handshake or the connection was refused."""
        where = urlsplit(self.stack.webhook_url)
        trust = ssl.create_default_context(cadata=self.plane.ca.certificate.decode())
        if shown is not None:
            trust.load_cert_chain(shown)
        link = http.client.HTTPSConnection(
            where.hostname or "", where.port, timeout=10, context=trust
        )
        body = corpus.seeds()[1] if method == "POST" else None
        try:
            link.request(method, path, body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            return answer.status, answer.read().decode()
        except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected) as exc:
            return 0, str(exc)
        finally:
            link.close()

    def create(self, name: str) -> str:
        """What a create of a pod is refused with."""
        try:
            self.plane.api().call(
                "POST", "/api/v1/namespaces/team-a/pods?dryRun=All", a_pod(name, namespace="team-a")
            )
        except CallFailed as exc:
            return str(exc)
        return ""


def admission_configuration(folder: Path, user: KeyPair) -> Path:
    """The configuration that says which certificate the API server shows to webhooks."""
    shown = json.loads(
        kubeconfig.render(server="", ca=b"", user="*", credentials=user, namespace="default")
    )
    credentials = folder / "webhooks.kubeconfig"
    key_files.write_private(
        credentials, json.dumps({**shown, "clusters": [], "contexts": []}).encode()
    )
    plugins = [
        {
            "name": name,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(credentials),
            },
        }
        for name in PLUGINS
    ]
    file = folder / "admission.json"
    file.write_text(
        json.dumps(
            {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AdmissionConfiguration",
                "plugins": plugins,
            }
        )
    )
    return file


@pytest.fixture(scope="module")
def site(kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A control plane of its own: its API server shows a certificate of another authority."""
    folder = tmp_path_factory.mktemp("client-ca")
    now = datetime.now(UTC)
    ca = pki.authority("admission-clients", now=now, valid_for=key_files.VALID_FOR)
    (folder / "client-ca.crt").write_bytes(ca.certificate)
    user = pki.client(ca, user=NAME, now=now, valid_for=key_files.VALID_FOR)
    configured = admission_configuration(folder, user)
    plane = ControlPlane(
        binaries=kubernetes_binaries,
        folder=folder / "plane",
        for_tests=True,
        apiserver_flags=[f"--admission-control-config-file={configured}"],
    )
    options = [f"--client-ca={folder / 'client-ca.crt'}", f"--client-name={NAME}"]
    with plane, Stack(plane, scheduler=False, webhook_options=options) as stack:
        yield Site(plane, stack, folder, ca)


def test_the_api_server_is_answered(site: Site) -> None:
    eventually(lambda: site.create("good") == "", "a pod that is let in")
    bad = a_pod("bad", namespace="team-a", labels={vocabulary.TIER_LABEL: "none"})
    with pytest.raises(CallFailed, match="kubenexus/tier: found 'none'"):
        site.plane.api().call("POST", "/api/v1/namespaces/team-a/pods?dryRun=All", bad)


@pytest.mark.parametrize("path", ["/validate", "/mutate"])
def test_other_clients_are_rejected(site: Site, path: str) -> None:
    now = datetime.now(UTC)
    stranger = pki.authority("strangers", now=now, valid_for=key_files.VALID_FOR)
    answers = {
        "nothing": site.request("POST", path),
        "another name": site.request("POST", path, site.certificate("eve", site.ca)),
        "another authority": site.request("POST", path, site.certificate(NAME, stranger)),
        "the cluster's own": site.request("POST", path, site.certificate(NAME, site.plane.ca)),
        "the right one": site.request("POST", path, site.certificate(NAME, site.ca)),
    }
    assert {who: status for who, (status, _) in answers.items()} == {
        "nothing": 403,
        "another name": 403,
        "another authority": 0,
        "the cluster's own": 0,
        "the right one": 200,
    }, answers


def test_probes_and_metrics_need_no_certificate(site: Site) -> None:
    assert [site.request("GET", path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [
        200,
        200,
        404,
    ], "metrics are not on the port of the reviews"
    where = urlsplit(site.stack.webhook_metrics_url)
    link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
    link.request("GET", "/metrics")
    answer = link.getresponse()
    assert (answer.status, b"kubenexus_webhook_reviews_total" in answer.read()) == (200, True)
    link.close()


def test_without_the_api_server_the_webhook_answers_from_its_cache(site: Site) -> None:
    """Last, because it takes the API server away for a while."""
    shown = site.certificate(NAME, site.ca)
    [apiserver] = [child for child in site.plane.children if child.name == APISERVER]
    apiserver.kill()
    try:
        status, body = site.request("POST", "/validate", shown)
        probes = [site.request("GET", path)[0] for path in ("/healthz", "/readyz")]
    finally:
        site.plane.restart_apiserver()
    assert (status, probes) == (200, [200, 200])
    assert json.loads(body)["response"]["allowed"] is True, "the namespace is known from before"
