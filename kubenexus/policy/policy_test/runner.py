"""
`policy test`: run PolicyTests against their policies, and list rules without a test.

    file --PolicyTests--> each with policies: --policies, or those it names, or those beside it
                              |
    traced policies --run--> results of cases      rules used, and validations that failed

`policies.engine.policy_tests` decides whether an expectation holds, and fails those that were not
evaluated. A rule without a test is a note, never a failure.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubenexus.policy import inputs
from kubenexus.policy.errors import UsageError
from kubenexus.policy.explain.tracing import Section, TracedExpression, Tracer
from policies.documents import faults, yaml_reader
from policies.documents.faults import Fault
from policies.documents.policy_test import PolicyTest
from policies.documents.yaml_reader import DocumentError
from policies.engine import loader, policy_tests
from policies.engine.compiled import CompiledPolicy
from policies.engine.compiler import Compiler
from policies.engine.loader import LoadResult
from policies.engine.policy_tests import TestResult

_REFUSING: Final[Section] = "validations"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many rules the policies under test have, and some of them as `policy/rule`."""

    rules: int = 0
    never_met: tuple[str, ...] = ()
    never_failed: tuple[str, ...] = ()
    """Validations that were met and passed every time: nothing shows that they can refuse."""


@dataclass(frozen=True, slots=True)
class PolicyTestReport:
    """All tests, in the order of files, and what they leave out."""

    tests: tuple[TestResult, ...]
    coverage: Coverage

    @property
    def passed(self) -> bool:
        return all(test.passed for test in self.tests)


_Rule = tuple[str, Section, str]


@dataclass(slots=True)
class _Ledger:
    """Rules of policies, and what became of them, over all tests."""

    rules: dict[_Rule, None] = field(default_factory=dict)
    met: set[_Rule] = field(default_factory=set)
    failed: set[_Rule] = field(default_factory=set)

    def add(self, policies: Sequence[CompiledPolicy], seen: Sequence[TracedExpression]) -> None:
        for policy in policies:
            self.rules.update(dict.fromkeys(_rules(policy)))
        for row in seen:
            rule = (row.policy, row.section, row.rule)
            self.met.add(rule)
            if row.value is not True:
                self.failed.add(rule)

    def coverage(self) -> Coverage:
        passed = self.met - self.failed
        return Coverage(
            len(self.rules),
            tuple(_named(rule) for rule in self.rules if rule not in self.met),
            tuple(_named(rule) for rule in self.rules if rule[1] == _REFUSING and rule in passed),
        )


def _rules(policy: CompiledPolicy) -> Iterator[_Rule]:
    """The rules of a policy that have an expression."""
    name = policy.name
    for rule in policy.conditions:
        yield name, "matchConditions", rule.field
    for choice in policy.workload_types + policy.hardware_tiers:
        yield name, "classify", choice.when.field
    for default in policy.defaults:
        if default.when is not None:
            yield name, "defaults", default.when.field
    for validation in policy.validations:
        yield name, _REFUSING, validation.expression.field
    for exception in policy.exceptions:
        yield name, "exceptions", exception.when.field


def _named(rule: _Rule) -> str:
    return f"{rule[0]}/{rule[2]}"


def run(paths: Sequence[Path], *, policies: Sequence[Path], compiler: Compiler) -> PolicyTestReport:
    """Run every PolicyTest of files and folders, theirs included."""
    inputs.must_exist([*paths, *policies])
    given = loader.load_files(policies, compiler=compiler) if policies else None
    ledger, results = _Ledger(), list[TestResult]()
    for file in dict.fromkeys(file for path in paths for file in inputs.yaml_files(path)):
        results += _file(file, given, compiler, ledger)
    if not results:
        raise UsageError(
            f"no PolicyTest found in {', '.join(map(str, paths))}; write one, or name its file"
        )
    return PolicyTestReport(tuple(results), ledger.coverage())


def _file(
    file: Path, given: LoadResult | None, compiler: Compiler, ledger: _Ledger
) -> list[TestResult]:
    try:
        parts = yaml_reader.read(file)
    except DocumentError as exc:
        return [_faulty(file, file.name, [faults.of_document(exc)])]
    results: list[TestResult] = []
    for _, test in inputs.tests(parts):
        if isinstance(test, list):
            results.append(_faulty(file, file.name, test))
            continue
        loaded = given or _policies_of(file, test, compiler)
        if not loaded.ok:
            results.append(_faulty(file, test.metadata.name, loaded.problems))
            continue
        tracer = Tracer()
        cases = policy_tests.run(test, tracer.over(loaded.policies))
        ledger.add(loaded.policies.policies, tracer.expressions)
        results.append(TestResult(test.metadata.name, str(file), cases))
    return results


def _policies_of(file: Path, test: PolicyTest, compiler: Compiler) -> LoadResult:
    """The policies that a test names; else those in its own file; else those beside it."""
    if test.spec.policies:
        named = [file.parent / name for name in test.spec.policies]
        return loader.load_files(named, compiler=compiler)
    own = loader.load_files(file, compiler=compiler)
    if own.policies.policies or not own.ok:
        return own
    beside = loader.load_files(file.parent, compiler=compiler)
    if beside.policies.policies or not beside.ok:
        return beside
    missing = Fault(
        str(file), 0, 0, "spec.policies", "no policy is named here or stands beside this file"
    )
    return LoadResult(beside.policies, (missing,))


def _faulty(file: Path, name: str, faults: Sequence[Fault]) -> TestResult:
    return TestResult(name, str(file), faults=tuple(faults))


def as_json(report: PolicyTestReport) -> str:
    """One JSON document; keys stay, and new ones may come."""
    tests: list[dict[str, Any]] = [
        {
            "name": test.name,
            "source": test.source,
            "passed": test.passed,
            "faults": [str(fault) for fault in test.faults],
            "cases": [
                {"name": case.name, "passed": case.passed, "problems": list(case.problems)}
                for case in test.cases
            ],
        }
        for test in report.tests
    ]
    coverage = {
        "rules": report.coverage.rules,
        "neverMet": list(report.coverage.never_met),
        "neverFailed": list(report.coverage.never_failed),
    }
    body = {"passed": report.passed, "tests": tests, "coverage": coverage}
    return json.dumps(body, indent=2, ensure_ascii=False)


def as_text(report: PolicyTestReport) -> str:
    """Each test on a line, what failed below it, then the note on coverage, then the sum."""
    lines: list[str] = []
    for test in report.tests:
        lines.append(f"{'ok  ' if test.passed else 'FAIL'} {test.name} ({test.source})")
        lines += [f"       {fault}".replace("\n", "\n       ") for fault in test.faults]
        for case in (case for case in test.cases if not case.passed):
            lines.append(f"       {case.name}")
            lines += [f"         {problem}" for problem in case.problems]
    lines += _notes(report.coverage)
    cases = [case for test in report.tests for case in test.cases]
    failed = sum(not case.passed for case in cases)
    broken = sum(bool(test.faults) for test in report.tests)
    total = f"{len(cases)} cases: {len(cases) - failed} passed, {failed} failed"
    return "\n".join([*lines, "", total + (f"; {broken} tests could not run." if broken else ".")])


def _notes(coverage: Coverage) -> list[str]:
    lines: list[str] = []
    for note, names in (
        (f"of {coverage.rules} rules, no test evaluates", coverage.never_met),
        ("no test makes these validations fail", coverage.never_failed),
    ):
        if names:
            lines += ["", f"note: {note}:", *(f"       {name}" for name in names)]
    return lines
