"""
`policy lint`: every fault of policy files at once.

    paths --folders--> sets of files --load--> faults of documents and between them
                             |
                             +--PolicyTests--> faults of tests, and missing policies that they name

A folder is one set, as a webhook would serve it: two policies of one name in it contradict each
other, the same in two folders do not. Files named one by one are one set together.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from kubenexus.policy import inputs
from kubenexus.policy.errors import UsageError
from policies.documents import yaml_reader
from policies.documents.faults import Fault
from policies.documents.yaml_reader import DocumentError
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.text import counted


@dataclass(frozen=True, slots=True)
class LintReport:
    """The faults in the order of files and lines, and the number of files."""

    faults: tuple[Fault, ...]
    files: int
    policies: int
    tests: int

    @property
    def clean(self) -> bool:
        return not self.faults


def lint(paths: Sequence[Path], *, compiler: Compiler) -> LintReport:
    """All faults of all files."""
    inputs.must_exist(paths)
    faults: set[Fault] = set()
    files: set[Path] = set()
    policies = tests = 0
    for group in _sets(paths):
        reading = loader.read_files(group)
        faults |= set(loader.compile_all(reading, compiler=compiler).problems)
        policies += len(reading.entries)
        files |= set(group)
        for file in group:
            count, more = _tests(file)
            tests += count
            faults |= set(more)
    if not files:
        raise UsageError(f"no YAML file in {', '.join(map(str, paths))}; name another folder")
    return LintReport(tuple(sorted(faults)), len(files), policies, tests)


def _sets(paths: Sequence[Path]) -> Iterator[list[Path]]:
    named = [path for path in paths if not path.is_dir()]
    if named:
        yield named
    for folder in (path for path in paths if path.is_dir()):
        files = sorted(inputs.yaml_files(folder), key=lambda file: (file.parent, file))
        for _, group in groupby(files, key=lambda file: file.parent):
            yield list(group)


def _tests(file: Path) -> tuple[int, list[Fault]]:
    """The number of PolicyTests in a file, and their faults."""
    try:
        parts = yaml_reader.read(file)
    except DocumentError:
        return 0, []  # reported with the policies
    count, faults = 0, list[Fault]()
    for origin, test in inputs.tests(parts):
        count += 1
        if isinstance(test, list):
            faults += test
            continue
        faults += [
            origin.fault(
                ("spec", "policies", index),
                f"found {name!r}, but there is no such file or folder; paths start at"
                " the folder of this file",
            )
            for index, name in enumerate(test.spec.policies)
            if not (file.parent / name).exists()
        ]
    return count, faults


def as_json(report: LintReport) -> str:
    """One JSON document; keys stay, and new ones may come."""
    body = {
        "clean": report.clean,
        "files": report.files,
        "policies": report.policies,
        "tests": report.tests,
        "problems": [asdict(fault) for fault in report.faults],
    }
    return json.dumps(body, indent=2, ensure_ascii=False)


def as_text(report: LintReport) -> str:
    """Each problem, with its source line where known, and a last line that counts."""
    looked = f"{counted(report.files, 'file')}, {counted(report.policies, 'policy', 'policies')}"
    looked += f", {counted(report.tests, 'test')}"
    if report.clean:
        return f"{looked}: no problems."
    lines = [str(fault) for fault in report.faults]
    return "\n".join([*lines, "", f"{looked}: {counted(len(report.faults), 'problem')}."])
