"""
The independent witness: a process of its own that watches pods and writes down when each was bound.

    python -m tests.bench.scheduler_watcher SERVER CA CERTIFICATE KEY NAMESPACE

    ready                       the list is read and the watch stands
    created TIME POD            first seen without a node
    bound TIME POD NODE         first seen with one
    deleted TIME POD
    cut TIME                    the watch ended and resumes from where it was

One line each on standard output, TIME on the machine's monotonic clock, taken when the bytes
arrived. Pods that exist at the start are not written down, only what happens to them. It shares no
code with any scheduler's client.
"""

import contextlib
import http.client
import os
import ssl
import sys
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

CHUNK: Final = 1 << 18


class Witness:
    """What was seen of each pod; lines to write, no I/O."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}  # pod uid -> its node, "" while it has none

    def know(self, obj: dict[str, Any]) -> None:
        self._nodes[obj["metadata"]["uid"]] = obj["spec"].get("nodeName", "")

    def see(self, kind: str, obj: dict[str, Any], at: float) -> str:
        """The line that this event is worth; empty where nothing of interest changed."""
        about = obj["metadata"]
        name, uid, node = about["name"], about["uid"], obj["spec"].get("nodeName", "")
        if kind == "DELETED":
            self._nodes.pop(uid, None)
            return f"deleted {at:.6f} {name}\n"
        known = self._nodes.get(uid)
        self._nodes[uid] = node
        if node and not known:
            return f"bound {at:.6f} {name} {node}\n"
        return f"created {at:.6f} {name}\n" if known is None else ""


def chunks(stream: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := stream.read1(CHUNK):
        yield chunk


def lines(chunks: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Whole lines, a batch a chunk."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield [line for line in whole if line]


def main(server: str, ca: str, certificate: str, key: str, namespace: str) -> None:
    # A delay here counts as one of the scheduler: the witness gets a higher priority where allowed.
    with contextlib.suppress(OSError):
        os.nice(-10)
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(certificate, key)
    parts = urlsplit(server)
    path = f"/api/v1/namespaces/{namespace}/pods"

    def get(target: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, context=context, timeout=3600
        )
        connection.request("GET", target)
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"GET {target}: {response.status} {response.read()[:300]!r}")
        return response

    witness = Witness()
    listing = orjson.loads(get(path).read())
    for obj in listing.get("items") or ():
        witness.know(obj)
    version, is_ready = listing["metadata"]["resourceVersion"], False
    while True:
        stream = get(f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600")
        print(f"cut {time.monotonic():.6f}" if is_ready else "ready", flush=True)
        is_ready = True
        for batch in lines(chunks(stream)):
            at = time.monotonic()
            seen = [orjson.loads(line) for line in batch]
            text = "".join(witness.see(event["type"], event["object"], at) for event in seen)
            if seen:
                version = seen[-1]["object"]["metadata"]["resourceVersion"]
            if text:
                sys.stdout.write(text)
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
