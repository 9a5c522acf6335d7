"""
The simulation in virtual time, in order. Pure: the same inputs and policies give the same report.

    1. namespaces, nodes and priority classes exist
    2. each workload is created when it arrives; if it is admitted, its controller makes its pods
    3. the scheduler works on a clock that jumps, until every job that can start has started
    4. waits and shares of each tenant are reported; with `--compare` also those of other strategies

The run time of a pod is the annotation `dev.kubenexus.io/run-for`, else its expected duration, else
the duration that policies give its workload type; Deployments and other services never end. A gang
arrives with the last of its members, and runs as long as the member that runs longest.
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
_LISTED: Final = 5  # units that never start whose reason is printed
_TICK: Final = 1e-6  # seconds between two that arrive together, to keep the order of the files


@dataclass(frozen=True, slots=True)
class TimedReport:
    """Waits and shares of every tenant, and the timeline."""

    cluster: result.ClusterTotals
    measure: str
    """`GPU` or `CPU`: the resource whose time is counted."""
    units: int
    until: float
    """Seconds over which time in use is counted."""
    tenants: tuple[wait_statistics.TenantStatistics, ...]
    """By name, all of them at the end."""
    strategies: tuple[tuple[str, wait_statistics.ClusterStatistics], ...]
    timeline: tuple[TimelineEntry, ...]
    notes: tuple[str, ...]


def simulate(
    inputs: Inputs,
    policies: PolicySet,
    *,
    within: float | None = None,
    strategies: Sequence[str] = (engine.OURS,),
) -> TimedReport:
    """`within`: workloads that arrive later are left out; None: none is."""
    order = _in_order(inputs.manifests)
    arriving = [(at, manifest) for at, manifest in order if within is None or at <= within]
    admitted = run.admit(inputs, [manifest for _, manifest in arriving], policies)
    tables = PlacementTables.of(policies)
    work = _Work(tables)
    for (at, _), created in zip(arriving, admitted, strict=True):
        work.add(created, at)
    jobs = work.jobs()
    nodes = [Node.read(node) for node in inputs.cluster.nodes]
    runs = {strategy: engine.run(nodes, jobs, strategy, tables=tables) for strategy in strategies}
    notes = (*work.notes(len(order) - len(arriving)), *_stuck(runs[engine.OURS].stuck))
    by_gpu = any(job.gpus for job in jobs)
    measure = wait_statistics.gpus if by_gpu else wait_statistics.cpu
    capacity = sum(node.gpus if by_gpu else dict(node.allocatable).get("cpu", 0) for node in nodes)
    ours = runs[engine.OURS]
    until = _last_end(ours.used) if within is None else within
    fair_shares = wait_statistics.fair_shares(
        TenantTree.of(tables.policy), {job.tenant for job in jobs}
    )
    return TimedReport(
        cluster=run.totals(inputs.cluster.nodes),
        measure="GPU" if by_gpu else "CPU",
        units=len(jobs),
        until=until,
        tenants=wait_statistics.tenant_statistics(
            jobs, ours, fair_shares, until=until, measure=measure
        ),
        strategies=tuple(
            (
                strategy,
                wait_statistics.cluster_statistics(
                    jobs, strategy_run, fair_shares, capacity=capacity, until=until, measure=measure
                ),
            )
            for strategy, strategy_run in runs.items()
        ),
        timeline=tuple(ours.timeline),
        notes=notes,
    )


def _stuck(why: Mapping[UnitKey, str]) -> Iterable[str]:
    yield from (f"{key} never starts: {text}" for key, text in list(why.items())[:_LISTED])
    if len(why) > _LISTED:
        yield f"{len(why) - _LISTED} more never start"


def _in_order(manifests: Iterable[InputManifest]) -> list[tuple[float, InputManifest]]:
    """Workloads by their arrival; of those that arrive together in the order of the files."""
    arrivals = [
        (arrives(manifest), manifest) for manifest in manifests if manifest.type in workloads.KINDS
    ]
    return sorted(arrivals, key=lambda row: row[0])


def arrives(manifest: InputManifest) -> float:
    """Seconds from the beginning; 0 without the annotation."""
    key = vocabulary.DEV_ARRIVES_ANNOTATION
    written = (manifest.obj["metadata"].get("annotations") or {}).get(key)
    try:
        return 0.0 if written is None else duration.parse(written)
    except duration.DurationError as exc:
        raise manifest.document.error(("metadata", "annotations", key), f"{key}: {exc}") from exc


class _Work:
    """Jobs, as the admitted manifests make them."""

    def __init__(self, tables: PlacementTables) -> None:
        rows = tables.policy.backfill.durations
        self._default_run_times = {str(row.type): duration.parse(row.duration) for row in rows}
        self._members: dict[UnitKey, list[tuple[Pod, float, float]]] = {}
        self._count = 0
        self._left = 0
        self._notes: list[str] = []

    def add(self, admitted: Admitted, at: float) -> None:
        metadata = admitted.answer.obj["metadata"]
        title = f"{admitted.answer.obj['kind']} {metadata['namespace']}/{metadata['name']}"
        denials = admitted.answer.denials or next(
            (p.denials for p in admitted.pods if p.denials), ()
        )
        if denials:
            self._notes.append(f"{title} is denied: {'; '.join(denials)}")
        for answer in admitted.pods:
            if not answer.denials:
                self._add_pod(admitted, answer.obj, at, title)

    def _add_pod(self, admitted: Admitted, obj: JsonDict, at: float, title: str) -> None:
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
        run_time = self._run_time(admitted.manifest, pod, obj)
        self._members.setdefault(key_of(pod), []).append((pod, at, run_time))

    def _run_time(self, manifest: InputManifest, pod: Pod, obj: JsonDict) -> float:
        key = vocabulary.DEV_RUN_FOR_ANNOTATION
        written = (obj["metadata"].get("annotations") or {}).get(key)
        try:
            known = pod.attributes.duration if written is None else duration.parse(written)
        except duration.DurationError as exc:
            raise manifest.document.error((), f"{key}: {exc}") from exc
        if known is None:
            known = self._default_run_times.get(pod.attributes.workload_type)
        if known is not None:
            return known
        kind = manifest.type[1]
        if kind in _ENDLESS or (kind == "Pod" and _restarts(obj)):
            return math.inf
        raise manifest.document.error(
            (),
            f"the run time of this {kind} is unknown; give its pods the annotation "
            f"{vocabulary.EXPECTED_DURATION_ANNOTATION} or {key}",
        )

    def jobs(self) -> list[Job]:
        return [
            Job(
                tuple(pod for pod, _, _ in rows),
                max(at for _, at, _ in rows),
                max(run_time for _, _, run_time in rows),
            )
            for rows in self._members.values()
        ]

    def notes(self, late: int) -> tuple[str, ...]:
        more = []
        if count := self._left:
            pods = "pod belongs" if count == 1 else "pods belong"
            more.append(f"{count} {pods} to another scheduler: no capacity is charged")
        if late:
            workloads_left = "workload arrives" if late == 1 else "workloads arrive"
            more.append(f"{late} {workloads_left} later: left out")
        return (*self._notes, *more)


def _restarts(obj: JsonDict) -> bool:
    return (obj["spec"].get("restartPolicy") or "Always") == "Always"


def _last_end(used: Iterable[Span]) -> float:
    """The last finite end; an hour where none is."""
    return max((span.end for span in used if math.isfinite(span.end)), default=wait_statistics.HOUR)
