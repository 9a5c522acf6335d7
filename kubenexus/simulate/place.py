"""
What the scheduler does with the admitted pods: its queue's order, its planner, no cluster.

    1. pods that name their node hold it already; pods of another scheduler are left to it
    2. the others form units (a pod, or a whole gang), in the order in which the queue has them
    3. each unit is planned once on what the ones before it left; a plan is charged at once

Once is enough: nothing ends or frees room here. Pods of another scheduler take no room, because
nobody can say where it would put them.
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
from scheduler.plan.colocation import Mates

_GATED: Final = "has scheduling gates; nobody places it until they are lifted"


def place(
    nodes: Iterable[Json], pods: Iterable[Json], tables: PlacementTables = NO_POLICIES
) -> dict[str, Pod]:
    """The fate of every pod, by uid; `ModelError` for a node that cannot be read."""
    snapshot = Snapshot.of(Node.read(node) for node in nodes)
    snapshot.adopt(tables)
    fates: dict[str, Pod] = {}
    waiting: list[model.Pod] = []
    bound: dict[units.UnitKey, list[tuple[model.Pod, str]]] = {}
    for obj in pods:
        try:
            pod = model.Pod.read(obj)
        except ModelError as exc:
            name, uid = str(obj["metadata"]["name"]), str(obj["metadata"]["uid"])
            fates[uid] = Pod(name, PodOutcome.PENDING, reasons=(str(exc),))
            continue
        if pod.node:
            fates[pod.uid] = _named(pod, snapshot)
            if pod.gang is not None and pod.node in snapshot:
                bound.setdefault(pod.gang.key, []).append((pod, pod.node))
        elif pod.scheduler != vocabulary.SCHEDULER_NAME:
            fates[pod.uid] = Pod(pod.key.name, PodOutcome.LEFT, scheduler=pod.scheduler)
        elif pod.gated:
            fates[pod.uid] = _pending(pod, _GATED)
        else:
            waiting.append(pod)
    for unit in units.units(waiting, lambda key: len(bound.get(key, ()))):
        fates |= _planned(unit, snapshot, bound.get(unit.key, ()))
    return fates


def _named(pod: model.Pod, snapshot: Snapshot) -> Pod:
    """A pod whose manifest says the node: no scheduler is asked, room or not."""
    if pod.node not in snapshot:
        return _pending(pod, f"names node {pod.node}, which does not exist")
    snapshot.charge(pod, pod.node)
    return Pod(pod.key.name, PodOutcome.PLACED, scheduler=pod.scheduler, node=pod.node)


def _planned(unit: units.Unit, snapshot: Snapshot, bound_members: Mates) -> dict[str, Pod]:
    match planner.plan(unit, snapshot, bound_members=bound_members):
        case NoFit() as misfit:
            return {pod.uid: _pending(pod, misfit.text) for pod in unit.pods}
        case Placed() as plan:
            why = plan.why_unplaced.text if plan.why_unplaced else ""
            fates = {pod.uid: _pending(pod, why) for pod in plan.unplaced}
            for one in plan.placements:
                snapshot.charge(one.pod, one.node, one.assignment)
                fates[one.pod.uid] = Pod(
                    one.pod.key.name,
                    PodOutcome.PLACED,
                    scheduler=one.pod.scheduler,
                    node=one.node,
                    numa=one.assignment.numa,
                    gpus=one.assignment.gpus,
                )
            return fates


def _pending(pod: model.Pod, reason: str) -> Pod:
    return Pod(pod.key.name, PodOutcome.PENDING, scheduler=pod.scheduler, reasons=(reason,))
