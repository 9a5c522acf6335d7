"""
Place admitted pods with the scheduler's queue order and planner, without a cluster.

    1. a pod with `nodeName` is charged to its node; a pod of another scheduler is left to it
    2. the others form units (a pod, or a whole gang), in the order of the queue
    3. each unit is planned once on the capacity that is left, and its plan is charged at once

One pass is enough: no pod ends, so no capacity is freed. Pods of another scheduler are charged
nowhere, because their nodes are unknown.
"""

from collections.abc import Iterable
from typing import Final

from kubenexus.simulate.result import Pod, PodOutcome
from policies import vocabulary
from policies.json_fields import Json
from scheduler.cache.snapshot import Snapshot
from scheduler.errors import ModelError
from scheduler.model import pod as model
from scheduler.model import unit as units
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed
from scheduler.model.policy import NO_POLICIES, PlacementTables
from scheduler.plan import planner
from scheduler.plan.colocation import BoundMembers

_GATED: Final = "has scheduling gates; pending until they are removed"


def place(
    nodes: Iterable[Json], pods: Iterable[Json], tables: PlacementTables = NO_POLICIES
) -> dict[str, Pod]:
    """The outcome of every pod, by uid; `ModelError` for a node that cannot be read."""
    snapshot = Snapshot.of(Node.read(node) for node in nodes)
    snapshot.adopt(tables)
    outcomes: dict[str, Pod] = {}
    waiting: list[model.Pod] = []
    bound: dict[units.UnitKey, list[tuple[model.Pod, str]]] = {}
    for obj in pods:
        try:
            pod = model.Pod.read(obj)
        except ModelError as exc:
            name, uid = str(obj["metadata"]["name"]), str(obj["metadata"]["uid"])
            outcomes[uid] = Pod(name, PodOutcome.PENDING, reasons=(str(exc),))
            continue
        if pod.node:
            outcomes[pod.uid] = _named(pod, snapshot)
            if pod.gang is not None and pod.node in snapshot:
                bound.setdefault(pod.gang.key, []).append((pod, pod.node))
        elif pod.scheduler != vocabulary.SCHEDULER_NAME:
            outcomes[pod.uid] = Pod(pod.key.name, PodOutcome.LEFT, scheduler=pod.scheduler)
        elif pod.gated:
            outcomes[pod.uid] = _pending(pod, _GATED)
        else:
            waiting.append(pod)
    for unit in units.units(waiting, lambda key: len(bound.get(key, ()))):
        outcomes |= _planned(unit, snapshot, bound.get(unit.key, ()))
    return outcomes


def _named(pod: model.Pod, snapshot: Snapshot) -> Pod:
    """A pod with `nodeName` bypasses the scheduler, whether it fits or not."""
    if pod.node not in snapshot:
        return _pending(pod, f"nodeName is {pod.node}, which does not exist")
    snapshot.charge(pod, pod.node)
    return Pod(pod.key.name, PodOutcome.PLACED, scheduler=pod.scheduler, node=pod.node)


def _planned(unit: units.Unit, snapshot: Snapshot, bound_members: BoundMembers) -> dict[str, Pod]:
    match planner.plan(unit, snapshot, bound_members=bound_members):
        case NoFit() as misfit:
            return {pod.uid: _pending(pod, misfit.text) for pod in unit.pods}
        case Placed() as plan:
            why = plan.why_unplaced.text if plan.why_unplaced else ""
            outcomes = {pod.uid: _pending(pod, why) for pod in plan.unplaced}
            for placement in plan.placements:
                snapshot.charge(placement.pod, placement.node, placement.assignment)
                outcomes[placement.pod.uid] = Pod(
                    placement.pod.key.name,
                    PodOutcome.PLACED,
                    scheduler=placement.pod.scheduler,
                    node=placement.node,
                    numa=placement.assignment.numa,
                    gpus=placement.assignment.gpus,
                )
            return outcomes


def _pending(pod: model.Pod, reason: str) -> Pod:
    return Pod(pod.key.name, PodOutcome.PENDING, scheduler=pod.scheduler, reasons=(reason,))
