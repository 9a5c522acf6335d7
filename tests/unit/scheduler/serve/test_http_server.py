"""Health, readiness, metrics; log lines; the process's first and last words."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from scheduler import app
from scheduler.report.metrics import Metrics
from scheduler.serve import http_server


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield root
    root.handlers[:], root.level = before, level


@pytest.mark.parametrize(
    ("path", "missing", "want"),
    [
        pytest.param("/healthz", "pods", (200, "ok\n"), id="alive before it is ready"),
        pytest.param("/readyz", "", (200, "ok\n"), id="ready"),
        pytest.param("/readyz", "waiting", (503, "waiting\n"), id="not ready, and why"),
    ],
)
def test_probes(path: str, missing: str, want: tuple[int, str]) -> None:
    assert asyncio.run(get(path, missing)) == want


async def get(path: str, missing: str) -> tuple[int, str]:
    metrics = Metrics()
    metrics.watch("nodes", "Nodes.", lambda: 3.0)
    metrics.watch_each("pending_pods", "Pods.", "state", ["active"], lambda _: 2.0)
    port = free_port()
    application = http_server.create_app(metrics=metrics, missing=lambda: missing)
    async with (
        http_server.serve(application, host="127.0.0.1", port=port),
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_metrics_have_the_product_prefix_and_gauges_are_read_on_scrape() -> None:
    status, text = asyncio.run(get("/metrics", ""))
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[:1] != "#"}
    assert status == 200
    assert all(name.startswith(("kubenexus_scheduler_", "kubenexus_gang_")) for name in names)
    assert "kubenexus_scheduler_nodes 3.0" in text.splitlines()
    assert 'kubenexus_scheduler_pending_pods{state="active"} 2.0' in text.splitlines()


def test_a_missing_kubeconfig_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], root_logger: logging.Logger
) -> None:
    code = app.main(app.Options(kubeconfig=tmp_path / "none"))
    stderr = capsys.readouterr().err
    assert (code, stderr.count("\n"), stderr.startswith("error: ")) == (2, 1, True)
    assert str(tmp_path / "none") in stderr
