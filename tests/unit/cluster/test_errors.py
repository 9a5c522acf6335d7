"""Every failure has one meaning, and nothing foreign leaves the package."""

import asyncio
import inspect
import ssl

import aiohttp
import pytest
from aiohttp import client_exceptions

from cluster import errors
from cluster.errors import Conflict, Expired, Gone, KubeError, Refused, Retry

LEAVES = {Retry, Conflict, Gone, Expired, Refused}

# Raised by queues, barriers, futures and file transfers that this package does not share with its transport.
NEVER_FROM_A_TRANSPORT = {
    asyncio.InvalidStateError,
    asyncio.QueueEmpty,
    asyncio.QueueFull,
    asyncio.BrokenBarrierError,
    asyncio.SendfileNotAvailableError,
    client_exceptions.WSMessageTypeError,  # of websockets, which are not spoken here
}


def foreign_classes() -> list[type[Exception]]:
    modules = (client_exceptions, asyncio.exceptions, asyncio.queues, ssl)
    found = {
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    return sorted(found - NEVER_FROM_A_TRANSPORT, key=lambda kind: kind.__qualname__)


def test_the_tree_has_exactly_these_leaves() -> None:
    assert set(KubeError.__subclasses__()) == LEAVES


def test_every_status_that_is_no_success_has_one_leaf() -> None:
    want: dict[int, type[KubeError]] = dict.fromkeys(range(300, 500), Refused)
    want |= dict.fromkeys(range(500, 600), Retry)
    want |= {404: Gone, 409: Conflict, 410: Expired, 501: Refused, 505: Refused}
    want |= {408: Retry, 425: Retry, 429: Retry}
    assert {status: errors.kind_of_status(status) for status in want} == want


@pytest.mark.parametrize("kind", foreign_classes(), ids=lambda kind: str(kind.__qualname__))
def test_every_foreign_exception_has_one_leaf(kind: type[Exception]) -> None:
    assert errors.kind_of_exception(kind) in LEAVES


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        pytest.param(TimeoutError, Retry, id="no answer in time"),
        pytest.param(ConnectionResetError, Retry, id="connection reset"),
        pytest.param(aiohttp.ClientPayloadError, Retry, id="body cut short"),
        pytest.param(aiohttp.ClientConnectorDNSError, Retry, id="name not found, maybe for now"),
        pytest.param(ssl.SSLEOFError, Retry, id="TLS cut short"),
        pytest.param(ssl.SSLCertVerificationError, Refused, id="certificate not trusted"),
        pytest.param(
            aiohttp.ClientConnectorCertificateError, Refused, id="certificate of another host"
        ),
        pytest.param(aiohttp.InvalidURL, Refused, id="no URL"),
        pytest.param(asyncio.CancelledError, None, id="cancellation is no error"),
        pytest.param(KeyError, None, id="a bug is no error of the transport"),
    ],
)
def test_what_a_foreign_exception_means(
    kind: type[BaseException], want: type[KubeError] | None
) -> None:
    assert errors.kind_of_exception(kind) is want


@pytest.mark.parametrize(
    ("status", "body", "header", "want"),
    [
        pytest.param(
            409,
            b'{"kind":"Status","message":"pods \\"a\\" already exists","reason":"AlreadyExists"}',
            None,
            (Conflict, 'create pod: 409 pods "a" already exists', "AlreadyExists", None),
            id="the server's own words",
        ),
        pytest.param(
            429,
            b'{"message":"slow down","details":{"retryAfterSeconds":7}}',
            "3",
            (Retry, "create pod: 429 slow down", "", 3.0),
            id="the header says how long to wait",
        ),
        pytest.param(
            500,
            b'{"message":"leader changed","details":{"retryAfterSeconds":7}}',
            "soon",
            (Retry, "create pod: 500 leader changed", "", 7.0),
            id="the details say it where the header does not",
        ),
        pytest.param(
            502,
            b"<html>\n  Bad Gateway</html>",
            None,
            (Retry, "create pod: 502 <html> Bad Gateway</html>", "", None),
            id="a proxy that speaks no JSON",
        ),
        pytest.param(
            403, b"[1]", None, (Refused, "create pod: 403 [1]", "", None), id="JSON of another kind"
        ),
        pytest.param(
            400,
            b"x" * 2000,
            None,
            (Refused, "create pod: 400 " + "x" * 511 + "…", "", None),
            id="a long story is cut",
        ),
        pytest.param(404, b"", None, (Gone, "create pod: 404", "", None), id="no words at all"),
    ],
)
def test_the_error_for_an_answer(
    status: int, body: bytes, header: str | None, want: tuple[object, ...]
) -> None:
    got = errors.of_status("create pod", status, body, retry_after=header)
    assert (type(got), str(got), got.reason, getattr(got, "retry_after", None)) == want
