"""
A proxy between the scheduler and the API server that spoils a share of the binds.

    python -m tests.cluster.gang_proxy --upstream https://… --ca F --cert F --key F --port N

    refused     409, and nothing was done
    broken      500, and nothing was done
    lost        the bind is done, and the answer is 500
    cut         the bind is done, and the connection ends without an answer
    hung        no answer for some seconds, and nothing was done

Everything else passes as it is, watches piece by piece. It listens on 127.0.0.1 without TLS and
speaks upstream as the user whose certificate it was given. `GET /__spoiled` counts what it did.
"""

import argparse
import asyncio
import random
import ssl
from collections import Counter
from typing import Final

import aiohttp
from aiohttp import web

KINDS: Final = ("refused", "broken", "lost", "cut", "hung")
HUNG_SECONDS: Final = 4.0
_SKIPPED: Final = frozenset({"transfer-encoding", "content-length", "host"})


class Proxy:
    def __init__(self, upstream: str, *, share: float, seed: int) -> None:
        self._upstream, self._share = upstream, share
        self._random = random.Random(seed)
        self.spoiled: Counter[str] = Counter()
        self.session: aiohttp.ClientSession | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/__spoiled":
            return web.json_response(dict(self.spoiled))
        is_bind = request.method == "POST" and request.path.endswith("/binding")
        self.spoiled["binds"] += is_bind
        if not is_bind or self._random.random() >= self._share:
            return await self._pass(request)
        kind = self._random.choice(KINDS)
        self.spoiled[kind] += 1
        if kind == "refused":
            return _status(409, "Conflict")
        if kind == "hung":
            await asyncio.sleep(HUNG_SECONDS)
            return _status(504, "Timeout")
        if kind in ("lost", "cut"):
            await self._pass(request, answer=False)
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


def _status(code: int, reason: str) -> web.Response:
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": "spoiled",
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
