from dataclasses import dataclass, field, replace

import pytest

from policies.cel.protocol import Activation, EvaluationError
from policies.engine.compiled import Compiled, CompiledPolicy
from policies.engine.runner import Runner
from tests.policy_builders import a_platform_policy, loaded


@dataclass
class Program:
    """A program whose value is given, and which records its evaluations."""

    answer: object
    source: str = "x"
    references: frozenset[str] = frozenset()
    result_type: str = "dyn"
    activations: list[object] = field(default_factory=list)

    def evaluate(self, activation: Activation) -> object:
        self.activations.append(dict(activation.values))
        if isinstance(self.answer, EvaluationError):
            raise self.answer
        return self.answer

    def evaluate_tagged(self, activation: Activation) -> tuple[str, object]:
        return "dyn", self.evaluate(activation)


def a_policy(**variables: Compiled) -> CompiledPolicy:
    [policy] = loaded(a_platform_policy("c")).policies
    return replace(policy, variables=variables)


@pytest.mark.parametrize(
    "answer",
    [pytest.param(5, id="a value"), pytest.param(EvaluationError("other", "no"), id="none")],
)
def test_a_variable_is_evaluated_once_with_a_value_and_with_an_error(answer: object) -> None:
    inner, outer, rule = Program(answer), Program(6), Program(True)
    runner = Runner({"object": 1})
    runner.enter(
        a_policy(inner=Compiled("inner", inner), outer=Compiled("outer", outer, ("inner",)))
    )
    for _ in range(2):
        runner.is_true(Compiled("rule", rule, ("outer",)))
        runner.is_true(Compiled("rule", rule, ("inner",)))
    known = {"variables.inner": 5} if answer == 5 else {}
    assert (len(inner.activations), outer.activations, rule.activations[-1]) == (
        1,
        [{"object": 1, **known}],
        {"object": 1, **known, "variables.outer": 6},
    )


def test_a_fact_that_changes_makes_variables_be_evaluated_anew() -> None:
    variable = Program(5, references=frozenset({"workload"}))
    rule = Compiled("rule", Program(True), ("v",))
    runner = Runner({"workload": 1})
    runner.enter(a_policy(v=Compiled("v", variable)))
    runner.is_true(rule)
    runner.bind("workload", 2)
    runner.is_true(rule)
    assert variable.activations == [{"workload": 1}, {"workload": 2}]


@pytest.mark.parametrize("value", ["true", 1, None, [], [True]])
def test_only_a_bool_is_a_truth(value: object) -> None:
    with pytest.raises(EvaluationError, match="a rule must give true or false"):
        Runner({}).is_true(Compiled("rule", Program(value)))


def test_what_reads_no_variable_is_run_on_the_facts_as_they_came() -> None:
    """One activation for all of them: an engine converts its objects once."""
    plain, reader = Program(True, references=frozenset({"object"})), Program(True)
    changed = Program(True, references=frozenset({"workload"}))
    seen: list[Activation] = []

    @dataclass
    class Watched(Program):
        def evaluate(self, activation: Activation) -> object:
            seen.append(activation)
            return super().evaluate(activation)

    runner = Runner({"object": 1, "workload": 1})
    runner.enter(a_policy(v=Compiled("v", plain)))
    first = Watched(True, references=frozenset({"object"}))
    runner.is_true(Compiled("first", first))
    runner.is_true(Compiled("reader", reader, ("v",)))
    runner.bind("workload", 2)
    runner.is_true(Compiled("changed", changed))
    runner.is_true(Compiled("first", first))
    assert (seen[0] is seen[1], reader.activations, changed.activations) == (
        True,
        [{"object": 1, "workload": 1, "variables.v": True}],
        [{"object": 1, "workload": 2}],
    )
