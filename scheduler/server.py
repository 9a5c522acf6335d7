"""
The scheduler's own small web server: health, readiness, metrics.

    /healthz   200 while the process answers
    /readyz    200 once the watches have shown the whole cluster; 503 with what is missing
    /metrics   Prometheus text

Plain HTTP on an address of the operator's choice; nothing here changes anything.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from .metrics import Metrics


def create_app(*, metrics: Metrics, missing: Callable[[], str]) -> web.Application:
    """`missing` says what readiness waits for; empty: ready."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        waiting = missing()
        return web.Response(text=f"{waiting or 'ok'}\n", status=503 if waiting else 200)

    async def figures(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", figures)
    return app


@asynccontextmanager
async def serve(app: web.Application, *, host: str, port: int) -> AsyncIterator[None]:
    """Answer while the context lasts. `OSError` when the port is taken."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
