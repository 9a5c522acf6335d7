"""
What can go wrong at the API server, by what the caller should do about it.

* ClusterError
  x ConfigError     no connection can be made from what was given; a person must correct it
  x KubeError       a call to the API server did not do what was asked
    + Retry         it may or may not have happened; trying again is safe
    + Conflict      somebody acted first, maybe this program; look before acting
    + Gone          the object is no longer there; drop the work
    + Expired       the place in the history is no longer known; list again, then go on
    + Refused       the server will keep saying no; report it and stop

`of_status` and `of_exception` are the only translations: every HTTP status and every error of
aiohttp, asyncio and ssl becomes exactly one leaf of this tree, and nothing foreign leaves the
package. Cancellation is no error and passes untouched.

Not here: "does not fit" is a value of the scheduler, and a broken invariant is a crash.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import orjson

MESSAGE_LIMIT: Final = 512  # characters of the server's own words that a message repeats


class ClusterError(Exception):
    """Anything this package raises."""


class ConfigError(ClusterError):
    """No connection can be made from what was given: one line that says what to correct."""


class KubeError(ClusterError):
    """A call did not do what was asked; `status` and `reason` are the server's, when it spoke."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}


class Retry(KubeError):
    """It may or may not have happened. `retry_after`: seconds the server asked to wait."""

    retry_after: float | None = None


class Conflict(KubeError):
    """Somebody acted first. A create that found the name taken has reason `AlreadyExists`."""

    @property
    def exists(self) -> bool:
        return self.reason == "AlreadyExists"


class Gone(KubeError):
    """The object is no longer there."""


class Expired(KubeError):
    """The resourceVersion or the continue token is too old."""


class Refused(KubeError):
    """The server will keep saying no."""


# What the transport can raise; anything else that reaches the edge is a bug and crashes.
FOREIGN: Final = (aiohttp.ClientError, OSError, EOFError, asyncio.LimitOverrunError, ssl.SSLError)

# Trying again meets the same certificate, the same address or the same redirect.
_LASTING: Final = (
    aiohttp.ClientConnectorCertificateError,
    aiohttp.ServerFingerprintMismatch,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
    aiohttp.RedirectClientError,
    aiohttp.TooManyRedirects,
    aiohttp.ContentTypeError,
    aiohttp.WSServerHandshakeError,
    ssl.SSLCertVerificationError,
)

_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    404: Gone,
    408: Retry,
    409: Conflict,
    410: Expired,
    425: Retry,
    429: Retry,
    501: Refused,
    505: Refused,
}


def kind_of_status(status: int) -> type[KubeError]:
    """The leaf for an HTTP status that is no success."""
    return _BY_STATUS.get(status, Retry if status >= 500 else Refused)


def kind_of_exception(kind: type[BaseException]) -> type[KubeError] | None:
    """The leaf for a foreign exception class; None for what is none of the transport's."""
    if issubclass(kind, _LASTING):
        return Refused
    return Retry if issubclass(kind, FOREIGN) else None


def of_status(
    action: str, status: int, body: bytes = b"", *, retry_after: str | None = None
) -> KubeError:
    """The error for an answer: what was tried, the status, and the server's own words, bounded."""
    said = _status_object(body)
    words = said.get("message")
    text = words if isinstance(words, str) and words else body.decode("utf-8", "replace").strip()
    reason = said.get("reason")
    details = said.get("details")
    error = kind_of_status(status)(
        f"{action}: {status} {bounded(text)}".rstrip(),
        status=status,
        reason=reason if isinstance(reason, str) else "",
        details=details if isinstance(details, dict) else None,
    )
    if isinstance(error, Retry):
        error.retry_after = _seconds(retry_after, error.details.get("retryAfterSeconds"))
    return error


def of_exception(action: str, exc: BaseException) -> KubeError:
    """The error for a call that got no whole answer; raise it `from` the foreign one."""
    kind = kind_of_exception(type(exc)) or Retry
    words = str(exc) or type(exc).__name__
    if isinstance(exc, TimeoutError):
        words = f"no answer in time ({words})"
    return kind(f"{action}: {bounded(words)}")


def bounded(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _seconds(header: str | None, detail: object) -> float | None:
    """Retry-After as seconds; the date form is not spoken by API servers and counts as absent."""
    if header is not None and header.strip().isdecimal():
        return float(header)
    if isinstance(detail, int) and detail > 0:
        return float(detail)
    return None
