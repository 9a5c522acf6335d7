"""
A small blocking client for setting up a control plane, on keep-alive connections.

For set-up code and tests; the services use `cluster`. Every thread has its own connection, so that
many objects can be written at once.
"""

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kubenexus.dev.errors import CallFailed

Object = dict[str, Any]

WRITERS: Final = 8
MANAGER: Final = "kubenexus-dev"
MESSAGE_LIMIT: Final = 500

# kind -> plural, for the kinds that are written here
PLURALS: Final = {
    "Namespace": "namespaces",
    "Node": "nodes",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


def path_of(item: Object) -> str:
    """The address of one object under the server's."""
    version, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{scope}/{PLURALS[kind]}/{metadata['name']}"


# An idle connection that the server closed raises one of these.
_CUT: Final = (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError)


class Api:
    def __init__(self, server: str, *, ca: Path, certificate: Path, key: Path) -> None:
        self._address = urlsplit(server)
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._tls.load_cert_chain(certificate, key)
        self._local = threading.local()
        self._open: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._local = threading.local()

    def call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> Object:
        """The answer as JSON. `OSError` when the server cannot be reached, else `CallFailed`."""
        payload = None if body is None else json.dumps(body)
        status, data = self._send(method, path, payload, content_type, timeout)
        if status >= 400:
            message = _message(data)[:MESSAGE_LIMIT]
            raise CallFailed(f"{method} {path}: {status} {message}", status=status)
        answer: Object = json.loads(data) if data.startswith(b"{") else {}
        return answer

    def ready(self, path: str = "/readyz") -> bool:
        try:
            self.call("GET", path, timeout=5.0)
        except (OSError, http.client.HTTPException, CallFailed):
            return False
        return True

    def apply(self, item: Object) -> Object:
        """Server-side apply: fields that this program wrote before and `item` lacks are removed."""
        return self.call(
            "PATCH",
            f"{path_of(item)}?fieldManager={MANAGER}&force=true",
            item,
            content_type="application/apply-patch+yaml",
        )

    def each(self, action: Callable[[Object], Object], items: Iterable[Object]) -> list[Object]:
        """Do the same to many objects at once; the first failure is raised."""
        with ThreadPoolExecutor(WRITERS) as pool:
            return list(pool.map(action, items))

    def _send(
        self, method: str, path: str, payload: str | None, content_type: str, timeout: float
    ) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                self._address.hostname or "", self._address.port, context=self._tls
            )
            self._local.connection = connection
            self._open.append(connection)
        connection.timeout = timeout  # of a socket that is opened for this call
        reused = connection.sock is not None
        if reused:
            connection.sock.settimeout(timeout)
        try:
            connection.request(method, path, payload, {"Content-Type": content_type})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as exc:
            connection.close()
            # The server closed an idle connection: retry once on a new one.
            if not reused or not isinstance(exc, _CUT):
                raise
        return self._send(method, path, payload, content_type, timeout)


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace")
