"""
The simulation in virtual time, in order. Pure: the same inputs and policies give the same report.

    1. namespaces, nodes and priority classes exist
    2. each workload is created when it arrives; where it is admitted, its controller makes its pods
    3. the scheduler works on a clock that jumps, until all has started that ever can
    4. who waited how long and got how much, tenant by tenant; other ways of deciding beside it

How long a pod runs is what `dev.kubenexus.io/run-for` says, else what it expects itself, else what
policies say of its type; Deployments and the like run for ever. A gang arrives with the last of its
members, and lasts as long as the one that lasts longest.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubenexus.simulate import result, run
from kubenexus.simulate.inputs import InputManifest, Inputs
from kubenexus.simulate.run import Admitted
from kubenexus.simulate.virtual_time import engine, wait_statistics
from kubenexus.simulate.virtual_time.cluster import EPOCH
from kubenexus.simulate.virtual_time.timeline import Job, Span, TimelineEntry
from policies import duration, vocabulary
from policies.engine.policyset import PolicySet
from policies.json_fields import JsonDict
from policies.pods import workloads
from scheduler.errors import ModelError
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.model.policy import PlacementTables
from scheduler.model.unit import UnitKey, key_of
from scheduler.tenancy.quota.tree import TenantTree

_ENDLESS: Final = frozenset(
    {
        "Deployment",
        "LeaderWorkerSet",
        "RayCluster",
        "RayService",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    }
)
_NAMED: Final = 5  # units that never start and are told why
_TICK: Final = 1e-6  # seconds between two that arrive together, so that their order is the files'


@dataclass(frozen=True, slots=True)
class TimedReport:
    """What came of it."""

    cluster: result.Totals
    measure: str
    """`GPU` or `CPU`: whose time is told."""
    units: int
    until: float
    """Seconds over which time in use is counted."""
    tenants: tuple[wait_statistics.TenantStatistics, ...]
    """By name, all of them at the end."""
    strategies: tuple[tuple[str, wait_statistics.ClusterStatistics], ...]
    happened: tuple[TimelineEntry, ...]
    notes: tuple[str, ...]


def simulate(
    inputs: Inputs,
    policies: PolicySet,
    *,
    within: float | None = None,
    strategies: Sequence[str] = (engine.OURS,),
) -> TimedReport:
    """`within`: what arrives later is left out; None: everything."""
    order = _in_order(inputs.manifests)
    here = [(at, one) for at, one in order if within is None or at <= within]
    admitted = run.admit(inputs, [one for _, one in here], policies)
    tables = PlacementTables.of(policies)
    work = _Work(tables)
    for (at, _), one in zip(here, admitted, strict=True):
        work.add(one, at)
    jobs = work.jobs()
    nodes = [Node.read(node) for node in inputs.cluster.nodes]
    runs = {strategy: engine.run(nodes, jobs, strategy, tables=tables) for strategy in strategies}
    notes = (*work.notes(len(order) - len(here)), *_stuck(runs[engine.OURS].stuck))
    by_gpu = any(job.gpus for job in jobs)
    of = wait_statistics.gpus if by_gpu else wait_statistics.cpu
    there = sum(node.gpus if by_gpu else dict(node.allocatable).get("cpu", 0) for node in nodes)
    ours = runs[engine.OURS]
    until = _last_end(ours.used) if within is None else within
    due = wait_statistics.due(TenantTree.of(tables.policy), {job.tenant for job in jobs})
    return TimedReport(
        cluster=run.totals(inputs.cluster.nodes),
        measure="GPU" if by_gpu else "CPU",
        units=len(jobs),
        until=until,
        tenants=wait_statistics.tenants(jobs, ours, due, until=until, of=of),
        strategies=tuple(
            (strategy, wait_statistics.whole(jobs, found, due, there=there, until=until, of=of))
            for strategy, found in runs.items()
        ),
        happened=tuple(ours.happened),
        notes=notes,
    )


def _stuck(why: Mapping[UnitKey, str]) -> Iterable[str]:
    yield from (f"{key} never starts: {text}" for key, text in list(why.items())[:_NAMED])
    if len(why) > _NAMED:
        yield f"{len(why) - _NAMED} more never start"


def _in_order(manifests: Iterable[InputManifest]) -> list[tuple[float, InputManifest]]:
    """Workloads by the time of their arrival; of those that come together as in the files."""
    found = [(arrives(one), one) for one in manifests if one.type in workloads.KINDS]
    return sorted(found, key=lambda row: row[0])


def arrives(manifest: InputManifest) -> float:
    """Seconds from the beginning; 0 where nothing is said."""
    key = vocabulary.DEV_ARRIVES_ANNOTATION
    said = (manifest.obj["metadata"].get("annotations") or {}).get(key)
    try:
        return 0.0 if said is None else duration.parse(said)
    except duration.DurationError as exc:
        raise manifest.document.error(("metadata", "annotations", key), f"{key}: {exc}") from exc


class _Work:
    """Jobs, as the admitted manifests make them."""

    def __init__(self, tables: PlacementTables) -> None:
        rows = tables.policy.backfill.durations
        self._usual = {str(row.type): duration.parse(row.duration) for row in rows}
        self._members: dict[UnitKey, list[tuple[Pod, float, float]]] = {}
        self._count = 0
        self._left = 0
        self._notes: list[str] = []

    def add(self, one: Admitted, at: float) -> None:
        metadata = one.answer.obj["metadata"]
        title = f"{one.answer.obj['kind']} {metadata['namespace']}/{metadata['name']}"
        refusals = one.answer.refusals or next((p.refusals for p in one.pods if p.refusals), ())
        if refusals:
            self._notes.append(f"{title} is refused: {'; '.join(refusals)}")
        for answer in one.pods:
            if not answer.refusals:
                self._add_pod(one, answer.obj, at, title)

    def _add_pod(self, one: Admitted, obj: JsonDict, at: float, title: str) -> None:
        try:
            pod = Pod.read(obj)
        except ModelError as exc:
            self._notes.append(f"{title} is left out: {exc}")
            return
        if pod.scheduler != vocabulary.SCHEDULER_NAME or pod.node:
            self._left += 1
            return
        self._count += 1
        pod = replace(pod, created=EPOCH + at + self._count * _TICK)
        lasts = self._lasts(one.manifest, pod, obj)
        self._members.setdefault(key_of(pod), []).append((pod, at, lasts))

    def _lasts(self, manifest: InputManifest, pod: Pod, obj: JsonDict) -> float:
        key = vocabulary.DEV_RUN_FOR_ANNOTATION
        said = (obj["metadata"].get("annotations") or {}).get(key)
        try:
            known = pod.attributes.duration if said is None else duration.parse(said)
        except duration.DurationError as exc:
            raise manifest.document.error((), f"{key}: {exc}") from exc
        if known is None:
            known = self._usual.get(pod.attributes.workload_type)
        if known is not None:
            return known
        kind = manifest.type[1]
        if kind in _ENDLESS or (kind == "Pod" and _restarts(obj)):
            return math.inf
        raise manifest.document.error(
            (),
            f"nothing says how long this {kind} runs; give its pods the annotation "
            f"{vocabulary.EXPECTED_DURATION_ANNOTATION} or {key}",
        )

    def jobs(self) -> list[Job]:
        return [
            Job(
                tuple(pod for pod, _, _ in rows),
                max(at for _, at, _ in rows),
                max(lasts for _, _, lasts in rows),
            )
            for rows in self._members.values()
        ]

    def notes(self, late: int) -> tuple[str, ...]:
        more = []
        if one := self._left:
            said = "pod is" if one == 1 else "pods are"
            takes = "takes" if one == 1 else "take"
            more.append(f"{one} {said} not this scheduler's to place, and {takes} no room")
        if late:
            said = (
                "workload arrives later, and is" if late == 1 else "workloads arrive later, and are"
            )
            more.append(f"{late} {said} left out")
        return (*self._notes, *more)


def _restarts(obj: JsonDict) -> bool:
    return (obj["spec"].get("restartPolicy") or "Always") == "Always"


def _last_end(used: Iterable[Span]) -> float:
    """Of what ends; where nothing does, an hour is as good as any other time."""
    return max((one.end for one in used if math.isfinite(one.end)), default=wait_statistics.HOUR)
