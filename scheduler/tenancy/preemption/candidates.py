"""
Which pods a preemptor may evict, as the victim groups that a search chooses from.

    never           DaemonSet and mirror pods, system-critical pods, pods of other schedulers,
                    terminating pods, the preemptor's own gang
    same tenant     pods of a lower priority
    other tenants   preemptible pods, unless the preemptor is preemptible itself; any pod, if the
                    preemptor reclaims its tenant's guarantee

Across tenants priority alone decides nothing. A unit with `preemptionPolicy: Never` evicts no pod.
`victims.within_guarantees` keeps the guarantees of other tenants, `pdb` the disruption budgets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.cache.cache import Cache
from scheduler.model.attributes import SYSTEM_CRITICAL
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, from_daemon_set
from scheduler.model.unit import Unit, size_of
from scheduler.tenancy.preemption.victims import PreemptionReason, VictimGroup


@dataclass(frozen=True, slots=True)
class PreemptionRule:
    """Which pods a preemptor may evict."""

    tenant: str
    priority: int
    gang: GangKey | None
    reclaims: bool
    """The preemptor stays within its tenant's guarantee."""
    preemptible: bool
    """The preemptor is preemptible itself, or backfill."""


def rule_for(unit: Unit, *, reclaims: bool) -> PreemptionRule | None:
    """None: the unit evicts no pod."""
    if not all(pod.attributes.may_preempt for pod in unit.pods):
        return None
    return PreemptionRule(
        unit.tenant,
        unit.priority,
        unit.key if isinstance(unit.key, GangKey) else None,
        reclaims,
        any(pod.attributes.preemptible or pod.attributes.backfill for pod in unit.pods),
    )


def is_candidate(pod: Pod, rule: PreemptionRule, *, scheduler: str) -> bool:
    if pod.terminating or pod.attributes.mirror or pod.priority >= SYSTEM_CRITICAL:
        return False
    if pod.scheduler != scheduler or from_daemon_set(pod):
        return False
    if rule.gang is not None and pod.gang is not None and pod.gang.key == rule.gang:
        return False
    if pod.attributes.tenant == rule.tenant:
        return pod.priority < rule.priority
    return (pod.attributes.preemptible and not rule.preemptible) or rule.reclaims


@dataclass(frozen=True, slots=True)
class CandidateContext:
    """What a search knows besides the pods; `now` is the time of day."""

    scheduler: str
    now: float
    tier_rank: Callable[[str], int] = lambda tier: 0
    """Higher is more expensive."""
    pod_group: Callable[[GangKey], PodGroup | None] = lambda key: None
    protected: Callable[[Pod], bool] = lambda pod: False
    """Pods whose eviction the API server refused a short while ago."""
    reserved: Mapping[GangKey, tuple[Placement, ...]] = field(default_factory=dict)
    """Pending members of gangs, with capacity reserved by their own preemption."""

    def is_candidate(self, pod: Pod, rule: PreemptionRule) -> bool:
        return is_candidate(pod, rule, scheduler=self.scheduler) and not self.protected(pod)


def victim_groups(
    placements: Iterable[Placement], rule: PreemptionRule, context: CandidateContext
) -> list[VictimGroup]:
    """A gang's core is a candidate only if every placed member of the gang is one."""
    groups: list[VictimGroup] = []
    gangs: dict[GangKey, list[Placement]] = {}
    for placement in placements:
        if placement.pod.gang is not None:
            gangs.setdefault(placement.pod.gang.key, []).append(placement)
        elif context.is_candidate(placement.pod, rule):
            groups.append(_group(placement.pod.uid, (placement,), rule, context))
    for key, members in gangs.items():
        groups += _of_gang(key, members, rule, context)
    return groups


def _of_gang(
    key: GangKey, members: list[Placement], rule: PreemptionRule, context: CandidateContext
) -> Iterable[VictimGroup]:
    running = [member for member in members if not member.pod.terminating]
    able = [member for member in running if context.is_candidate(member.pod, rule)]
    stated = (member.pod.gang.min_available for member in running if member.pod.gang)
    # Without a known size there is no surplus.
    size = size_of(stated, context.pod_group(key)) or len(running)
    # The newest member is evicted first; a leader stays as long as its gang does.
    able.sort(key=lambda member: (member.pod.created, member.pod.uid), reverse=True)
    surplus = [member for member in able if not _is_leader(member)][: max(0, len(running) - size)]
    for member in surplus:
        yield _group(f"{key}+{member.pod.uid}", (member,), rule, context, gang=key)
    reserved = context.reserved.get(key, ())
    if not all(context.is_candidate(member.pod, rule) for member in reserved):
        reserved = ()
    if reserved and len(running) >= size:
        yield _group(f"{key}+reserved", (), rule, context, reserved=reserved, gang=key)
        reserved = ()
    core = tuple(member for member in able if member not in surplus)
    if core and len(able) == len(running):
        yield _group(str(key), core, rule, context, reserved=reserved, gang=key, core=True)


def _is_leader(member: Placement) -> bool:
    return bool(member.pod.gang and member.pod.gang.leader)


def _group(
    key: str,
    pods: tuple[Placement, ...],
    rule: PreemptionRule,
    context: CandidateContext,
    *,
    reserved: tuple[Placement, ...] = (),
    gang: GangKey | None = None,
    core: bool = False,
) -> VictimGroup:
    starts = (victim.pod.attributes.started_at for victim in pods)
    members = [placement.pod for placement in (*pods, *reserved)]
    return VictimGroup(
        key,
        pods,
        reserved,
        gang=gang,
        core=core,
        tier=max(context.tier_rank(pod.attributes.tier) for pod in members),
        priority=max(pod.priority for pod in members),
        work_lost=sum(max(0.0, context.now - start) for start in starts if start),
        other_tenant=members[0].attributes.tenant != rule.tenant,
        reason=_reason(members[0], rule),
    )


def _reason(pod: Pod, rule: PreemptionRule) -> PreemptionReason:
    if pod.attributes.tenant == rule.tenant:
        return PreemptionReason.PRIORITY
    return PreemptionReason.RECLAIM if rule.reclaims else PreemptionReason.PREEMPTIBLE


def overdue_victim_groups(cache: Cache, overdue: Sequence[Placement]) -> list[VictimGroup]:
    """Backfill and preemptible pods that overran; a gang with one such member is one group."""
    able = [placement for placement in overdue if _is_evictable(placement.pod)]
    gangs = {placement.pod.gang.key for placement in able if placement.pod.gang is not None}
    reason = PreemptionReason.OVERRUN
    groups = [
        VictimGroup(placement.pod.uid, (placement,), reason=reason)
        for placement in able
        if placement.pod.gang is None
    ]
    for gang in sorted(gangs):
        members = _members(cache, gang)
        groups.append(VictimGroup(str(gang), members, gang=gang, core=True, reason=reason))
    return groups


def _members(cache: Cache, gang: GangKey) -> tuple[Placement, ...]:
    nodes = {node for _, node in cache.bound_members(gang)}
    return tuple(
        placement
        for placement in cache.pods_on(nodes)
        if placement.pod.gang and placement.pod.gang.key == gang
    )


def _is_evictable(pod: Pod) -> bool:
    return (pod.attributes.backfill or pod.attributes.preemptible) and not pod.attributes.mirror
