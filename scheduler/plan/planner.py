"""
Plans a unit on the snapshot. Pure: same unit, same snapshot, same plan; no clock, no I/O.

    1. a forming gang is not planned; a pod with unsupported requests fits no node
    2. equal members form a class; the leader's class goes first, then the most demanding
    3. `attempts`, each on a trial: within one domain of the narrowest topology level that has the
       capacity, and anywhere; the best has the fewest nodes, then the fewest domains. A gang whose
       members must share a domain (`colocation`) is tried inside single domains only
    4. `Placed` if at least `need` members are placed, with as many others as fit; else `NoFit`
    5. the trial is undone: the caller assumes the plan

A single pod without GPUs is placed as kube-scheduler would score it; GPU pods and gangs are packed.
Nominated pods of no lower priority count as placed on their nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools
from scheduler.model.plan import GangCount, NoFit, Plan
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.model.unit import Unit, forming_count
from scheduler.plan import attempts, colocation, filters
from scheduler.plan.colocation import BoundMembers, ColocationRequirement
from scheduler.plan.memo import Memo
from scheduler.plan.placement import PlacementAttempt, PlacementContext, dominant

__all__ = ["Memo", "Unplaced", "fill", "plan", "rows_of"]

Run = tuple[SchedulingSpec, tuple[object, ...], list[Pod]]
"""Equal pods, with their spec and their signature."""


def plan(
    unit: Unit,
    snapshot: Snapshot,
    *,
    memo: Memo | None = None,
    closed: frozenset[str] = frozenset(),
    bound_members: BoundMembers = (),
) -> Plan:
    """
    Nodes for the unit, or why there are none; `closed` nodes are held for other units.

    `bound_members` of the gang have a node and may pin the gang to a domain.
    """
    if unit.forming:
        return NoFit(len(snapshot), gang=forming_count(unit), forming=True)
    memo = memo or Memo()
    runs = _runs(unit.pods, snapshot)
    signatures = tuple((spec, signature, len(pods)) for spec, signature, pods in runs)
    requirement = _colocation(unit, snapshot, bound_members)
    pins = frozenset(node for _, node in bound_members) if requirement is not None else None
    # A gang whose members must not share a NUMA node depends on its own bound members.
    own_key = unit.key if any(pod.spec.host_request.apart for pod in unit.pods) else None
    key = (
        signatures,
        unit.need if unit.is_gang else 0,
        closed,
        unit.order[0],
        requirement,
        pins,
        own_key,
    )
    version = _snapshot_version(runs, snapshot)
    known = memo.kept(memo.misfits, key)
    if known is not None and known[0] == version:
        return _with_gang_count(known[1], unit)
    context = _context(unit, snapshot, memo, closed)
    with snapshot.trial():
        _count_nominees(unit, snapshot)
        best = _best(unit, context, requirement, bound_members, runs)
    if best.count >= unit.need:
        return best.placed()
    no_fit = best.no_fit(unit.need)
    memo.remember_misfit(key, version, no_fit)
    return _with_gang_count(no_fit, unit)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The first pod that `fill` could not place."""

    pod: Pod | None
    """None: all pods fit."""
    outside: filters.Outside | None = None
    """The rows that its gang excludes, with their reason."""


def fill(
    unit: Unit,
    snapshot: Snapshot,
    *,
    memo: Memo,
    closed: frozenset[str] = frozenset(),
    bound_members: BoundMembers = (),
) -> Unplaced:
    """Place the pods of the unit that fit on the current trial."""
    context = _context(unit, snapshot, memo, closed)
    _count_nominees(unit, snapshot)
    runs = _runs(unit.pods, snapshot)
    attempt, order = PlacementAttempt(context), _classes(runs, snapshot)
    requirement = _colocation(unit, snapshot, bound_members)
    if requirement is not None:
        best = _best(unit, context, requirement, bound_members, runs)
        attempt = PlacementAttempt(context, best.within.rows, best.reason(unit.need))
        order = [list(members) for members in best.order]
    for members in order:
        attempt.fill(members)
    return Unplaced(attempt.unplaced[0] if attempt.unplaced else None, attempt.outside_rows())


def _snapshot_version(runs: Sequence[Run], snapshot: Snapshot) -> tuple[int, int, int]:
    """
    While it is the same, a unit that did not fit does not fit.

    Only events that free capacity change it; for pods that depend on other pods, all events do.
    """
    depends = any(filters.depends_on_pods(snapshot, pods[0]) for _, _, pods in runs)
    return snapshot.freed, len(snapshot), snapshot.moved if depends else 0


