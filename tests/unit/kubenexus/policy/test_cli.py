import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kubenexus import cli as root
from kubenexus.policy.cli import app
from policies.cel import engines
from tests.builders import a_pod
from tests.unit.kubenexus.policy.policy_files import a_policy, a_rule, a_test, written

Json = dict[str, Any]
NEVER = a_policy(validations=[a_rule("never", "false")])
CASE = {"name": "c", "object": a_pod(), "expect": {"verdict": "Deny"}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written(
        tmp_path,
        good__rules=NEVER,
        good__t=a_test(CASE),
        bad__rules=a_policy(validations=[a_rule("x", "object.spec.nope")]),
        wrong__t=[NEVER, a_test(CASE | {"expect": {"verdict": "Allow"}})],
        pod=a_pod("p", namespace="team"),
        namespace={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        other={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
        text="just a text",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        pytest.param("lint good", 0, "no problems", id="nothing is wrong"),
        pytest.param("lint good bad", 1, "undefined field 'nope'", id="something is wrong"),
        pytest.param("lint gone", 2, "gone: no such file or folder", id="a path that is not there"),
        pytest.param("lint", 2, "Missing argument", id="no path at all"),
        pytest.param("lint good --engine v8", 2, "found the CEL engine 'v8'", id="an unknown engine"),
        pytest.param("test good", 0, "1 cases: 1 passed", id="a test passes"),
        pytest.param("test wrong", 1, "expected Allow, found Deny", id="a test fails"),
        pytest.param("test pod.yaml", 2, "no PolicyTest found", id="no tests"),
        pytest.param("test good --junit gone/x.xml", 2, "cannot be written", id="results have no place"),
        pytest.param("explain -f pod.yaml --policies good", 0, "denied by 1 rule", id="a denial is a result"),
        pytest.param("explain -f pod.yaml --policies bad", 2, "undefined field 'nope'", id="faulty policies"),
        pytest.param("explain -f pod.yaml --policies pod.yaml", 2, "found kind 'Pod'", id="policies that are none"),
        pytest.param("explain -f gone.yaml", 2, "gone.yaml: no such file", id="no object"),
        pytest.param("explain -f text.yaml", 2, "this is no Kubernetes object", id="no object but a text"),
        pytest.param("explain -f pod.yaml --namespace-labels x", 2, "want key=value", id="bad labels"),
        pytest.param("explain -f pod.yaml --namespace-file namespace.yaml", 0, "allowed", id="a namespace"),
        pytest.param("explain -f pod.yaml --namespace-file other.yaml", 2, "give its own", id="another's namespace"),
        pytest.param("explain -f pod.yaml --namespace-file pod.yaml", 2, "holds no Namespace", id="no namespace"),
        pytest.param("explain -f pod.yaml --namespace-file namespace.yaml --namespace-labels a=b", 2, "not both", id="a namespace given twice"),
        pytest.param("explain -f pod.yaml --queue-tier silver", 0, "tier silver (queue)", id="a queue"),
        pytest.param("explain -f pod.yaml --queue-tier tin", 2, "found 'tin', want one of gold, silver, bronze", id="a queue of no tier"),
        pytest.param("bench --rounds 1 --policies good -f pod.yaml", 0, "all policies", id="costs"),
        pytest.param("bench --compare gone.json", 2, "gone.json: cannot be read", id="no baseline"),
        pytest.param("export --policies good", 2, "pass --vap", id="no format"),
        pytest.param("export --vap --policies good", 0, "kind: ValidatingAdmissionPolicy", id="an export"),
        pytest.param("schema PolicyTest", 0, '"PolicyTest"', id="a schema"),
        pytest.param("schema Pod", 2, "'Pod' is not one of", id="a schema of something else"),
        pytest.param("version", 0, "cel-python", id="engines"),
    ],
)  # fmt: skip
def test_exit_codes_and_messages(line: str, code: int, message: str) -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, line.split())
    assert (result.exit_code, message in result.output, "Traceback" in result.output) == (
        code,
        True,
        False,
    ), result.output


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "line",
    [
        "lint bad -o json",
        "test good -o json",
        "explain -f pod.yaml -o json",
        "bench --rounds 1 -o json",
        "schema",
        "version -o json",
    ],
)
def test_json_is_json(line: str) -> None:
    assert isinstance(json.loads(CliRunner().invoke(app, line.split()).stdout), dict)


@pytest.mark.parametrize("name", engines.ENGINES)
def test_the_engine_is_chosen_and_shown(name: str) -> None:
    result = CliRunner().invoke(app, ["version", "--engine", name, "-o", "json"])
    report = json.loads(result.stdout)
    assert (report["used"], [row["name"] for row in report["engines"]]) == (
        name,
        list(engines.ENGINES),
    )


@pytest.mark.parametrize("name", engines.ENGINES)
@pytest.mark.usefixtures("folder")
def test_both_engines_explain_alike(name: str) -> None:
    line = ["explain", "-f", "pod.yaml", "--policies", "good", "--engine", name]
    result = CliRunner().invoke(app, line)
    assert "DENY   rules/never: failed expression: false" in result.stdout


def test_a_saved_baseline_is_compared_with(folder: Path) -> None:
    runner = CliRunner()
    saved = runner.invoke(app, ["bench", "--rounds", "1", "--save", "b.json"])
    compared = runner.invoke(app, ["bench", "--rounds", "1", "--compare", "b.json", "-o", "json"])
    assert (saved.exit_code, (folder / "b.json").is_file()) == (0, True)
    assert set(json.loads(compared.stdout)["ratios"]) >= {"all policies"}


def test_junit_is_written(folder: Path) -> None:
    result = CliRunner().invoke(app, ["test", "wrong", "--junit", "r.xml"])
    assert (result.exit_code, 'failures="1"' in (folder / "r.xml").read_text()) == (1, True)


def test_it_is_mounted_with_its_exit_codes() -> None:
    result = CliRunner().invoke(root.app, ["policy", "lint", "gone"])
    assert (result.exit_code, "no such file or folder" in result.output) == (2, True)
