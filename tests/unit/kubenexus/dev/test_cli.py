from pathlib import Path

import pytest
from typer.testing import CliRunner

from kubenexus.dev.cli import app


@pytest.fixture
def runner(tmp_path: Path) -> CliRunner:
    return CliRunner(env={"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(
            ["build", "--kubernetes", "1.2.3"], 2, "known are 1.37.1", id="an unknown version"
        ),
        pytest.param(
            ["build", "--tool", "hlm"], 2, "'hlm' is not known here", id="an unknown tool"
        ),
        pytest.param(
            ["up", "--kubernetes", "1.2.3"], 2, "known are 1.37.1", id="up, an unknown version"
        ),
        pytest.param(
            ["up", "--nodes", "1", "--cluster", "x"], 2, "not both", id="nodes given twice"
        ),
        pytest.param(["up", "--cluster", "/none.yaml"], 2, "/none.yaml", id="a missing file"),
        pytest.param(["up", "--name", "../x"], 2, "is no name", id="a bad name"),
        pytest.param(["status"], 1, "default: down", id="status of nothing"),
        pytest.param(["status", "-o", "json"], 1, '"phase": "down"', id="the same as JSON"),
        pytest.param(["down"], 0, "was not up", id="down twice"),
        pytest.param(["kubectl", "get", "pods"], 1, "is not up", id="kubectl on nothing"),
        pytest.param(["logs", "etcd"], 2, "no log of 'etcd'", id="logs of nothing"),
    ],
)
def test_a_failed_command_prints_one_message(
    runner: CliRunner, arguments: list[str], code: int, message: str
) -> None:
    result = runner.invoke(app, arguments)
    text = result.output
    assert (result.exit_code, message in text, "Traceback" in text) == (code, True, False)
