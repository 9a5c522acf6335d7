"""
Violations and totals of an audit: a table, or JSON lines. Pure.

JSON has each violation as it is found and the totals last: without a `summary` line the audit is
incomplete. The table has violations in order, up to a limit, and counts all of them.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubenexus.audit.scan import Totals
from kubenexus.audit.validate import Violation
from policies.text import counted

ROWS: Final = 10_000  # rows that a table holds
_HEAD: Final = ("NAMESPACE", "OBJECT", "ACTION", "RULE", "MESSAGE")
_RULES_HEAD: Final = ("RULE", "ACTION", "VIOLATIONS")


class Table:
    """Collects the rows of the table."""

    def __init__(self, limit: int = ROWS) -> None:
        self._rows: list[Violation] = []
        self._limit, self._more = limit, 0

    def take(self, row: Violation) -> None:
        if len(self._rows) < self._limit:
            self._rows.append(row)
        else:
            self._more += 1

    def lines(self, totals: Totals) -> Iterator[str]:
        if self._rows:
            rows = [
                (row.namespace, row.object, row.action, row.rule_name, _message(row))
                for row in sorted(self._rows)
            ]
            yield from _aligned([_HEAD, *rows])
            if self._more:
                yield f"... and {self._more} more; -o json shows all"
            yield ""
            yield from _aligned([_RULES_HEAD, *_by_rule(totals)])
            yield ""
        yield summary(totals)


def summary(totals: Totals) -> str:
    """The last line of the text."""
    text = (
        f"{counted(totals.violations, 'violation')} in {totals.failing} of "
        f"{counted(totals.objects, 'object')}: {counted(totals.kinds, 'kind')}, "
        f"{counted(len(totals.namespaces), 'namespace')}."
    )
    if totals.excepted:
        text += f" Allowed by exceptions: {totals.excepted}."
    if totals.not_admitted:
        text += f" Pods that bypassed admission: {totals.not_admitted}."
    return text


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


def summary_json(totals: Totals) -> str:
    """The last line of the JSON output."""
    rules = [
        {"rule": rule, "action": action, "violations": int(count)}
        for rule, action, count in _by_rule(totals)
    ]
    return _json(
        {
            "type": "summary",
            "kinds": totals.kinds,
            "namespaces": len(totals.namespaces),
            "objects": totals.objects,
            "failing": totals.failing,
            "violations": totals.violations,
            "excepted": totals.excepted,
            "notAdmitted": totals.not_admitted,
            "rules": rules,
        }
    )


def _by_rule(totals: Totals) -> list[tuple[str, str, str]]:
    """The rule that fails most often first."""
    ranked = sorted(totals.rules.items(), key=lambda item: (-item[1], item[0]))
    return [(rule, action, str(count)) for (rule, action), count in ranked]


def _message(row: Violation) -> str:
    where = f" ({row.path})" if row.path else ""
    fix = f": {row.fix}" if row.fix else ""
    return " ".join(f"{row.message}{where}{fix}".split())


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns padded to their widest cell, except the last."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        yield "  ".join([*cells, row[-1]])


def _json(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False)
