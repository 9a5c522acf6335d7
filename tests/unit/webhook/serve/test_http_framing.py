import contextlib

import pytest

from webhook.serve.http_framing import (
    HEAD_LIMIT,
    LINE_LIMIT,
    RequestFramer,
    RequestRejected,
)

LIMIT = 1000


def head(*lines: str) -> bytes:
    return "\r\n".join(["POST /validate HTTP/1.1", "Host: h", *lines, "", ""]).encode()


def fed(data: bytes, *, piece: int) -> int | None:
    """What the framer says after the data came in pieces of this size."""
    framer, came = RequestFramer(body_limit=LIMIT), bytearray()
    for start in range(0, len(data), piece):
        came += data[start : start + piece]
        found = framer.end(came)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize("piece", [1, 7, 100_000])
@pytest.mark.parametrize(
    ("data", "rest"),
    [
        pytest.param(head(), b"", id="no body"),
        pytest.param(head("Content-Length: 0"), b"", id="an empty body"),
        pytest.param(head("Content-Length: 5") + b"12345", b"", id="a body of known length"),
        pytest.param(head("content-length:5\t") + b"12345", b"", id="spelled in another way"),
        pytest.param(head("Content-Length: 5") + b"12345", b"GET / HTTP", id="another follows"),
        pytest.param(head("Content-Length: 1000") + b"x" * LIMIT, b"", id="as much as is taken"),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n", b"", id="chunks"
        ),
        pytest.param(
            head("transfer-encoding: Chunked")
            + b"3;a=b\r\nabc\r\nA\r\n0\r\n\r\n0\r\n\r\n\r\n1\r\n0\r\n0\r\n\r\n",
            b"G",
            id="chunks that resemble the last one",
        ),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"0\r\nA: b\r\nC: d\r\n\r\n", b"GET", id="trailers"
        ),
    ],
)
def test_the_end_of_a_request_is_found(data: bytes, rest: bytes, piece: int) -> None:
    assert fed(data + rest, piece=piece) == len(data)
    assert fed(data[:-1], piece=piece) is None


@pytest.mark.parametrize("piece", [1, 100_000])
@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(head("Content-Length: 1001"), 413, id="a body announced too large"),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"3E9\r\n", 413, id="a chunk announced too large"
        ),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 200, 413, id="many small chunks"
        ),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * HEAD_LIMIT, 431, id="an endless head"),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"0\r\n" + b"a: b\r\n" * HEAD_LIMIT,
            431,
            id="endless trailers",
        ),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"1;" + b"x" * LINE_LIMIT,
            400,
            id="an endless size",
        ),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"xyz\r\n", 400, id="a size that is no number"
        ),
        pytest.param(
            head("Transfer-Encoding: chunked") + b"1\r\nabc\r\n", 400, id="a chunk of another size"
        ),
        pytest.param(
            head("Content-Length: 5", "Transfer-Encoding: chunked"), 400, id="length and chunks"
        ),
        pytest.param(head("Content-Length: 5", "Content-Length: 5"), 400, id="two lengths"),
        pytest.param(head("Content-Length: +5"), 400, id="a length with a sign"),
        pytest.param(head("Content-Length : 5"), 400, id="a length with a blank before the colon"),
        pytest.param(head("Content-Length:", " 5"), 400, id="a folded length"),
        pytest.param(head("Transfer-Encoding: gzip, chunked"), 501, id="another coding"),
    ],
)
def test_what_cannot_be_taken_is_refused_as_soon_as_it_shows(
    data: bytes, status: int, piece: int
) -> None:
    if piece == 1 and len(data) > 2 * HEAD_LIMIT:
        piece = 1000
    with pytest.raises(RequestRejected) as caught:
        fed(data, piece=piece)
    assert caught.value.status.startswith(f"{status} ")


API_SERVER = (
    b"POST /mutate?timeout=3s HTTP/1.1\r\nHost: 10.0.0.1:8443\r\n"
    b"User-Agent: kube-apiserver-admission\r\nContent-Length: 2\r\n"
    b"Accept: application/json, */*\r\nContent-Type: application/json\r\n"
    b"Accept-Encoding: gzip\r\n\r\n"
)


@pytest.mark.parametrize(
    ("request_head", "want"),
    [
        pytest.param(API_SERVER, "/mutate", id="as the API server writes it"),
        pytest.param(head("Content-Length: 2"), "/validate", id="the least"),
        pytest.param(head("content-length:2"), "/validate", id="names in small letters"),
        pytest.param(
            head("Content-Length: 2", "Connection: close"), None, id="the connection ends"
        ),
        pytest.param(
            head("Expect: 100-continue", "Content-Length: 2"), None, id="waits for a word"
        ),
        pytest.param(head("Transfer-Encoding: chunked"), None, id="chunks"),
        pytest.param(head("Content-Encoding: gzip", "Content-Length: 2"), None, id="packed"),
        pytest.param(head("X-Any: thing", "Content-Length: 2"), None, id="an unknown header"),
        pytest.param(head("Content-Length : 2"), None, id="a blank before the colon"),
        pytest.param(head("Accept: a\r\n folded", "Content-Length: 2"), None, id="a folded line"),
        pytest.param(head("Accept: a\0", "Content-Length: 2"), None, id="a zero byte"),
        pytest.param(head("Accept: a\rHost: b", "Content-Length: 2"), None, id="half a line end"),
        pytest.param(API_SERVER.replace(b"POST", b"post"), None, id="another method"),
        pytest.param(API_SERVER.replace(b"1.1", b"1.0"), None, id="another version"),
        pytest.param(API_SERVER.replace(b"/mutate", b"/Mutate"), None, id="another path"),
        pytest.param(API_SERVER.replace(b"/mutate", b"/mutate/"), None, id="a longer path"),
        pytest.param(API_SERVER.replace(b"?timeout", b"?a b"), None, id="a blank in the query"),
        pytest.param(b" " + API_SERVER, None, id="something before"),
    ],
)
def test_only_what_is_plainly_a_review_needs_no_parser(
    request_head: bytes, want: str | None
) -> None:
    body = b"{}"
    assert review(request_head + body) == (None if want is None else (want, body))


def review(request: bytes) -> tuple[str, bytes] | None:
    """The review that the framer sees; None also for a request that it rejects."""
    framer = RequestFramer(body_limit=LIMIT)
    with contextlib.suppress(RequestRejected):
        framer.end(bytearray(request))
    return framer.review(request)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"\r\n\r\n", 400, id="nothing but line ends"),
        pytest.param(b"POST /validate HTTP/1.1\nHost: h\n\n\r\n\r\n", 400, id="bare line feeds"),
        pytest.param(head("Accept: a\0"), 400, id="a zero byte in a value"),
        pytest.param(head("Accept: a\rHost: b"), 400, id="half a line end in a value"),
        pytest.param(head("No colon"), 400, id="a header without a colon"),
        pytest.param(head("Bad Name: x"), 400, id="a blank in a name"),
        pytest.param(
            head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400, id="coded twice"
        ),
        pytest.param(head("Transfer-Encoding: gzip"), 501, id="a coding without chunks"),
    ],
)
def test_a_head_that_parsers_read_in_different_ways_is_rejected(data: bytes, status: int) -> None:
    with pytest.raises(RequestRejected) as caught:
        fed(data, piece=len(data))
    assert caught.value.status.startswith(f"{status} ")


def test_an_upgrade_is_ignored() -> None:
    data = head("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 2") + b"{}"
    assert (fed(data, piece=7), review(data)) == (len(data), None)
