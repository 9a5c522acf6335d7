"""
What tenants use, and what their quotas still allow.

    charge, uncharge  a pod has its node, by decision or by what the API says; it is gone
    allow           a unit as far as its tenant's quota goes, or why not even its minimum does
    closed          nodes whose kind of GPU the tenant has used up
    beyond          nodes on which a unit would be beyond its tenant's promise

What was taken is kept for each pod, so that giving back is exact whatever the node or the policies
say by then. A gang counts as a whole: what it needs at the least is within the quota, or nothing
of it is planned.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from policies.engine.policyset import PolicyTables
from scheduler.errors import InvariantError
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Pairs, TenantTree, total


class QuotaAccounts:
    """`kinds` tells under which names a quota counts the GPUs of a node."""

    def __init__(self, kinds: Callable[[str], tuple[str, ...]] = lambda _: ()) -> None:
        self.ledger = Ledger()
        self.changes = 0
        """Counts what may help a unit that is over its quota."""
        self.kinds = kinds
        self._charged: dict[str, tuple[str, Pairs]] = {}  # pod uid -> tenant, amounts

    def adopt(self, tables: PolicyTables) -> None:
        """Other policies are in force."""
        self.ledger.regrow(TenantTree.of(tables))
        self.quota_changed()

    @property
    def plain(self) -> bool:
        """No policy says anything about tenants."""
        return self.ledger.tree.plain

    @property
    def depends_on_nodes(self) -> bool:
        """Whether a quota names kinds of GPUs, which a pod gets with its node."""
        return bool(self.ledger.tree.kinds)

    def charge(self, pod: Pod, node: str) -> None:
        self.uncharge(pod.uid)
        self._check_no_trial()
        amounts = tuple(self.amounts(pod, node).items())
        self._charged[pod.uid] = (pod.attributes.tenant, amounts)
        self.ledger.charge(pod.attributes.tenant, amounts)

    def uncharge(self, uid: str) -> None:
        charged = self._charged.pop(uid, None)
        if charged is not None:
            self._check_no_trial()
            self.ledger.uncharge(*charged)
            self.quota_changed()

    def _check_no_trial(self) -> None:
        if self.ledger.in_trial:
            raise InvariantError("a pod was charged during a trial, which would undo the charge")

    def charged(self, uid: str) -> Pairs:
        """The amounts for which the pod is charged now."""
        return self._charged[uid][1] if uid in self._charged else ()

    def quota_changed(self) -> None:
        """A unit over its quota may be within it now."""
        self.changes += 1

    def amounts(self, pod: Pod, node: str = "") -> dict[str, int]:
        """What the pod counts for; on a node its GPUs count by model and tier as well."""
        found = dict(pod.spec.requests)
        gpus = pod.spec.host_request.gpus
        if node and gpus and self.ledger.tree.kinds:
            found |= {name: gpus for name in self.kinds(node) if name in self.ledger.tree.kinds}
        return found

    # --- what is allowed ---

    def allow(self, unit: Unit) -> Unit | OverQuota:
        """The unit with as many members as the quota allows, at least those that it needs."""
        tenant = unit.pods[0].attributes.tenant
        if not self.ledger.tree.limited:
            return unit
        every = total(self.amounts(pod) for pod in unit.pods)
        if self.ledger.excess(tenant, every) is None:
            return unit
        least = unit.pods[: unit.need]
        needed = total(self.amounts(pod) for pod in least)
        if (excess := self.ledger.excess(tenant, needed)) is not None:
            return self._over_quota(tenant, excess)
        allowed = list(least)
        for pod in unit.pods[unit.need :]:
            more = total((needed, self.amounts(pod)))
            if self.ledger.excess(tenant, more) is None:
                needed = more
                allowed.append(pod)
        return replace(unit, pods=tuple(allowed))

    def excess_members(self, unit: Unit, within: Unit) -> OverQuota | None:
        """Why the members of the unit beyond those `within` the quota wait."""
        requested = total(self.amounts(pod) for pod in unit.pods)
        excess = self.ledger.excess(unit.tenant, requested)
        if excess is None:
            return None
        allowed = f"{len(within.pods)} of {len(unit.pods)} pods of pod group {unit.key.name}"
        return replace(self._over_quota(unit.tenant, excess), within=allowed)

    def over(self, placements: Iterable[tuple[Pod, str]]) -> OverQuota | None:
        """Whether a plan goes beyond what the tenant may use of a kind of GPU."""
        placed = tuple(placements)
        if not placed or not self.ledger.tree.kinds:
            return None
        tenant = placed[0][0].attributes.tenant
        excess = self.ledger.excess(tenant, total(self.amounts(*one) for one in placed))
        return None if excess is None else self._over_quota(tenant, excess)

    def closed(self, unit: Unit, nodes: Iterable[str]) -> frozenset[str]:
        """Nodes whose GPUs are of a kind of which the tenant may not have one pod's worth more."""
        tree, tenant = self.ledger.tree, unit.pods[0].attributes.tenant
        asked = min(
            (pod.spec.host_request.gpus for pod in unit.pods if pod.spec.host_request.gpus),
            default=0,
        )
        if not asked or not tree.kinds:
            return frozenset()
        full = {
            name
            for name in tree.kinds
            if (room := self.ledger.room(tenant, name)) is not None and room < asked
        }
        if not full:
            return frozenset()
        return frozenset(node for node in nodes if full.intersection(self.kinds(node)))

    # --- what was promised ---

    def beyond(self, unit: Unit, nodes: Iterable[str]) -> frozenset[str] | None:
        """
        Nodes on which what the unit needs would be beyond its tenant's promise; None: on all.

        Empty where the promise names no kind of GPU: then it does not matter where.
        """
        pods = unit.pods[: unit.need]
        needed = total(self.amounts(pod) for pod in pods)
        gpus = sum(pod.spec.host_request.gpus for pod in pods)
        if not (gpus and self.ledger.tree.kinds):
            return frozenset() if self.ledger.entitled(unit.tenant, needed) else None
        verdicts: dict[tuple[str, ...], bool] = {}
        within, beyond = False, []
        for node in nodes:
            kinds = tuple(name for name in self.kinds(node) if name in self.ledger.tree.kinds)
            if kinds not in verdicts:
                there = {**needed, **dict.fromkeys(kinds, gpus)}
                verdicts[kinds] = self.ledger.entitled(unit.tenant, there)
            if verdicts[kinds]:
                within = True
            else:
                beyond.append(node)
        return frozenset(beyond) if within else None

    def _over_quota(self, tenant: str, excess: Excess) -> OverQuota:
        """Whoever else uses what a group may use together; a limit of its own is nobody else's."""
        if excess.member == tenant:
            return OverQuota(tenant, excess)
        rows = [
            row
            for row in self.ledger.borrowers(excess.resource, but=tenant)
            if any(member.name == excess.member for member in self.ledger.tree.path(row[0]))
        ]
        return OverQuota(tenant, excess, tuple(rows))

    def state(self) -> dict[str, dict[str, int]]:
        return self.ledger.state()
