"""
The scheduler's HTTP endpoints: health, readiness, metrics, explanations.

    /healthz   200 while the process runs
    /readyz    200 when all watches are in sync; 503 with what is missing
    /metrics   Prometheus text
    /explain   ?pod=NAMESPACE/NAME: why the pod waits, as JSON (`explain.response`); 404 if unknown

Plain HTTP, read-only.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from scheduler.report.metrics import Metrics

Explain = Callable[[str, str], dict[str, Any] | None]


def create_app(
    *, metrics: Metrics, missing: Callable[[], str], explain: Explain = lambda *_: None
) -> web.Application:
    """`missing` is what readiness waits for; empty: ready. `explain` takes namespace and name."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        waiting = missing()
        return web.Response(text=f"{waiting or 'ok'}\n", status=503 if waiting else 200)

    async def metrics_page(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def explain_page(request: web.Request) -> web.Response:
        pod = request.query.get("pod", "")
        namespace, slash, name = pod.partition("/")
        if not (namespace and slash and name):
            return _json({"error": f"found pod={pod!r}, want pod=NAMESPACE/NAME"}, 400)
        if waiting := missing():
            return _json({"error": f"not ready: {waiting}"}, 503)
        explanation = explain(namespace, name)
        if explanation is None:
            text = f"pod {pod} is unknown: it does not exist, or finished long ago"
            return _json({"error": text}, 404)
        return _json(explanation, 200)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics_page)
    app.router.add_get("/explain", explain_page)
    return app


def _json(body: dict[str, Any], status: int) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=status, headers={"Content-Type": "application/json"}
    )


@asynccontextmanager
async def serve(app: web.Application, *, host: str, port: int) -> AsyncIterator[None]:
    """Serve while the context lasts. `OSError` if the port is in use."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
