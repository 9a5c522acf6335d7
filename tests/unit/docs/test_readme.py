"""What the README shows is true: its policies load, its manifests are admitted, its commands exist."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kubenexus import cli
from policies import vocabulary
from policies.cel import engines
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from tests.builders import a_namespace
from tests.pages import ROOT
from webhook.admission import decide
from webhook.admission.decide import Facts
from webhook.review.codec import Review

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", README, re.S)
COMMANDS = re.findall(r"^(?:\.venv/bin/)?(make|kubenexus) ([a-z-]+)(?: ([a-z]+))?", README, re.M)


def test_the_readme_has_something_to_check() -> None:
    assert (len(BLOCKS), len(COMMANDS)) >= (2, 5)


@pytest.mark.parametrize("block", [b for b in BLOCKS if vocabulary.POLICY_API_VERSION in b])
def test_its_policies_load(block: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(block)
    assert loader.load_files(tmp_path, compiler=Compiler(engines.engine())).problems == ()


@pytest.mark.parametrize("block", [b for b in BLOCKS if vocabulary.POLICY_API_VERSION not in b])
def test_its_manifests_are_admitted(block: str) -> None:
    obj: dict[str, Any] = yaml.safe_load(block)
    group, _, version = obj["apiVersion"].rpartition("/")
    review = Review(
        uid="u",
        operation="CREATE",
        kind=obj["kind"],
        resource=f"{obj['kind'].lower()}s",
        group=group,
        version=version,
        namespace=obj["metadata"]["namespace"],
        object=obj,
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    got = decide.validate(review, Facts(a_namespace()), PolicySet(), now=now)
    assert (got.allowed, got.message) == (True, "")


@pytest.mark.parametrize(("program", "word", "more"), COMMANDS)
def test_its_commands_exist(program: str, word: str, more: str) -> None:
    if program == "make":
        assert re.search(rf"^{word}:", (ROOT / "Makefile").read_text(), re.M)
        return
    args = [word, more, "--help"] if word in ("dev", "policy") and more else [word, "--help"]
    if more == "kubectl":  # takes every option itself
        args = [word, "--help"]
    result = CliRunner().invoke(cli.app, args)
    assert (result.exit_code, word) == (0, word), result.output
