"""The containers that an object reaches, with how much each of them holds."""

import types
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

PACKAGES = ("scheduler.", "cluster.", "policies.", "webhook.")
CONTAINERS = (dict, list, set, deque)
CACHES = {
    "scheduler.columns.node_table.NodeTable._changed_rows": 4096,
    "scheduler.plan.memo.Memo.misfits": 4096,
    "scheduler.plan.memo.Memo.static_filters": 4096,
    "scheduler.plan.memo.Memo.static_scores": 4096,
    "scheduler.plan.memo.StaticFilters.rejections": 4096 * 8,
    "scheduler.plugins.interpod.existing_terms.ExistingTerms._by_constraints": 1024 * 2,
    "scheduler.plugins.interpod.existing_terms.ExistingTerms._terms": 1024,
    "scheduler.plugins.interpod.plugin.InterPod._prepared": 1024,
    "scheduler.plugins.interpod.pod_counts.PodCounts._counts": 4096,
    "scheduler.plugins.interpod.pod_counts.PodCounts._in": 4097,
    "scheduler.plugins.interpod.pod_counts.PodCounts._kinds": 4096,
    "scheduler.plugins.interpod.pod_counts.PodCounts._labelled": 4096 * 4,
    "scheduler.plugins.interpod.selector_index.SelectorIndex._by_label": 3 * 4096,
    "scheduler.plugins.interpod.topology_spread.TopologySpread._cache": 128,
    "scheduler.plugins.node_resources.NodeResources._scores": 256,
    "scheduler.queueing.unschedulable.UnschedulableUnits._flushed": 130,
}
"""Containers that keep what no longer exists, up to a limit. All others must not grow."""


def sizes(root: object) -> Counter[str]:
    """`module.Class.attribute` -> the number of items in it, over all objects of the class."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[object] = [root]
    kept: list[object] = []  # so that no id is used twice
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, (str, bytes, int, float, type, np.ndarray)):
            continue
        seen.add(id(one))
        kept.append(one)
        todo += _parts(one)
        name = _name(type(one))
        for attribute, value in _attributes(one):
            todo.append(value)
            if name and isinstance(value, CONTAINERS):
                found[f"{name}.{attribute}"] += _size(value)
    return found


def _size(value: Any) -> int:
    """With the containers directly inside it: a dict of lists holds what the lists hold."""
    items = value.values() if isinstance(value, dict) else value
    return len(value) + sum(_size(item) for item in items if isinstance(item, CONTAINERS))


def _name(kind: type) -> str:
    module = kind.__module__
    return f"{module}.{kind.__qualname__}" if f"{module}.".startswith(PACKAGES) else ""


def _attributes(one: object) -> Iterator[tuple[str, object]]:
    if not _name(type(one)):
        return
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(one, name):
                yield name, getattr(one, name)


def _parts(one: object) -> list[object]:
    match one:
        case dict():
            return [*one.keys(), *one.values()]
        case list() | tuple() | set() | frozenset() | deque():
            return list(one)
        case partial():
            return [one.func, *one.args, *one.keywords.values()]
        case types.MethodType():
            return [one.__self__]
        case types.FunctionType():
            return [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
        case _:
            return []


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
