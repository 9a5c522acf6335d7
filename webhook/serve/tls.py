"""
The serving certificate: a TLS context that follows its files, and the name of the client.

    files as last read --unchanged--> the same context
                       --changed----> a new context, for new connections
                       --unusable---> the last good context (files in the middle of a change)

A connection keeps its context, so a rotation breaks no connection. With a client CA, a certificate
that the client shows must be valid; a client without one has no name, and
`webhook.serve.client_auth` decides which paths it may call. Nothing here renews a certificate.
"""

import ssl
import threading
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID


class Certificate:
    """The TLS context of the certificate files, loaded again when they change."""

    def __init__(self, cert_file: Path, key_file: Path, *, client_ca: Path | None = None) -> None:
        self._pair, self._client_ca = (cert_file, key_file), client_ca
        self._files = self._pair if client_ca is None else (*self._pair, client_ca)
        self._stamp: tuple[tuple[int, int, int], ...] | None = None
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def context(self) -> ssl.SSLContext:
        """The current context; the last good one while the files cannot be loaded."""
        with self._lock:
            try:
                stamp = tuple(_stamp(path) for path in self._files)
                if stamp != self._stamp or self._context is None:
                    self._context, self._stamp = self._load(), stamp
            except (OSError, ssl.SSLError):
                if self._context is None:
                    raise
            return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._pair)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            # Optional, because a kubelet that calls /healthz shows no certificate.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def client_name(connection: ssl.SSLSocket) -> str | None:
    """The common name of the client certificate; None without a certificate."""
    certificate = (
        connection.getpeercert(binary_form=True) if connection.context.verify_mode else None
    )
    if not certificate:
        return None
    names = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(
        NameOID.COMMON_NAME
    )
    return str(names[0].value) if names else ""


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
