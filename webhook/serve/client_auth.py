"""
Which client may call which path on the TLS port: a WSGI layer in front of the application.

    /healthz, /readyz      every client: a kubelet shows no certificate
    /mutate, /validate     every client; with a client CA, those whose certificate it signed
    /metrics               no client, once the metrics have a port of their own
    other paths            the application answers

Reviews on the fast path pass the same check.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

Environ = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

# Set by the worker: the name that the client's certificate proved, or None.
CLIENT: Final = "kubenexus.client"

_REVIEWS: Final = frozenset({"/mutate", "/validate"})


@dataclass(frozen=True, slots=True)
class AccessRules:
    """What clients may do."""

    require_certificate: bool = False
    """Whether reviews are answered only for clients with a certificate."""
    names: Collection[str] = ()
    """The common names that may send reviews; empty: every certificate of the CA may."""
    metrics: bool = True
    """Whether `/metrics` is answered on this port."""

    def denial(self, path: str, client: str | None) -> tuple[str, str] | None:
        """The status and the reason for not answering, or None."""
        if path == "/metrics" and not self.metrics:
            return "404 Not Found", "metrics have a port of their own"
        if path not in _REVIEWS or not self.require_certificate:
            return None
        if client is None:
            return "403 Forbidden", "reviews are answered for clients with a certificate only"
        if self.names and client not in self.names:
            return "403 Forbidden", f"reviews are not answered for {client!r:.100}"
        return None


@runtime_checkable
class FastPath(Protocol):
    """Answers reviews without WSGI."""

    def answer_now(self, path: str, body: bytes) -> bytes | None:
        """The answer where every fact is in memory; None: call by WSGI."""


class ClientAuth:
    """The application behind the check, by WSGI and, where it has one, on the fast path."""

    def __init__(self, app: Wsgi, access: AccessRules) -> None:
        self._app = app
        self._access = access
        candidate: object = app
        self._fast_path = candidate if isinstance(candidate, FastPath) else None

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO") or "")
        denial = self._access.denial(path, environ.get(CLIENT))
        if denial is None:
            return self._app(environ, start_response)
        status, reason = denial
        body = f"{reason}\n".encode()
        start_response(
            status,
            [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))],
        )
        return [body]

    def answer_now(self, path: str, body: bytes, client: str | None) -> bytes | None:
        """The answer to a review; None: call by WSGI, which also answers denied clients."""
        if self._fast_path is None or self._access.denial(path, client) is not None:
            return None
        return self._fast_path.answer_now(path, body)
