"""Counts over many workers, in processes of their own: the mode is chosen at the import."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from webhook import metrics

FIGURES = (
    'kubenexus_webhook_reviews_total{path="validate",verdict="allowed"}',
    'kubenexus_webhook_review_seconds_count{path="validate"}',
    'kubenexus_webhook_review_seconds_bucket{le="0.001",path="validate"}',
    'kubenexus_webhook_review_seconds_bucket{le="0.0025",path="validate"}',
)
_WORKERS = """
import os, sys
from webhook import metrics
for _ in range({workers}):
    child = os.fork()
    if child == 0:
        metrics.review("/validate", allowed=True, seconds=0.002)
        metrics.policies(in_force=3, faults=0)
        os._exit(0)
    os.waitpid(child, 0)
    metrics.forget_workers([])
sys.stdout.write(metrics.exposition().decode())
"""
_BROKEN = """
import shutil, os
from webhook import metrics
shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"])
if os.fork() == 0:
    metrics.review("/validate", allowed=True, seconds=0.002)
    metrics.unreadable()
    metrics.event("PolicyDenied")
    metrics.internal_error("events")
    metrics.policies(in_force=3, faults=0)
    metrics.rules_missing(1)
    metrics.EventCounts().take(written=1, dropped={"refused": 1}, waiting=1)
    metrics.forget_workers([])
    os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_ended_workers_keep_their_counts_and_leave_no_files(tmp_path: Path) -> None:
    sizes = []
    for workers in (1, 20):
        folder = tmp_path / str(workers)
        folder.mkdir()
        lines = run(_WORKERS.format(workers=workers), folder).stdout.splitlines()
        shown = dict(line.rpartition(" ")[::2] for line in lines if not line.startswith("#"))
        assert [float(shown[name]) for name in FIGURES] == [workers, workers, 0.0, workers]
        sizes.append(sorted(path.name.split("_")[0] for path in folder.glob("*.db")))
    assert sizes[0] == sizes[1]


def test_a_folder_that_is_gone_costs_figures_and_no_worker(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    done = run(_BROKEN, folder)
    assert done.stdout == "7\n"
    assert done.stderr.count("counting failed; the metrics are incomplete") == 1


def test_a_file_that_its_worker_has_not_written_yet_is_left_out(tmp_path: Path) -> None:
    code = """
from pathlib import Path
import os, sys
from webhook import metrics
metrics.review("/validate", allowed=True, seconds=0.002)
folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
for name in ("counter_1.db", "histogram_1.db", "gauge_livemin_1.db"):
    (folder / name).touch()
shown = metrics.exposition()
metrics.forget_workers([])
assert shown == metrics.exposition()
print(sorted(path.name for path in folder.glob("*_1.db")), shown.count(b'verdict="allowed"} 1.0'))
"""
    assert run(code, tmp_path).stdout == "[] 1\n"


def test_a_scrape_under_way_defers_the_files_of_ended_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    for mode in ("livemin", "livemax"):
        (tmp_path / f"gauge_{mode}_1.db").touch()
    with (tmp_path / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        metrics.forget_workers([])
        assert len(list(tmp_path.glob("*.db"))) == 2
    metrics.forget_workers([])
    assert list(tmp_path.glob("*.db")) == []
