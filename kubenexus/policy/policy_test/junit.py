"""
Test results as JUnit XML for CI: a suite per PolicyTest, a testcase per case.

A document that could not be run is an error of its suite. Nothing is measured, so times are zero.
"""

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from policies.engine.policy_tests import TestResult

_FORBIDDEN: Final = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def as_xml(tests: Sequence[TestResult]) -> str:
    """The whole document."""
    root = ElementTree.Element("testsuites", name="kubenexus policy test")
    for test in tests:
        suite = ElementTree.SubElement(root, "testsuite", name=_clean(test.name), time="0")
        for case in test.cases:
            row = _case(suite, test, case.name)
            if not case.passed:
                _outcome(row, "failure", case.problems)
        if test.faults:
            _outcome(_case(suite, test, test.name), "error", [str(row) for row in test.faults])
        _count(suite, [suite])
    _count(root, list(root))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, test: TestResult, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite,
        "testcase",
        name=_clean(name),
        classname=_clean(test.name),
        file=_clean(test.source),
        time="0",
    )


def _outcome(row: ElementTree.Element, tag: str, lines: Sequence[str]) -> None:
    element = ElementTree.SubElement(
        row, tag, message=_clean(lines[0].partition("\n")[0]), type=tag
    )
    element.text = _clean("\n".join(lines))


def _count(element: ElementTree.Element, suites: Sequence[ElementTree.Element]) -> None:
    for name, path in (
        ("tests", "testcase"),
        ("failures", "testcase/failure"),
        ("errors", "testcase/error"),
    ):
        element.set(name, str(sum(len(suite.findall(path)) for suite in suites)))


def _clean(text: str) -> str:
    """XML has no way to write most control characters."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
