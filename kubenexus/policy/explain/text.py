"""
An explanation as text of 100 columns.

First the decision and its policies, then each policy with its expressions:

    rule                                                                 value
      the expression
        a part of it                                                     value

Lines are plain text with a tone; the caller colours them by it.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from kubenexus.policy.explain.explain import Explanation, PolicyExplanation, ShownExpression, plain
from policies.engine.result import Failure, PolicyResult, where
from policies.text import counted

WIDTH: Final = 100
_VALUES_FROM: Final = 64
_MAX_UNMATCHED: Final = 20  # listed policies that do not apply; there may be one per tenant
_VALUE_WIDTH: Final = WIDTH - _VALUES_FROM

Tone = Literal["plain", "head", "good", "bad", "faint"]


@dataclass(frozen=True, slots=True)
class TextLine:
    text: str
    tone: Tone = "plain"


def lines(explanation: Explanation) -> Iterator[TextLine]:
    """The whole explanation."""
    yield _decision(explanation)
    yield from _classification(explanation)
    yield from _failures(explanation)
    yield from _writes(explanation)
    yield from _others(explanation)
    yield from _policies(explanation)
    for policy in explanation.policies:
        yield from _policy(policy)


def _decision(explanation: Explanation) -> TextLine:
    name = "/".join(filter(None, (explanation.namespace, explanation.name)))
    denied = len(explanation.outcome.denials)
    if denied:
        return TextLine(f"{explanation.kind} {name}: denied by {counted(denied, 'rule')}", "bad")
    warned = len(explanation.outcome.warnings)
    extra = f", with {counted(warned, 'warning')}" if warned else ""
    return TextLine(f"{explanation.kind} {name}: allowed{extra}", "good")


def _classification(explanation: Explanation) -> Iterator[TextLine]:
    identity = explanation.outcome.identity
    by = f" by policy {identity.policy}" if identity.policy else ""
    tier = f"tier {identity.tier} ({identity.source})" if identity.tier else identity.source
    yield from _wrapped("  tenant         ", f"{identity.tenant or '-'}{by}, {tier}")
    for pod in explanation.outcome.pods:
        path = f" ({pod.path})" if pod.path else ""
        yield from _wrapped("  workload type  ", f"{_with_rule(pod.workload_type)}{path}")
        yield from _wrapped("  hardware tier  ", f"{_with_rule(pod.hardware_tier)}{path}")


def _with_rule(result: PolicyResult | None) -> str:
    if result is None:
        return "none"
    return f"{result.value} by {'/'.join(filter(None, (result.policy, result.rule)))}"


def _failures(explanation: Explanation) -> Iterator[TextLine]:
    if not explanation.outcome.failures:
        return
    yield from _title("failed rules")
    for row in explanation.outcome.failures:
        tone: Tone = "bad" if row.denies else "plain"
        yield from _wrapped(f"  {_action(row):<6} ", row.line(), tone)


def _action(row: Failure) -> str:
    if row.denies:
        return "DENY"
    return "WARN" if row.warns else "AUDIT"


def _writes(explanation: Explanation) -> Iterator[TextLine]:
    if explanation.outcome.injections:
        yield from _title("written")
    for row in explanation.outcome.injections:
        verb = " (override)" if row.override else ""
        adds = "+= " if row.path[-1:] == ("-",) else ""
        yield _row(f"  {where(row.path)}", f"{adds}{_value(row.value)}")
        yield TextLine(f"    by {row.policy}/{row.rule}{verb}", "faint")


def _others(explanation: Explanation) -> Iterator[TextLine]:
    outcome = explanation.outcome
    for title, rows in (
        ("conflicts", [str(row) for row in outcome.conflicts]),
        (
            "exceptions in use",
            [
                f"{row.policy}/{row.rule} by {row.exception}: {row.reason}"
                for row in outcome.excepted
            ],
        ),
        (
            "skipped: the expression has no value",
            [f"{row.policy}/{row.rule}: {row.error}" for row in outcome.skipped],
        ),
    ):
        if rows:
            yield from _title(title)
        for text in rows:
            yield from _wrapped("  ", text)


def _policies(explanation: Explanation) -> Iterator[TextLine]:
    yield from _title("policies")
    width = min(40, max((len(policy.name) for policy in explanation.policies), default=0))
    unmatched = 0
    for policy in explanation.policies:
        unmatched += not policy.matched
        if not policy.matched and unmatched > _MAX_UNMATCHED:
            continue
        head = f"  {'+' if policy.matched else '-'} {policy.name:<{width}}  "
        tone: Tone = "plain" if policy.matched else "faint"
        yield from _wrapped(head, policy.why or "matched", tone)
    if unmatched > _MAX_UNMATCHED:
        yield TextLine(
            f"    and {unmatched - _MAX_UNMATCHED} more that do not apply; -o json lists them",
            "faint",
        )


def _policy(policy: PolicyExplanation) -> Iterator[TextLine]:
    if not policy.expressions:
        return
    yield from _title(f"{policy.name}  ({policy.kind})")
    for row in policy.expressions:
        yield from _expression(row)


def _expression(row: ShownExpression) -> Iterator[TextLine]:
    traced = row.traced
    has_path = "." in traced.rule or "[" in traced.rule
    name = traced.rule if has_path else f"{traced.section}/{traced.rule}"
    on = f" ({row.on})" if row.on else ""
    tone: Tone = "bad" if traced.error else "plain"
    yield _row(f"  {name}{on}", _outcome(traced.value, traced.error), tone)
    yield from _wrapped("    ", _one_line(traced.expression), "faint")
    for part in traced.parts:
        indent = " " * (4 + 2 * min(part.depth, 8))
        yield _row(f"{indent}{_one_line(part.text)}", _outcome(part.value, part.error))


def _title(text: str) -> Iterator[TextLine]:
    yield TextLine("")
    yield TextLine(text, "head")


def _row(left: str, right: str, tone: Tone = "plain") -> TextLine:
    """Text on the left, a value in its column; a text that is too long is cut and ends with …."""
    if len(right) <= _VALUE_WIDTH:
        return TextLine(f"{_cut(left, _VALUES_FROM - 2):<{_VALUES_FROM}}{right}".rstrip(), tone)
    start = max(len(_cut(left, _VALUES_FROM - 2)) + 2, WIDTH - len(right))
    start = min(start, _VALUES_FROM)
    return TextLine(f"{_cut(left, start - 2):<{start}}{_cut(right, WIDTH - start)}", tone)


def _wrapped(head: str, text: str, tone: Tone = "plain") -> Iterator[TextLine]:
    wrapped = textwrap.wrap(
        text,
        WIDTH - len(head),
        break_long_words=True,
        break_on_hyphens=False,
    )
    for index, part in enumerate(wrapped or [""]):
        yield TextLine(f"{head if index == 0 else ' ' * len(head)}{part}".rstrip(), tone)


def _outcome(value: Any, error: str) -> str:
    return f"no value: {_one_line(error)}" if error else _value(value)


def _value(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
