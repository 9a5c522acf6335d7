"""
The cluster in virtual time: a clock that jumps, nodes, and work that comes, runs and goes.

    arrivals, endings, what is due ──▶ the clock jumps there ──▶ who came, who went

Binds succeed at once. A gang is over as long after its first members start as it lasts; members
that follow later end with it. A pod that is evicted takes its whole grace to end; then its
controller makes it anew, under the same name. A pod without a controller is not made anew. Who is
placed where, and who has to go, is decided elsewhere: see `strategies`.
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
from kubenexus.simulate.virtual_time.timeline import ChangeKind, Job, Run, Span, TimelineEntry
from policies import duration, vocabulary
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

EPOCH: Final = 1_000_000.0  # the time of day at which the clock shows nought
_LEAST: Final = 0.5  # seconds that the clock moves, so that nothing is looked at for ever
_NAMED: Final = 4  # nodes of a start that are told
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_TOLD: Final = {events.START_ESTIMATED: ChangeKind.PROMISED, events.START_DELAYED: ChangeKind.MOVED}


@dataclass(slots=True)
class _RunningPod:
    """Where a unit stands; each of its pods is in one of the three places, or gone."""

    job: Job
    since: float
    ends: float = math.inf
    waiting: dict[str, Pod] = field(default_factory=dict)  # by uid, as are the others
    running: dict[str, Pod] = field(default_factory=dict)
    going: dict[str, Pod] = field(default_factory=dict)
    held_back: bool = False
    why: NoFit | None = None


class VirtualCluster:
    """`cpu` tells how much time was spent deciding."""

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
        self._coming = deque(order)
        self._courses: dict[UnitKey, _RunningPod] = {}
        self._unit_of: dict[str, UnitKey] = {}  # pod uid -> its unit
        self._began: dict[str, float] = {}  # uid of a pod that has a node -> since when
        self._ends: dict[str, float] = {}  # uid of a pod that has a node and an end -> its end
        self._endings: list[tuple[float, str]] = []  # a heap; may hold ends that were brought on
        finite = [job.lasts for job in jobs if math.isfinite(job.lasts)]
        last = order[-1].arrives if order else 0.0
        # Work that evicts each other for ever is no history: one after the other all is over by
        # then, with as much again for what was lost.
        self._latest = last + 2 * sum(finite) + 3600.0

    # --- time ---

    def next_at(self, due: float | None) -> float | None:
        """The next moment at which something happens; None: nothing ever will."""
        while self._endings and self._ends.get(self._endings[0][1]) != self._endings[0][0]:
            heapq.heappop(self._endings)
        happens = [self._coming[0].arrives] if self._coming else []
        happens += [self._endings[0][0]] if self._endings else []
        if not happens or self.now > self._latest:
            return None  # nothing comes and nothing ends: whatever waits now waits for ever
        soonest = min(happens)
        return soonest if due is None else min(soonest, max(due, self.now + _LEAST))

    def pass_by(self) -> tuple[list[Pod], list[Pod], list[str]]:
        """Pods that came and that went by now, and uids of those that wait no more."""
        came: list[Pod] = []
        went: list[Pod] = []
        over: list[str] = []
        while self._endings and self._endings[0][0] <= self.now:
            at, uid = heapq.heappop(self._endings)
            if self._ends.get(uid) == at:
                went.append(self._leave(uid, came, over))
        while self._coming and self._coming[0].arrives <= self.now:
            came += self._arrive(self._coming.popleft())
        return came, went, over

    def finish(self) -> Run:
        """What still runs or waits has no end."""
        for course in self._courses.values():
            for uid, pod in (*course.running.items(), *course.going.items()):
                self._count(pod, self._began[uid], math.inf)
            if course.waiting and not course.running:
                self._waited(course, math.inf)
                if course.why is not None:
                    self.run.stuck[course.job.key] = course.why.over_quota or course.why.text
        return self.run

    # --- work ---

    def _arrive(self, job: Job) -> Iterable[Pod]:
        course = self._courses[job.key] = _RunningPod(job, self.now)
        self._tell(ChangeKind.ARRIVED, job.key)
        return self._wait(course, job.pods)

    def _wait(self, course: _RunningPod, pods: Iterable[Pod]) -> Iterable[Pod]:
        """Those of them that anybody here may place."""
        for pod in pods:
            course.waiting[pod.uid] = pod
            self._unit_of[pod.uid] = course.job.key
        return [pod for pod in pods if is_schedulable(pod)]

    def _leave(self, uid: str, came: list[Pod], over: list[str]) -> Pod:
        course = self._courses[self._unit_of[uid]]
        del self._ends[uid]
        evicted = uid in course.going
        pod = course.going.pop(uid) if evicted else course.running.pop(uid)
        self._count(pod, self._began.pop(uid), self.now, lost=evicted)
        if evicted:
            if pod.owner is not None:
                came += self._return(course, pod)
        elif not course.running and not course.going:
            self._tell(ChangeKind.ENDED, course.job.key)
            over += course.waiting
            course.waiting.clear()
        return pod

    def _return(self, course: _RunningPod, pod: Pod) -> Iterable[Pod]:
        """The controller makes the pod anew."""
        first = not course.waiting and not course.running
        if first:
            course.since = self.now
            self._tell(ChangeKind.WAITS_AGAIN, course.job.key)
        later = self.now - course.job.arrives
        [made] = (one for one in course.job.pods if one.key == pod.key)
        fresh = replace(made, uid=f"{pod.uid}~", created=made.created + later)
        return self._wait(course, [fresh])

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
        course = self._courses[unit.key]
        if not course.running:
            course.ends = self.now + course.job.lasts
            course.held_back = False
            self._waited(course, self.now)
            self.run.starts.setdefault(unit.key, self.now)
            self._tell(ChangeKind.STARTED, unit.key, _places(plan))
        for one in plan.placements:
            self.cache.assume(one)
            attributes = replace(one.pod.attributes, started_at=EPOCH + self.now)
            pod = replace(one.pod, node=one.node, attributes=attributes, phase="Running")
            self.cache.put_pod(pod)
            course.waiting.pop(pod.uid)
            course.running[pod.uid] = pod
            self._began[pod.uid] = self.now
            self._end_at(pod.uid, course.ends)

    def evict(self, uid: str) -> tuple[str, ...]:
        """The pod is going from now on; nodes on which something may have become possible."""
        course = self._courses[self._unit_of[uid]]
        pod = course.running.get(uid)
        if pod is None:
            return ()
        over = self.now + pod.attributes.grace_period
        if over < self._ends.get(uid, math.inf):
            del course.running[uid]
            course.going[uid] = pod
            self._end_at(uid, over)
        return self.cache.put_pod(replace(pod, terminating=True))

    def _end_at(self, uid: str, at: float) -> None:
        if math.isfinite(at):
            self._ends[uid] = at
            heapq.heappush(self._endings, (at, uid))

    # --- what is told ---

    def misfit(self, key: UnitKey, why: NoFit) -> None:
        course = self._courses[key]
        course.why = why
        if why.over_quota and not course.held_back:
            course.held_back = True
            self._tell(ChangeKind.HELD_BACK, key, why.over_quota)

    def record(self, report: correlator.EventReport) -> None:
        """What the scheduler tells in Events."""
        key = self._unit_of.get(report.regarding.uid)
        if key is None:
            return
        if report.reason in _TOLD:
            said = report.note.partition(" is expected to start ")[2]
            self._tell(_TOLD[report.reason], key, _INSTANT.sub(_since_the_beginning, said))
        elif report.reason == events.PREEMPTED:
            note = f"{report.note[0].lower()}{report.note[1:]}".removeprefix("preempted ")
            before = self.run.happened[-1]
            same = (before.at, before.what, before.key) == (self.now, ChangeKind.PREEMPTED, key)
            if not same:  # one line for a gang
                self._tell(ChangeKind.PREEMPTED, key, note)

    def _tell(self, what: ChangeKind, key: UnitKey, text: str = "") -> None:
        tenant = self._courses[key].job.tenant
        self.run.happened.append(TimelineEntry(self.now, what, key, tenant, text))

    def _waited(self, course: _RunningPod, until: float) -> None:
        job = course.job
        self.run.waits.append(Span(job.key, job.tenant, course.since, until, job.gpus))

    def _count(self, pod: Pod, begin: float, end: float, *, lost: bool = False) -> None:
        gpus, cpu = pod.spec.host_request.gpus, pod.spec.amount("cpu")
        key, tenant = self._unit_of[pod.uid], pod.attributes.tenant
        self.run.used.append(Span(key, tenant, begin, end, gpus, cpu, lost))


def _places(plan: Placed) -> str:
    nodes = sorted({one.node for one in plan.placements})
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return f"on {', '.join(nodes[:_NAMED])}{more}"


def _since_the_beginning(found: re.Match[str]) -> str:
    at = datetime.strptime(found[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return duration.show(at.timestamp() - EPOCH)
