"""
The recipe of the image without Docker: the RUN steps of its first stage in a clean folder, then
every entry point of what they made. What differs: `/opt` and `/src` lie in a temporary folder, the
Python is this one, and pip may use its cache.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubenexus import clusterfile
from kubenexus.dev.plane import ControlPlane, healthy
from kubenexus.dev.stack import SCHEDULER, WEBHOOK, Stack

# pip fetches what is not in its cache.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "simulate",
    "webhook",
    "scheduler",
    "dev",
    "policy",
    "audit",
    "why",
    "labeler",
    "install",
)


def first_stage() -> Iterator[tuple[str, str]]:
    """Instruction and argument, up to the second FROM."""
    text = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ")
    stages = 0
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        stages += word == "FROM"
        if stages == 1 and word in ("COPY", "RUN"):
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


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the last stage takes over."""
    folder = tmp_path_factory.mktemp("image")
    source, opt = folder / "src", folder / "opt"
    source.mkdir()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for word, rest in first_stage():
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                copy(name, source / target)
            continue
        step = re.sub(r"(?<![\w/])/opt/", f"{opt}/", rest).replace("--no-cache-dir ", "")
        step = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", step)
        done = subprocess.run(step, shell=True, cwd=source, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"
    return opt / "kubenexus"


def test_every_entry_point_answers(image: Path) -> None:
    answers = {
        name: subprocess.run(
            [image / "bin/kubenexus", *name.split(), "--help"], capture_output=True
        )
        for name in ("", *COMMANDS)
    }
    assert {name: done.returncode for name, done in answers.items()} == dict.fromkeys(answers, 0)


def test_only_what_is_locked_is_installed(image: Path) -> None:
    done = subprocess.run(
        [image / "bin/python", "-m", "pip", "freeze"], capture_output=True, text=True, check=True
    )
    locked = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "requirements/run.txt").read_text().splitlines()
        if "==" in line
    }
    found = {
        re.split(r"==| @ ", line)[0].lower().replace("_", "-") for line in done.stdout.splitlines()
    }
    assert found - locked == {"kubenexus"}


def test_the_policies_that_ship_are_where_the_chart_looks(image: Path) -> None:
    found = {path.name for path in (image / "library").glob("*.yaml")}
    assert found == {path.name for path in (ROOT / "policies/library").glob("*.yaml")}


def test_both_services_answer(image: Path, control_plane: ControlPlane) -> None:
    control_plane.add_nodes(clusterfile.plain(1).nodes)
    # -I: what was installed, and nothing of this tree.
    command = (str(image / "bin/python"), "-I", "-m", "kubenexus")
    with Stack(control_plane, command=command) as stack:
        assert {
            name: healthy(url.replace("/readyz", "/healthz"))
            for name, url in stack.health_urls().items()
        } == {WEBHOOK: True, SCHEDULER: True}
