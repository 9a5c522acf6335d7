"""
The cluster in virtual time: a clock that jumps, nodes, and jobs that arrive, run and end.

    arrivals, ends, timers of a strategy ──▶ the clock jumps there ──▶ pods that arrived and ended

Binds succeed at once. The run time of a gang counts from the start of its first members; members
that start later end with it. An evicted pod takes its whole grace period to end; then its
controller recreates it under the same name. A pod without a controller is not recreated. Placement
and preemption are decided in `strategies`.
"""

import heapq
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from cluster.events import correlator
from kubenexus.simulate.virtual_time.timeline import EntryKind, Job, Run, Span, TimelineEntry
from policies import duration, vocabulary
from policies.text import listed
from scheduler.cache.cache import Cache
from scheduler.cache.snapshot import Snapshot
from scheduler.model.gang import GangKey
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.pod import Pod, is_schedulable
from scheduler.model.policy import PlacementTables
from scheduler.model.unit import Unit, UnitKey
from scheduler.plan import planner
from scheduler.report import events
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.gpu_kinds import GpuKinds

EPOCH: Final = 1_000_000.0  # the time of day at which the clock shows 0
_LEAST: Final = 0.5  # seconds that the clock moves at least, so that every run ends
_NAMED: Final = 4  # nodes of a start that the timeline lists
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_ESTIMATES: Final = {
    events.START_ESTIMATED: EntryKind.ESTIMATED,
    events.START_DELAYED: EntryKind.DELAYED,
}


@dataclass(slots=True)
class _UnitState:
    """The state of a unit; each of its pods is in one of the three maps, or deleted."""

    job: Job
    since: float
    ends: float = math.inf
    waiting: dict[str, Pod] = field(default_factory=dict)  # by uid, as are the others
    running: dict[str, Pod] = field(default_factory=dict)
    terminating: dict[str, Pod] = field(default_factory=dict)
    over_quota: bool = False
    misfit: NoFit | None = None


