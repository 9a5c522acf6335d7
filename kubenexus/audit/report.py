"""
Rows and sums of an audit: a table for people, JSON lines for programs. Pure.

Programs get each row as it is found and the sums last: a reader that saw no `summary` line saw no
whole audit. People get the rows in order, as many as a person could read, and all of them counted.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubenexus.audit.scan import Sums
from kubenexus.audit.validate import Violation

ROWS: Final = 10_000  # rows that a table holds
_HEAD: Final = ("NAMESPACE", "OBJECT", "ACTION", "RULE", "MESSAGE")
_RULES_HEAD: Final = ("RULE", "ACTION", "VIOLATIONS")


class Table:
    """Collects the rows for people."""

    def __init__(self, limit: int = ROWS) -> None:
        self._rows: list[Violation] = []
        self._limit, self._more = limit, 0

    def take(self, row: Violation) -> None:
        if len(self._rows) < self._limit:
            self._rows.append(row)
        else:
            self._more += 1

    def lines(self, sums: Sums) -> Iterator[str]:
        if self._rows:
            rows = [
                (row.namespace, row.object, row.action, row.rule_name, _message(row))
                for row in sorted(self._rows)
            ]
            yield from _aligned([_HEAD, *rows])
            if self._more:
                yield f"... and {self._more} more; -o json shows all"
            yield ""
            yield from _aligned([_RULES_HEAD, *_by_rule(sums)])
            yield ""
        yield summary(sums)


def summary(sums: Sums) -> str:
    """The last line for people."""
    said = (
        f"{_count(sums.violations, 'violation')} in {sums.failing} of "
        f"{_count(sums.objects, 'object')}: {_count(sums.kinds, 'kind')}, "
        f"{_count(len(sums.namespaces), 'namespace')}."
    )
    if sums.excepted:
        said += f" Let pass by exceptions: {sums.excepted}."
    if sums.not_admitted:
        said += f" Pods that admission never saw: {sums.not_admitted}."
    return said


def row_json(row: Violation) -> str:
    """One violation, one line."""
    return _json(
        {
            "type": "violation",
            "namespace": row.namespace,
            "apiVersion": f"{row.group}/{row.version}" if row.group else row.version,
            "kind": row.kind,
            "name": row.name,
            "uid": row.uid,
            "policy": row.policy,
            "rule": row.rule,
            "action": row.action,
            "message": row.message,
            "path": row.path,
            "fix": row.fix,
        }
    )


def summary_json(sums: Sums) -> str:
    """The last line for programs."""
    rules = [
        {"rule": rule, "action": action, "violations": int(count)}
        for rule, action, count in _by_rule(sums)
    ]
    return _json(
        {
            "type": "summary",
            "kinds": sums.kinds,
            "namespaces": len(sums.namespaces),
            "objects": sums.objects,
            "failing": sums.failing,
            "violations": sums.violations,
            "excepted": sums.excepted,
            "notAdmitted": sums.not_admitted,
            "rules": rules,
        }
    )


def _by_rule(sums: Sums) -> list[tuple[str, str, str]]:
    """The rule that fails most often first."""
    ranked = sorted(sums.rules.items(), key=lambda item: (-item[1], item[0]))
    return [(rule, action, str(count)) for (rule, action), count in ranked]


def _message(row: Violation) -> str:
    where = f" ({row.path})" if row.path else ""
    fix = f": {row.fix}" if row.fix else ""
    return " ".join(f"{row.message}{where}{fix}".split())


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as they must be; the last as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        yield "  ".join([*cells, row[-1]])


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _json(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False)
