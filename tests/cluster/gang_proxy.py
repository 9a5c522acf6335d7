"""
A proxy between the scheduler and the API server that spoils writes, and ends their writer.

    python -m tests.cluster.gang_proxy --upstream https://… --ca F --cert F --key F --port N

    refused     409, and nothing was done
    broken      500, and nothing was done
    lost        it is done, and the answer is 500
    cut         it is done, and the connection ends without an answer
    late        it is done, and no answer comes for longer than any client waits
    hung        no answer for some seconds, and nothing was done
    busy        429, nothing was done; `busy-after` names a time to come again
    budget      429 as for a disruption budget, and nothing was done

A share of the binds is spoiled all the time (`--share`). `POST /__arm` with JSON sets others:

    {"spoil": "rehearsal", "kinds": ["busy"], "share": 0.5}     this share of these writes
    {"end": PID, "signal": 9, "at": "eviction", "nth": 3, "before": true}     the writer, at a write
    {}                                                          nothing of this any more

Everything else passes as it is, watches piece by piece. It listens on 127.0.0.1 without TLS and
speaks upstream as the user whose certificate it was given. `GET /__spoiled` counts what it did.
"""

import argparse
import asyncio
import os
import random
import signal
import ssl
from collections import Counter
from typing import Any, Final

import aiohttp
from aiohttp import web

KINDS: Final = ("refused", "broken", "lost", "cut", "hung")
DONE: Final = ("lost", "cut", "late")
HUNG_SECONDS: Final = 4.0
LATE_SECONDS: Final = 7.0  # longer than an eviction waits for its answer
_SKIPPED: Final = frozenset({"transfer-encoding", "content-length", "host"})
ENDED: Final = "ended"


def write_of(method: str, path: str, dry_run: bool, body: bytes) -> str:
    """Which of the scheduler's writes it is; empty: none that is spoiled."""
    if method == "POST" and path.endswith("/eviction"):
        return "rehearsal" if dry_run else "eviction"
    if method == "POST" and path.endswith("/binding"):
        return "bind"
    if method == "PATCH" and path.endswith("/status"):
        if b'"nominatedNodeName":"' in body:
            return "nomination"
        return "reservation status" if "/resourcereservations/" in path else ""
    return "reservation" if method == "POST" and path.endswith("/resourcereservations") else ""


class Proxy:
    def __init__(self, upstream: str, *, share: float, seed: int) -> None:
        self._upstream, self._share = upstream, share
        self._random = random.Random(seed)
        self._armed: dict[str, Any] = {}
        self._seen: Counter[str] = Counter()  # writes since it was armed
        self.spoiled: Counter[str] = Counter()
        self.session: aiohttp.ClientSession | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/__spoiled":
            return web.json_response(dict(self.spoiled))
        if request.path == "/__arm":
            self._armed = await request.json()
            self._seen.clear()
            return web.json_response({})
        if request.method not in ("POST", "PATCH"):
            return await self._pass(request)
        dry_run = b"dryRun" in request.query_string.encode()
        write = write_of(request.method, request.path, dry_run, await request.read())
        self._seen[write] += 1
        if write == "bind":
            self.spoiled["binds"] += 1
        if self._ends_at(write):
            return await self._end(request)
        kind = self._kind(write)
        return await (self._spoil(request, kind) if kind else self._pass(request))

    def _kind(self, write: str) -> str:
        """How the write is spoiled; empty: not at all."""
        armed = self._armed
        if write and armed.get("spoil") == write and self._random.random() < armed["share"]:
            kind: str = self._random.choice(armed["kinds"])
            return kind
        if write == "bind" and self._random.random() < self._share:
            return self._random.choice(KINDS)
        return ""

    def _ends_at(self, write: str) -> bool:
        armed = self._armed
        return armed.get("at") == write != "" and self._seen[write] == armed["nth"]

    async def _end(self, request: web.Request) -> web.StreamResponse:
        """The writer ends at this very write: before it, or when it is done."""
        armed, self._armed = self._armed, {}
        if not armed["before"]:
            await self._pass(request, answer=False)
        os.killpg(armed["end"], armed.get("signal", signal.SIGKILL))
        self.spoiled[ENDED] += 1
        return _status(500, "InternalError")

    async def _spoil(self, request: web.Request, kind: str) -> web.StreamResponse:
        self.spoiled[kind] += 1
        if kind == "refused":
            return _status(409, "Conflict")
        if kind in ("busy", "busy-after", "budget"):
            return _too_many(kind)
        if kind == "hung":
            await asyncio.sleep(HUNG_SECONDS)
            return _status(504, "Timeout")
        if kind in DONE:
            await self._pass(request, answer=False)
        if kind == "late":
            await asyncio.sleep(LATE_SECONDS)
        if kind == "cut" and request.transport is not None:
            request.transport.abort()
        return _status(500, "InternalError")

    async def _pass(self, request: web.Request, *, answer: bool = True) -> web.StreamResponse:
        assert self.session is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _SKIPPED}
        body = await request.read()
        url = self._upstream + request.raw_path
        try:
            async with self.session.request(
                request.method, url, data=body or None, headers=headers
            ) as found:
                kept = {k: v for k, v in found.headers.items() if k.lower() not in _SKIPPED}
                response = web.StreamResponse(status=found.status, headers=kept)
                if not answer:
                    await found.read()
                    return response
                await response.prepare(request)
                async for piece in found.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, ConnectionError):
            # As a server that went away does: no answer at all.
            if request.transport is not None:
                request.transport.abort()
            return _status(503, "ServiceUnavailable")


def _too_many(kind: str) -> web.Response:
    response = _status(
        429,
        "TooManyRequests",
        **({"causes": [{"reason": "DisruptionBudget"}]} if kind == "budget" else {}),
    )
    if kind == "busy-after":
        response.headers["Retry-After"] = "1"
    return response


def _status(code: int, reason: str, **details: Any) -> web.Response:
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": "spoiled",
        "details": details,
    }
    return web.json_response(body, status=code)


async def _serve(options: argparse.Namespace) -> None:
    proxy = Proxy(options.upstream, share=options.share, seed=options.seed)
    tls = ssl.create_default_context(cafile=options.ca)
    tls.load_cert_chain(options.cert, options.key)
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False
    ) as session:
        proxy.session = session
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", options.port).start()
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("upstream", "ca", "cert", "key"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
