"""
Charges pods to tenants, and checks units against quotas and guarantees.

    charge, uncharge         a pod was placed; it is gone
    within_quota             the members of a unit that its quota allows, or why it allows too few
    nodes_without_quota      nodes whose kind of GPU the tenant has used up
    nodes_beyond_guarantee   nodes on which a unit exceeds its tenant's guarantee

The charge of each pod is remembered, so that the uncharge is exact when the node or the policies
have changed since. A gang counts as a whole: its minimum is within the quota, or no member of it
is planned.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from policies.engine.policyset import PolicyTables
from scheduler.errors import InvariantError
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.queueing.over_quota import Limit
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Pairs, TenantTree, total


class QuotaAccounts:
    """`gpu_kinds` lists the names under which a quota counts the GPUs of a node."""

    def __init__(self, gpu_kinds: Callable[[str], tuple[str, ...]] = lambda _: ()) -> None:
        self.ledger = Ledger()
        self.changes = 0
        """Counts changes that may bring a unit within its quota."""
        self._tree_changed = 0  # number of the last change of policies
        self._released: dict[Limit, int] = {}  # -> number of its last change, the latest last
        self.gpu_kinds = gpu_kinds
        self._charged: dict[str, tuple[str, Pairs]] = {}  # pod uid -> tenant, amounts

    def adopt(self, tables: PolicyTables) -> None:
        """Other policies are in force."""
        self.ledger.change_tree(TenantTree.of(tables))
        self.quota_changed()
        self._tree_changed = self.changes
        self._released.clear()

    @property
    def tree(self) -> TenantTree:
        return self.ledger.tree

    @property
    def depends_on_nodes(self) -> bool:
        """Whether a quota names kinds of GPUs, which a pod gets with its node."""
        return bool(self.tree.gpu_kinds)

    def charge(self, pod: Pod, node: str) -> None:
        amounts = tuple(self.amounts(pod, node).items())
        self.uncharge(pod.uid)
        self._check_no_trial()
        try:
            self.ledger.charge(pod.attributes.tenant, amounts)
            self._charged[pod.uid] = (pod.attributes.tenant, amounts)
        except Exception:
            self.ledger.broken = True
            raise

    def uncharge(self, uid: str) -> None:
        if uid in self._charged:
            self._check_no_trial()
            charged = self._charged.pop(uid)
            try:
                self.ledger.uncharge(*charged)
            except Exception:
                self.ledger.broken = True
                raise
            self.quota_changed()
            self._note_released(*charged)

    def repair(self) -> None:
        """Count anew what is charged, if a charge broke off."""
        if self.ledger.broken and not self.ledger.in_trial:
            self.ledger.rebuild(self._charged.values())
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

    def _note_released(self, tenant: str, amounts: Pairs) -> None:
        """Only limits and guarantees of the policies: their number bounds the record."""
        for member in self.tree.path(tenant):
            named = {name for name, _ in (*member.max, *member.guaranteed)}
            for name, _ in amounts:
                if name in named:
                    self._released.pop((member.name, name), None)
                    self._released[member.name, name] = self.changes

    def released_since(self, change: int) -> list[Limit] | None:
        """Members and the resources of which they use less since that change; None: other policies
        are in force."""
        if self._tree_changed > change:
            return None
        released = []
        for limit, number in reversed(self._released.items()):
            if number <= change:
                break
            released.append(limit)
        return released

    def amounts(self, pod: Pod, node: str = "") -> dict[str, int]:
        """The amounts for which the pod is charged; on a node its GPUs count by kind as well."""
        amounts = dict(pod.spec.requests)
        gpus = pod.spec.host_request.gpus
        if node and gpus and self.tree.gpu_kinds:
            amounts |= dict.fromkeys(self._counted_kinds(node), gpus)
        return amounts

    def _counted_kinds(self, node: str) -> tuple[str, ...]:
        """Kinds of the node's GPUs that a quota names."""
        return tuple(kind for kind in self.gpu_kinds(node) if kind in self.tree.gpu_kinds)

    # --- quota ---

    def within_quota(self, unit: Unit) -> Unit | OverQuota:
        """The unit with as many members as its quota allows, at least its minimum."""
        if not self.tree.limited:
            return unit
        if self._excess(unit.tenant, unit.pods) is None:
            return unit
        minimum = unit.pods[: unit.need]
        requested = total(self.amounts(pod) for pod in minimum)
        if (excess := self.ledger.excess(unit.tenant, requested)) is not None:
            return self._over_quota(unit.tenant, excess)
        allowed = list(minimum)
        for pod in unit.pods[unit.need :]:
            more = total((requested, self.amounts(pod)))
            if self.ledger.excess(unit.tenant, more) is None:
                requested = more
                allowed.append(pod)
        return replace(unit, pods=tuple(allowed))

    def excess_members(self, unit: Unit, within: Unit) -> OverQuota | None:
        """Why the members of the unit beyond those `within` the quota wait."""
        excess = self._excess(unit.tenant, unit.pods)
        if excess is None:
            return None
        allowed = f"{len(within.pods)} of {len(unit.pods)} pods of pod group {unit.key.name}"
        return replace(self._over_quota(unit.tenant, excess), within=allowed)

    def _excess(self, tenant: str, pods: Iterable[Pod]) -> Excess | None:
        return self.ledger.excess(tenant, total(self.amounts(pod) for pod in pods))

    def over_quota(self, placements: Iterable[tuple[Pod, str]]) -> OverQuota | None:
        """Whether a plan exceeds a quota that names a kind of GPU."""
        placed = tuple(placements)
        if not placed or not self.tree.gpu_kinds:
            return None
        tenant = placed[0][0].attributes.tenant
        requested = total(self.amounts(pod, node) for pod, node in placed)
        excess = self.ledger.excess(tenant, requested)
        return None if excess is None else self._over_quota(tenant, excess)

    def nodes_without_quota(self, unit: Unit, nodes: Iterable[str]) -> frozenset[str]:
        """Nodes of a GPU kind of which the quota does not allow the smallest pod."""
        smallest = min(
            (pod.spec.host_request.gpus for pod in unit.pods if pod.spec.host_request.gpus),
            default=0,
        )
        if not smallest or not self.tree.gpu_kinds:
            return frozenset()
        used_up = {
            kind
            for kind in self.tree.gpu_kinds
            if (remaining := self.ledger.remaining(unit.tenant, kind)) is not None
            and remaining < smallest
        }
        if not used_up:
            return frozenset()
        return frozenset(node for node in nodes if used_up.intersection(self.gpu_kinds(node)))

    def _over_quota(self, tenant: str, excess: Excess) -> OverQuota:
        """With the borrowers of the group, if the limit is that of a group."""
        if not excess.is_group:
            return OverQuota(tenant, excess)
        borrowers = [
            (name, amount)
            for name, amount in self.ledger.borrowers(excess.resource, except_for=tenant)
            if any(member.name == excess.member for member in self.tree.path(name))
        ]
        return OverQuota(tenant, excess, tuple(borrowers))

    # --- guarantees ---

    def nodes_beyond_guarantee(self, unit: Unit, nodes: Iterable[str]) -> frozenset[str] | None:
        """
        Nodes on which the unit's minimum exceeds its tenant's guarantee; None: on all.

        Empty where the guarantee names no kind of GPU: then all nodes are alike.
        """
        pods = unit.pods[: unit.need]
        requested = total(self.amounts(pod) for pod in pods)
        gpus = sum(pod.spec.host_request.gpus for pod in pods)
        if not (gpus and self.tree.gpu_kinds):
            return frozenset() if self.ledger.within_guarantee(unit.tenant, requested) else None
        within: dict[tuple[str, ...], bool] = {}
        beyond = []
        for node in nodes:
            kinds = self._counted_kinds(node)
            if kinds not in within:
                there = {**requested, **dict.fromkeys(kinds, gpus)}
                within[kinds] = self.ledger.within_guarantee(unit.tenant, there)
            if not within[kinds]:
                beyond.append(node)
        return frozenset(beyond) if any(within.values()) else None

    def state(self) -> dict[str, dict[str, int]]:
        return self.ledger.state()
