"""
What can go wrong at the API server, by what the caller should do about it.

* ClusterError
  x ConfigError     the configuration gives no connection; the user must correct it
  x KubeError       a call to the API server failed
    + Retry         it may or may not have happened; trying again is safe
    + Conflict      another write came first, maybe this program's; read before acting
    + Gone          the object is no longer there; drop the work
    + Expired       the resourceVersion is no longer known; list again, then continue
    + Refused       the server will keep refusing; report it and stop

`of_status` and `of_exception` are the only translations: every HTTP status and every error of
aiohttp, asyncio and ssl becomes exactly one leaf of this tree, and no exception of a library leaves
the package. Cancellation is no error and passes.

Not here: "does not fit" is a value of the scheduler, and a broken invariant is a crash.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import orjson

MESSAGE_LIMIT: Final = 512  # characters of the server's message that an error repeats


class ClusterError(Exception):
    """Anything this package raises."""


class ConfigError(ClusterError):
    """The configuration gives no connection; the message says what to correct."""


class KubeError(ClusterError):
    """A call failed; `status` and `reason` are the server's, where it answered."""

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
    """Another write came first. A create of an existing name has reason `AlreadyExists`."""

    @property
    def exists(self) -> bool:
        return self.reason == "AlreadyExists"


class Gone(KubeError):
    """The object is no longer there."""


class Expired(KubeError):
    """The resourceVersion or the continue token is too old."""


class Refused(KubeError):
    """The server will keep refusing."""


# What the transport can raise; anything else that reaches the edge is a bug and crashes.
FOREIGN: Final = (aiohttp.ClientError, OSError, EOFError, asyncio.LimitOverrunError, ssl.SSLError)

# A second attempt meets the same certificate, address or redirect.
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
    """The error for a response: the action, the status, and the server's message, bounded."""
    status_object = _status_object(body)
    message = status_object.get("message")
    if not (isinstance(message, str) and message):
        message = body.decode("utf-8", "replace").strip()
    reason = status_object.get("reason")
    details = status_object.get("details")
    error = kind_of_status(status)(
        f"{action}: {status} {bounded(message)}".rstrip(),
        status=status,
        reason=reason if isinstance(reason, str) else "",
        details=details if isinstance(details, dict) else None,
    )
    if isinstance(error, Retry):
        error.retry_after = _seconds(retry_after, error.details.get("retryAfterSeconds"))
    return error


def of_exception(action: str, exc: BaseException) -> KubeError:
    """The error for a call without a complete response; raise it `from` the foreign one."""
    kind = kind_of_exception(type(exc)) or Retry
    message = str(exc) or type(exc).__name__
    if isinstance(exc, TimeoutError):
        message = f"no answer in time ({message})"
    return kind(f"{action}: {bounded(message)}")


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
    """Retry-After as seconds; API servers do not send the date form, so it counts as absent."""
    if header is not None and header.strip().isdecimal():
        return float(header)
    if isinstance(detail, int) and detail > 0:
        return float(detail)
    return None
