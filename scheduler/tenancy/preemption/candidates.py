"""
Who may be asked to go for a unit, and as what: the bundles that a search chooses from.

    never           pods of a DaemonSet, mirrors, pods of the cluster itself, of other schedulers,
                    those that are going already, the unit's own gang
    same tenant     whoever has a lower priority
    other tenants   what is marked preemptible, for a unit that is not; and what was borrowed, for
                    a unit that stays within its promise

Across tenants priority alone decides nothing. A unit whose pods say `preemptionPolicy: Never`, or
that is backfill, asks nobody. What tenants were promised is `victims.spared`'s business, budgets
are the API server's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scheduler.cache.cache import Cache
from scheduler.model.attributes import SYSTEM_CRITICAL
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, from_daemon_set
from scheduler.model.unit import Unit, size_of
from scheduler.tenancy.preemption.victims import VictimGroup


@dataclass(frozen=True, slots=True)
class PreemptionGrounds:
    """What a unit may ask of others."""

    tenant: str
    priority: int
    gang: GangKey | None
    entitled: bool
    """It stays within what its tenant was promised."""
    yields: bool
    """It is preemptible itself, or backfill."""


def claim(unit: Unit, *, entitled: bool) -> PreemptionGrounds | None:
    """None: the unit asks nobody to go."""
    if not all(pod.attributes.may_preempt for pod in unit.pods):
        return None
    return PreemptionGrounds(
        unit.tenant,
        unit.priority,
        unit.key if isinstance(unit.key, GangKey) else None,
        entitled,
        any(pod.attributes.preemptible or pod.attributes.backfill for pod in unit.pods),
    )


def may_go(pod: Pod, asks: PreemptionGrounds, *, scheduler: str) -> bool:
    """Whether this pod may be asked to go."""
    if pod.terminating or pod.attributes.mirror or pod.priority >= SYSTEM_CRITICAL:
        return False
    if pod.scheduler != scheduler or from_daemon_set(pod):
        return False
    if asks.gang is not None and pod.gang is not None and pod.gang.key == asks.gang:
        return False
    if pod.attributes.tenant == asks.tenant:
        return pod.priority < asks.priority
    return (pod.attributes.preemptible and not asks.yields) or asks.entitled


@dataclass(frozen=True, slots=True)
class CandidateContext:
    """What the search has to know beside the pods; `now` is the time of day."""

    scheduler: str
    now: float
    rank: Callable[[str], int] = lambda tier: 0
    """Of a tier; the higher, the dearer."""
    group: Callable[[GangKey], PodGroup | None] = lambda key: None
    """What the gang's PodGroup object says."""
    protected: Callable[[Pod], bool] = lambda pod: False
    """Pods whose eviction was refused a short while ago."""

    def may_go(self, pod: Pod, asks: PreemptionGrounds) -> bool:
        return may_go(pod, asks, scheduler=self.scheduler) and not self.protected(pod)


def bundles(
    pods: Iterable[Placement], asks: PreemptionGrounds, view: CandidateContext
) -> list[VictimGroup]:
    """
    What may go, as it would go.

    A gang goes as a whole only if every one of its placed members may go.
    """
    found: list[VictimGroup] = []
    gangs: dict[GangKey, list[Placement]] = {}
    for one in pods:
        if one.pod.gang is not None:
            gangs.setdefault(one.pod.gang.key, []).append(one)
        elif view.may_go(one.pod, asks):
            found.append(_bundle(one.pod.uid, (one,), asks, view))
    for key, members in gangs.items():
        found += _of_gang(key, members, asks, view)
    return found


def _of_gang(
    key: GangKey, members: list[Placement], asks: PreemptionGrounds, view: CandidateContext
) -> Iterable[VictimGroup]:
    staying = [one for one in members if not one.pod.terminating]
    free = [one for one in staying if view.may_go(one.pod, asks)]
    stated = (one.pod.gang.min_available for one in staying if one.pod.gang)
    # Where the size is not known, nobody is above it.
    size = size_of(stated, view.group(key)) or len(staying)
    # The latest to come is the first to go; a leader stays as long as its gang does.
    free.sort(key=lambda one: (one.pod.created, one.pod.uid), reverse=True)
    surplus = [one for one in free if not _leads(one)][: max(0, len(staying) - size)]
    for one in surplus:
        yield _bundle(f"{key}+{one.pod.uid}", (one,), asks, view, gang=key)
    core = tuple(one for one in free if one not in surplus)
    if core and len(free) == len(staying):
        yield _bundle(str(key), core, asks, view, gang=key, core=True)


def _leads(one: Placement) -> bool:
    return bool(one.pod.gang and one.pod.gang.leader)


def _bundle(
    key: str,
    pods: tuple[Placement, ...],
    asks: PreemptionGrounds,
    view: CandidateContext,
    *,
    gang: GangKey | None = None,
    core: bool = False,
) -> VictimGroup:
    starts = (one.pod.attributes.started_at for one in pods)
    return VictimGroup(
        key,
        pods,
        gang=gang,
        core=core,
        tier=max(view.rank(one.pod.attributes.tier) for one in pods),
        priority=max(one.pod.priority for one in pods),
        lost=sum(max(0.0, view.now - start) for start in starts if start),
        foreign=pods[0].pod.attributes.tenant != asks.tenant,
    )


def overdue_bundles(cache: Cache, overdue: Sequence[Placement]) -> list[VictimGroup]:
    yielding = [one for one in overdue if _yields(one.pod)]
    gangs = {one.pod.gang.key for one in yielding if one.pod.gang is not None}
    found = [VictimGroup(o.pod.uid, (o,)) for o in yielding if o.pod.gang is None]
    for gang in sorted(gangs):
        found.append(VictimGroup(str(gang), _members(cache, gang), gang=gang, core=True))
    return found


def _members(cache: Cache, gang: GangKey) -> tuple[Placement, ...]:
    nodes = {node for _, node in cache.bound_members(gang)}
    return tuple(o for o in cache.on(nodes) if o.pod.gang and o.pod.gang.key == gang)


def _yields(pod: Pod) -> bool:
    return (pod.attributes.backfill or pod.attributes.preemptible) and not pod.attributes.mirror
