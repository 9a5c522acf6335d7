"""
Where an HTTP/1.1 request ends in the bytes that have come so far.

    head --blank line--> no body         --> complete
                    +--> Content-Length  --> so many bytes --> complete
                    +--> chunked         --> chunks, last chunk, trailers --> complete
    any step --too long--> Refused 413 / 431      any step --not HTTP--> Refused 400

Fed piece by piece and never reading anything twice, so that a thread is spent on whole requests
only. It finds the end and nothing else: the real parser reads the same bytes afterwards, and has
the last word on what they mean. `review` spares it what needs no parser: a request as the API
server writes them, without a header that would change how it is read.
"""

import re
from typing import Final

HEAD_LIMIT: Final = 64 * 1024
LINE_LIMIT: Final = 1024  # of a chunk's size with its extensions

_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*(?=\r\n)", re.I)
_ANY_LENGTH: Final = re.compile(rb"\r\ncontent-length[ \t]*:", re.I)
_CODING: Final = re.compile(rb"\r\ntransfer-encoding[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.I)
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;.*)?", re.S)
# Only headers that mean nothing for the length of the body or the fate of the connection.
_REVIEW: Final = re.compile(
    rb"POST (/mutate|/validate)(?:\?[!-~]*)? HTTP/1\.1\r\n"
    rb"(?:(?i:host|user-agent|accept|accept-encoding|authorization|content-length|content-type"
    rb"|traceparent|tracestate):[\t -~\x80-\xff]*\r\n)+\r\n"
)


class RequestRejected(Exception):
    """The request cannot be taken; nothing after it can be read either."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason


def review(request: bytes) -> tuple[str, bytes] | None:
    """The path and the body of a whole request that plainly asks for a review; None: parse it."""
    found = _REVIEW.match(request)
    return None if found is None else (found[1].decode(), request[found.end() :])


class RequestFramer:
    """Follows one request in a growing buffer."""

    def __init__(self, *, body_limit: int) -> None:
        self._limit = body_limit
        self._seen = 0  # how much of the buffer need not be looked at again
        self._end: int | None = None  # where the request ends, once that is known
        self._chunked = False
        self._body = 0  # bytes of the chunks so far
        self._last = False  # whether the last chunk has come

    def end(self, data: bytearray) -> int | None:
        """Where the request at the start of the data ends; None while there is more to come."""
        if self._end is None and not self._chunked:
            self._read_head(data)
        if self._chunked and self._end is None:
            self._read_chunks(data)
        return self._end if self._end is not None and len(data) >= self._end else None

    def _read_head(self, data: bytearray) -> None:
        found = data.find(_END, max(0, self._seen - 3))
        if found < 0:
            self._seen = len(data)
            if len(data) > HEAD_LIMIT:
                raise RequestRejected("431 Request Header Fields Too Large", "the head is too long")
            return
        self._seen = found + len(_END)
        head = bytes(data[: found + 2])
        lengths, codings = _LENGTH.findall(head), _CODING.findall(head)
        if len(_ANY_LENGTH.findall(head)) != len(lengths) or len(lengths) + len(codings) > 1:
            raise RequestRejected("400 Bad Request", "the length of the body is not clear")
        if codings and codings[0].lower() != b"chunked":
            raise RequestRejected("501 Not Implemented", "the transfer coding is not known")
        self._chunked = bool(codings)
        if not self._chunked:
            length = int(lengths[0]) if lengths else 0
            self._allow(length)
            self._end = self._seen + length

    def _read_chunks(self, data: bytearray) -> None:
        while not self._last:
            line_end = data.find(b"\r\n", self._seen, self._seen + LINE_LIMIT)
            if line_end < 0:
                if len(data) - self._seen >= LINE_LIMIT:
                    raise RequestRejected("400 Bad Request", "the size of a chunk is too long")
                return
            match = _SIZE.fullmatch(data, self._seen, line_end)
            if match is None:
                raise RequestRejected("400 Bad Request", "the size of a chunk is no number")
            size = int(match[1], 16)
            if size == 0:
                self._last, self._seen = True, line_end
                break
            self._body += size
            # What surrounds the chunks counts as well: it is held in memory like they are.
            self._allow(max(self._body, line_end))
            after = line_end + 2 + size
            if len(data) < after + 2:
                self._body -= size
                return
            if data[after : after + 2] != b"\r\n":
                raise RequestRejected("400 Bad Request", "a chunk does not end where it said")
            self._seen = after + 2
        self._read_trailers(data)

    def _read_trailers(self, data: bytearray) -> None:
        found = data.find(_END, self._seen)
        if found >= 0:
            self._end = found + len(_END)
        elif len(data) - self._seen > HEAD_LIMIT:
            raise RequestRejected(
                "431 Request Header Fields Too Large", "the trailers are too long"
            )

    def _allow(self, length: int) -> None:
        if length > self._limit:
            raise RequestRejected("413 Content Too Large", f"at most {self._limit} bytes are taken")
