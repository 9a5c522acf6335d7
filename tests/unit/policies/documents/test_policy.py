import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from policies.documents.json_schemas import documents
from policies.engine import loader
from tests.pages import ROOT
from tests.policy_builders import a_compiler

HEAD = """\
apiVersion: policy.kubenexus.io/v1alpha1
kind: TenantPolicy
metadata: {name: team-a}
spec:
  tenant: {name: a}
"""
SCHEMAS = ROOT / "docs" / "schemas"


def document_faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    result = loader.load_files(file, compiler=a_compiler())
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in result.problems]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "  validations:\n  - {name: x, expression: 'true', action: Block}\n",
            [
                "a.yaml:7:43: spec.validations[0].action: found 'Block', want one of Deny, Warn, Audit"
            ],
            id="a word that is none of the accepted ones",
        ),
        pytest.param(
            "  validations:\n  - {name: x, expression: 'true', action: [Deny, Warn]}\n",
            [
                "a.yaml:7:5: spec.validations[0]: Deny and Warn exclude each other: a refusal says"
                " everything already"
            ],
            id="Deny and Warn together",
        ),
        pytest.param(
            "  validation: []\n",
            ["a.yaml:6:15: spec.validation: unknown field; the nearest known one is 'validations'"],
            id="a field with a typo",
        ),
        pytest.param(
            "  validations:\n  - {name: x}\n",
            ["a.yaml:7:5: spec.validations[0].expression: this field is required; add it"],
            id="a field left out",
        ),
        pytest.param(
            "  defaults:\n  - set: {labels: {a: 5}}\n",
            ["a.yaml:7:23: spec.defaults[0].set.labels.a: found 5, want text; put it in quotes"],
            id="a number where text belongs",
        ),
        pytest.param(
            "  defaults:\n  - set: {labels: {a: {expresion: x}}}\n",
            [
                "a.yaml:7:23: spec.defaults[0].set.labels.a.expression: this field is required;"
                " add it",
                "a.yaml:7:35: spec.defaults[0].set.labels.a.expresion: unknown field; the nearest"
                " known one is 'expression'",
            ],
            id="a computed value with a typo",
        ),
        pytest.param(
            "  defaults:\n  - set: {resources: {requests: {cpu: 5z}}}\n",
            [
                "a.yaml:7:39: spec.defaults[0].set.resources.requests.cpu: found '5z', want a"
                " quantity such as 500m, 2, 1.5Gi or 80G"
            ],
            id="a quantity that is none",
        ),
        pytest.param(
            "  gang: {minSize: 5, maxSize: 2, timeout: soon}\n",
            [
                "a.yaml:6:43: spec.gang.timeout: found 'soon', want a duration such as 30s, 10m or"
                " 1h30m"
            ],
            id="a duration that is none",
        ),
        pytest.param(
            f"  gang: {{timeout: '{'1' * 60_000}'}}\n",
            [
                f"a.yaml:6:19: spec.gang.timeout: found '{'1' * 40}'... of 60000 characters, want at"
                " most 32 characters"
            ],
            id="a duration that is too long to be read",
        ),
        pytest.param(
            "  gang: {timeout: 99999999999h, maxSize: 100001}\n",
            [
                "a.yaml:6:19: spec.gang.timeout: found '99999999999h', want at most 87600h",
                "a.yaml:6:42: spec.gang.maxSize: found 100001: input should be less than or equal to"
                " 100000",
            ],
            id="a duration and a size above their bounds",
        ),
        pytest.param(
            f"  quota: {{max: {{cpu: '{'1' * 65}'}}}}\n",
            [
                f"a.yaml:6:22: spec.quota.max.cpu: found '{'1' * 40}'... of 65 characters, want at"
                " most 64 characters"
            ],
            id="a quantity that is too long to be read",
        ),
        pytest.param(
            "  exceptions:\n"
            "  - {name: e, when: 'true', until: '9999-12-31T23:59:59-01:00', reason: x}\n",
            [
                "a.yaml:7:36: spec.exceptions[0].until: found a time outside the years 1 to 9999 in"
                " UTC"
            ],
            id="an end beyond the calendar",
        ),
        pytest.param(
            "  gang: {minSize: 5, maxSize: 2}\n",
            ["a.yaml:6:9: spec.gang: minSize 5 is above maxSize 2"],
            id="a smallest size above the largest",
        ),
        pytest.param(
            "  numa: {allowed: [none], default: isolated}\n",
            ["a.yaml:6:9: spec.numa: default 'isolated' is not among allowed"],
            id="a default that is not allowed",
        ),
        pytest.param(
            "  quota: {guaranteed: {cpu: 10}, max: {cpu: 9500m}}\n",
            ["a.yaml:6:10: spec.quota: guaranteed cpu 10 is above max 9500m"],
            id="a guarantee above the maximum",
        ),
        pytest.param(
            "  exceptions:\n  - {name: e, when: 'true', until: 2027-01-31, reason: x}\n",
            [
                "a.yaml:7:36: spec.exceptions[0].until: found '2027-01-31', want a time with a zone"
                " such as 2027-01-31T00:00:00Z"
            ],
            id="an end without a time zone",
        ),
        pytest.param(
            "  namespaceSelector: {}\n",
            [
                "a.yaml:5:3: spec: namespaceSelector is empty and would claim every namespace; name"
                " labels, or leave it out to select tenant.kubenexus.io/name=a"
            ],
            id="a selector that would claim every namespace",
        ),
        pytest.param(
            "  namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}\n",
            [
                "a.yaml:6:42: spec.namespaceSelector.matchExpressions[0]: operator Exists takes no"
                " values"
            ],
            id="a selector term with values it cannot use",
        ),
        pytest.param(
            "  failurePolicy: Maybe\n  matchConstraints: {kinds: [pod], operations: [create]}\n",
            [
                "a.yaml:6:18: spec.failurePolicy: found 'Maybe', want one of Fail, Ignore",
                "a.yaml:7:30: spec.matchConstraints.kinds[0]: found 'pod', want a text that matches"
                r" ^(\*|([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*)$",
                "a.yaml:7:49: spec.matchConstraints.operations[0]: found 'create', want one of"
                " CREATE, UPDATE, DELETE, CONNECT",
            ],
            id="several faults at once, in the order of the file",
        ),
    ],
)
def test_what_is_wrong_with_a_document_is_reported_with_its_place(
    tmp_path: Path, text: str, want: list[str]
) -> None:
    assert document_faults(tmp_path, HEAD + text) == want


