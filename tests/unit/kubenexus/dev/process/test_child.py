"""Children end on request, and when their parent ends for any reason."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from kubenexus.dev.process.child import Child, stop_all, tail
from tests.pages import ROOT

PARENT = """
import sys, threading, time
from pathlib import Path
from kubenexus.dev.process.child import Child
child = Child("sleeper", ["sh", "-c", "echo ready; exec sleep 1000"], log=Path(sys.argv[1]))
def start():
    child.start()
    while "ready" not in child.tail():
        time.sleep(0.01)
# The thread that starts the child ends once the child is tethered; the child must live on.
thread = threading.Thread(target=start)
thread.start()
thread.join()
print(child.pid, flush=True)
sys.stdin.read()
"""


def ended(pid: int, *, within: float) -> bool:
    """Whether a process that is no child of this one ends, as the kernel reports without polling."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within)[0])
    finally:
        os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="the tether is the Linux kernel's")
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        lived = not ended(child, within=0.3)
        parent.send_signal(signal.SIGKILL)
    assert (lived, ended(child, within=10)) == (True, True)


@pytest.mark.skipif(sys.platform != "linux", reason="the tether is the Linux kernel's")
def test_a_wrapper_whose_parent_has_ended_runs_nothing(tmp_path: Path) -> None:
    from kubenexus.dev.process import die_with_parent

    not_the_parent = "1" if os.getpid() != 1 else "2"
    touched = tmp_path / "touched"
    argv = [
        sys.executable,
        "-I",
        "-S",
        die_with_parent.__file__,
        not_the_parent,
        "touch",
        str(touched),
    ]
    done = subprocess.run(argv)
    assert (done.returncode, touched.exists()) == (1, False)


def a_child(tmp_path: Path, script: str, name: str = "child") -> Child:
    return Child(name, ["sh", "-c", textwrap.dedent(script)], log=tmp_path / f"{name}.log")


def _started(child: Child) -> None:
    """Wait until the child has said that it is there."""
    child.start()
    seen = threading.Event()
    for _ in range(500):
        if "ready" in child.tail():
            return
        seen.wait(0.02)
    raise AssertionError(f"{child.name} said nothing: {child.tail()}")


@pytest.mark.parametrize(
    ("script", "want"),
    [
        pytest.param(
            "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done", 7, id="SIGTERM ends it"
        ),
        pytest.param(
            "trap '' TERM; echo ready; while :; do sleep 0.05; done", -9, id="SIGKILL ends it"
        ),
    ],
)
def test_stopping_sends_sigterm_and_then_sigkill(tmp_path: Path, script: str, want: int) -> None:
    child = a_child(tmp_path, script)
    _started(child)
    child.stop(grace=0.5)
    assert (child.exit_code, child.alive) == (want, False)


def test_helpers_of_a_child_are_stopped_with_it(tmp_path: Path) -> None:
    child = a_child(tmp_path, "sleep 1000 & echo helper $!; echo ready; wait")
    _started(child)
    helper = int(child.tail().split()[1])
    stop_all([child], grace=1.0)
    assert ended(helper, within=10)


def test_a_child_that_ended_can_be_started_again(tmp_path: Path) -> None:
    child = a_child(tmp_path, "echo ready; sleep 1000")
    _started(child)
    first = child.pid
    child.kill()
    child.start()
    running = child.alive
    second = child.pid
    with contextlib.suppress(RuntimeError):
        child.start()
    child.kill()
    assert (running, first != second, child.pid == second) == (True, True, True)


def test_the_tail_of_a_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    lines = tail(log).splitlines()
    assert (len(lines), lines[-1], tail(tmp_path / "none")) == (15, "line 9999", "")
