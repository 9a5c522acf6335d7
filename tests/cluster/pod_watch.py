"""Listing and watching pods over plain sockets: for witnesses that share no code with the product."""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from kubenexus import rbac
from kubenexus.dev.plane.control_plane import ControlPlane

Json = dict[str, Any]


class Stream:
    """The pods of one namespace, as the administrator sees them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._address = urlsplit(plane.server)
        at = plane.layout
        self._tls = ssl.create_default_context(cafile=str(at.certificate("ca")))
        self._tls.load_cert_chain(at.certificate(rbac.ADMIN), at.key(rbac.ADMIN))
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._open: http.client.HTTPSConnection | None = None

    def close(self) -> None:
        connection = self._open
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):  # gone already
                # A thread that reads from it returns at once.
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.sock.close()

    def list(self) -> tuple[list[Json], str]:
        found = json.loads(self._get(self._path).read())
        return found["items"], found["metadata"]["resourceVersion"]

    def watch(self, version: str) -> Iterator[Json]:
        query = f"?watch=1&resourceVersion={version}&allowWatchBookmarks=false"
        response = self._get(self._path + query)
        while line := response.readline():
            yield json.loads(line)

    def _get(self, path: str) -> http.client.HTTPResponse:
        self.close()
        host = self._address.hostname or ""
        self._open = http.client.HTTPSConnection(
            host, self._address.port, timeout=30.0, context=self._tls
        )
        self._open.request("GET", path)
        response = self._open.getresponse()
        if response.status != 200:
            raise OSError(f"{path}: {response.status}")
        return response
