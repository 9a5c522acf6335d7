"""
The recipe of the image without Docker: the steps of both stages in a clean folder, then every entry
point of what they made, as the image's user. What differs:

    /opt, /src, /etc    lie in a temporary folder, so that the second stage finds what the first made
                        where it is, and nothing is copied
    python              is this one, and pip may use its cache
    the user            is a user of that number in a namespace of its own (`unshare`); where the
                        system allows none, it is the user of the tests
"""

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main
import yaml

from kubenexus import cli
from kubenexus.clusterfile import load
from kubenexus.dev.plane.control_plane import ControlPlane, healthy
from kubenexus.dev.stack import SCHEDULER, WEBHOOK, Stack

# pip fetches what is not in its cache.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]  # a group


def stage(number: int) -> Iterator[tuple[str, str]]:
    """Instruction and argument of the first or second stage."""
    text = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ")
    stages = 0
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        stages += word == "FROM"
        if stages == number and word.isupper():
            yield word, rest


def copy(source: str, target: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    names = {line.removeprefix("**/") for line in ignored}
    where = ROOT / source
    if where.is_dir():
        shutil.copytree(
            where, target, dirs_exist_ok=True, ignore=lambda _, found: names & set(found)
        )
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(where, target)


@dataclass(frozen=True, slots=True)
class Image:
    """A folder that stands for the image's root, and what the recipe says of those who run it."""

    root: Path
    env: dict[str, str]
    user: str
    entry: tuple[str, ...]

    @property
    def home(self) -> Path:
        return self.root / "opt/kubenexus"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The entry point with these arguments, from the root, as the image's user."""
        program = shutil.which(self.entry[0], path=self.env["PATH"])
        assert program is not None, f"{self.entry[0]} is not on {self.env['PATH']}"
        command = [*as_user(self.user), program, *self.entry[1:], *words]
        return subprocess.run(command, capture_output=True, text=True, cwd="/", env=self.env)


@functools.cache
def as_user(user: str) -> tuple[str, ...]:
    """What to put before a command so that it runs as this user, who owns and may do nothing."""
    number, group = user.split(":")
    command = ("unshare", "--user", f"--map-user={number}", f"--map-group={group}")
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return ()


def moved(text: str, root: Path) -> str:
    """A step with the folders of the image in the temporary one."""
    text = re.sub(r"(?<![\w/])/(opt|etc)/", rf"{root}/\1/", text).replace("--no-cache-dir ", "")
    return re.sub(r"(^|&& )python ", rf"\1{shlex.quote(sys.executable)} ", text)


def do(step: str, folder: Path) -> None:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(step, shell=True, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    root = tmp_path_factory.mktemp("image")
    source = root / "src"
    for folder in (source, root / "etc"):
        folder.mkdir()
    for word, rest in stage(1):
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                copy(name, source / target)
        elif word == "RUN":
            do(moved(rest, root), source)
    said = dict[str, str]()
    for word, rest in stage(2):
        if word == "COPY":
            origin, taken, target = rest.split()
            assert (origin, taken, (root / taken[1:]).is_dir()) == ("--from=build", target, True)
        elif word == "RUN":
            do(moved(rest, root), root)
        else:
            said[word] = rest
    env = dict(one.split("=", 1) for one in shlex.split(said["ENV"]))
    env["PATH"] = moved(env["PATH"], root).replace("$PATH", "/usr/bin:/bin")
    return Image(root, env, said["USER"], tuple(json.loads(said["ENTRYPOINT"])))


def test_the_user_is_not_root_and_a_number(image: Image) -> None:
    # A number: the kubelet cannot verify `runAsNonRoot` for a name.
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", image.user)
    chart = yaml.safe_load((ROOT / "charts/kubenexus/values.yaml").read_text())
    context = chart["podSecurityContext"]
    assert image.user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_every_entry_point_answers_and_writes_nothing(image: Image) -> None:
    before = files(image.root)
    answers = {name: image.run(*name.split(), "--help") for name in ("", *COMMANDS)}
    failed = {name: done.stderr for name, done in answers.items() if done.returncode}
    assert failed == {}
    # The containers' root is read-only.
    assert files(image.root) == before


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_only_what_is_locked_is_installed(image: Image) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(image.home / "bin/python"), "freeze"]
    done = subprocess.run([*command, "--all"], capture_output=True, text=True, check=True)
    locked = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "requirements/run.txt").read_text().splitlines()
        if "==" in line
    }
    found = {
        re.split(r"==| @ ", line)[0].lower().replace("_", "-") for line in done.stdout.splitlines()
    }
    # Not even pip.
    assert found - locked == {"kubenexus"}


def test_the_policies_that_ship_are_where_the_chart_looks(image: Image) -> None:
    helpers = (ROOT / "charts/kubenexus/templates/_helpers.tpl").read_text()
    (place,) = re.findall(r"--policies=/(\S+/library)$", helpers, re.MULTILINE)
    found = {path.name for path in (image.root / place).glob("*.yaml")}
    assert found == {path.name for path in (ROOT / "policies/library").glob("*.yaml")}


def test_both_services_answer(image: Image, control_plane: ControlPlane) -> None:
    control_plane.add_nodes(load.plain(1).nodes)
    # -I: what was installed, and nothing of this tree.
    command = (*as_user(image.user), str(image.home / "bin/python"), "-I", "-m", "kubenexus")
    with Stack(control_plane, command=command) as stack:
        assert {
            name: healthy(url.replace("/readyz", "/healthz"))
            for name, url in stack.health_urls().items()
        } == {WEBHOOK: True, SCHEDULER: True}
