from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.policy.policy_test import runner
from policies.documents.policy_test import PolicyTest
from policies.engine import policy_tests
from tests.builders import a_pod
from tests.policy_builders import (
    API_VERSION,
    a_compiler,
    a_rule,
    a_tenant_policy,
    loaded,
)

Json = dict[str, Any]

POLICY = a_tenant_policy(
    "t",
    tier="gold",
    defaults=[{"set": {"labels": {"x": "1"}, "tolerations": [{"key": "k"}]}}],
    validations=[
        a_rule("object.metadata.name != 'bad'", "name", message="bad name"),
        a_rule("object.metadata.name != 'odd'", "odd", message="odd name", action="Warn"),
    ],
    exceptions=[
        {"name": "e", "when": "'free' in object.metadata.labels", "reason": "r"},
    ],
    failurePolicy="Ignore",
)
PATCH = {"metadata.labels.x": "1", "spec.tolerations": [{"key": "k"}]}


def a_test(expect: Json, *, pod: Json | None = None, tenant: str = "a") -> Json:
    labels = {"tenant.kubenexus.io/name": tenant}
    case = {
        "name": "case",
        "object": a_pod() if pod is None else pod,
        "namespace": {"name": "team-a", "labels": labels},
        "expect": expect,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "PolicyTest",
        "metadata": {"name": "test"},
        "spec": {"cases": [case]},
    }


@pytest.mark.parametrize(
    ("expect", "name", "want"),
    [
        pytest.param({"verdict": "Allow", "patch": PATCH}, "p", [], id="all as expected"),
        pytest.param(
            {"verdict": "Deny"}, "p", ["verdict: expected Deny, found Allow"], id="let in wrongly"
        ),
        pytest.param(
            {"verdict": "Allow"},
            "bad",
            ["verdict: expected Allow, found Deny: t/name: bad name"],
            id="refused wrongly",
        ),
        pytest.param({"messages": ["bad name"]}, "bad", [], id="the message"),
        pytest.param(
            {"messages": ["good name"]},
            "bad",
            [
                "denial: expected 'good name', found t/name: bad name",
                "denial: not expected: t/name: bad name",
            ],
            id="another message",
        ),
        pytest.param(
            {"warnings": []}, "odd", ["warning: not expected: t/odd: odd name"], id="a warning"
        ),
        pytest.param(
            {"rules": {"t/name": "pass", "t/odd": "pass"}},
            "odd",
            ["rule t/odd: expected pass, found fail"],
            id="a rule that fails",
        ),
        pytest.param(
            {"rules": {"t/nmae": "pass", "u/x": "pass"}},
            "p",
            [
                "rule t/nmae: not evaluated: policy t has no such rule",
                "rule u/x: not evaluated: policy u did not match the request",
            ],
            id="rules that were never evaluated",
        ),
        pytest.param(
            {"patch": {"metadata.labels.x": "2", "spec.schedulerName": "s"}},
            "p",
            [
                "patch: metadata.labels.x: expected '2', found '1'",
                "patch: expected spec.schedulerName = 's', but it is not written",
                "patch: spec.tolerations = [{'key': 'k'}] is written, and not expected",
            ],
            id="another patch",
        ),
        pytest.param(
            {
                "classification": {
                    "tenant": "b",
                    "tier": "tin",
                    "workloadType": "batch",
                    "hardwareTier": "economy",
                    "tierSource": "me",
                }
            },
            "p",
            [
                "tenant: expected 'b', found 'a'",
                "tier: expected 'tin', found 'gold'",
                "tier source: expected 'me', found 'TenantPolicy t'",
                "workload type: expected 'batch', found 'service'",
                "hardware tier: expected 'economy', found ''",
            ],
            id="another classification",
        ),
        pytest.param(
            {"policies": [], "exceptions": ["t/e"]},
            "p",
            [
                "policies: expected none, found t",
                "exceptions: expected t/e, found none",
            ],
            id="other policies and exceptions",
        ),
    ],
)
def test_expectations_that_do_not_hold_are_reported(
    expect: Json, name: str, want: list[str]
) -> None:
    test = PolicyTest.model_validate(a_test(expect, pod=a_pod(name)))
    [result] = policy_tests.run(test, loaded(POLICY))
    assert list(result.problems) == want


def test_an_allow_without_a_matching_policy_fails() -> None:
    test = PolicyTest.model_validate(a_test({"verdict": "Allow"}, tenant="other"))
    [result] = policy_tests.run(test, loaded(POLICY))
    assert result.problems == (
        "verdict: not evaluated: no policy matched the request, so Allow says nothing",
    )


def test_an_allow_without_policies_passes_where_that_is_expected() -> None:
    expect = {"verdict": "Allow", "policies": []}
    test = PolicyTest.model_validate(a_test(expect, tenant="other"))
    [result] = policy_tests.run(test, loaded(POLICY))
    assert result.passed


def write(path: Path, *documents: Json) -> None:
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False))


def test_a_file_names_its_policies_from_its_own_folder_on(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    write(tmp_path / "policy.yaml", POLICY)
    test = a_test({"verdict": "Deny"}, pod=a_pod("bad"))
    test["spec"]["policies"] = ["../policy.yaml"]
    write(tmp_path / "tests" / "a.yaml", test)
    [result] = runner.run([tmp_path / "tests"], policies=[], compiler=a_compiler()).tests
    assert (result.passed, len(result.cases), result.faults) == (True, 1, ())


def test_policies_may_stand_in_the_same_file(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", POLICY, a_test({"verdict": "Deny"}, pod=a_pod("bad")))
    [result] = runner.run([tmp_path / "a.yaml"], policies=[], compiler=a_compiler()).tests
    assert result.passed


def test_faults_of_a_test_and_of_its_policies_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", a_test({}))
    missing = a_test({"verdict": "Allow"})
    missing["spec"]["policies"] = ["nowhere.yaml"]
    write(tmp_path / "b.yaml", missing)
    (tmp_path / "c.yaml").write_text("x: [")
    results = runner.run([tmp_path], policies=[], compiler=a_compiler()).tests
    faults = [str(fault).replace(f"{tmp_path}/", "") for row in results for fault in row.faults]
    assert [row.passed for row in results] == [False, False, False]
    assert faults[0].endswith("expect: nothing is expected; want at least a verdict")
    assert faults[1] == "nowhere.yaml: no such file; check the path"
    assert faults[2].startswith("c.yaml:2:1: not YAML")
