"""
Finds the end of an HTTP/1.1 request in the bytes received so far.

    head ──blank line──▶ no body         ──▶ complete
                    ├──▶ Content-Length  ──▶ so many bytes ──▶ complete
                    └──▶ chunked         ──▶ chunks, last chunk, trailers ──▶ complete
    any step ──too long──▶ rejected 413 / 431      any step ──not HTTP──▶ rejected 400

`httptools` (llhttp, strict) parses the head; a head that two parsers could read in two ways is
rejected. The chunks are read here, because the worker needs the position of the end, and because
httptools does not report the announced size of a chunk. The framer never reads a byte twice, so a
thread gets complete requests only. gunicorn parses the same bytes again, except those of a plain
review: a request as the API server writes it, without a header that changes how it is read.
"""

import re
from typing import Final

import httptools

HEAD_LIMIT: Final = 64 * 1024
LINE_LIMIT: Final = 1024  # of a chunk's size with its extensions

_END: Final = b"\r\n\r\n"
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;.*)?", re.S)
_REVIEW_PATHS: Final = {b"/mutate": "/mutate", b"/validate": "/validate"}
# Headers that change neither the length of the body nor the fate of the connection.
_PLAIN_HEADERS: Final = frozenset(
    {
        b"host",
        b"user-agent",
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"content-length",
        b"content-type",
        b"traceparent",
        b"tracestate",
    }
)


class RequestRejected(Exception):
    """The request is not accepted; nothing after it on the connection can be read either."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class RequestHead:
    """The head of a request; httptools calls the `on_` methods."""

    def __init__(self, head: bytes) -> None:
        self.url = b""
        self.names: set[bytes] = set()
        self.lengths: list[bytes] = []
        self.codings: list[bytes] = []
        self.is_complete = False
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # the webhook speaks HTTP/1.1 alone, as RFC 9110 allows
        except httptools.HttpParserError as error:
            if not self._has_unknown_coding:
                raise RequestRejected("400 Bad Request", f"this is not HTTP: {error}") from error
        if self._has_unknown_coding:
            raise RequestRejected("501 Not Implemented", "the transfer coding is not known")
        if not self.is_complete:
            raise RequestRejected("400 Bad Request", "this is not HTTP: the head is empty")
        if len(self.lengths) + len(self.codings) > 1:
            raise RequestRejected("400 Bad Request", "the length of the body is not clear")
        self.method = parser.get_method()
        self.version = parser.get_http_version()

    @property
    def _has_unknown_coding(self) -> bool:
        return any(coding != b"chunked" for coding in self.codings)

    @property
    def review_path(self) -> str | None:
        """The path of a plain review; None for every other request."""
        if self.method != b"POST" or self.version != "1.1" or not self.names <= _PLAIN_HEADERS:
            return None
        return _REVIEW_PATHS.get(self.url.partition(b"?")[0])

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        self.names.add(lower)
        if lower == b"content-length":
            self.lengths.append(value)
        elif lower == b"transfer-encoding":
            self.codings.append(value.strip().lower())

    def on_headers_complete(self) -> None:
        self.is_complete = True


class RequestFramer:
    """Follows one request in a growing buffer."""

    def __init__(self, *, body_limit: int) -> None:
        self._limit = body_limit
        self._seen = 0  # bytes of the buffer that need no second look
        self._head: RequestHead | None = None
        self._head_end = 0
        self._end: int | None = None  # the end of the request, once it is known
        self._body = 0  # bytes of the chunks so far
        self._last_chunk_seen = False

    def end(self, data: bytearray) -> int | None:
        """The end of the request at the start of the data; None while bytes are missing."""
        if self._head is None:
            self._read_head(data)
        if self._head is not None and self._end is None:
            self._read_chunks(data)
        return self._end if self._end is not None and len(data) >= self._end else None

    def review(self, request: bytes) -> tuple[str, bytes] | None:
        """The path and the body of a complete plain review; None: gunicorn must parse it."""
        path = None if self._head is None else self._head.review_path
        return None if path is None else (path, request[self._head_end :])

    def _read_head(self, data: bytearray) -> None:
        blank_line = data.find(_END, max(0, self._seen - 3))
        if blank_line < 0:
            self._seen = len(data)
            if len(data) > HEAD_LIMIT:
                raise RequestRejected("431 Request Header Fields Too Large", "the head is too long")
            return
        self._seen = self._head_end = blank_line + len(_END)
        self._head = RequestHead(bytes(data[: self._head_end]))
        if not self._head.codings:
            length = int(self._head.lengths[0]) if self._head.lengths else 0
            self._check_limit(length)
            self._end = self._head_end + length

    def _read_chunks(self, data: bytearray) -> None:
        while not self._last_chunk_seen:
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
                self._last_chunk_seen = True
                self._seen = line_end
                break
            # The bytes around the chunks count as well: they are held in memory too.
            self._check_limit(max(self._body + size, line_end))
            chunk_end = line_end + 2 + size
            if len(data) < chunk_end + 2:
                return
            if data[chunk_end : chunk_end + 2] != b"\r\n":
                raise RequestRejected("400 Bad Request", "a chunk is longer than its size")
            self._body += size
            self._seen = chunk_end + 2
        self._read_trailers(data)

    def _read_trailers(self, data: bytearray) -> None:
        blank_line = data.find(_END, self._seen)
        if blank_line >= 0:
            self._end = blank_line + len(_END)
        elif len(data) - self._seen > HEAD_LIMIT:
            raise RequestRejected(
                "431 Request Header Fields Too Large", "the trailers are too long"
            )

    def _check_limit(self, length: int) -> None:
        if length > self._limit:
            raise RequestRejected("413 Content Too Large", f"at most {self._limit} bytes are taken")
