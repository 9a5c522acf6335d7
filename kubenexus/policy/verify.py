"""
`policy test`: PolicyTest documents against their policies, and which rules no test has met.

    file --PolicyTests--> each with policies: --policies, or those it names, or those beside it
                              |
    watched policies --run--> results of cases     rules seen, and validations seen to fail

Whether an expectation holds is the engine's `policies.testing`; it also fails those that were not
evaluated at all. What no test has met is a note, never a failure.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubenexus.policy import sources
from kubenexus.policy.problems import UsageError
from kubenexus.policy.watching import Seen, Watch
from policies import documents, faults, loader, testing
from policies.compiled import CompiledPolicy
from policies.compiler import Compiler
from policies.documents import DocumentError
from policies.faults import Fault
from policies.loader import LoadResult
from policies.model_tests import PolicyTest
from policies.testing import TestResult


@dataclass(frozen=True, slots=True)
class Coverage:
    """Rules of the policies under test, as `policy/rule`."""

    rules: tuple[str, ...] = ()
    never_met: tuple[str, ...] = ()
    never_failed: tuple[str, ...] = ()
    """Validations that were met and passed every time: nothing shows that they can refuse."""


@dataclass(frozen=True, slots=True)
class Report:
    """All tests, in the order of files, and what they leave out."""

    tests: tuple[TestResult, ...]
    coverage: Coverage

    @property
    def passed(self) -> bool:
        return all(test.passed for test in self.tests)


@dataclass(slots=True)
class _Ledger:
    """Rules of policies, and what became of them, over all tests."""

    rules: dict[str, bool] = field(default_factory=dict)  # policy/rule -> is a validation
    met: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def add(self, policies: Sequence[CompiledPolicy], seen: Sequence[Seen]) -> None:
        for policy in policies:
            for rule, refuses in _rules(policy):
                self.rules.setdefault(f"{policy.name}/{rule}", refuses)
        for row in seen:
            name = f"{row.policy}/{row.rule}"
            self.met.add(name)
            if row.value is not True:
                self.failed.add(name)

    def coverage(self) -> Coverage:
        return Coverage(
            tuple(self.rules),
            tuple(name for name in self.rules if name not in self.met),
            tuple(
                name
                for name, refuses in self.rules.items()
                if refuses and name in self.met and name not in self.failed
            ),
        )


def _rules(policy: CompiledPolicy) -> list[tuple[str, bool]]:
    """The rules of a policy that have an expression, and whether each is a validation."""
    found = [(rule.field, False) for rule in policy.conditions]
    found += [(rule.when.field, False) for rule in policy.workload_types + policy.hardware_tiers]
    found += [(rule.when.field, False) for rule in policy.defaults if rule.when is not None]
    found += [(rule.expression.field, True) for rule in policy.validations]
    return found + [(rule.when.field, False) for rule in policy.exceptions]


def run(paths: Sequence[Path], *, policies: Sequence[Path], compiler: Compiler) -> Report:
    """Run every PolicyTest of files and folders, theirs included."""
    sources.must_exist([*paths, *policies])
    given = loader.load_files(policies, compiler=compiler) if policies else None
    ledger, results = _Ledger(), list[TestResult]()
    for file in dict.fromkeys(file for path in paths for file in sources.yaml_files(path)):
        results += _file(file, given, compiler, ledger)
    if not results:
        raise UsageError(
            f"no PolicyTest found in {', '.join(map(str, paths))}; write one, or name its file"
        )
    return Report(tuple(results), ledger.coverage())


def _file(
    file: Path, given: LoadResult | None, compiler: Compiler, ledger: _Ledger
) -> list[TestResult]:
    try:
        parts = documents.read(file)
    except DocumentError as exc:
        return [_faulty(file, file.name, [faults.of_document(exc)])]
    results: list[TestResult] = []
    for _, test in sources.tests(parts):
        if isinstance(test, list):
            results.append(_faulty(file, file.name, test))
            continue
        loaded = given or _policies_of(file, test, compiler)
        if not loaded.ok:
            results.append(_faulty(file, test.metadata.name, loaded.problems))
            continue
        watch = Watch()
        cases = testing.run(test, watch.over(loaded.policies))
        ledger.add(loaded.policies.policies, watch.seen)
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


def _faulty(file: Path, name: str, found: Sequence[Fault]) -> TestResult:
    return TestResult(name, str(file), faults=tuple(found))


def as_json(report: Report) -> str:
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
        "rules": len(report.coverage.rules),
        "neverMet": list(report.coverage.never_met),
        "neverFailed": list(report.coverage.never_failed),
    }
    body = {"passed": report.passed, "tests": tests, "coverage": coverage}
    return json.dumps(body, indent=2, ensure_ascii=False)


def as_text(report: Report) -> str:
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
    for what, names in (
        (f"of {len(coverage.rules)} rules, no test evaluates", coverage.never_met),
        ("no test makes these validations fail", coverage.never_failed),
    ):
        if names:
            lines += ["", f"note: {what}:", *(f"       {name}" for name in names)]
    return lines
