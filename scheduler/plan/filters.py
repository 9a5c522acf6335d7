"""
Nodes that can take a pod: runs the filter plugins over all nodes at once, in the registry's order.

    static       by the nodes' own facts; memoised for pods that require the same
    capacity     by free amounts
    stateful     by the pods that are placed, and by objects such as volumes and claims
    host         by NUMA nodes and GPUs inside each host

As in kube-scheduler, the first filter that rejects a node gives the reason for it, and the resource
filter names every resource that is short. `explain` counts these reasons; the planner only needs
the rows that are left.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final

import numpy as np

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools, Ints
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.plan.memo import Memo, StaticFilters
from scheduler.plugins.protocol import Rejection

HELD: Final = "node(s) were held for a pod group that has waited longer"
GPUS: Final = frozenset(vocabulary.GPU_RESOURCES)
MOST_PODS: Final = 2**31
"""Of one node, so that the sum over all nodes stays within an int64."""

Outside = Rejection
"""A reason, and the rows that it keeps a gang out of."""


# --- filters by the nodes' own facts ---


def static_key(snapshot: Snapshot, spec: SchedulingSpec) -> tuple[Hashable, ...]:
    """Equal for specs that the filters on the nodes' own facts treat alike, until nodes change."""
    return tuple([key(spec) for key in snapshot.plugins.static_keys])


def static(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> StaticFilters:
    """The rows that only free capacity and placed pods can still reject, and the other rows."""
    plugins, table = snapshot.plugins, snapshot.table
    key = static_key(snapshot, spec)
    known = memo.kept(memo.static_filters, key)
    if known is not None and known[0] == table.statics:
        return known[1]
    rejections = {
        plugin: tuple(plugin.static_filter(spec))
        for plugin, part in zip(plugins.static_filters, key, strict=True)
        if part is not None
    }
    rows = table.alive.copy()
    for plugin_rejections in rejections.values():
        for _, rejected in plugin_rejections:
            rows &= ~rejected
    rows.flags.writeable = False
    result = StaticFilters(rows, rejections)
    memo.remember_filters(key, table.statics, result)
    return result


def candidates(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> Bools:
    """The rows that only free capacity and placed pods can still reject; read-only."""
    return static(snapshot, spec, memo).rows


# --- filters by amounts ---


def capacity(snapshot: Snapshot, spec: SchedulingSpec, rows: Bools, most: int = MOST_PODS) -> Ints:
    """The number of pods of this spec that fit on each row by amounts, at most `most`."""
    if most == 1:
        return fitting(snapshot, spec, rows).astype(np.int64)
    counts = np.where(rows, np.int64(most), np.int64(0))
    for limit in snapshot.plugins.capacity:
        limit(spec, counts)
    return np.maximum(counts, 0)


def fitting(snapshot: Snapshot, spec: SchedulingSpec, rows: Bools) -> Bools:
    """Those of the rows that have enough left for one more pod of this spec."""
    left = rows.copy()
    for fits in snapshot.plugins.fits:
        fits(spec, left)
    return left


# --- filters by other pods ---


def depends_on_pods(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether placed pods, not only free amounts, decide which nodes can take the pod."""
    for depends in snapshot.plugins.depends_on_pods:  # noqa: SIM110 (a hot path)
        if depends(pod):
            return True
    return False


def affects_equal_pods(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether placing one of several equal pods changes more than amounts for the others."""
    return any(affects(pod) for affects in snapshot.plugins.affects_equal_pods)


def stateful(snapshot: Snapshot, pod: Pod, rows: Bools) -> Bools:
    """Those of the rows that no filter on placed pods and other objects rejects."""
    left = rows
    for run in snapshot.plugins.stateful_filters:
        for _, rejected in run(pod, left):
            left = left & ~rejected
    return left


def sharing_node(snapshot: Snapshot, pod: Pod, rows: Bools, count: int) -> Bools:
    """Those of the rows that hold all of `count` equal pods, if they must share a node."""
    for plugin in snapshot.plugins.sharing:
        if plugin.shares_node(pod):
            for _, rejected in plugin.filter(pod, rows):
                rows = rows & ~rejected
            all_fit = rows & (capacity(snapshot, pod.spec, rows) >= count)
            rows = all_fit if all_fit.any() else rows
    return rows


# --- all filters ---


def unresolvable(snapshot: Snapshot, pod: Pod) -> str:
    """Why no node can ever take the pod; empty: nothing is wrong."""
    if pod.spec.unsupported:
        return "; ".join(pod.spec.unsupported)
    for check in snapshot.plugins.unresolvable:
        if reason := check(pod):
            return reason
    return ""


def feasible(snapshot: Snapshot, pod: Pod, memo: Memo) -> Bools:
    """The rows that could take the pod now."""
    if unresolvable(snapshot, pod):
        return np.zeros_like(snapshot.table.alive)
    rows = fitting(snapshot, pod.spec, candidates(snapshot, pod.spec, memo))
    rows = stateful(snapshot, pod, rows) if depends_on_pods(snapshot, pod) else rows
    for plugin in snapshot.plugins.host_filters:
        for _, rejected in plugin.host_filter(pod, rows, snapshot.choose):
            rows = rows & ~rejected
    return rows


def open_rows(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> Bools:
    """
    The rows that could take a pod of this spec by their own facts and by amounts.

    It decides whether a change requeues the pod; the other filters are left to the planner.
    """
    return fitting(snapshot, spec, candidates(snapshot, spec, memo))


# --- reasons ---


def explain(
    snapshot: Snapshot,
    pod: Pod,
    memo: Memo,
    *,
    closed: Bools | None = None,
    outside: Outside | None = None,
) -> NoFit:
    """
    Why no node can take the pod now, counted over all nodes. `closed` rows are held for other pods,
    `outside` rows are out of reach of the rest of the pod's gang.
    """
    total, plugins = len(snapshot), snapshot.plugins
    if (total or pod.spec.unsupported) and (message := unresolvable(snapshot, pod)):
        return NoFit(total, message=message)
    counts: Counter[str] = Counter()
    known = static(snapshot, pod.spec, memo).rejections
    left = snapshot.table.alive
    for plugin in plugins:
        if plugin not in plugins.host_filters:
            left = _count(known.get(plugin, ()), left, counts)
            left = _count(plugin.filter(pod, left), left, counts)
    if outside is not None:
        left = _count((outside,), left, counts)
    if closed is not None:
        left = _count(((HELD, closed),), left, counts)
    for plugin in plugins.host_filters:
        left = _count(known.get(plugin, ()), left, counts)
        left = _count(plugin.host_filter(pod, left, snapshot.choose), left, counts)
    reasons = tuple(sorted((reason, n) for reason, n in counts.items() if n))
    return NoFit(total, reasons)


def rejections(snapshot: Snapshot, pod: Pod, memo: Memo) -> Iterable[Rejection]:
    """What every filter rejects among all nodes, not only the first one for each node."""
    alive = snapshot.table.alive
    known = static(snapshot, pod.spec, memo).rejections
    for plugin in snapshot.plugins:
        yield from known.get(plugin, ())
        yield from plugin.filter(pod, alive)


def _count(rejections: Iterable[Rejection], rows: Bools, counts: Counter[str]) -> Bools:
    left = rows
    for reason, rejected in rejections:
        # A filter may give two reasons for one node; each is counted.
        counts[reason] += int(np.count_nonzero(rows & rejected))
        left = left & ~rejected
    return left
