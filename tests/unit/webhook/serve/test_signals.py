"""Workers of a real gunicorn end by every signal, over TLS, while requests arrive."""

import os
import re
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubenexus.dev.process import ports
from tests.unit.webhook.serve.serving import PATIENCE, Serving, serving
from tests.unit.webhook.serve.test_server import a_review
from webhook.serve import server
from webhook.serve.client_auth import ClientAuth
from webhook.serve.server import metrics_folder, wait_until

SIGNALS = ("SIGTERM", "SIGABRT", "SIGKILL", "SIGSEGV", "SIGQUIT", "SIGINT")
REVIEWS = re.compile(r'kubenexus_webhook_reviews_total\{.*verdict="allowed"\} (\S+)')


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://{ports.HOST}:{port}/metrics", timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def workers_of(master: int) -> set[int]:
    text = Path(f"/proc/{master}/task/{master}/children").read_text()
    return {int(pid) for pid in text.split()}


class Requests:
    """Sends reviews one after another until `end` is called."""

    def __init__(self, running: Serving) -> None:
        self._running = running
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.allowed = 0
        self.failed = 0
        self._thread.start()

    def _send(self) -> None:
        while not self._stop.is_set():
            try:
                status, _ = self._running.request("POST", "/validate", a_review())
            except OSError:  # the worker ended while it answered this one
                self.failed += 1
            else:
                self.allowed += status == 200

    def wait_for_more(self, count: int) -> None:
        want = self.allowed + count
        assert wait_until(lambda: self.allowed >= want, seconds=PATIENCE)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("two")
    [port] = ports.free(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))  # where the webhook puts the folder of its metrics
        with serving(folder, workers=2, metrics_port=port, policies=()) as running:
            yield running


@pytest.mark.parametrize("name", SIGNALS)
def test_a_worker_that_ends_is_replaced_and_harms_no_other(two: Serving, name: str) -> None:
    master, port = two.process.pid, two.options.metrics_port
    assert port is not None
    [folder] = two.log.parent.glob("kubenexus-webhook-*")
    assert wait_until(lambda: len(workers_of(master)) == 2, seconds=PATIENCE)
    before = workers_of(master)
    requests = Requests(two)
    try:
        requests.wait_for_more(3)
        victim = min(before)
        os.kill(victim, getattr(signal, name))
        assert wait_until(
            lambda: victim not in (now := workers_of(master)) and len(now) == 2, seconds=PATIENCE
        )
        requests.wait_for_more(3)
    finally:
        requests.end()
    [successor] = workers_of(master) - before
    assert two.process.poll() is None
    assert folder.is_dir()
    assert wait_until(lambda: any(folder.glob(f"*_{successor}.db")), seconds=PATIENCE)
    counted = [float(value) for value in REVIEWS.findall(scrape(port))]
    # The first test counts from zero; a worker that is killed may not have counted its last one.
    assert sum(counted) >= requests.allowed
    left = {path.stem.rpartition("_")[2] for path in folder.glob("*.db")}
    assert left <= {"ended", str(master), *map(str, workers_of(master))}


@pytest.mark.parametrize(
    ("has_served", "want"),
    [
        pytest.param(True, 1, id="a successor ends alone: gunicorn tries the next"),
        pytest.param(False, 7, id="the first start fails: the exception reaches gunicorn"),
    ],
)
def test_a_worker_that_cannot_start(
    has_served: bool, want: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(server, "RESTART_SECONDS", 0.0)
    if has_served:
        (tmp_path / "served").touch()

    class Broken(server._Gunicorn):
        def __init__(self) -> None:
            """No options: nothing is loaded."""

        def _load(self) -> ClientAuth:
            raise ZeroDivisionError

    child = os.fork()
    if child == 0:
        try:
            Broken().load()
        except ZeroDivisionError:
            os._exit(7)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == want


def test_only_the_process_that_made_the_folder_of_the_metrics_removes_it() -> None:
    made = metrics_folder()
    folder = Path(made.__enter__())
    child = os.fork()
    if child == 0:
        try:
            made.__exit__(None, None, None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert folder.is_dir()
    made.__exit__(None, None, None)
    assert not folder.exists()
