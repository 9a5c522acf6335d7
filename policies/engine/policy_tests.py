"""
Runs PolicyTests: evaluates each case and reports every expectation that does not hold.

An expectation that was not evaluated fails: a rule that never ran, a verdict Allow where no policy
matched. Such a test would pass for the wrong reason. Expectations that leave things out fail too: a
patch names every field that policies write, messages cover every line of a denial.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from policies.documents.faults import Fault
from policies.documents.policy_test import Case, Expect, PolicyTest
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest
from policies.engine.result import Evaluation, where

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)  # the time of tests that name none


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case; `problems` are the expectations that do not hold, one line each."""

    name: str
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class TestResult:
    """One PolicyTest; `faults` are in its own document or in the policies that it names."""

    __test__ = False  # its name must not make a test runner collect it

    name: str
    source: str
    cases: tuple[CaseResult, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.faults and all(case.passed for case in self.cases)


def run(test: PolicyTest, policies: PolicySet) -> tuple[CaseResult, ...]:
    """The cases of one test under one policy set."""
    now = test.spec.now or EPOCH
    return tuple(
        CaseResult(case.name, tuple(_compare(case.expect, _evaluate(case, policies, now))))
        for case in test.spec.cases
    )


def _evaluate(case: Case, policies: PolicySet, now: datetime) -> Evaluation:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": case.namespace.model_dump()}
    admission = AdmissionRequest.of(
        case.object,
        operation=case.operation,
        namespace=namespace,
        old_object=case.old_object,
        user=case.user,
        queue_tier=case.queue_tier,
    )
    return evaluate(admission, policies, now=now, inject=case.inject)


def _compare(expect: Expect, evaluation: Evaluation) -> Iterator[str]:
    yield from _verdict(expect, evaluation)
    if expect.messages is not None:
        yield from _lines("denial", expect.messages, evaluation.denials)
    if expect.warnings is not None:
        yield from _lines("warning", expect.warnings, evaluation.warnings)
    yield from _rules(expect, evaluation)
    yield from _classification(expect, evaluation)
    if expect.patch is not None:
        yield from _patch(expect.patch, written(evaluation))
    if expect.policies is not None and expect.policies != evaluation.policies:
        yield f"policies: expected {_shown(expect.policies)}, found {_shown(evaluation.policies)}"
    used = tuple(f"{row.policy}/{row.exception}" for row in evaluation.excepted)
    if expect.exceptions is not None and expect.exceptions != used:
        yield f"exceptions: expected {_shown(expect.exceptions)}, found {_shown(used)}"


def _verdict(expect: Expect, evaluation: Evaluation) -> Iterator[str]:
    if expect.verdict is None:
        return
    verdict = "Allow" if evaluation.allowed else "Deny"
    if verdict != expect.verdict:
        why = f": {'; '.join(evaluation.denials)}" if evaluation.denials else ""
        yield f"verdict: expected {expect.verdict}, found {verdict}{why}"
    elif verdict == "Allow" and not evaluation.policies and expect.policies is None:
        yield "verdict: not evaluated: no policy matched the request, so Allow says nothing"


def _lines(field: str, expected: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    for part in expected:
        if not any(part in line for line in lines):
            yield f"{field}: expected {part!r}, found {_shown(lines)}"
    for line in lines:
        if not any(part in line for part in expected):
            yield f"{field}: not expected: {line}"


def _rules(expect: Expect, evaluation: Evaluation) -> Iterator[str]:
    words = {True: "pass", False: "fail", None: "error"}
    outcomes = {f"{row.policy}/{row.rule}": words[row.passed] for row in evaluation.outcomes}
    for name, word in expect.rules.items():
        if name not in outcomes:
            policy = name.partition("/")[0]
            why = (
                "has no such rule" if policy in evaluation.policies else "did not match the request"
            )
            yield f"rule {name}: not evaluated: policy {policy} {why}"
        elif outcomes[name] != word:
            yield f"rule {name}: expected {word}, found {outcomes[name]}"


def _classification(expect: Expect, evaluation: Evaluation) -> Iterator[str]:
    if expect.classification is None:
        return
    facts = {
        "tenant": evaluation.identity.tenant,
        "tier": evaluation.identity.tier,
        "tier_source": evaluation.identity.source,
        "workload_type": evaluation.workload_type,
        "hardware_tier": evaluation.hardware_tier,
    }
    for name, value in expect.classification.model_dump(exclude_none=True).items():
        if facts[name] != value:
            yield f"{name.replace('_', ' ')}: expected {value!r}, found {facts[name]!r}"


def _patch(expected: dict[str, Any], evaluation: dict[str, Any]) -> Iterator[str]:
    for path in sorted(expected.keys() | evaluation.keys()):
        if path not in evaluation:
            yield f"patch: expected {path} = {expected[path]!r}, but it is not written"
        elif path not in expected:
            yield f"patch: {path} = {evaluation[path]!r} is written, and not expected"
        elif expected[path] != evaluation[path]:
            yield f"patch: {path}: expected {expected[path]!r}, found {evaluation[path]!r}"


def written(evaluation: Evaluation) -> dict[str, Any]:
    """Path to value for everything that policies write; for lists, path to the added items."""
    writes: dict[str, Any] = {}
    for injection in evaluation.injections:
        name = where(injection.path)
        if injection.path[-1] == "-":
            writes.setdefault(name, []).append(injection.value)
        else:
            writes[name] = injection.value
    return writes


def _shown(values: Sequence[str]) -> str:
    return ", ".join(values) if values else "none"
