"""
Runs PolicyTests: each case is evaluated, and every expectation that does not hold is told.

An expectation that was not evaluated fails. A rule that never ran, a verdict Allow that no policy
had a say in: such a test would pass for the wrong reason. So do expectations that leave things out:
a patch names everything that is written, messages cover every line of a refusal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from policies.documents import faults, yaml_reader
from policies.documents.faults import Fault, Origin
from policies.documents.policy_test import Case, Expect, PolicyTest
from policies.documents.yaml_reader import DocumentError
from policies.engine import loader
from policies.engine.compiler import Compiler
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


def run_files(paths: Path | Iterable[Path], *, compiler: Compiler) -> list[TestResult]:
    """All PolicyTests in files and folders, each with the policies that it names."""
    results: list[TestResult] = []
    for path in [paths] if isinstance(paths, Path) else paths:
        for file in loader.files_of(path):
            results += _run_file(file, compiler)
    return results


def _run_file(file: Path, compiler: Compiler) -> Iterator[TestResult]:
    try:
        parts = yaml_reader.read(file)
    except DocumentError as exc:
        yield TestResult(file.name, str(file), faults=(faults.of_document(exc),))
        return
    for number, part in enumerate(parts):
        if not isinstance(part.value, dict) or part.value.get("kind") != loader.POLICY_TEST:
            continue
        test = faults.read(PolicyTest, part.value, Origin(str(file), number))
        if isinstance(test, list):
            yield TestResult(file.name, str(file), faults=tuple(test))
            continue
        named = [file.parent / name for name in test.spec.policies]
        loaded = loader.load_files(named or [file], compiler=compiler)
        if not loaded.ok:
            yield TestResult(test.metadata.name, str(file), faults=loaded.problems)
            continue
        yield TestResult(test.metadata.name, str(file), run(test, loaded.policies))


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


def _compare(expect: Expect, found: Evaluation) -> Iterator[str]:
    yield from _verdict(expect, found)
    if expect.messages is not None:
        yield from _lines("refusal", expect.messages, found.refusals)
    if expect.warnings is not None:
        yield from _lines("warning", expect.warnings, found.warnings)
    yield from _rules(expect, found)
    yield from _classification(expect, found)
    if expect.patch is not None:
        yield from _patch(expect.patch, written(found))
    if expect.policies is not None and expect.policies != found.policies:
        yield f"policies: expected {_shown(expect.policies)}, found {_shown(found.policies)}"
    used = tuple(f"{row.policy}/{row.exception}" for row in found.excepted)
    if expect.exceptions is not None and expect.exceptions != used:
        yield f"exceptions: expected {_shown(expect.exceptions)}, found {_shown(used)}"


def _verdict(expect: Expect, found: Evaluation) -> Iterator[str]:
    if expect.verdict is None:
        return
    verdict = "Allow" if found.allowed else "Deny"
    if verdict != expect.verdict:
        why = f": {'; '.join(found.refusals)}" if found.refusals else ""
        yield f"verdict: expected {expect.verdict}, found {verdict}{why}"
    elif verdict == "Allow" and not found.policies and expect.policies is None:
        yield "verdict: not evaluated: no policy matched the request, so Allow says nothing"


def _lines(what: str, expected: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    for part in expected:
        if not any(part in line for line in lines):
            yield f"{what}: expected {part!r}, found {_shown(lines)}"
    for line in lines:
        if not any(part in line for part in expected):
            yield f"{what}: not expected: {line}"


def _rules(expect: Expect, found: Evaluation) -> Iterator[str]:
    words = {True: "pass", False: "fail", None: "error"}
    outcomes = {f"{row.policy}/{row.rule}": words[row.passed] for row in found.outcomes}
    for name, word in expect.rules.items():
        if name not in outcomes:
            policy = name.partition("/")[0]
            why = "has no such rule" if policy in found.policies else "did not match the request"
            yield f"rule {name}: not evaluated: policy {policy} {why}"
        elif outcomes[name] != word:
            yield f"rule {name}: expected {word}, found {outcomes[name]}"


def _classification(expect: Expect, found: Evaluation) -> Iterator[str]:
    if expect.classification is None:
        return
    facts = {
        "tenant": found.who.tenant,
        "tier": found.who.tier,
        "tier_source": found.who.source,
        "workload_type": found.workload_type,
        "hardware_tier": found.hardware_tier,
    }
    for name, value in expect.classification.model_dump(exclude_none=True).items():
        if facts[name] != value:
            yield f"{name.replace('_', ' ')}: expected {value!r}, found {facts[name]!r}"


def _patch(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for path in sorted(expected.keys() | found.keys()):
        if path not in found:
            yield f"patch: expected {path} = {expected[path]!r}, but it is not written"
        elif path not in expected:
            yield f"patch: {path} = {found[path]!r} is written, and not expected"
        elif expected[path] != found[path]:
            yield f"patch: {path}: expected {expected[path]!r}, found {found[path]!r}"


def written(found: Evaluation) -> dict[str, Any]:
    """Path to value for everything that policies write; for lists, path to the added items."""
    writes: dict[str, Any] = {}
    for injection in found.injections:
        name = where(injection.path)
        if injection.path[-1] == "-":
            writes.setdefault(name, []).append(injection.value)
        else:
            writes[name] = injection.value
    return writes


def _shown(values: Sequence[str]) -> str:
    return ", ".join(values) if values else "none"
