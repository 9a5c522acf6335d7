"""The guide for policy authors says what the commands really do."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kubenexus.policy.cli import app
from tests.pages import ROOT

GUIDE = ROOT / "docs" / "policies.md"
FILES = ("policies/ada.yaml", "tests/ada.yaml", "pod.yaml")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def in_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in zip(FILES, blocks("yaml"), strict=True):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_guide")
@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.split()[3])
def test_commands_of_the_guide_print_what_the_guide_shows(block: str) -> None:
    line, _, answer = block.partition("\n")
    words = shlex.split(line.removeprefix("$ kubenexus policy "))
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout[: len(answer)]) == (0, answer)


@pytest.mark.usefixtures("in_guide")
def test_the_policy_of_the_guide_can_be_exported() -> None:
    result = CliRunner().invoke(app, ["export", "--vap", "--policies", "policies"])
    assert (result.exit_code, "kubenexus-ada-warn" in result.stdout) == (0, True)


def test_every_command_is_in_the_guide() -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}  # fmt: skip
    documented = set(re.findall(r"kubenexus policy (\w+)", GUIDE.read_text()))
    assert documented == known
