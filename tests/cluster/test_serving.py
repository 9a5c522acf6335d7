"""When the webhook serves, and to whom: what it must know first, and over which TLS."""

import http.client
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from kubenexus import rbac
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import WEBHOOK, Stack
from policies import vocabulary
from tests.builders import a_pod
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

POLICIES, NAMESPACES = "platformpolicies", "namespaces"


class Site:
    def __init__(self, plane: ControlPlane, stack: Stack) -> None:
        self.plane, self.stack = plane, stack

    def request(self, path: str, tls: ssl.SSLContext | None = None) -> tuple[int, str, str]:
        """Status, text and TLS version; status 0 and why where there is no answer."""
        where = urlsplit(self.stack.webhook_url)
        trust = tls or ssl.create_default_context(cadata=self.plane.ca.certificate.decode())
        link = http.client.HTTPSConnection(
            where.hostname or "", where.port, timeout=10, context=trust
        )
        try:
            link.connect()
            version = link.sock.version() or ""
            link.request("GET", path)
            answer = link.getresponse()
            return answer.status, answer.read().decode().strip(), version
        except ssl.SSLError as exc:
            return 0, exc.reason or str(exc), ""
        except OSError as exc:
            return 0, str(exc), ""
        finally:
            link.close()

    def create(self, namespace: str) -> str:
        """What a pod is refused with; empty where it is not."""
        try:
            self.plane.api().call(
                "POST",
                f"/api/v1/namespaces/{namespace}/pods?dryRun=All",
                a_pod("asked", namespace=namespace),
            )
        except CallFailed as exc:
            return str(exc)
        return ""

    def withhold(self, *resources: str) -> None:
        """Let the webhook's account read everything that it needs, except these."""
        for item in rbac.development_objects():
            if (
                item["kind"] == "ClusterRole"
                and item["metadata"]["name"] == vocabulary.WEBHOOK_NAME
            ):
                rules = [row for row in item["rules"] if row["resources"][0] not in resources]
                self.plane.api().apply({**item, "rules": rules})

    @contextmanager
    def without(self, *resources: str) -> Iterator[None]:
        """A webhook that begins without the right to read these."""
        child = self.stack.child(WEBHOOK)
        self.withhold(*resources)
        try:
            child.kill()
            child.start()
            yield
        finally:
            self.withhold()
            self.stack.wait(WEBHOOK)


@pytest.fixture(scope="module")
def site(control_plane: ControlPlane) -> Iterator[Site]:
    with Stack(control_plane, scheduler=False, webhook_options=["--workers=1"]) as stack:
        yield Site(control_plane, stack)


def test_ready_once_policies_and_namespaces_are_known(site: Site, namespace: str) -> None:
    def says(status: int, text: str) -> bool:
        return site.request("/readyz")[:2] == (status, text)

    with site.without(POLICIES, NAMESPACES):
        eventually(lambda: says(503, "the policies have not been read yet"), "no policies")
        assert site.request("/healthz")[:2] == (200, "ok"), "alive all the same"
        said = eventually(lambda: site.create(namespace), "a refusal")
        assert (
            "kubenexus/facts: admission facts unavailable: the policies have not been read" in said
        )
        site.withhold(NAMESPACES)
        eventually(lambda: says(503, "the namespaces have not been read yet"), "no namespaces")
        said = site.create(namespace)
        assert f"admission facts unavailable: namespaces {namespace!r} cannot be read: " in said
        assert "403" in said
    assert says(200, "ok")
    eventually(lambda: site.create(namespace) == "", "a pod let in")


@pytest.mark.parametrize(
    ("version", "want"),
    [
        pytest.param(ssl.TLSVersion.TLSv1_1, (0, "TLSV1_ALERT_PROTOCOL_VERSION", ""), id="1.1"),
        pytest.param(ssl.TLSVersion.TLSv1_2, (200, "ok", "TLSv1.2"), id="1.2"),
        pytest.param(ssl.TLSVersion.TLSv1_3, (200, "ok", "TLSv1.3"), id="1.3"),
    ],
)
def test_tls_versions(site: Site, version: ssl.TLSVersion, want: tuple[int, str, str]) -> None:
    tls = ssl.create_default_context(cadata=site.plane.ca.certificate.decode())
    tls.set_ciphers("DEFAULT:@SECLEVEL=0")  # else the client itself would offer nothing below 1.2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that 1.1 is outdated is the point
        tls.minimum_version = version
        tls.maximum_version = version
    assert site.request("/healthz", tls) == want