def _colocation(
    unit: Unit, snapshot: Snapshot, bound_members: BoundMembers
) -> ColocationRequirement | None:
    """What the members of a gang require together; a single pod has no such requirement."""
    if not unit.is_gang:
        return None
    members = (*unit.pods, *unit.gated, *(pod for pod, _ in bound_members))
    return colocation.requirement_of((pod.spec for pod in members), snapshot.placement_policy)


def _context(
    unit: Unit, snapshot: Snapshot, memo: Memo, closed: frozenset[str]
) -> PlacementContext:
    levels = snapshot.tables.levels
    return PlacementContext(
        snapshot, memo, levels, rows_of(snapshot, closed), spread=_spreads(unit)
    )


def _best(
    unit: Unit,
    context: PlacementContext,
    requirement: ColocationRequirement | None,
    bound_members: BoundMembers,
    runs: Sequence[Run],
) -> attempts.AttemptResult:
    classes = _classes(runs, context.snapshot)
    if requirement is None:
        return attempts.anywhere(classes, unit.need, context)
    return attempts.colocated(classes, unit.need, context, requirement, bound_members)


def _spreads(unit: Unit) -> bool:
    spec = unit.pods[0].spec
    return (
        not unit.is_gang
        and spec.host_request.gpus == 0
        and spec.resource_claims is NO_RESOURCE_CLAIMS
    )


def rows_of(snapshot: Snapshot, names: frozenset[str]) -> Bools | None:
    """The rows of these nodes; None: there are none."""
    if not names:
        return None
    rows = np.zeros_like(snapshot.table.alive)
    rows[[snapshot.table.rows[name] for name in names if name in snapshot]] = True
    return rows


def _count_nominees(unit: Unit, snapshot: Snapshot) -> None:
    members = {pod.uid for pod in unit.pods}
    priority = max(pod.priority for pod in unit.pods)
    for uid, pod in sorted(snapshot.nominees.items()):
        if uid not in members and pod.priority >= priority and pod.nominated in snapshot:
            snapshot.suppose(pod, pod.nominated)


def _with_gang_count(rejection: NoFit, unit: Unit) -> NoFit:
    """With the count of this gang: the memo may hold that of an equal gang with another name."""
    if not unit.is_gang or unit.bound >= unit.size:
        return replace(rejection, gang=None)
    have = unit.bound + (rejection.gang.have if rejection.gang else 0)
    return replace(rejection, gang=GangCount(unit.key.name, have, unit.size, "members fit"))


def _runs(pods: Sequence[Pod], snapshot: Snapshot) -> list[Run]:
    """
    Neighbours that share their values, as placeholders of one gang do, so that a thousand of them
    cost no more than one.
    """
    runs: list[Run] = []
    last: Pod | None = None
    for pod in pods:
        if last is not None and _shares_values(pod, last):
            runs[-1][2].append(pod)
        else:
            runs.append((pod.spec, snapshot.signature(pod), [pod]))
            last = pod
    return runs


def _shares_values(pod: Pod, other: Pod) -> bool:
    """The same objects, not equal ones: pods that were read one by one share none."""
    return (
        pod.spec is other.spec
        and pod.labels is other.labels
        and pod.gang is other.gang
        and pod.attributes is other.attributes
        and pod.resource_claims is other.resource_claims
        and pod.key.namespace == other.key.namespace
    )


def _classes(runs: Sequence[Run], snapshot: Snapshot) -> list[list[Pod]]:
    """Equal members together; leaders first, then by demand."""
    groups: dict[tuple[bool, SchedulingSpec, tuple[object, ...]], list[Pod]] = {}
    for spec, signature, pods in runs:
        leads = bool(pods[0].gang and pods[0].gang.leader)
        groups.setdefault((not leads, spec, signature), []).extend(pods)
    if len(groups) == 1:
        return list(groups.values())
    demand = {spec: _demand(spec, snapshot) for _, spec, _ in groups}
    return [
        groups[key] for key in sorted(groups, key=lambda k: (k[0], -demand[k[1]], groups[k][0].uid))
    ]


def _demand(spec: SchedulingSpec, snapshot: Snapshot) -> float:
    name, share = dominant(spec, snapshot.table)
    devices = name in filters.GPUS or spec.resource_claims is not NO_RESOURCE_CLAIMS
    return share + (1 if devices else 0)
