"""What the documentation shows is true: links lead somewhere, commands exist, manifests are admitted."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cluster import leader_election
from kubenexus import cli
from kubenexus.policy import cli as policy_cli
from kubenexus.reference import events as happenings
from kubenexus.reference import keys as words
from policies import vocabulary
from policies.cel import engines
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from scheduler import options
from scheduler.model import unit
from scheduler.queueing import entry
from scheduler.report import conditions, events
from tests import pages
from tests.builders import a_namespace
from tests.pages import Block
from webhook.admission import audit, decide, guards
from webhook.admission.decide import Facts
from webhook.policy_source import status_writer
from webhook.registration import configurations
from webhook.review.codec import Review

Json = dict[str, Any]

INFOS = {"", "yaml", "sh", "console", "text"}
POLICIES = ("PlatformPolicy", "TenantPolicy")
TEXTS = {str(path.relative_to(pages.ROOT)): path.read_text() for path in pages.pages()}
YAML = pages.blocks("yaml")
LINK = re.compile(r"\[[^]\n]+\]\(([^)\s]+)\)")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def named(block: Block) -> str:
    return block.id


def without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


# --- pages and links ---


@pytest.mark.parametrize("block", pages.blocks(), ids=named)
def test_every_block_names_its_language(block: Block) -> None:
    assert block.info in INFOS


def slug(heading: str) -> str:
    """As Markdown's table of contents makes it."""
    plain = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"[\s-]+", "-", plain)


def anchors(text: str) -> set[str]:
    return {slug(head) for head in re.findall(r"^#+ (.*)$", without_code(text), re.M)}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    if not (pages.ROOT / "LICENSE").exists():
        pytest.skip("the tree is not whole here")
    home = (pages.ROOT / name).parent
    lost = []
    for link in LINK.findall(without_code(TEXTS[name])):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (home / path).resolve() if path else pages.ROOT / name
        is_page = target.suffix == ".md" and target.exists()
        if not target.exists() or (
            anchor and is_page and anchor not in anchors(target.read_text())
        ):
            lost.append(link)
    assert lost == []


