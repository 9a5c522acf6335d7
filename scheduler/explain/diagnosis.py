"""
Why a pod has no node, said so that somebody can act on it.

    reasons    kube-scheduler's sentence and its counts, the most frequent reason first
    nearest    the node that refuses for the least, open ones first, and what is missing there
    changes    what alone would make the pod fit now: ask for less, tolerate, drop a rule

Every change is tried on the snapshot, not guessed: its sentence names how many nodes would do.
Pure, and read-only; asked by people, so it may take a few milliseconds.
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
    """The node that refuses for the least."""

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
    """Each alone would make it fit; the smallest first."""


def explain(
    pod: Pod,
    snapshot: Snapshot,
    memo: Memo,
    *,
    closed: Bools | None = None,
    outside: filters.Outside | None = None,
) -> Explanation:
    """For a pod as it stands now; one that fits has no reasons."""
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
    refused = [
        (reason, rejected & table.alive)
        for reason, rejected in filters.rejections(snapshot, pod, memo)
    ]
    if closed is not None:
        refused.append((filters.HELD, closed & table.alive))
    count = sum((hit.astype(np.int64) for _, hit in refused), np.zeros(len(table.alive), np.int64))
    lack = np.zeros(len(table.alive))
    for name, asked in spec.requests:
        missing = np.maximum(asked - table.free(name), 0)
        lack += missing / np.maximum(table.allocatable(name), 1)
    rows = np.flatnonzero(table.alive)
    # A node that the pod may use and that is too full is nearer than one that is shut to it.
    shut = ~filters.candidates(snapshot, spec, memo)[rows]
    row = int(rows[np.lexsort((table.rank[rows], lack[rows], count[rows], shut))[0]])
    short = tuple(
        Shortfall(
            name,
            quantity.show(name, asked),
            quantity.show(name, max(0, table.free_at(row, name))),
        )
        for name, asked in spec.requests
        if table.free_at(row, name) < asked
    )
    return NearestNode(table.names[row], tuple(text for text, hit in refused if hit[row]), short)


# --- what would help ---


def _changes(
    pod: Pod, snapshot: Snapshot, memo: Memo, closed: Bools | None = None
) -> Iterator[str]:
    open_ = snapshot.table.alive if closed is None else snapshot.table.alive & ~closed
    yield from _less(pod, snapshot, memo, open_)
    for relaxations in snapshot.plugins.relaxations:
        for change, spec in relaxations(pod.spec):
            rows = filters.feasible(snapshot, replace(pod, spec=spec), memo) & open_
            if rows.any():
                yield f"{change}: {_nodes(rows)} would do"


def _less(pod: Pod, snapshot: Snapshot, memo: Memo, open_: Bools) -> Iterator[str]:
    """Asking for less of one resource, down to the most that a node has left."""
    table = snapshot.table
    for name, asked in pod.spec.requests:
        if name == PODS or not (table.free(name)[table.alive] < asked).any():
            continue
        without = tuple(row for row in pod.spec.requests if row[0] != name)
        spec = replace(pod.spec, requests=without)
        fits = filters.feasible(snapshot, replace(pod, spec=spec), memo)
        rows = np.flatnonzero(fits & open_)
        most = int(table.free(name)[rows].max(initial=0))
        if 0 < most < asked:
            row = min(rows[table.free(name)[rows] == most], key=lambda one: table.rank[one])
            want, have = quantity.show(name, asked), quantity.show(name, most)
            yield (
                f"ask for at most {have} {name} instead of {want}: node {table.names[row]} has it"
            )


def _nodes(rows: Bools) -> str:
    count = int(np.count_nonzero(rows))
    return f"{count} node" if count == 1 else f"{count} nodes"
