"""What must hold for the tree as a whole."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from policies import vocabulary
from tests.pages import ROOT

PACKAGES = ("kubenexus", "webhook", "scheduler", "cluster", "policies")
LONGEST = 600  # above 400 a reviewer decides: one thing is not cut in two to please a number
FULLEST = 20  # modules in one folder of product code


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def needs_tree() -> None:
    if not all((ROOT / package).is_dir() for package in PACKAGES):
        pytest.skip("the packages are installed elsewhere; this test reads the source tree")


def test_no_source_file_is_too_long() -> None:
    needs_tree()
    lengths = {
        str(p.relative_to(ROOT)): len(p.read_text().splitlines())
        for p in sources(*PACKAGES, "tests")
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def folders() -> dict[Path, set[str]]:
    """folder of product code -> names of its modules"""
    found: dict[Path, set[str]] = {}
    for path in sources(*PACKAGES):
        found.setdefault(path.parent, set()).add(path.stem)
    return {folder: names - {"__init__", "__main__"} for folder, names in found.items()}


def test_no_folder_of_product_code_is_a_bag() -> None:
    needs_tree()
    crowded = {str(p.relative_to(ROOT)): len(names) for p, names in folders().items()}
    assert {folder: n for folder, n in crowded.items() if n > FULLEST} == {}


def test_every_folder_of_product_code_lists_what_is_in_it() -> None:
    needs_tree()
    unlisted = {}
    for folder, names in folders().items():
        init = folder / "__init__.py"
        said = init.read_text() if init.exists() else ""
        inner = {p.parent.name for p in folder.glob("*/__init__.py")}
        missing = sorted(name for name in names | inner if not re.search(rf"\b{name}\b", said))
        if missing:
            unlisted[str(folder.relative_to(ROOT))] = missing
    assert unlisted == {}


def test_every_module_has_a_docstring() -> None:
    needs_tree()
    silent = [
        str(p.relative_to(ROOT))
        for p in sources(*PACKAGES)
        if not p.stem.endswith("_pb2") and not p.read_text().lstrip("r").startswith('"""')
    ]
    assert silent == []


# Both mean the same to a reader.
SHARED_NAMES = {"UsageError", "_DecisionInvalid"}


def test_no_class_name_means_two_things_in_one_package() -> None:
    needs_tree()
    homes: dict[tuple[str, str], set[str]] = {}
    for package in PACKAGES:
        for path in sources(package):
            for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
                homes.setdefault((package, name), set()).add(str(path.relative_to(ROOT)))
    twice = {name: paths for (_, name), paths in homes.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in SHARED_NAMES} == {}


def test_no_other_distribution_owns_an_import_name() -> None:
    # An editable install lists no packages; a foreign owner would be listed all the same.
    owners = metadata.packages_distributions()
    assert {package: owners.get(package, ["kubenexus"]) for package in PACKAGES} == {
        package: ["kubenexus"] for package in PACKAGES
    }


def test_the_wheel_cannot_reach_an_index_by_accident() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "Private :: Do Not Upload" in project["classifiers"]


def known_keys() -> set[str]:
    names = {value for value in vars(vocabulary).values() if isinstance(value, str)}
    for value in vars(vocabulary).values():
        if isinstance(value, tuple):
            names |= {item.name for item in value if isinstance(item, vocabulary.Key)}
    return names


KEY = re.compile(r"(?<![\w./@-])[a-z0-9.-]*kubenexus\.io/[A-Za-z0-9<>_-]+")
# Groups of our own API and of development files are followed by a version, not by a key's name.
VERSIONED = re.compile(r"(policy|dev|scheduling)\.kubenexus\.io/v\d")
PER_DEVICE = re.compile(
    r"(numa\.kubenexus\.io/node-[\d<]|gpu\.kubenexus\.io/(gpu|numa-node-)[\d<])"
)


def written_keys(path: Path) -> set[str]:
    found = {match[0].rstrip("-_.") for match in KEY.finditer(path.read_text())}
    return {key for key in found if not VERSIONED.match(key) and not PER_DEVICE.match(key)}


@pytest.mark.parametrize("folder", ["docs", "examples", "charts", "deploy"])
def test_every_key_that_is_written_down_is_a_word_of_the_vocabulary(folder: str) -> None:
    known = known_keys()
    files = [p for p in (ROOT / folder).rglob("*") if p.suffix in (".md", ".yaml", ".tpl")]
    unknown = {str(p.relative_to(ROOT)): sorted(written_keys(p) - known) for p in files}
    assert {name: keys for name, keys in unknown.items() if keys} == {}


def test_every_yaml_file_loads() -> None:
    files = [
        p for folder in ("examples", "docs", "deploy") for p in (ROOT / folder).rglob("*.yaml")
    ]
    assert files
    for path in files:
        assert list(yaml.safe_load_all(path.read_text())), path
