import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubenexus.dev import lifecycle, paths, state
from kubenexus.dev.errors import UsageError
from kubenexus.dev.state import Process, State
from kubenexus.dev.supervisor import pause


def a_state(pid: int, started: int, *, phase: str = state.UP) -> State:
    return State(
        phase,
        "Everything is ready",
        Process("supervisor", pid, started),
        "1.37.1",
        components=(Process("etcd", pid, started, url="https://127.0.0.1:1/readyz"),),
    )


@pytest.mark.parametrize(
    ("env", "want"),
    [
        pytest.param({"HOME": "/h"}, "/h/.local/state/kubenexus/dev/x", id="the default"),
        pytest.param(
            {"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/kubenexus/dev/x", id="as the person chose"
        ),
        pytest.param(
            {"HOME": "/h", "XDG_STATE_HOME": "s"},
            "/h/.local/state/kubenexus/dev/x",
            id="a relative choice is ignored",
        ),
    ],
)
def test_where_the_state_lies(env: dict[str, str], want: str) -> None:
    assert str(paths.state(env, "x")) == want


@pytest.mark.parametrize("name", ["", "../x", "A", "-a", "a-", "a" * 41, "a/b"])
def test_an_invalid_name_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match="is no name for a plane"):
        state.folder_of(name, {"HOME": "/h"})


def test_a_state_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    state.write(tmp_path, a_state(1, 2))
    assert state.read(tmp_path) == a_state(1, 2)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"supervisor": 1, "components": []}'])
def test_a_broken_state_file_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / state.FILE).write_text(text)
    assert (state.read(tmp_path), lifecycle.inspect("x", tmp_path).phase) == (None, "down")


def test_one_supervisor_at_a_time(tmp_path: Path) -> None:
    before = state.is_supervised(tmp_path)
    with state.locked(tmp_path):
        during = state.is_supervised(tmp_path)
        with pytest.raises(state.AlreadyRunning), state.locked(tmp_path):
            pass
    assert (before, during, state.is_supervised(tmp_path)) == (False, True, False)


def test_an_id_that_was_given_out_again_is_no_match() -> None:
    pid = os.getpid()
    started = state.start_time(pid)
    found = [state.lives(Process("x", pid, when)) for when in (started, started - 1)]
    assert found == [True, False]


def test_a_process_that_ended_and_was_not_reaped_does_not_live() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1) as it:
        process = Process("x", it.pid, state.start_time(it.pid))
        before = state.lives(process)
        it.kill()
        os.waitid(os.P_PID, it.pid, os.WEXITED | os.WNOWAIT)
        after = state.lives(process)
    assert (before, after) == (True, False)


def test_down_cleans_up_after_a_killed_supervisor(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1) as left:
        found = a_state(left.pid, state.start_time(left.pid))
        gone = Process("supervisor", left.pid, found.supervisor.started - 1)
        orphaned = State(state.UP, "", gone, "1.37.1", components=found.components)
        state.write(tmp_path, orphaned)
        for name in ("etcd", "logs", "kubeconfig"):
            (tmp_path / name).mkdir()
        inspected = lifecycle.inspect("x", tmp_path).phase
        stopped = lifecycle.stop(tmp_path)
        code = left.wait()
    assert (
        inspected,
        [process.name for process in stopped],
        code,
        sorted(path.name for path in tmp_path.iterdir()),
        lifecycle.stop(tmp_path),
    ) == ("down", ["etcd"], -9, ["logs"], [])


def test_a_crashing_child_is_restarted_with_growing_delay() -> None:
    assert [pause(restarts) for restarts in range(7)] == [0, 1, 3, 7, 15, 30, 30]
