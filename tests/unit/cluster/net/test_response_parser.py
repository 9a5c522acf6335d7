"""HTTP responses, complete and broken, in one piece and byte by byte."""

import pytest

from cluster.net.response_parser import HEAD_LIMIT, Response, ResponseParser

LENGTH = b"HTTP/1.1 201 Created\r\ncontent-LENGTH:  4 \r\nDate: x\r\n\r\nbody"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1;x=y\r\ny\r\n0\r\n\r\n"
TRAILER = CHUNKS.removesuffix(b"\r\n") + b"Digest: x\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + LENGTH
LATER = b"HTTP/1.1 429 Too Many\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"

ANSWERS = [
    pytest.param(LENGTH, Response(201, b"body"), True, id="a stated length"),
    pytest.param(CHUNKS, Response(200, b"body"), True, id="chunks"),
    pytest.param(TRAILER, Response(200, b"body"), True, id="chunks with a trailer"),
    pytest.param(INTERIM, Response(201, b"body"), True, id="after interim answers"),
    pytest.param(LATER, Response(429, b"", "2"), True, id="the answer says when to retry"),
    pytest.param(b"HTTP/1.1 204 None\r\n\r\n", Response(204, b""), True, id="no body at all"),
    pytest.param(
        LENGTH.replace(b"Date: x", b"Connection: CLOSE"),
        Response(201, b"body"),
        False,
        id="the server ends the connection",
    ),
    pytest.param(
        LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"),
        Response(201, b"body"),
        False,
        id="an old server that keeps no connection",
    ),
]


@pytest.mark.parametrize(("raw", "want", "keep"), ANSWERS)
def test_an_answer_in_one_piece(raw: bytes, want: Response, keep: bool) -> None:
    parser = ResponseParser()
    assert (parser.feed(raw), parser.keep) == (want, keep)


@pytest.mark.parametrize(("raw", "want", "keep"), ANSWERS)
def test_an_answer_byte_by_byte(raw: bytes, want: Response, keep: bool) -> None:
    parser = ResponseParser()
    got = [parser.feed(raw[at : at + 1]) for at in range(len(raw))]
    assert (got, parser.keep) == ([None] * (len(raw) - 1) + [want], keep)


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    parser = ResponseParser()
    fed = parser.feed(b"HTTP/1.1 200 OK\r\n\r\nbo"), parser.feed(b"dy")
    assert (fed, parser.ended(), parser.keep) == ((None, None), Response(200, b"body"), False)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="half a head"),
        pytest.param(LENGTH[:-1], id="half a body"),
        pytest.param(CHUNKS[:-1], id="chunks without their end"),
    ],
)
def test_a_connection_that_ends_too_early_gives_no_answer(raw: bytes) -> None:
    parser = ResponseParser()
    assert (parser.feed(raw), parser.ended()) == (None, None)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        pytest.param(
            b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is no HTTP: .*SSH-2.0", id="another protocol"
        ),
        pytest.param(b"HTTP/1.1 OK\r\n\r\n", "is no HTTP", id="no status"),
        pytest.param(b"HTTP/2 200 OK\r\n\r\n", "is no HTTP", id="another version"),
        pytest.param(LENGTH + b"HTTP/1.1", "more than one response", id="two answers"),
        pytest.param(CHUNKS + b"x", "more than one response", id="words after the last chunk"),
        pytest.param(
            LENGTH.replace(b" 4 ", b"-4"),
            "Invalid character in Content-Length",
            id="a length below zero",
        ),
        pytest.param(
            CHUNKS.replace(b"3\r", b"z\r"),
            "Invalid character in chunk size",
            id="a chunk without a size",
        ),
        pytest.param(
            CHUNKS.replace(b"3\r", b"-3\r"),
            "Invalid character in chunk size",
            id="a size below zero",
        ),
        pytest.param(
            CHUNKS.replace(b"3\r", b"2\r"),
            "Expected LF after chunk data",
            id="a chunk of another size",
        ),
        pytest.param(
            CHUNKS.replace(b"chunked", b"gzip"),
            "coding of the response is b.gzip",
            id="an unknown encoding",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x" * HEAD_LIMIT, "does not end", id="endless head"),
    ],
)
def test_what_is_no_answer(raw: bytes, words: str) -> None:
    with pytest.raises(ConnectionError, match=words):
        ResponseParser().feed(raw)
