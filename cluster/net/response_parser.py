"""
One HTTP/1.1 answer out of bytes that are cut anywhere. No I/O: `wire` feeds it.

    head ──▶ body of a stated length ──▶ whole
       ├───▶ chunks, until one of size 0 ──▶ whole
       └───▶ neither: until the server ends the connection ──▶ whole

What is no answer raises `ConnectionError`: nothing that follows on that connection can be trusted.
"""

import re
from dataclasses import dataclass
from typing import Final

HEAD_LIMIT: Final = 64 << 10  # bytes; no API server has that much to say before its answer

_BLANK: Final = b"\r\n\r\n"
_FIRST: Final = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: |\r\n|\Z)")
# Of some twenty fields these are all that matter; looking at each in turn would cost more.
_FIELD: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection|retry-after):([^\r\n]*)", re.IGNORECASE
)
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    retry_after: str | None = None


class ResponseParser:
    """One answer out of bytes that are cut anywhere; `feed` gives it once it is whole."""

    __slots__ = ("_at", "_buffer", "_chunked", "_length", "_parts", "_retry", "_status", "keep")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = -1  # where the body, or its next chunk, begins; -1 while the head is not whole
        self._status = 0
        self._length: int | None = None
        self._chunked = False
        self._retry: str | None = None
        self._parts: list[bytes] = []
        self.keep = True
        """Whether the connection can carry another call after this answer."""

    @property
    def begun(self) -> bool:
        return bool(self._buffer)

    def feed(self, data: bytes) -> Response | None:
        """Raises `ConnectionError` for what is no HTTP, or more than one answer."""
        self._buffer += data
        if self._at < 0 and not self._head():
            return None
        if self._chunked:
            return self._take_chunks()
        if self._length is None:
            return None  # until the server ends the connection: see `ended`
        end = self._at + self._length
        if len(self._buffer) < end:
            return None
        return self._whole(bytes(self._buffer[self._at : end]), end)

    def ended(self) -> Response | None:
        """The server ended the connection: an answer without a length is whole now."""
        if self._at >= 0 and self._length is None and not self._chunked:
            self.keep = False
            return Response(self._status, bytes(self._buffer[self._at :]), self._retry)
        return None

    def _whole(self, body: bytes, end: int) -> Response:
        if len(self._buffer) != end:
            raise ConnectionError("the server said more than was asked")
        return Response(self._status, body, self._retry)

    def _head(self) -> bool:
        """Read the head if it is whole; interim answers are passed over."""
        while True:
            end = self._buffer.find(_BLANK)
            if end < 0:
                if len(self._buffer) > HEAD_LIMIT:
                    raise ConnectionError("the answer's head does not end")
                return False
            self._read_head(bytes(self._buffer[:end]))
            if self._status >= 200:
                self._at = end + len(_BLANK)
                return True
            del self._buffer[: end + len(_BLANK)]

    def _read_head(self, head: bytes) -> None:
        first = _FIRST.match(head)
        if first is None:
            raise ConnectionError(f"the answer is no HTTP: {head[:80].decode('latin-1')!r}")
        self._status = int(first[2])
        self.keep = first[1] != b"0"
        self._length = 0 if self._status in (204, 304) else None
        for name, value in _FIELD.findall(head):
            self._read_field(name.lower(), value.strip().decode("latin-1"))

    def _read_field(self, name: bytes, value: str) -> None:
        if name == b"content-length":
            if not (value.isascii() and value.isdecimal()):
                raise ConnectionError(f"the answer's length is {value[:80]!r}")
            self._length = int(value)
        elif name == b"transfer-encoding":
            if value.lower() != "chunked":
                raise ConnectionError(f"the answer's encoding is {value[:80]!r}")
            self._chunked = True
        elif name == b"connection":
            self.keep = self.keep and value.lower() != "close"
        else:
            self._retry = value

    def _take_chunks(self) -> Response | None:
        """Each chunk is its size in hexadecimal, a line end, the data, a line end; 0 ends it."""
        while True:
            line = self._buffer.find(b"\r\n", self._at)
            if line < 0:
                return None
            size = _size(bytes(self._buffer[self._at : line]))
            if size == 0:
                return self._take_end(line)
            end = line + 2 + size
            if len(self._buffer) < end + 2:
                return None
            if self._buffer[end : end + 2] != b"\r\n":
                raise ConnectionError("a chunk of the answer does not end where it says")
            self._parts.append(bytes(self._buffer[line + 2 : end]))
            self._at = end + 2

    def _take_end(self, line: int) -> Response | None:
        """Trailers may follow the last chunk; a blank line ends them."""
        if self._buffer[line + 2 : line + 4] == b"\r\n":
            return self._whole(b"".join(self._parts), line + 4)
        end = self._buffer.find(_BLANK, line)
        return None if end < 0 else self._whole(b"".join(self._parts), end + len(_BLANK))


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not _HEX.fullmatch(digits):
        raise ConnectionError(f"a chunk's size is {digits[:40]!r}")
    return int(digits, 16)
