"""
Who may ask what on the TLS port: a WSGI layer in front of the app.

    /healthz, /readyz      everybody: a kubelet shows no certificate
    /mutate, /validate     everybody, or with a client authority those who proved a name
    /metrics               nobody once the metrics have a port of their own
    anything else          the app's own answer

Reviews come through a second door as well, without WSGI, and pass the same guard. What is judged,
and how, is none of its business.
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
    """What callers may do."""

    proven: bool = False
    """Whether reviews are answered only for clients with a certificate."""
    names: Collection[str] = ()
    """The names among them that may ask; none: every proven one may."""
    metrics: bool = True
    """Whether `/metrics` is answered on this port."""

    def refusal(self, path: str, client: str | None) -> tuple[str, str] | None:
        """The status and the reason for not answering, or None."""
        if path == "/metrics" and not self.metrics:
            return "404 Not Found", "metrics have a port of their own"
        if path not in _REVIEWS or not self.proven:
            return None
        if client is None:
            return "403 Forbidden", "reviews are answered for clients with a certificate only"
        if self.names and client not in self.names:
            return "403 Forbidden", f"reviews are not answered for {client!r:.100}"
        return None


@runtime_checkable
class FastPath(Protocol):
    """Answers reviews without WSGI."""

    def at_once(self, path: str, body: bytes) -> bytes | None:
        """The answer, if nobody has to be waited for and all is well; else ask by WSGI."""


class ClientAuth:
    """An app behind the guard, by WSGI and, where the app can, at once."""

    def __init__(self, app: Wsgi, access: AccessRules) -> None:
        self._app, self._access = app, access
        also: object = app
        self._prompt = also if isinstance(also, FastPath) else None

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO") or "")
        refusal = self._access.refusal(path, environ.get(CLIENT))
        if refusal is None:
            return self._app(environ, start_response)
        status, reason = refusal
        body = f"{reason}\n".encode()
        start_response(
            status,
            [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))],
        )
        return [body]

    def at_once(self, path: str, body: bytes, client: str | None) -> bytes | None:
        """The answer to a review; None: ask by WSGI, which says why if there is none."""
        if self._prompt is None or self._access.refusal(path, client) is not None:
            return None
        return self._prompt.at_once(path, body)


def guarded(app: Wsgi, access: AccessRules) -> ClientAuth:
    """The app behind the guard."""
    return ClientAuth(app, access)
