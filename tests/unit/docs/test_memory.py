"""The page on memory lists every container that classes create, and nothing else."""

import re

import pytest

from tests import containers
from tests.pages import DOCS, ROOT

LISTED = re.compile(r"^\| `([\w.]+)` \| (`.+?`) \| (.+?) \|$", re.M)
SHORT = re.compile(r"^\| `([\w.]+)` \| (one [^|]+?) \|$", re.M)


@pytest.fixture
def page() -> str:
    if not (ROOT / "scheduler").is_dir():
        pytest.skip("the packages are installed elsewhere; this test reads the source tree")
    return (DOCS / "memory.md").read_text()


def test_every_container_has_a_bound(page: str) -> None:
    """Add the missing ones to `docs/memory.md`, with what bounds them; remove what is gone."""
    listed = {row[0]: frozenset(re.findall(r"`(\w+)`", row[1])) for row in LISTED.findall(page)}
    short = {row[0] for row in SHORT.findall(page)}
    found = containers.found()
    lasting = {name: own for name, own in found.items() if name not in short}
    missing = {name: own - listed.get(name, set()) for name, own in lasting.items()}
    gone = {name: own - lasting.get(name, set()) for name, own in listed.items()}
    assert {name: own for name, own in missing.items() if own} == {}, "without a row"
    assert {name: own for name, own in gone.items() if own} == {}, "a row without a container"
    assert short - found.keys() == set()


def test_every_cached_function_has_a_limit() -> None:
    assert containers.endless_caches() == []
