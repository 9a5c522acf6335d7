"""
Devices of ResourceClaims: assumed allocations, and the nodes with devices for a pod.

An allocated claim has its devices in the API, see `store`. A pod that is placed and not yet bound
also has assumed allocations for its unallocated claims: their devices count as in use, and other
pods with the same claim follow it.

    charge      assume an allocation for each unallocated claim of the pod
    uncharge    the opposite
    filter      the nodes that reach the devices of allocated claims, then the allocator per node

A result of the allocator is cached for each node until the node's devices or their use change.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import numpy as np

from scheduler import bounded
from scheduler.columns.label_match import LabelIndex
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.feed import Feed
from scheduler.model.assignment import Assignment, NumaMisfit
from scheduler.model.numa_request import HostRequest
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.plugins.dra import informers, numa_alignment
from scheduler.plugins.dra import pod_claims as claim_rules
from scheduler.plugins.dra.allocator import (
    Allocated,
    ClaimAllocation,
    DeviceSource,
    NotAllocated,
    Outcome,
    allocate,
)
from scheduler.plugins.dra.cel_selectors import DeviceSelectors
from scheduler.plugins.dra.claim_types import ClaimKey, ResourceClaim
from scheduler.plugins.dra.device_types import DeviceId, PoolId
from scheduler.plugins.dra.node_devices import NodeDeviceCache
from scheduler.plugins.dra.node_selector import NodeReach, common
from scheduler.plugins.dra.pod_claims import PodClaims
from scheduler.plugins.dra.store import DeviceStore
from scheduler.plugins.protocol import POD_EVENT, Plugin, Rejection, Relaxation

UNAVAILABLE: Final = "resourceclaim not available on the node"
_CACHE_SIZE: Final = 256  # sets of claim specs with cached results
_NO_DEVICES_COST: Final = 1 << 40
_RANK_COST: Final = 1 << 20  # the cost of the next alternative, above any number of pods

Holder = tuple[str, int]  # pod uid, row
Zones = frozenset[int] | None


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """What PreBind writes before the pod is bound, claim by claim."""

    claims: tuple[tuple[ClaimKey, ClaimAllocation | None], ...] = ()
    """None: already allocated, PreBind only reserves it."""
    unmatched: str = ""
    """Why the node has no devices for the pod any more."""


NO_DECISION: Final = ClaimDecision()


@dataclass(slots=True)
class _AssumedAllocation:
    allocation: ClaimAllocation
    holders: set[Holder]


class DynamicResources(Plugin):
    """kube-scheduler's DynamicResources."""

    events = frozenset(
        {POD_EVENT, "ResourceClaim", "DeviceClass", "ResourceSlice", "DeviceTaintRule"}
    )

    def __init__(self, table: NodeTable, device_selectors: DeviceSelectors | None = None) -> None:
        super().__init__(table)
        self.store = DeviceStore()
        self._labels = LabelIndex(table)
        self._node_devices = NodeDeviceCache(table, self.store)
        self._decisions: dict[Holder, ClaimDecision] = {}
        self._assumed: dict[ClaimKey, _AssumedAllocation] = {}
        self._assumed_devices: dict[DeviceId, set[ClaimKey]] = {}  # by assumed allocations
        self._row_versions: Ints = np.zeros(len(table.alive), dtype=np.int64)
        self._global_version = 0  # counts the changes that may affect any row
        # (specs, NUMA nodes) -> row -> the versions, and the outcome
        self._cache: dict[
            tuple[tuple[int, ...], Zones], dict[int, tuple[tuple[int, int], Outcome]]
        ] = {}
        self._source = DeviceSource(
            classes=self.store.classes,
            device_selectors=device_selectors or DeviceSelectors(),
            in_use=self._in_use,
            taints=self.store.taints,
            counters=self._counters,
        )
        self.store.on_nodes.append(self._devices_changed)
        self.store.on_usage.append(self._usage_changed)

    def feeds(self) -> Iterable[Feed]:
        return informers.feeds(self.store)

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS or pod.node:
            return  # a pod with a node in the API has allocated claims there too
        holder = (pod.uid, row)
        decision = self._decisions[holder] = self._decide(pod, row, assignment)
        for key, allocation in decision.claims:
            if allocation is not None:
                self._assume(key, allocation, holder)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.resource_claims is not NO_RESOURCE_CLAIMS:
            self._revert((pod.uid, row))

    def drop(self, row: int) -> None:
        for holder in [holder for holder in self._decisions if holder[1] == row]:
            self._revert(holder)
        self._bump((row,))
        self._node_devices.drop(row)

    def state(self, row: int) -> tuple[object, ...]:
        decisions = (
            (uid, decision) for (uid, where), decision in self._decisions.items() if where == row
        )
        return tuple(sorted(decisions, key=lambda item: item[0]))

    def decision(self, pod: Pod, node: str) -> ClaimDecision:
        return self._decisions.get((pod.uid, self._table.rows.get(node, -1)), NO_DECISION)

    def holders(self, key: ClaimKey) -> set[str]:
        """uids of the placed pods that have or are assumed to get this claim's devices."""
        return {
            uid
            for (uid, _), decision in self._decisions.items()
            if any(own == key for own, _ in decision.claims)
        }

    def _decide(self, pod: Pod, row: int, assignment: Assignment) -> ClaimDecision:
        claims = claim_rules.classify(self.store, pod)
        if claims.problem:
            return ClaimDecision(unmatched=claims.problem)
        allocations: dict[ClaimKey, ClaimAllocation | None] = {
            claim.key: None for claim in claims.allocated
        }
        allocations |= {
            claim.key: self._assumed[claim.key].allocation for claim in self._assumed_claims(claims)
        }
        unallocated = self._unassumed_claims(claims)
        if unallocated:
            outcome = self._preferred(pod, unallocated, row, assignment)
            if isinstance(outcome, NotAllocated):
                return ClaimDecision(unmatched=outcome.reason)
            allocations |= dict(
                zip((claim.key for claim in unallocated), outcome.allocations, strict=True)
            )
        return ClaimDecision(tuple((key, allocations[key]) for key in claim_rules.keys(pod)))

    def _preferred(
        self, pod: Pod, unallocated: tuple[ResourceClaim, ...], row: int, assignment: Assignment
    ) -> Outcome:
        """Devices on the pod's own NUMA nodes; others where its policy allows them."""
        if assignment.numa:
            aligned = self._outcome(unallocated, row, frozenset(assignment.numa))
            if isinstance(aligned, Allocated) or numa_alignment.must_align(pod.spec.host_request):
                return aligned
        return self._outcome(unallocated, row, None)

    def _assume(self, key: ClaimKey, allocation: ClaimAllocation, holder: Holder) -> None:
        known = self._assumed.get(key)
        if known is not None:
            known.holders.add(holder)
            return
        self._assumed[key] = _AssumedAllocation(allocation, {holder})
        devices = _devices(allocation)
        for device in devices:
            self._assumed_devices.setdefault(device, set()).add(key)
        self.store.usage_changed(devices)

    def _revert(self, holder: Holder) -> None:
        decision = self._decisions.pop(holder, NO_DECISION)
        for key, _ in decision.claims:
            assumed = self._assumed.get(key)
            if assumed is None:
                continue
            assumed.holders.discard(holder)
            if assumed.holders:
                continue
            del self._assumed[key]
            devices = _devices(assumed.allocation)
            for device in devices:
                self._assumed_devices[device].discard(key)
                if not self._assumed_devices[device]:
                    del self._assumed_devices[device]
            self.store.usage_changed(devices)

    # --- changes in the store ---

    def _devices_changed(self, names: Iterable[str] | None) -> None:
        self._node_devices.forget(names)
        self._usage_changed(names)

    def _usage_changed(self, names: Iterable[str] | None) -> None:
        if names is None:
            self._global_version += 1
        else:
            rows = self._table.rows
            self._bump(rows[name] for name in names if name in rows)

    def _bump(self, rows: Iterable[int]) -> None:
        missing = len(self._table.alive) - len(self._row_versions)
        if missing > 0:
            self._row_versions = np.concatenate(
                [self._row_versions, np.zeros(missing, dtype=np.int64)]
            )
        for row in rows:
            self._row_versions[row] += 1

    def _in_use(self, device: DeviceId) -> bool:
        return device in self.store.allocated_by or device in self._assumed_devices

    def _counters(self, pool: PoolId) -> dict[tuple[str, str], Decimal]:
        left: dict[tuple[str, str], Decimal] = {}
        slices = self.store.pools[pool].slices
        for item in slices:
            for counters, counter, amount in item.counters:
                left[counters, counter] = left.get((counters, counter), Decimal(0)) + amount
        for device in (device for item in slices for device in item.devices):
            if device.consumes and self._in_use(device.id):
                for counters, counter, amount in device.consumes:
                    left[counters, counter] = left.get((counters, counter), Decimal(0)) - amount
        return left

    # --- filters ---

    def unresolvable(self, pod: Pod) -> str:
        """For example a claim that does not exist."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return ""
        return claim_rules.classify(self.store, pod).problem

    def signature(self, pod: Pod) -> tuple[object, ...]:
        """Equal for pods of one spec whose claims the same nodes can satisfy."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return ()
        claims = claim_rules.classify(self.store, pod)
        if claims.problem:
            return (claims.problem,)
        fixed = (*claims.allocated, *self._assumed_claims(claims))
        return tuple(sorted(claim.key for claim in fixed)), self._specs(
            self._unassumed_claims(claims)
        )

    def depends_on_pods(self, pod: Pod) -> bool:
        return pod.spec.resource_claims is not NO_RESOURCE_CLAIMS

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.resource_claims is not NO_RESOURCE_CLAIMS:
            yield "claim no devices", replace(spec, resource_claims=NO_RESOURCE_CLAIMS)

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return
        claims = claim_rules.classify(self.store, pod)
        if claims.problem:
            yield claims.problem, rows
            return
        left = rows
        for nodes in self._fixed(claims):
            rejected = left & ~nodes.rows(self._table, self._labels)
            yield UNAVAILABLE, rejected
            left = left & ~rejected
        if unallocated := self._unassumed_claims(claims):
            yield from self._filter_unallocated(unallocated, left)

    def packing_cost(self, pod: Pod, rows: Ints, *, equal_pods: int) -> Ints | None:
        """
        The cost of each row by its devices; None: all rows are equal.

        The best row is the tightest one with devices for all `equal_pods`. Without such a row it is
        the one with devices for most of them, so that they span few nodes.
        """
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return None
        claims = claim_rules.classify(self.store, pod)
        unallocated = self._unassumed_claims(claims)
        if claims.problem or not unallocated:
            return None
        outcomes = [self._outcome(unallocated, int(row), None) for row in rows]
        return np.array([_cost(outcome, equal_pods) for outcome in outcomes], dtype=np.int64)

    def choose(
        self,
        pod: Pod,
        row: int,
        zones: Iterable[int],
        decide: Callable[[HostRequest], Assignment | NumaMisfit],
    ) -> Assignment | NumaMisfit:
        """The pod's NUMA assignment, aligned with its devices where its policy demands it."""
        unallocated = self._unassumed_claims(claim_rules.classify(self.store, pod))
        if not unallocated:
            return decide(pod.spec.host_request)

        def has_devices(numa_nodes: frozenset[int]) -> bool:
            return isinstance(self._outcome(unallocated, row, numa_nodes), Allocated)

        return numa_alignment.choose(pod.spec.host_request, tuple(zones), decide, has_devices)

    def _assumed_claims(self, claims: PodClaims) -> list[ResourceClaim]:
        """Unallocated claims with an assumed allocation for another pod."""
        return [claim for claim in claims.unallocated if claim.key in self._assumed]

    def _unassumed_claims(self, claims: PodClaims) -> tuple[ResourceClaim, ...]:
        return tuple(claim for claim in claims.unallocated if claim.key not in self._assumed)

    def _fixed(self, claims: PodClaims) -> Iterator[NodeReach]:
        for claim in claims.allocated:
            if claim.allocation is not None:
                yield claim.allocation.nodes
        for claim in self._assumed_claims(claims):
            picks = self._assumed[claim.key].allocation.picks
            yield common(tuple(pick.nodes for pick in picks))

    def _specs(self, unallocated: Iterable[ResourceClaim]) -> tuple[int, ...]:
        return tuple(self.store.spec_numbers[claim.key] for claim in unallocated)

    def _filter_unallocated(
        self, unallocated: tuple[ResourceClaim, ...], rows: Bools
    ) -> Iterator[tuple[str, Bools]]:
        reasons: dict[str, Bools] = {}
        names = ["/".join(claim.key) for claim in unallocated]
        for row in np.flatnonzero(rows):
            outcome = self._outcome(unallocated, int(row), None)
            if isinstance(outcome, NotAllocated):
                text = outcome.text(names)
                if outcome.broken:
                    # As in kube-scheduler an invalid claim rejects all nodes.
                    yield text, rows
                    return
                reasons.setdefault(text, np.zeros_like(rows))[row] = True
        yield from sorted(reasons.items())

    def _outcome(self, unallocated: tuple[ResourceClaim, ...], row: int, zones: Zones) -> Outcome:
        key = (self._specs(unallocated), zones)
        answers = self._cache.get(key)
        if answers is None:
            answers = bounded.remember(self._cache, key, {}, _CACHE_SIZE)
        if row >= len(self._row_versions):
            self._bump(())
        versions = (int(self._row_versions[row]), self._global_version)
        known = answers.get(row)
        if known is None or known[0] != versions or not self._node_devices.is_current(row):
            known = answers[row] = (versions, self._allocate(unallocated, row, zones))
        return known[1]

    def _allocate(self, unallocated: tuple[ResourceClaim, ...], row: int, zones: Zones) -> Outcome:
        specs = [claim.spec for claim in unallocated]
        return allocate(specs, self._node_devices.at(row), self._source, zones=zones)


def _cost(outcome: Outcome, equal_pods: int) -> int:
    if isinstance(outcome, NotAllocated):
        return _NO_DEVICES_COST
    pods = outcome.max_pods
    return outcome.rank * _RANK_COST + (pods if pods >= equal_pods else _RANK_COST - pods)


def _devices(allocation: ClaimAllocation) -> list[DeviceId]:
    return [pick.device for pick in allocation.picks if not pick.subrequest.admin]