class VirtualCluster:
    """`cpu` returns the CPU seconds of this process."""

    def __init__(
        self,
        nodes: Iterable[Node],
        jobs: Sequence[Job],
        tables: PlacementTables,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self.now = 0.0
        self.tables, self.cpu = tables, cpu
        snapshot = Snapshot()
        self.accounts = QuotaAccounts(GpuKinds(snapshot))
        self.cache = Cache(snapshot, usage=self.accounts, scheduler_name=vocabulary.SCHEDULER_NAME)
        self.cache.snapshot.adopt(tables)
        self.cache.know_models(tables.vram)
        self.accounts.adopt(tables.policy)
        for node in nodes:
            self.cache.put_node(node)
        self.memo = planner.Memo()
        self.run = Run()
        order = sorted(jobs, key=lambda job: (job.arrives, str(job.key)))
        self._arrivals = deque(order)
        self._states: dict[UnitKey, _UnitState] = {}
        self._unit_of: dict[str, UnitKey] = {}  # pod uid -> its unit
        self._started_at: dict[str, float] = {}  # uid of a bound pod -> when it started
        self._ends: dict[str, float] = {}  # uid of a bound pod that ends -> when
        self._endings: list[tuple[float, str]] = []  # a heap; may hold ends that an eviction moved
        finite = [job.run_time for job in jobs if math.isfinite(job.run_time)]
        last = order[-1].arrives if order else 0.0
        # Jobs may evict each other without end. One after the other they are over by then, with as
        # much time again for lost work; the run stops there.
        self._latest = last + 2 * sum(finite) + 3600.0

    # --- time ---

    def next_at(self, due: float | None) -> float | None:
        """The next moment at which something happens; None: nothing ever will."""
        while self._endings and self._ends.get(self._endings[0][1]) != self._endings[0][0]:
            heapq.heappop(self._endings)
        moments = [self._arrivals[0].arrives] if self._arrivals else []
        moments += [self._endings[0][0]] if self._endings else []
        if not moments or self.now > self._latest:
            return None  # no arrival and no end: pending units stay pending
        soonest = min(moments)
        return soonest if due is None else min(soonest, max(due, self.now + _LEAST))

    def advance(self) -> tuple[list[Pod], list[Pod], list[str]]:
        """Pods that arrived and that ended by now, and uids that no longer wait."""
        arrived: list[Pod] = []
        ended: list[Pod] = []
        withdrawn: list[str] = []
        while self._endings and self._endings[0][0] <= self.now:
            at, uid = heapq.heappop(self._endings)
            if self._ends.get(uid) == at:
                ended.append(self._end(uid, arrived, withdrawn))
        while self._arrivals and self._arrivals[0].arrives <= self.now:
            arrived += self._arrive(self._arrivals.popleft())
        return arrived, ended, withdrawn

    def finish(self) -> Run:
        """Units that still run or wait have no end."""
        for state in self._states.values():
            for uid, pod in (*state.running.items(), *state.terminating.items()):
                self._count_usage(pod, self._started_at[uid], math.inf)
            if state.waiting and not state.running:
                self._count_wait(state, math.inf)
                if state.misfit is not None:
                    self.run.stuck[state.job.key] = state.misfit.over_quota or state.misfit.text
        return self.run

    # --- work ---

    def _arrive(self, job: Job) -> Iterable[Pod]:
        state = self._states[job.key] = _UnitState(job, self.now)
        self._log(EntryKind.ARRIVED, job.key)
        return self._enqueue(state, job.pods)

    def _enqueue(self, state: _UnitState, pods: Iterable[Pod]) -> Iterable[Pod]:
        """The pods that the scheduler may place now."""
        for pod in pods:
            state.waiting[pod.uid] = pod
            self._unit_of[pod.uid] = state.job.key
        return [pod for pod in pods if is_schedulable(pod)]

    def _end(self, uid: str, arrived: list[Pod], withdrawn: list[str]) -> Pod:
        state = self._states[self._unit_of[uid]]
        del self._ends[uid]
        evicted = uid in state.terminating
        pod = state.terminating.pop(uid) if evicted else state.running.pop(uid)
        self._count_usage(pod, self._started_at.pop(uid), self.now, lost=evicted)
        if evicted:
            if pod.owner is not None:
                arrived += self._recreate(state, pod)
        elif not state.running and not state.terminating:
            self._log(EntryKind.ENDED, state.job.key)
            withdrawn += state.waiting
            state.waiting.clear()
        return pod

    def _recreate(self, state: _UnitState, pod: Pod) -> Iterable[Pod]:
        """The controller recreates the pod."""
        first = not state.waiting and not state.running
        if first:
            state.since = self.now
            self._log(EntryKind.REQUEUED, state.job.key)
        later = self.now - state.job.arrives
        [original] = (member for member in state.job.pods if member.key == pod.key)
        fresh = replace(original, uid=f"{pod.uid}~", created=original.created + later)
        return self._enqueue(state, [fresh])

    def plan(self, unit: Unit, closed: frozenset[str], memo: planner.Memo) -> Plan:
        bound_members = (
            self.cache.bound_members(unit.key)
            if isinstance(unit.key, GangKey) and unit.bound
            else ()
        )
        return planner.plan(
            unit, self.cache.snapshot, memo=memo, closed=closed, bound_members=bound_members
        )

    def start(self, unit: Unit, plan: Placed) -> None:
        state = self._states[unit.key]
        if not state.running:
            state.ends = self.now + state.job.run_time
            state.over_quota = False
            self._count_wait(state, self.now)
            self.run.starts.setdefault(unit.key, self.now)
            self._log(EntryKind.STARTED, unit.key, _nodes_of(plan))
        for placement in plan.placements:
            self.cache.assume(placement)
            attributes = replace(placement.pod.attributes, started_at=EPOCH + self.now)
            pod = replace(
                placement.pod, node=placement.node, attributes=attributes, phase="Running"
            )
            self.cache.put_pod(pod)
            state.waiting.pop(pod.uid)
            state.running[pod.uid] = pod
            self._started_at[pod.uid] = self.now
            self._end_at(pod.uid, state.ends)

    def evict(self, uid: str) -> tuple[str, ...]:
        """Start to terminate the pod; nodes whose capacity may have changed."""
        state = self._states[self._unit_of[uid]]
        pod = state.running.get(uid)
        if pod is None:
            return ()
        withdrawn = self.now + pod.attributes.grace_period
        if withdrawn < self._ends.get(uid, math.inf):
            del state.running[uid]
            state.terminating[uid] = pod
            self._end_at(uid, withdrawn)
        return self.cache.put_pod(replace(pod, terminating=True))

    def _end_at(self, uid: str, at: float) -> None:
        if math.isfinite(at):
            self._ends[uid] = at
            heapq.heappush(self._endings, (at, uid))

    # --- timeline and statistics ---

    def misfit(self, key: UnitKey, misfit: NoFit) -> None:
        state = self._states[key]
        state.misfit = misfit
        if misfit.over_quota and not state.over_quota:
            state.over_quota = True
            self._log(EntryKind.OVER_QUOTA, key, misfit.over_quota)

    def record(self, report: correlator.EventReport) -> None:
        """Take the Events of the scheduler into the timeline."""
        key = self._unit_of.get(report.regarding.uid)
        if key is None:
            return
        if report.reason in _ESTIMATES:
            estimate = report.note.partition(" is expected to start ")[2]
            self._log(_ESTIMATES[report.reason], key, _INSTANT.sub(_since_start, estimate))
        elif report.reason == events.PREEMPTED:
            note = f"{report.note[0].lower()}{report.note[1:]}".removeprefix("preempted ")
            before = self.run.timeline[-1]
            same = (before.at, before.kind, before.key) == (self.now, EntryKind.PREEMPTED, key)
            if not same:  # one line for a gang
                self._log(EntryKind.PREEMPTED, key, note)

    def _log(self, kind: EntryKind, key: UnitKey, text: str = "") -> None:
        tenant = self._states[key].job.tenant
        self.run.timeline.append(TimelineEntry(self.now, kind, key, tenant, text))

    def _count_wait(self, state: _UnitState, until: float) -> None:
        job = state.job
        self.run.waits.append(Span(job.key, job.tenant, state.since, until, job.gpus))

    def _count_usage(self, pod: Pod, begin: float, end: float, *, lost: bool = False) -> None:
        gpus, cpu = pod.spec.host_request.gpus, pod.spec.amount("cpu")
        key, tenant = self._unit_of[pod.uid], pod.attributes.tenant
        self.run.used.append(Span(key, tenant, begin, end, gpus, cpu, lost))


def _nodes_of(plan: Placed) -> str:
    nodes = sorted({placement.node for placement in plan.placements})
    return f"on {listed(nodes, most=_NAMED)}"


def _since_start(match: re.Match[str]) -> str:
    at = datetime.strptime(match[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return duration.show(at.timestamp() - EPOCH)