def test_bounds_of_a_platform_policy(tmp_path: Path) -> None:
    text = HEAD.replace("TenantPolicy", "PlatformPolicy").replace("  tenant: {name: a}\n", "")
    tables = "  hardware: [{models: [X], tier: premium, vram: 9E}]\n  gang: {maxSize: 100001}\n"
    assert document_faults(tmp_path, text + tables) == [
        "a.yaml:5:14: spec.hardware[0]: vram: found '9E', want at most 2^53 bytes or devices, or"
        " 2^53 thousandths of a CPU",
        "a.yaml:6:19: spec.gang.maxSize: found 100001: input should be less than or equal to 100000",
    ]


def test_published_schemas_are_in_step_with_the_models() -> None:
    published = {file.stem: json.loads(file.read_text()) for file in SCHEMAS.glob("*.json")}
    assert published == documents()


def _undescribed(part: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, field in part.get("properties", {}).items():
        # What a field says in the words of its type is said once, by the type.
        if "description" not in field and "$ref" not in field:
            yield f"{path}.{name}"


def test_every_field_is_described() -> None:
    missing = [
        field
        for kind, schema in documents().items()
        for name, part in {kind: schema, **schema["$defs"]}.items()
        for field in _undescribed(part, name)
    ]
    assert missing == []
