import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kubenexus.policy.errors import UsageError
from kubenexus.policy.policy_test import junit, runner
from policies.documents.faults import Fault
from policies.engine import loader
from policies.engine.policy_tests import CaseResult, TestResult
from tests.builders import a_container, a_pod
from tests.unit.kubenexus.policy.policy_files import COMPILER, a_policy, a_rule, a_test, written

Json = dict[str, Any]
NAMED = a_policy(
    validations=[
        a_rule("short-name", "size(object.metadata.name) < 5"),
        a_rule("has-image", "object.spec.containers.all(c, has(c.image))"),
    ],
    defaults=[{"when": "object.metadata.name == 'x'", "set": {"labels": {"a": "b"}}}],
    exceptions=[{"name": "old", "when": "object.metadata.name == 'old-one'", "reason": "known"}],
    matchConditions=[a_rule("has-image", "object.metadata.name != 'skipped'")],
)


def a_case(pod: Json, name: str = "case", **expect: Any) -> Json:
    return {"name": name, "object": pod, "expect": expect}


def run(folder: Path, *, policies: list[Path] | None = None) -> runner.PolicyTestReport:
    return runner.run([folder], policies=policies or [], compiler=COMPILER)


@pytest.mark.parametrize(
    ("case", "problems"),
    [
        pytest.param(a_case(a_pod("p"), verdict="Allow"), [], id="it holds"),
        pytest.param(
            a_case(a_pod("long-name"), verdict="Allow"),
            ["verdict: expected Allow, found Deny: rules/short-name: failed expression: size(object.metadata.name) < 5"],
            id="it does not",
        ),
        pytest.param(
            a_case(a_pod("skipped"), verdict="Allow"),
            ["verdict: not evaluated: no policy matched the request, so Allow says nothing"],
            id="it was not evaluated at all",
        ),
        pytest.param(
            a_case(a_pod("p"), rules={"rules/gone": "pass"}),
            ["rule rules/gone: not evaluated: policy rules has no such rule"],
            id="a rule that is not there",
        ),
    ],
)  # fmt: skip
def test_a_case(tmp_path: Path, case: Json, problems: list[str]) -> None:
    written(tmp_path, t=[NAMED, a_test(case)])
    (test,) = run(tmp_path).tests
    assert list(test.cases[0].problems) == problems


def test_rules_without_a_test_are_noted_and_do_not_fail(tmp_path: Path) -> None:
    written(tmp_path, t=[NAMED, a_test(a_case(a_pod("long-name"), verdict="Deny"))])
    report = run(tmp_path)
    assert report.passed
    assert report.coverage == runner.Coverage(
        rules=5, never_met=(), never_failed=("rules/has-image",)
    )
    written(tmp_path, t=[NAMED, a_test(a_case(a_pod("skipped"), policies=[]))])
    assert run(tmp_path).coverage.never_met == (
        "rules/defaults[0].when",
        "rules/short-name",
        "rules/has-image",
        "rules/exceptions.old",
    )


@pytest.mark.parametrize(
    ("files", "passes"),
    [
        pytest.param({"rules": NAMED, "t": a_test(a_case(a_pod("p"), verdict="Allow"))}, True, id="beside it"),
        pytest.param(
            {"rules": NAMED, "tests__t": a_test(a_case(a_pod("p"), verdict="Allow"), policies=["../rules.yaml"])},
            True,
            id="named, from its own folder on",
        ),
        pytest.param({"tests__t": a_test(a_case(a_pod("p"), verdict="Allow"))}, False, id="nowhere"),
        pytest.param({"t": [a_policy(validations=[a_rule("x", "nope")]), a_test(a_case(a_pod("p"), verdict="Allow"))]}, False, id="in a policy with a fault"),
    ],
)  # fmt: skip
def test_where_policies_are_searched(tmp_path: Path, files: dict[str, Any], passes: bool) -> None:
    written(tmp_path, **files)
    report = run(tmp_path)
    assert (report.passed, len(report.tests)) == (passes, 1)
    assert bool(report.tests[0].faults) != passes


def test_other_policies_can_be_put_under_the_same_tests(tmp_path: Path) -> None:
    strict = a_policy(validations=[a_rule("never", "false")])
    written(tmp_path, a__t=[NAMED, a_test(a_case(a_pod("p"), verdict="Allow"))], b__strict=strict)
    assert run(tmp_path / "a").passed
    assert not run(tmp_path / "a", policies=[tmp_path / "b"]).passed


def test_a_folder_without_tests_is_a_bad_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no PolicyTest found"):
        run(written(tmp_path, rules=NAMED))


def test_text_names_the_failures_and_json_agrees(tmp_path: Path) -> None:
    bad = a_case(a_pod("long-name", containers=[a_container()]), "too long", verdict="Allow")
    written(tmp_path, t=[NAMED, a_test(bad, a_case(a_pod("p"), "short", verdict="Allow"))])
    report = run(tmp_path)
    lines = runner.as_text(report).split("\n")
    said = json.loads(runner.as_json(report))
    assert lines[0] == f"FAIL cases ({tmp_path}/t.yaml)"
    assert lines[1] == "       too long"
    assert lines[-1] == "2 cases: 1 passed, 1 failed."
    assert [case["passed"] for case in said["tests"][0]["cases"]] == [False, True]


def test_the_library_passes_and_every_rule_is_met() -> None:
    report = run(loader.LIBRARY)
    assert (report.passed, report.coverage.never_met) == (True, ())


def test_junit_counts_failures_and_errors_and_stays_xml() -> None:
    tests = [
        TestResult(
            "one", "a.yaml", (CaseResult("good", ()), CaseResult("b\x00d", ("<x> & y", "z")))
        ),
        TestResult("two", "b.yaml", faults=(Fault("b.yaml", 1, 2, "spec", "broken"),)),
    ]
    root = ElementTree.fromstring(junit.as_xml(tests))
    assert {key: root.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    failure, error = root.find(".//failure"), root.find(".//error")
    assert failure is not None
    assert error is not None
    assert (failure.get("message"), failure.text) == ("<x> & y", "<x> & y\nz")
    assert error.text == "b.yaml:1:2: spec: broken"
    assert [row.get("name") for row in root.iter("testcase")] == ["good", "b\ufffdd", "two"]
