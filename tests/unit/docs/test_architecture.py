"""The page on architecture names what exists, and its picture is the import graph."""

import re

import pytest

from tests import architecture
from tests.pages import DOCS, ROOT

PAGE = (DOCS / "architecture.md").read_text()
CHANGES = PAGE.split("## Where do I change …")[1].split("\n## ")[0]
ROWS = [line.split("|")[1:3] for line in CHANGES.splitlines() if line.startswith("| ")][2:]
PACKAGES = "|".join(architecture.PACKAGES)


def needs_tree() -> None:
    if not (ROOT / "scheduler").is_dir():
        pytest.skip("the packages are installed elsewhere; this test reads the source tree")


def test_the_picture_is_the_import_graph() -> None:
    needs_tree()
    assert architecture.PICTURE.read_text() == architecture.picture()


def test_there_are_twenty_usual_changes() -> None:
    assert len(ROWS) >= 20


@pytest.mark.parametrize(("change", "files"), ROWS, ids=[row[0].strip() for row in ROWS])
def test_a_usual_change_names_files_that_exist(change: str, files: str) -> None:
    needs_tree()
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", files)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_module_that_the_page_names_exists() -> None:
    needs_tree()
    named = {
        match[0].removesuffix(".*")
        for match in re.finditer(rf"\b({PACKAGES})(\.\w+)+(\.\*)?", PAGE)
    }
    paths = {name: ROOT / name.replace(".", "/") for name in named if name != "kubenexus.io"}
    missing = [
        name
        for name, path in paths.items()
        if not path.with_suffix(".py").exists() and not path.is_dir()
    ]
    assert missing == []
