"""
Why a pod has no node, and what would help.

    reasons    kube-scheduler's message and its counts, the most frequent reason first
    nearest    the node with the fewest reasons, open ones first, and what is missing there
    changes    each alone would make the pod fit now: request less, tolerate, drop a constraint

Every change is planned on the snapshot, and its text names the number of nodes that would do. Pure
and read-only. It answers users, so it may take a few milliseconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from policies import quantity
from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools
from scheduler.model.pod import Pod
from scheduler.model.resources import PODS
from scheduler.plan import filters
from scheduler.plan.memo import Memo


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A resource of which a node has too little left."""

    resource: str
    asked: str
    free: str


@dataclass(frozen=True, slots=True)
class NearestNode:
    """The node with the fewest reasons against the pod."""

    node: str
    reasons: tuple[str, ...]
    short: tuple[Shortfall, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    text: str
    reasons: tuple[tuple[str, int], ...]
    """(reason, nodes that give it), the most frequent first."""
    nearest: NearestNode | None
    changes: tuple[str, ...]
    """Each alone would make the pod fit; lower requests first."""


def explain(
    pod: Pod,
    snapshot: Snapshot,
    memo: Memo,
    *,
    closed: Bools | None = None,
    outside: filters.Outside | None = None,
) -> Explanation:
    """For the pod as it is now; a pod that fits has no reasons."""
    why = filters.explain(snapshot, pod, memo, closed=closed, outside=outside)
    reasons = tuple(sorted(why.reasons, key=lambda row: (-row[1], row[0])))
    if why.message:
        reasons = ((why.message, why.nodes),)
    return Explanation(
        text=why.text,
        reasons=reasons,
        nearest=_nearest(pod, snapshot, memo, closed),
        changes=tuple(_changes(pod, snapshot, memo, closed)),
    )


# --- the nearest node ---


def _nearest(
    pod: Pod, snapshot: Snapshot, memo: Memo, closed: Bools | None = None
) -> NearestNode | None:
    table, spec = snapshot.table, pod.spec
    if len(snapshot) == 0 or spec.unsupported:
        return None
    rejections = [
        (reason, rejected & table.alive)
        for reason, rejected in filters.rejections(snapshot, pod, memo)
    ]
    if closed is not None:
        rejections.append((filters.HELD, closed & table.alive))
    counts = np.zeros(len(table.alive), dtype=np.int64)
    for _, rejected in rejections:
        counts += rejected
    shortage = np.zeros(len(table.alive))
    for name, requested in spec.requests:
        missing = np.maximum(requested - table.free(name), 0)
        shortage += missing / np.maximum(table.allocatable(name), 1)
    rows = np.flatnonzero(table.alive)
    # A node that is only too full is nearer than a node that is closed to the pod.
    is_closed = ~filters.candidates(snapshot, spec, memo)[rows]
    order = np.lexsort((table.rank[rows], shortage[rows], counts[rows], is_closed))
    row = int(rows[order[0]])
    short = tuple(
        Shortfall(
            name,
            quantity.show(name, requested),
            quantity.show(name, max(0, table.free_at(row, name))),
        )
        for name, requested in spec.requests
        if table.free_at(row, name) < requested
    )
    reasons = tuple(reason for reason, rejected in rejections if rejected[row])
    return NearestNode(table.names[row], reasons, short)


# --- changes that would help ---


def _changes(
    pod: Pod, snapshot: Snapshot, memo: Memo, closed: Bools | None = None
) -> Iterator[str]:
    open_rows = snapshot.table.alive if closed is None else snapshot.table.alive & ~closed
    yield from _lower_requests(pod, snapshot, memo, open_rows)
    for relaxations in snapshot.plugins.relaxations:
        for change, spec in relaxations(pod.spec):
            rows = filters.feasible(snapshot, replace(pod, spec=spec), memo) & open_rows
            if rows.any():
                yield f"{change}: {_nodes(rows)} would do"


def _lower_requests(pod: Pod, snapshot: Snapshot, memo: Memo, open_rows: Bools) -> Iterator[str]:
    """A lower request of one resource: the most that a node has left."""
    table = snapshot.table
    for name, requested in pod.spec.requests:
        if name == PODS or not (table.free(name)[table.alive] < requested).any():
            continue
        others = tuple(request for request in pod.spec.requests if request[0] != name)
        spec = replace(pod.spec, requests=others)
        fits = filters.feasible(snapshot, replace(pod, spec=spec), memo)
        rows = np.flatnonzero(fits & open_rows)
        most = int(table.free(name)[rows].max(initial=0))
        if 0 < most < requested:
            row = min(rows[table.free(name)[rows] == most], key=lambda row: table.rank[row])
            lower, now = quantity.show(name, most), quantity.show(name, requested)
            yield f"request at most {lower} {name} instead of {now}: node {table.names[row]} has it"


def _nodes(rows: Bools) -> str:
    count = int(np.count_nonzero(rows))
    return f"{count} node" if count == 1 else f"{count} nodes"
