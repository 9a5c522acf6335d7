"""
Ways of deciding who goes next, on a world in virtual time.

    Line     strictly in the order of arrival: whoever does not fit holds up everybody behind it
    Turns    the scheduler's own queue and planner; `fair`: with all that is decided between tenants

`KubeNexusStrategy` does what `scheduler.cycle` does around the same parts, where binds succeed at
once and no API server answers. `evicts`: work is evicted for other work as the scheduler would have
it; needs a running event loop, because evictions are asked for beside the cycle.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cluster import resources, verbs
from kubenexus.simulate.virtual_time.cluster import EPOCH, VirtualCluster
from policies import vocabulary
from scheduler.background import BackgroundTasks
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, units
from scheduler.plan import filters, planner
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.queueing.unschedulable import QueueingHint
from scheduler.report.metrics import Metrics
from scheduler.tenancy.context import SchedulingContext
from scheduler.tenancy.fairshare.shares import FairShares
from scheduler.tenancy.manager import TenancyManager
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.reservation.members import MemberReservations

_EVENTS_EVERY: Final = 0.2  # seconds, as in the scheduler


class QueueStrategy:
    """One after the other."""

    busy: Final = False

    def __init__(self, world: VirtualCluster) -> None:
        self._world = world
        self._line: deque[Unit] = deque()

    def next_at(self) -> float | None:
        return None

    def before(self, at: float) -> None:
        """Nothing fades."""

    def take(self, came: Sequence[Pod], went: Sequence[Pod], over: Sequence[str] = ()) -> None:
        for pod in went:
            self._world.cache.drop_pod(pod.uid)
        kept = [unit for unit in self._line if unit.pods[0].uid not in over] if over else self._line
        self._line = deque(kept)
        self._line.extend(units(replace(pod, gates=()) for pod in came))

    def decide(self) -> None:
        world = self._world
        while self._line:
            world.run.decisions += 1
            unit = self._line[0]
            found = world.plan(unit, frozenset(), world.memo)
            if not isinstance(found, Placed):
                world.misfit(unit.key, found)
                return
            self._line.popleft()
            world.start(unit, found)
            if found.unplaced:  # beyond what the gang needs
                bound = unit.bound + len(found.placements)
                self._line.append(replace(unit, pods=found.unplaced, bound=bound))


def _all_alike(*about: object) -> int:
    return 0


class _Api:
    """An API server that evicts whom it is asked to."""

    def __init__(self, world: VirtualCluster, freed: set[str]) -> None:
        self._world, self._freed = world, freed

    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        dry_run: bool = False,
        timeout: float = 0.0,
        **options: Any,
    ) -> None:
        if uid is not None and not dry_run:
            self._freed.update(self._world.evict(uid))

    async def patch_status(
        self,
        resource: resources.Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kind: verbs.PatchKind = verbs.PatchKind.MERGE,
        **options: Any,
    ) -> dict[str, Any]:
        return {}


async def _never(seconds: float) -> None:
    raise AssertionError("an eviction that is never refused is never tried again")


class KubeNexusStrategy:
    """Drive it: `take` what happened, then `decide`, again while it is `busy`."""

    def __init__(self, world: VirtualCluster, *, fair: bool, evicts: bool = False) -> None:
        self._world = world
        self._tasks = BackgroundTasks()
        cache = world.cache
        self._shares = FairShares(world.accounts.ledger)
        self._changed: set[str] = set()
        self._pods_changed = False  # since the last round of requeueing
        self._events_at = 0.0
        self.queue = SchedulingQueue(
            bound=cache.bound,
            class_of=lambda pod: (pod.spec, cache.snapshot.signature(pod)),
            fair_share_order=self._shares.order if fair else _all_alike,
            boost=lambda tier: cache.snapshot.tables.boost(tier) if fair else 0,
        )
        self._tenancy = self._between(evicts) if fair else None

    def _between(self, evicts: bool) -> TenancyManager:
        world = self._world
        evictor = Evictor(
            _Api(world, self._changed), record=world.record, may_write=lambda: True, sleep=_never
        )
        context = SchedulingContext(
            scheduler=vocabulary.SCHEDULER_NAME,
            cache=world.cache,
            accounts=world.accounts,
            shares=self._shares,
            budgets=DisruptionBudgets(),
            reservations=MemberReservations(world.cache.reserved, world.accounts),
            queue=self.queue,
            metrics=Metrics(),
            evictor=evictor if evicts else None,
            group=lambda gang: None,
            tasks=self._tasks,
            now=lambda: world.now,
            epoch=lambda: EPOCH + world.now,
            wake=lambda: None,
            freed=self._changed.update,
            leads=lambda uid: True,
            reserved=lambda gang, why: None,
        )
        return TenancyManager(context, world.memo)

    @property
    def busy(self) -> bool:
        """Evictions are being asked for: let the event loop run, then decide again."""
        return self._tenancy is not None and self._tenancy.preempting.writing

    def next_at(self) -> float | None:
        due = [self.queue.next_at(), self._tenancy.next_at() if self._tenancy else None]
        if self._changed:
            due.append(self._world.now)
        return min((at for at in due if at is not None), default=None)

    def before(self, at: float) -> None:
        """What is used now has been used until then."""
        if self._tenancy is not None:
            now, self._world.now = self._world.now, at
            self._tenancy.decay.advance()
            self._world.now = now

    def take(self, came: Sequence[Pod], went: Sequence[Pod], over: Sequence[str] = ()) -> None:
        now = self._world.now
        for pod in went:
            self._changed.update(self._world.cache.drop_pod(pod.uid))
            self._pods_changed = True
            if self._tenancy is not None:
                self._tenancy.gone(pod)
        for uid in over:
            self.queue.remove(uid, now)
        for pod in came:
            self.queue.put(pod, now)

    def decide(self) -> None:
        self._tasks.check()
        self._prepare()
        while (unit := self.queue.pop(self._world.now)) is not None:
            self._schedule(unit)
            self._prepare()

    def _prepare(self) -> None:
        now = self._world.now
        self._move_to_active()
        if self._tenancy is not None:
            self._tenancy.tick(now)
        self.queue.tick(now)
        for pod in self.queue.gates_to_remove():
            self.queue.put(replace(pod, gates=()), now)

    def _move_to_active(self) -> None:
        world = self._world
        pods_changed = self._pods_changed and world.now >= self._events_at
        if not (self._changed or pods_changed):
            return
        nodes, snapshot = sorted(self._changed), world.cache.snapshot
        self._changed.clear()
        if pods_changed:
            self._pods_changed, self._events_at = False, world.now + _EVENTS_EVERY

        def hint(pod: Pod) -> QueueingHint:
            if nodes and planner.helps(pod.spec, snapshot, nodes, world.memo):
                return QueueingHint.FITS
            depends = pods_changed and filters.depends_on_pods(snapshot, pod)
            return QueueingHint.PERHAPS if depends else QueueingHint.NONE

        self.queue.move_to_active(world.now, hint)

    def _schedule(self, unit: Unit) -> None:
        world, tenancy = self._world, self._tenancy
        world.run.decisions += 1
        if tenancy is None:
            found = world.plan(unit, frozenset(), world.memo)
        else:
            found = tenancy.plan(unit, frozenset())
        if isinstance(found, Placed):
            if tenancy is not None:
                tenancy.placed(unit)
            self.queue.start_binding(unit.key, [one.pod.uid for one in found.placements], world.now)
            world.start(unit, found)
            for one in found.placements:
                self.queue.finish_binding(one.pod.uid, world.now)
            self._pods_changed = True
            return
        world.misfit(unit.key, found)
        if found.over_quota:
            self.queue.mark_over_quota(unit.key, world.now, found)
        else:
            self.queue.mark_unschedulable(unit.key, world.now, found)
            if tenancy is not None:
                tenancy.misfit(unit)
