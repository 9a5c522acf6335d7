"""
Deciding where a unit goes. Pure: same unit, same snapshot, same plan; no clock, no I/O.

    1. a forming gang is not planned; a pod that asks in vain is refused
    2. members that are alike form a class; the leader's class first, then the most demanding
    3. `attempts`, each on a trial: within one domain of the narrowest topology level that can hold
       the gang, and anywhere; the best is kept: fewest nodes, then fewest domains. A gang whose
       members must share a domain (`gathering`) is tried inside single domains alone
    4. at least `need` members placed: `Placed`, the others follow if they fit; otherwise `NoFit`
    5. whatever was placed on the snapshot is taken back: the caller assumes a plan, not planning

A single pod without GPUs is placed as kube-scheduler would score it; GPU pods and gangs are packed.
Pods that another scheduler is making room for count as placed, where they are no less important.
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
from scheduler.plan.colocation import ColocationRequirement, Mates
from scheduler.plan.memo import Memo
from scheduler.plan.placement import PlacementAttempt, PlacementContext, dominant

__all__ = ["Memo", "Unplaced", "fill", "helps", "plan", "rows_of"]


def plan(
    unit: Unit,
    snapshot: Snapshot,
    *,
    memo: Memo | None = None,
    closed: frozenset[str] = frozenset(),
    bound_members: Mates = (),
) -> Plan:
    """
    Nodes for the unit, or why there are none; `closed` nodes are held for somebody else.

    `bound_members` are the members of the gang that have a node: they may pin it to a domain.
    """
    if unit.forming:
        return NoFit(len(snapshot), gang=forming_count(unit), forming=True)
    memo = memo or Memo()
    alike = tuple((pod.spec, snapshot.signature(pod)) for pod in unit.pods)
    gather = _gathering(unit, snapshot, bound_members)
    pins = frozenset(node for _, node in bound_members) if gather is not None else None
    # Whose members may share no NUMA node is told apart by its name: it has mates of its own.
    own = unit.key if any(pod.spec.host_request.apart for pod in unit.pods) else None
    key = (alike, unit.need if unit.is_gang else 0, closed, unit.order[0], gather, pins, own)
    moment = _moment(unit, snapshot)
    known = memo.misfits.get(key)
    if known is not None and known[0] == moment:
        return _for_gang(known[1], unit)
    ground = _ground(unit, snapshot, memo, closed)
    with snapshot.trial():
        _count_nominees(unit, snapshot)
        best = _best(unit, ground, gather, bound_members)
    if best.count >= unit.need:
        return best.placed()
    found = best.misfit(unit.need)
    memo.remember(memo.misfits, key, (moment, found))
    return _for_gang(found, unit)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What `fill` could not place."""

    left: Pod | None
    """The first pod that does not fit."""
    outside: filters.Outside | None = None
    """Where it may not go because of its gang."""


def fill(
    unit: Unit,
    snapshot: Snapshot,
    *,
    memo: Memo,
    closed: frozenset[str] = frozenset(),
    bound_members: Mates = (),
) -> Unplaced:
    """Place on the present trial what fits of the unit."""
    ground = _ground(unit, snapshot, memo, closed)
    _count_nominees(unit, snapshot)
    filling, order = PlacementAttempt(ground), _classes(unit.pods, snapshot)
    gather = _gathering(unit, snapshot, bound_members)
    if gather is not None:
        best = _best(unit, ground, gather, bound_members)
        filling = PlacementAttempt(ground, best.within.rows, best.reason(unit.need))
        order = [list(one) for one in best.order]
    for members in order:
        filling.fill(members)
    return Unplaced(filling.left[0] if filling.left else None, filling.bound())


def helps(spec: SchedulingSpec, snapshot: Snapshot, nodes: Sequence[str], memo: Memo) -> bool:
    """Whether changes of these nodes may help a unit with such a pod: it would fit on one now."""
    return filters.fits_any(snapshot, spec, nodes, memo)


def _moment(unit: Unit, snapshot: Snapshot) -> tuple[int, int, int]:
    """
    Between two changes that free something, what did not fit does not fit.

    A pod that looks at others may be helped by any change.
    """
    social = any(filters.depends_on_pods(snapshot, pod) for pod in unit.pods)
    return snapshot.freed, len(snapshot), snapshot.moved if social else 0


def _gathering(
    unit: Unit, snapshot: Snapshot, bound_members: Mates
) -> ColocationRequirement | None:
    """What members of a gang ask for together; of a pod alone only its own node is asked."""
    if not unit.is_gang:
        return None
    members = (*unit.pods, *unit.gated, *(pod for pod, _ in bound_members))
    return colocation.of((pod.spec for pod in members), snapshot.placement_policy)


def _ground(unit: Unit, snapshot: Snapshot, memo: Memo, closed: frozenset[str]) -> PlacementContext:
    levels = snapshot.tables.levels
    return PlacementContext(
        snapshot, memo, levels, rows_of(snapshot, closed), spread=_spreads(unit)
    )


def _best(
    unit: Unit, ground: PlacementContext, gather: ColocationRequirement | None, bound_members: Mates
) -> attempts.AttemptResult:
    classes = _classes(unit.pods, ground.snapshot)
    if gather is None:
        return attempts.anywhere(classes, unit.need, ground)
    return attempts.together(classes, unit.need, ground, gather, bound_members)


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
    mine = {pod.uid for pod in unit.pods}
    priority = max(pod.priority for pod in unit.pods)
    for uid, pod in sorted(snapshot.nominees.items()):
        if uid not in mine and pod.priority >= priority and pod.nominated in snapshot:
            snapshot.suppose(pod, pod.nominated)


def _for_gang(found: NoFit, unit: Unit) -> NoFit:
    """Counted for this gang: an equal one that did not fit may have another name."""
    if not unit.is_gang or unit.bound >= unit.size:
        return replace(found, gang=None)
    have = unit.bound + (found.gang.have if found.gang else 0)
    return replace(found, gang=GangCount(unit.key.name, have, unit.size, "members fit"))


def _classes(pods: Sequence[Pod], snapshot: Snapshot) -> list[list[Pod]]:
    """Members that are alike together; leaders first, then by what they demand."""
    groups: dict[tuple[bool, SchedulingSpec, tuple[object, ...]], list[Pod]] = {}
    for pod in pods:
        leads = bool(pod.gang and pod.gang.leader)
        groups.setdefault((not leads, pod.spec, snapshot.signature(pod)), []).append(pod)
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
