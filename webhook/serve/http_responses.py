"""
HTTP responses as bytes, for requests that are answered without WSGI.
"""

from email.utils import formatdate
from functools import lru_cache


def success(body: bytes, *, now: float, keep: bool) -> bytes:
    """A JSON body; `keep`: the connection takes another request."""
    return (
        f"HTTP/1.1 200 OK\r\nDate: {_date(int(now))}\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def rejection(status: str, reason: str) -> bytes:
    """One line of text; the connection closes after it."""
    body = f"{reason}\n"
    return (
        f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
