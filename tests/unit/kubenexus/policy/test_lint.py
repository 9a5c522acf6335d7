import json
from pathlib import Path

import pytest

from kubenexus.policy import lint
from kubenexus.policy.errors import UsageError
from policies.engine import loader
from tests.builders import a_pod
from tests.unit.kubenexus.policy.policy_files import COMPILER, a_policy, a_rule, a_test, written

BROKEN = """\
    apiVersion: policy.kubenexus.io/v1alpha1
    kind: PlatformPolicy
    metadata: {name: rules}
    spec:
      validations:
      - name: one
        expression: object.spec.nodeName == 1
      - name: two
        expression: object.metadata.name.startsWith('a') &&
        action: Block
"""


def problems(folder: Path, *paths: str) -> list[str]:
    report = lint.lint([folder / path for path in paths] or [folder], compiler=COMPILER)
    return [str(fault).replace(f"{folder}/", "") for fault in report.faults]


def test_all_problems_are_reported_at_once_with_place_and_source(tmp_path: Path) -> None:
    case = {"name": "c", "object": a_pod(), "expect": {}}
    broken_test = a_test(case, policies=["gone.yaml"])
    written(tmp_path, bad=BROKEN, tests__t=broken_test, tests__u=a_test(policies=["gone.yaml"]))
    found = problems(tmp_path)
    assert [row.partition(": ")[0] for row in found[:3]] == [
        "bad.yaml:7:38",
        "bad.yaml:9:56",
        "bad.yaml:10:13",
    ]
    assert [row.partition(":")[0] for row in found[3:]] == ["tests/t.yaml", "tests/u.yaml"]
    assert found[2] == (
        "bad.yaml:10:13: spec.validations[1].action: found 'Block', want one of Deny, Warn, Audit"
    )
    assert "nothing is expected" in found[3]


def test_an_expression_is_shown_with_a_mark(tmp_path: Path) -> None:
    text = BROKEN.replace("        action: Block\n", "")
    first, second = problems(written(tmp_path, bad=text))
    place, line, mark = first.split("\n")
    assert place.startswith("bad.yaml:7:38: spec.validations[0].expression: ")
    assert (line, mark) == ("    object.spec.nodeName == 1", "                         ^")
    assert second.startswith("bad.yaml:9:")


@pytest.mark.parametrize(
    ("files", "paths", "want"),
    [
        pytest.param({"a": a_policy("one"), "b": a_policy("one")}, (), 1, id="two of one name in a folder"),
        pytest.param({"x__a": a_policy("one"), "y__a": a_policy("one")}, (), 0, id="of one name in two folders"),
        pytest.param({"a": a_policy("one"), "b": a_policy("one")}, ("a.yaml", "b.yaml"), 1, id="two files named"),
        pytest.param({"a": a_pod()}, (), 1, id="a pod is no policy"),
        pytest.param({"a": "a: [1"}, (), 1, id="no YAML"),
        pytest.param({"a": a_test({"name": "c", "object": a_pod(), "expect": {"verdict": "Allow"}}, policies=["b.yaml"])}, (), 1, id="a test of a policy that is not there"),
        pytest.param({".hidden__a": a_pod(), "a": a_policy()}, (), 0, id="hidden folders are passed over"),
    ],
)  # fmt: skip
def test_a_folder_is_a_set(
    tmp_path: Path, files: dict[str, object], paths: tuple[str, ...], want: int
) -> None:
    written(tmp_path, **files)  # type: ignore[arg-type]  # a table of unlike files
    assert len(problems(tmp_path, *paths)) == want


def test_the_library_is_clean_and_counted() -> None:
    report = lint.lint([loader.LIBRARY], compiler=COMPILER)
    assert (report.clean, report.policies) == (True, 4)
    assert lint.as_text(report).endswith("no problems.")


def test_json_has_the_content_of_the_text(tmp_path: Path) -> None:
    written(tmp_path, a=a_policy(validations=[a_rule("x", "object.spec.nope == 1")]))
    report = lint.lint([tmp_path], compiler=COMPILER)
    said = json.loads(lint.as_json(report))
    assert (said["clean"], said["files"], said["policies"]) == (False, 1, 1)
    assert [row["path"] for row in said["problems"]] == ["spec.validations[0].expression"]
    assert lint.as_text(report).endswith("1 file, 1 policy, 0 tests: 1 problem.")


def test_nothing_to_inspect_is_a_bad_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no YAML file"):
        lint.lint([tmp_path], compiler=COMPILER)
    with pytest.raises(UsageError, match="no such file or folder"):
        lint.lint([tmp_path / "gone"], compiler=COMPILER)
