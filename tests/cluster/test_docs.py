"""
Every object that README and documentation show is accepted by a real API server, as a dry run.

The webhook is registered, so that the product's own judgement is part of the answer. Kinds of
most other projects have minimal definitions (`crds`): what such an object says of itself is not
checked against its project's own schema.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.dev.api import path_of
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from tests import pages
from tests.cluster.waiting import eventually
from tests.pages import Block

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

CRDS = sorted((Path(__file__).parent / "crds").rglob("*.yaml"))
BLOCKS = pages.blocks("yaml")


def stored(block: Block) -> list[Json]:
    return [item for item in block.documents() if item["kind"] not in pages.NOT_STORED]


def namespaces() -> set[str]:
    named = (item["metadata"].get("namespace") for block in BLOCKS for item in stored(block))
    return {str(name) for name in named if name}


def there(plane: ControlPlane, path: str) -> bool:
    try:
        plane.api().call("GET", path)
    except CallFailed:
        return False
    return True


def gone(plane: ControlPlane, path: str) -> bool:
    return not there(plane, path)


@pytest.fixture(scope="module")
def everything(stack: Stack, control_plane: ControlPlane) -> Iterator[None]:
    """A cluster that knows every kind and namespace of the documentation."""
    api = control_plane.api()
    made = [yaml.safe_load(path.read_text()) for path in CRDS]
    for name in sorted(namespaces()):
        made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    found = [item for item in made if not there(control_plane, path_of(item))]
    for item in found:
        api.apply(item)
    for item in made:
        spec = item.get("spec", {})
        for version in spec.get("versions", ()):
            served = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            eventually(partial(there, control_plane, served), served)
    yield
    for item in found:
        api.call("DELETE", path_of(item))
    for item in found:
        # Others make kinds of the same name; a namespace is deleted in its own time.
        if item["kind"] != "Namespace":
            eventually(partial(gone, control_plane, path_of(item)), f"{path_of(item)} gone")


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("block", [b for b in BLOCKS if stored(b)], ids=lambda b: b.id)
def test_the_objects_of_a_page_are_accepted(kubectl: Kubectl, block: Block) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": stored(block)}
    # As a server-side apply, so that kubectl has nothing of its own to say about what exists.
    options = ("--server-side", "--force-conflicts", "--dry-run=server")
    got = kubectl("apply", *options, "-f", "-", input=json.dumps(items))
    assert got.returncode == 0, got.stderr
    page = (pages.ROOT / block.page).read_text()
    undocumented = [
        line for line in got.stderr.splitlines() if line not in page and "Warning" in line
    ]
    assert undocumented == []


@pytest.mark.usefixtures("everything")
def test_the_refusal_that_the_readme_shows_is_what_kubectl_says(kubectl: Kubectl) -> None:
    [block] = [b for b in pages.blocks("console") if b.page == "README.md"]
    command, _, said = block.text.partition("\n")
    example = command.rpartition(" ")[2]
    got = kubectl("apply", "-f", str(pages.ROOT / example))
    answer = got.stderr.replace(f"{pages.ROOT}/", "")
    assert (got.returncode, answer.split()) == (1, said.split())
