"""The label values that the product uses are those that it declares."""

import ast
from pathlib import Path

import scheduler
from scheduler.provisioning.objects import Phase
from scheduler.report import metrics

DECLARED = {
    "attempts": metrics.RESULTS,
    "gangs": metrics.OUTCOMES,
    "preemption": metrics.STEPS,
}


def literal_labels() -> set[tuple[str, str]]:
    """(counter, value) of each call `metrics.COUNTER.labels("value")`, by name alone."""
    calls = (
        node
        for path in Path(scheduler.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    )
    used = set()
    for call in calls:
        match call:
            case ast.Call(
                func=ast.Attribute(attr="labels", value=ast.Attribute(attr=counter)),
                args=[ast.Constant(value=str(value))],
            ):
                used.add((counter, value))
    return used


def test_used_labels_are_declared() -> None:
    used = literal_labels()
    assert {counter for counter, _ in used} == set(DECLARED)
    assert [row for row in sorted(used) if row[1] not in DECLARED[row[0]]] == []


def test_provisioning_counts_by_phase() -> None:
    assert set(metrics.PROVISIONING) == {phase.value for phase in Phase}
