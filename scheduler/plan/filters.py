"""
Which nodes can take a pod: filters over all nodes at once, in kube-scheduler's order.

    unschedulable, taints, node affinity     depend on the node's own facts: `statics`
    host ports                               depend on who is on the node
    resources                                depend on what is free: `capacity`
    volumes, topology spread, pod affinity   depend on who is where
    VRAM, NUMA                               the inside of the host

As in kube-scheduler the first filter that refuses a node gives the reason for it, and the resource
filter names every resource that is short. `explain` counts these reasons; the planner itself only
wants to know who is left. A `Memo` keeps what was derived while the facts behind it stand still.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from policies import quantity, vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.pod_volumes import NO_VOLUMES
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.model.resources import LARGEST, PODS
from scheduler.model.taints import CORDON, Taint, Toleration, tolerated
from scheduler.plan.memo import Codes, Memo
from scheduler.plugins import node_affinity
from scheduler.plugins.numa.allocator import NO_TOPOLOGY, SHORT_OF_ROOM, NumaMisfit

UNSCHEDULABLE: Final = "node(s) were unschedulable"
TAINTED: Final = "node(s) had untolerated taint(s)"
NOT_SELECTED: Final = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
TOO_MANY_PODS: Final = "Too many pods"
HELD: Final = "node(s) were held for a pod group that has waited longer"

STATIC: Final = ("", UNSCHEDULABLE, TAINTED, NOT_SELECTED, NOT_NAMED)  # the index is the code
_CORDONED: Final = Taint(CORDON)
_VRAM_TOLERANCE: Final = 0.98  # a GPU sold as 80 GB reports a little less than 80Gi

GPUS: Final = frozenset(vocabulary.GPU_RESOURCES)

Outside = tuple[str, Bools]
"""A reason, and the rows that it keeps a gang out of."""


def statics(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> Codes:
    """For every row 0, or the code of the first filter on the node's own facts that refuses."""
    table = snapshot.table
    key = (spec.selector, spec.tolerations, spec.node_constraints.required)
    known = memo.statics.get(key)
    if known is not None and known[0] == table.statics:
        return known[1]
    by_set = np.array(
        [_taint_code(table.taint_sets[code], spec.tolerations) for code in _codes(table)],
        dtype=np.uint8,
    )
    codes: Codes = by_set[table.taints]
    codes[(codes == 0) & ~node_affinity.matching(table, spec)] = STATIC.index(NOT_SELECTED)
    named = node_affinity.named(table, spec.node_constraints)
    if named is not None:
        codes[~named] = STATIC.index(NOT_NAMED)
    memo.remember(memo.statics, key, (table.statics, codes))
    return codes


def _codes(table: NodeTable) -> range:
    return range(len(table.taint_sets))


def _taint_code(found: tuple[tuple[Taint, ...], bool], tolerations: tuple[Toleration, ...]) -> int:
    taints, unschedulable = found
    if unschedulable and not tolerated(_CORDONED, tolerations):
        return STATIC.index(UNSCHEDULABLE)
    kept_out = any(not tolerated(taint, tolerations) for taint in taints)
    return STATIC.index(TAINTED) if kept_out else 0


