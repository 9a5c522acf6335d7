"""
Complete lines out of a stream of bytes that is cut anywhere. No I/O: the transport feeds it.
"""

from typing import Final

LINE_LIMIT: Final = 64 << 20  # bytes; an object that large cannot exist, so the stream is broken


class LineSplitter:
    """Feed chunks, take complete lines; the rest waits for the next chunk."""

    def __init__(self, *, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty lines are left out."""
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._rest += chunk
            return []
        whole = bytes(self._rest) + head
        self._rest = bytearray(tail)
        return [line for line in whole.split(b"\n") if line.strip()]

    @property
    def torn(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest.strip())

    @property
    def overlong(self) -> bool:
        return len(self._rest) > self._limit
