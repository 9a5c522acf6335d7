"""
One HTTP/1.1 response out of bytes that are cut anywhere. No I/O: `fast_client` feeds it.

    head ──▶ body of a stated length ──▶ complete
       ├───▶ chunks, until one of size 0 ──▶ complete
       └───▶ neither: until the server ends the connection ──▶ complete

`httptools` parses (llhttp, strict). This module bounds the head, accepts no transfer coding but
`chunked`, skips interim responses and refuses a second response. Bytes that are no response raise
`ConnectionError`: nothing that follows on that connection can be trusted.
"""

from dataclasses import dataclass
from typing import Final

import httptools

HEAD_LIMIT: Final = 64 << 10  # bytes; no API server sends more before its response


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    retry_after: str | None = None


class ResponseParser:
    """`feed` returns the complete response; httptools calls the `on_` methods."""

    def __init__(self) -> None:
        self.begun = False
        """Whether any byte of a response has come."""
        self.keep = True
        """Whether the connection can carry another call after this response."""
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._status = 0
        self._head_size = 0  # bytes fed before the body
        self._body: list[bytes] | None = None  # None: the head is not complete
        self._until_end = True  # whether the end of the connection is the end of the body
        self._retry_after: str | None = None
        self._response: Response | None = None

    def feed(self, data: bytes) -> Response | None:
        """Raises `ConnectionError` for bytes that are no response, or more than one."""
        self.begun = self.begun or bool(data)
        parser = self._parser
        if parser is None:
            raise ConnectionError("the server sent more than one response")
        try:
            parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            raise cause if isinstance(cause, ConnectionError) else error from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._response is not None:
                raise ConnectionError("the server sent more than one response") from error
            raise ConnectionError(f"the response is no HTTP: {error}: {data[:80]!r}") from error
        if self._body is None:
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                raise ConnectionError("the head of the response does not end")
        if self._response is not None:
            self._parser = None  # it refers to this object: without it no cycle is left behind
        return self._response

    def ended(self) -> Response | None:
        """The server ended the connection: a response without a length is complete now."""
        if self._body is None or not self._until_end or self._response is not None:
            return None
        self.keep = False
        self.on_message_complete()
        return self._response

    def on_message_begin(self) -> None:
        if self._response is not None:
            raise ConnectionError("the server sent more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-length":
                self._until_end = False
            case b"transfer-encoding":
                if value.strip().lower() != b"chunked":
                    raise ConnectionError(f"the transfer coding of the response is {value[:80]!r}")
                self._until_end = False
            case b"retry-after":
                self._retry_after = value.strip().decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status = self._parser.get_status_code()
        if self._status >= 200:
            self._body = []
            self.keep = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if self._body is not None:
            self._body.append(data)

    def on_message_complete(self) -> None:
        if self._body is not None:
            body = b"".join(self._body)
            self._response = Response(self._status, body, self._retry_after)
