"""
docs/reference/metrics.md, generated from the declarations of the metrics.

The scheduler's counters and histograms come from its registry. Its gauges, and all metrics of the
webhook, are read from the source code: creating them would need a cluster.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import scheduler
from kubenexus.reference import markdown
from scheduler.report import metrics as scheduler_metrics
from webhook import metrics as webhook_metrics

Row = tuple[str, str, str, str]

_KINDS: Final = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram"}
_HEADS: Final = ("Metric", "Type", "Labels", "Meaning")
_GAUGE_PREFIX: Final = "kubenexus_scheduler_"


def page() -> str:
    return markdown.page(
        "Metrics",
        "Labels have few values, all known beforehand: never the name of a namespace, a pod or a"
        " node. [Operations](../operations.md) lists the ones to watch.",
        "## Webhook",
        "Plain HTTP, `/metrics` on `--metrics-port`; the sum of all workers.",
        markdown.table(_HEADS, map(_shown, sorted(_declared(Path(webhook_metrics.__file__))))),
        "## Scheduler",
        "Plain HTTP, `/metrics` on `--port`, beside `/healthz`, `/readyz` and `/explain`.",
        markdown.table(_HEADS, map(_shown, sorted((*_registered(), *_gauges())))),
    )


def _shown(row: Row) -> Row:
    name, kind, labels, text = row
    return markdown.code(name), kind, labels, text


def _declared(module: Path) -> Iterator[Row]:
    """Calls of the three constructors with literal arguments."""
    for call in _calls(module):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in _KINDS and len(call.args) >= 2:
            values = [ast.literal_eval(arg) for arg in call.args]
            labels = values[2] if len(values) > 2 else ()
            yield str(values[0]), _KINDS[name], markdown.codes(labels), str(values[1])


def _registered() -> Iterator[Row]:
    for family in scheduler_metrics.Metrics().registry.collect():
        labels: dict[str, set[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    labels.setdefault(label, set()).add(value)
        shown = "; ".join(
            f"`{label}`: {', '.join(sorted(values))}" for label, values in sorted(labels.items())
        )
        suffix = "_total" if family.type == "counter" else ""
        yield f"{family.name}{suffix}", family.type, shown, family.documentation


def _gauges() -> Iterator[Row]:
    for module in sorted(Path(scheduler.__file__).parent.rglob("*.py")):
        for call in _calls(module):
            name = _of_metrics(call.func)
            if name in ("watch", "watch_each"):
                text = [str(ast.literal_eval(arg)) for arg in call.args[: 3 if "_" in name else 2]]
                label = markdown.code(text[2]) if len(text) > 2 else ""
                yield f"{_GAUGE_PREFIX}{text[0]}", "gauge", label, text[1]


def _of_metrics(function: ast.expr) -> str:
    """`watch` of `metrics.watch`; empty for calls on other objects."""
    match function:
        case ast.Attribute(value=ast.Name(id="metrics"), attr=name):
            return name
    return ""


def _calls(module: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call):
            yield node
