from pathlib import Path

import pytest

from policies.cel.protocol import CompileError, Engine, Environment, Program, ResultType
from policies.engine import loader
from policies.engine.compiler import Compiler
from tests.policy_builders import a_compiler, a_rule, a_tenant_policy

HEAD = """\
apiVersion: policy.kubenexus.io/v1alpha1
kind: TenantPolicy
metadata: {name: team-a}
spec:
  tenant: {name: a}
"""


def compile_faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "a.yaml"
    file.write_text(HEAD + text)
    result = loader.load_files(file, compiler=a_compiler())
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in result.problems]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "  validations:\n  - name: x\n    expression: |\n"
            "      object.spec.containers.all(c,\n        c.imagee == 'x')\n",
            [
                "a.yaml:10:10: spec.validations[0].expression: undefined field 'imagee' not found"
                " in struct",
                "      c.imagee == 'x')\n       ^",
            ],
            id="a field that Pods do not have, in a block",
        ),
        pytest.param(
            "  validations:\n  - {name: x, expression: \"object.metadata.name == 'a' &&\n"
            '      missing"}\n',
            ["a.yaml:8:7: spec.validations[0].expression: undeclared reference to 'missing'"],
            id="an undeclared name, in folded quotes",
        ),
        pytest.param(
            "  validations:\n  - {name: x, expression: object.metadata.name}\n",
            ["a.yaml:7:27: spec.validations[0].expression: the expression gives string; a bool is"],
            id="a rule that is no truth",
        ),
        pytest.param(
            "  variables:\n  - {name: a, expression: variables.b}\n"
            "  - {name: b, expression: '1'}\n",
            [
                "a.yaml:7:27: spec.variables[0].expression: variables.b is defined further down;"
                " move it above"
            ],
            id="a variable that stands further down",
        ),
        pytest.param(
            "  variables:\n  - {name: a, expression: 1 + variables.a}\n",
            [
                "a.yaml:7:31: spec.variables[0].expression: variables.a refers to itself; variables"
                " may read only those above"
            ],
            id="a variable that reads itself",
        ),
        pytest.param(
            "  variables:\n  - {name: a, expression: '1'}\n  - {name: a, expression: '2'}\n",
            ["a.yaml:8:12: spec.variables[1].name: 'a' is the name of an earlier one"],
            id="two variables of one name",
        ),
        pytest.param(
            "  exceptions:\n  - {name: e, when: 'true', reason: r, validations: [nothing]}\n",
            [
                "a.yaml:7:54: spec.exceptions[0].validations[0]: found 'nothing', but this policy"
                " has no validation of that name; it has gang-max-size, gang-min-size, numa-allowed"
            ],
            id="an exception from a rule that does not exist",
        ),
        pytest.param(
            "  defaults:\n  - when: 1 == 1\n    set: {labels: {a: {expression: '5'}}}\n",
            ["a.yaml:8:37: spec.defaults[0].set.labels.a.expression: the expression gives int"],
            id="a label that is computed as a number",
        ),
        pytest.param(
            "  classify: {workloadType: [{when: '1', value: batch}]}\n"
            "  matchConditions: [{name: m, expression: '2'}]\n",
            [
                "a.yaml:6:37: spec.classify.workloadType[0].when: the expression gives int",
                "a.yaml:7:44: spec.matchConditions[0].expression: the expression gives int",
            ],
            id="all expressions at once",
        ),
    ],
)
def test_a_fault_in_an_expression_has_its_own_place(
    tmp_path: Path, text: str, want: list[str]
) -> None:
    found = compile_faults(tmp_path, text)
    starts = [part for part in want if part.startswith("a.yaml")]
    assert len(found) == len(starts)
    assert [part for part in want if part not in "\n".join(found)] == []


class Counting:
    """An engine that counts what it compiles."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.name, self.version = engine, engine.name, engine.version
        self.compiled: list[str] = []

    def compile(
        self, source: str, env: Environment, *, result_type: ResultType = "bool"
    ) -> Program:
        self.compiled.append(source)
        return self._engine.compile(source, env, result_type=result_type)

    def check(self, source: str, env: Environment) -> str:
        return self._engine.check(source, env)


def test_the_same_expression_is_compiled_once_for_all_tenants() -> None:
    engine = Counting(a_compiler().engine)
    rules = [a_rule("object.metadata.name != ''"), a_rule("1 +", name="bad")]
    documents = [a_tenant_policy(name, tenant=name, validations=rules) for name in ("a", "b")]
    result = loader.compile_all(loader.read_objects(documents), compiler=Compiler(engine))
    assert engine.compiled == ["object.metadata.name != ''", "1 +"]
    assert [problem.source for problem in result.problems] == ["TenantPolicy/a", "TenantPolicy/b"]


def test_a_policy_for_other_kinds_is_not_held_against_the_fields_of_a_pod() -> None:
    documents = [
        a_tenant_policy(
            matchConstraints={"kinds": ["batch/Job"]},
            validations=[a_rule("object.spec.parallelism < 10")],
        )
    ]
    assert loader.compile_all(loader.read_objects(documents), compiler=a_compiler()).ok


def test_compile_errors_are_kept_as_values() -> None:
    compiler = a_compiler()
    for _ in range(2):
        with pytest.raises(CompileError):
            compiler.program("1 +", Environment(), "bool")


@pytest.mark.parametrize(
    ("actions", "strictest"),
    [
        pytest.param([], ("Deny",), id="no rule"),
        pytest.param([["Audit"]], ("Audit",), id="audited"),
        pytest.param([["Audit"], ["Warn"]], ("Warn",), id="warned"),
        pytest.param([["Audit", "Warn"], ["Deny"]], ("Deny",), id="denied"),
    ],
)
def test_a_policy_that_fails_as_a_whole_acts_as_its_strictest_rule(
    actions: list[list[str]], strictest: tuple[str, ...], tmp_path: Path
) -> None:
    rows = "".join(
        f"  - {{name: r{number}, expression: 'true', action: [{', '.join(row)}]}}\n"
        for number, row in enumerate(actions)
    )
    file = tmp_path / "a.yaml"
    file.write_text(HEAD + (f"  validations:\n{rows}" if rows else ""))
    result = loader.load_files(file, compiler=a_compiler())
    assert result.problems == ()
    [policy] = result.policies.policies
    assert policy.strictest == strictest
