"""
`make bench-http`: what finding the end of a review costs, with our framing and with httptools.

Both read one whole request as the API server sends it and give its path and body. Rounds are
interleaved so that a busy machine slows both alike; figures are the best of all rounds.
"""

import sys
import time
from collections.abc import Callable, Sequence

import httptools

from tests.bench import rows
from webhook.serve.app import BODY_LIMIT
from webhook.serve.http_framing import RequestFramer

ROUNDS, REPEATS = 30, 2000
BODY = b'{"kind":"AdmissionReview","request":"' + b"x" * 4000 + b'"}'
REQUEST = (
    b"POST /validate?timeout=3s HTTP/1.1\r\nHost: 10.0.0.1:8443\r\n"
    b"User-Agent: kube-apiserver-admission\r\nContent-Length: %d\r\n"
    b"Accept: application/json, */*\r\nContent-Type: application/json\r\n"
    b"Accept-Encoding: gzip\r\n\r\n" % len(BODY)
) + BODY


def framing() -> object:
    data = bytearray(REQUEST)
    framer = RequestFramer(body_limit=BODY_LIMIT)
    end = framer.end(data)
    return framer.review(bytes(data[:end]))


class Collected:
    """The callbacks that a server needs to answer a review."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.complete = True


def library() -> object:
    collected = Collected()
    httptools.HttpRequestParser(collected).feed_data(REQUEST)
    return collected.url.partition(b"?")[0].decode(), b"".join(collected.body)


def microseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(REPEATS):
        call()
    return (time.perf_counter() - started) / REPEATS * 1e6


def report(rounds: Sequence[tuple[float, float]]) -> list[rows.Row]:
    """`rounds`: microseconds per review with our framing and with httptools alone."""
    ours, library_alone = (min(column) for column in zip(*rounds, strict=True))
    ratios = [framed / parsed for framed, parsed in rounds]
    return [
        rows.at_least(  # for comparison: there is no bound to reach
            "framing a review / bare httptools",
            ours / library_alone,
            0.0,
            spread=f"{min(ratios):.2f} to {max(ratios):.2f}",
            note=f"{ours:.1f} us and {library_alone:.1f} us per review of {len(REQUEST)} bytes",
        )
    ]


def main() -> int:
    assert framing() == library() == ("/validate", BODY)
    rounds = [(microseconds(framing), microseconds(library)) for _ in range(ROUNDS)]
    return rows.publish("http", report(rounds))


if __name__ == "__main__":
    sys.exit(main())