def nav(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for value in (
        entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
    ):
        yield from nav(value)


def test_every_page_is_in_the_navigation_once() -> None:
    config = pages.ROOT / "mkdocs.yml"
    if not config.exists():
        pytest.skip("the tree is not whole here")
    listed = sorted(nav(yaml.safe_load(config.read_text())["nav"]))
    assert listed == sorted(str(path.relative_to(pages.DOCS)) for path in pages.DOCS.rglob("*.md"))


# --- YAML ---


@pytest.mark.parametrize("block", YAML, ids=named)
def test_every_yaml_block_is_made_of_objects(block: Block) -> None:
    found = block.documents()
    assert found
    assert [item for item in found if not {"apiVersion", "kind"} <= item.keys()] == []


@pytest.fixture(scope="module")
def library() -> PolicySet:
    found = loader.load_files(loader.LIBRARY, compiler=Compiler(engines.engine()))
    assert not found.problems
    return found.policies


def shown(*kinds: str) -> list[Any]:
    return [
        pytest.param(block, item, id=f"{block.id} {item['kind']}")
        for block in YAML
        for item in block.documents()
        if item["kind"] in kinds
    ]


@pytest.mark.parametrize(("block", "policy"), shown(*POLICIES))
def test_a_policy_loads_beside_those_that_ship(block: Block, policy: Json, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    paths = [*sorted(loader.LIBRARY.glob("*.yaml")), file]
    assert loader.load_files(paths, compiler=Compiler(engines.engine())).problems == ()


RECIPES = [block for block in YAML if block.page == "docs/recipes.md"]


@pytest.mark.parametrize("block", RECIPES, ids=named)
def test_a_recipe_keeps_its_own_tests(block: Block, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(block.text)
    got = CliRunner().invoke(policy_cli.app, ["test", str(tmp_path / "recipe.yaml")])
    # Every rule is met and made to fail: a note would follow the sums.
    sums = [line for line in got.stdout.splitlines() if line][1:]
    assert (got.exit_code, sums) == (0, ["2 cases: 2 passed, 0 failed."])


def workloads() -> list[Any]:
    kinds = {item["kind"] for block in YAML for item in block.documents()}
    return shown(*(kinds - {*POLICIES, *pages.NOT_STORED}))


@pytest.mark.parametrize(("block", "obj"), workloads())
def test_a_manifest_is_admitted_and_its_warnings_are_on_the_page(
    block: Block, obj: Json, library: PolicySet
) -> None:
    group, _, version = obj["apiVersion"].rpartition("/")
    namespace = obj["metadata"].get("namespace", "")
    review = Review(
        uid="u",
        operation="CREATE",
        kind=obj["kind"],
        resource=f"{obj['kind'].lower()}s",
        group=group,
        version=version,
        namespace=namespace,
        object=obj,
    )
    home = a_namespace(namespace, tenant="research", tier="gold") if namespace else None
    facts = Facts(home, trust=guards.TrustedUsers(manages_tenants=True))  # as an administrator
    got = decide.validate(review, facts, library, now=NOW)
    undocumented = [line for line in got.warnings if f"Warning: {line}\n" not in TEXTS[block.page]]
    assert (got.message, undocumented) == ("", [])


# --- commands ---


def commands() -> list[Any]:
    found = []
    for block in pages.blocks("sh", "console"):
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            if block.info == "console" and not line.startswith("$ "):
                continue  # what the command answers
            words_ = shlex.split(line.removeprefix("$ "), comments=True)
            program = words_[0].removeprefix(".venv/bin/") if words_ else ""
            if program in ("kubenexus", "make"):
                found.append(pytest.param(program, words_[1:], id=f"{block.id} {line[:60]}"))
    return found


def options_of(words_: list[str]) -> tuple[str, str]:
    """The command's heading and its section of the reference."""
    sections = re.split(r"^## ", TEXTS["docs/reference/cli.md"], flags=re.M)[1:]
    known = {section.partition("\n")[0]: section for section in sections}
    for count in (2, 1):
        name = " ".join(("kubenexus", *words_[:count]))
        if name in known:
            return name, known[name]
    raise AssertionError(f"no command {words_}")


@pytest.mark.parametrize(("program", "arguments"), commands())
def test_a_command_and_its_options_exist(program: str, arguments: list[str]) -> None:
    if program == "make":
        makefile = (pages.ROOT / "Makefile").read_text()
        assert re.search(rf"^{arguments[0]}:", makefile, re.M)
        return
    name, section = options_of(arguments)
    own = [] if name.endswith("kubectl") else arguments
    given = [word.partition("=")[0] for word in own if word.startswith("-")]
    accepted = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", section))
    assert [option for option in given if option not in accepted] == []


def test_the_demo_prints_what_the_readme_shows() -> None:
    [block] = [b for b in pages.blocks("") if b.page == "README.md" and "admitted" in b.text]
    got = CliRunner().invoke(cli.app, ["simulate", str(pages.ROOT / "examples" / "quickstart")])
    said = got.stdout.replace(f"{pages.ROOT}/", "")
    # Paths are shown as they were given, and long lines are wrapped.
    flat = " ".join(said.split())
    lines = [" ".join(line.split()) for line in block.text.splitlines() if line.strip()]
    assert (got.exit_code, [line for line in lines if line not in flat]) == (0, [])


# --- what the reference must hold ---


def test_every_key_of_the_vocabulary_is_in_the_reference() -> None:
    page = TEXTS["docs/reference/keys.md"]
    names = {
        value
        for name, value in vars(vocabulary).items()
        if name.endswith(("_LABEL", "_ANNOTATION", "_GATE", "_FIELD")) and isinstance(value, str)
    }
    families = {key.name for _, keys in words.FAMILIES for key in keys}
    assert len(names) > 40
    assert sorted(name for name in names | families if f"`{name}`" not in page) == []


def test_every_reason_is_in_the_reference() -> None:
    said = {
        value
        for module in (events, conditions, audit)
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    }
    rows = (*happenings.ADMISSION, *happenings.SCHEDULING, *happenings.CONDITIONS)
    listed = {row[0] for row in rows}
    assert said | {status_writer.REFUSED} <= listed


def test_every_metric_that_a_page_names_exists() -> None:
    known = set(re.findall(r"`(kubenexus_\w+)`", TEXTS["docs/reference/metrics.md"]))
    assert len(known) > 20
    named_ = {
        (page, name)
        for page, text in TEXTS.items()
        for name in re.findall(r"\bkubenexus_(?:webhook|scheduler|gang)_\w+", text)
    }
    assert sorted(one for one in named_ if one[1] not in known) == []


# --- numbers ---


def test_numbers_of_the_guides_are_those_of_the_code() -> None:
    waits = unit.default_timeout(0), unit.default_timeout(1) - unit.default_timeout(0)
    wanted = {
        "docs/troubleshooting.md": [
            f"{waits[0]:.0f} seconds plus {waits[1] * 1000:.0f} milliseconds per member"
        ],
        "docs/concepts.md": ["longer than a minute", "at most five minutes"],
        "docs/operations.md": [
            f"{leader_election.LEASE_SECONDS:.0f} seconds after its last renewal",
            f"times out after {configurations.TIMEOUT_SECONDS} s",
        ],
        "docs/migration/scheduler-plugins.md": [
            f"{entry.INITIAL_BACKOFF:.0f} to {entry.MAX_BACKOFF:.0f} seconds"
        ],
    }
    lacking = [
        (page, text)
        for page, texts in wanted.items()
        for text in texts
        if text not in " ".join(TEXTS[page].split())
    ]
    assert lacking == []
    assert (options.STARVING_AFTER, options.HOLD_SECONDS) == (60, 300)