def candidates(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> Bools:
    """The rows that only what is free, or who is where, can refuse."""
    table = snapshot.table
    rows: Bools = table.alive & (statics(snapshot, spec, memo) == 0)
    if spec.node_constraints.features:
        rows &= node_affinity.declaring(table, spec.node_constraints)
    if spec.vram:
        rows &= snapshot.placement_policy.vram() >= int(spec.vram * _VRAM_TOLERANCE)
    for _, refused in snapshot.placement_policy.refused(spec):
        rows &= ~refused
    if spec.host_request.needs_topology:
        rows &= table.has_topology
    return rows


def depends(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether more than amounts changes for the pod when others are placed."""
    spec = pod.spec
    if spec.ports or spec.volumes != NO_VOLUMES or spec.resource_claims is not NO_RESOURCE_CLAIMS:
        return True
    return snapshot.interpod.concerns(pod)


def interacts(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether one of several equal pods, once placed, changes more than amounts for the others."""
    spec = pod.spec
    steady = snapshot.volumes.steady(pod)
    if spec.ports or not steady or spec.resource_claims is not NO_RESOURCE_CLAIMS:
        return True
    return snapshot.interpod.concerns(pod)


def social(snapshot: Snapshot, pod: Pod, rows: Bools) -> Bools:
    """Those of the rows that ports, volumes, other pods and devices leave open."""
    left = rows
    for book in (snapshot.ports, snapshot.volumes, snapshot.interpod, snapshot.devices):
        for _, refused in book.refuse(pod, left):
            left = left & ~refused
    return left


def feasible(snapshot: Snapshot, pod: Pod, memo: Memo) -> Bools:
    """The rows that could take the pod as things stand."""
    if pod.spec.unsupported or snapshot.volumes.trouble(pod) or snapshot.devices.trouble(pod):
        return np.zeros_like(snapshot.table.alive)
    rows = candidates(snapshot, pod.spec, memo)
    rows &= capacity(snapshot, pod.spec, rows, 1) > 0
    rows = social(snapshot, pod, rows) if depends(snapshot, pod) else rows
    for row in np.flatnonzero(rows):
        name = snapshot.table.names[row]
        if name in snapshot.host_usage and isinstance(snapshot.choose(pod, name), NumaMisfit):
            rows[row] = False
    return rows


def capacity(snapshot: Snapshot, spec: SchedulingSpec, rows: Bools, most: int = LARGEST) -> Ints:
    """How many pods of this shape each row can take by amounts alone, at most `most`."""
    table = snapshot.table
    if most == 1:
        fits = rows.copy()
        for name, count in spec.requests:
            fits &= table.free(name) >= count
        if snapshot.numa_table.matters(spec.host_request):
            fits &= snapshot.numa_table.most(spec.host_request) > 0
        return fits.astype(np.int64)
    room = np.where(rows, np.int64(most), np.int64(0))
    for name, count in spec.requests:
        np.minimum(room, table.free(name) // count, out=room)
    if snapshot.numa_table.matters(spec.host_request):
        np.minimum(room, snapshot.numa_table.most(spec.host_request), out=room)
    return np.maximum(room, 0)


def fits_now(snapshot: Snapshot, spec: SchedulingSpec, node: str, memo: Memo) -> bool:
    """Whether this one node could take the pod as things stand; NUMA is left to the planner."""
    table = snapshot.table
    row = table.rows.get(node)
    if row is None or statics(snapshot, spec, memo)[row] != 0:
        return False
    if any(refused[row] for _, refused in snapshot.placement_policy.refused(spec)):
        return False
    return all(table.free_at(row, name) >= count for name, count in spec.requests)


def explain(
    snapshot: Snapshot,
    pod: Pod,
    memo: Memo,
    *,
    closed: Bools | None = None,
    outside: Outside | None = None,
) -> NoFit:
    """
    Why no node takes the pod now, counted over all nodes; `closed` ones are held for others,
    `outside` ones are where the rest of its gang is not.
    """
    total, spec = len(snapshot), pod.spec
    if spec.unsupported:
        return NoFit(total, message="; ".join(spec.unsupported))
    table = snapshot.table
    if spec.host_request.needs_topology and total and not (table.has_topology & table.alive).any():
        return NoFit(total, message=vocabulary.NO_NUMA_TOPOLOGY)
    if total and (trouble := _trouble(snapshot, pod)):
        return NoFit(total, message=trouble)
    counts: Counter[str] = Counter()
    codes = statics(snapshot, spec, memo)
    for code in range(1, len(STATIC)):
        counts[STATIC[code]] += int(np.count_nonzero(table.alive & (codes == code)))
    left = table.alive & (codes == 0)
    left = _count(snapshot.ports.refuse(pod, left), left, counts)
    left = _count_resources(snapshot, spec, left, counts)
    left = _count(snapshot.volumes.refuse(pod, left), left, counts)
    left = _count(snapshot.interpod.refuse(pod, left), left, counts)
    left = _count(snapshot.devices.refuse(pod, left), left, counts)
    if spec.node_constraints.features:
        unable = ~node_affinity.declaring(table, spec.node_constraints)
        left = _count(iter([(node_affinity.UNDECLARED, unable)]), left, counts)
    left = _count(iter(snapshot.placement_policy.refused(spec)), left, counts)
    left = _count_vram(snapshot, spec, left, counts)
    if outside is not None:
        left = _count(iter([outside]), left, counts)
    if closed is not None:
        left = _count(iter([(HELD, closed)]), left, counts)
    _count_insides(snapshot, pod, left, counts)
    reasons = tuple(sorted((reason, n) for reason, n in counts.items() if reason and n))
    return NoFit(total, reasons)


def _trouble(snapshot: Snapshot, pod: Pod) -> str:
    """What no node can help with."""
    mine = node_affinity.trouble(pod.spec.node_constraints)
    mine = mine or snapshot.placement_policy.trouble(pod.spec)
    return mine or snapshot.volumes.trouble(pod) or snapshot.devices.trouble(pod)


def _count(found: Iterator[tuple[str, Bools]], rows: Bools, counts: Counter[str]) -> Bools:
    left = rows
    for reason, refused in found:
        # A filter may give two reasons for one node; each is counted.
        counts[reason] += int(np.count_nonzero(rows & refused))
        left = left & ~refused
    return left


def _count_resources(
    snapshot: Snapshot, spec: SchedulingSpec, rows: Bools, counts: Counter[str]
) -> Bools:
    left = rows.copy()
    for name, count in spec.requests:
        short = rows & (snapshot.table.free(name) < count)
        counts[TOO_MANY_PODS if name == PODS else f"Insufficient {name}"] += int(
            np.count_nonzero(short)
        )
        left &= ~short
    return left


def _count_vram(
    snapshot: Snapshot, spec: SchedulingSpec, rows: Bools, counts: Counter[str]
) -> Bools:
    if not spec.vram:
        return rows
    table = snapshot.table
    vram = snapshot.placement_policy.vram()
    short = rows & (vram < int(spec.vram * _VRAM_TOLERANCE))
    largest = int(vram[table.alive].max(initial=0))
    text = (
        f"{vocabulary.INSUFFICIENT_VRAM}: need {quantity.binary(spec.vram)} a GPU, "
        f"largest {quantity.binary(largest)}"
    )
    counts[text] += int(np.count_nonzero(short))
    return rows & ~short


def _count_insides(snapshot: Snapshot, pod: Pod, rows: Bools, counts: Counter[str]) -> None:
    """By what is free inside the hosts, told with the largest that any of them has free."""
    ask, names = pod.spec.host_request, snapshot.table.names
    left = rows
    if ask.policy == "single-numa" and not ask.apart:
        left = rows & (snapshot.numa_table.most(ask) > 0)
    said: dict[str, list[int]] = {
        vocabulary.NO_SINGLE_NUMA_NODE: np.flatnonzero(rows & ~left).tolist()
    }
    for row in map(int, np.flatnonzero(left)):
        said.setdefault(_inside(snapshot, pod, names[row]), []).append(row)
    for reason, found in said.items():
        text = reason
        if found and reason in SHORT_OF_ROOM:
            short = np.zeros_like(rows)
            short[found] = True
            text = f"{reason}: {snapshot.numa_table.shortage(ask, short)}"
        counts[text] += len(found)


def _inside(snapshot: Snapshot, pod: Pod, node: str) -> str:
    """The host's own reason; empty when it would take this pod."""
    if pod.spec.host_request.needs_topology and node not in snapshot.host_usage:
        return NO_TOPOLOGY
    chosen = snapshot.choose(pod, node)
    return chosen.reason if isinstance(chosen, NumaMisfit) else ""
