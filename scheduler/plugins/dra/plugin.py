"""
Devices: which of them the claims of pods hold, and which nodes can give a pod what its claims want.

A claim that is allocated in the API holds its devices by that, whoever uses it: see `store`. A pod
that is placed and not yet bound also holds promises for the claims that nobody has allocated yet:
the devices that each will get. Pods that share a claim share its promise, so that the second
goes where the first one went.

    take    a pod without a node of its own is promised devices
    give    the opposite
    refuse  what kube-scheduler's DynamicResources filter would say

What a node answers is kept until its devices, or who holds them, change.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import numpy as np

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
_CACHE_SIZE: Final = 256  # kinds of wishes whose answers are kept
_FAR: Final = 1 << 40
_RANK: Final = 1 << 20  # what a way further down the list costs, beyond all room

Holder = tuple[str, int]  # pod uid, row
Zones = frozenset[int] | None


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """What must be written before the pod may be bound, claim by claim."""

    claims: tuple[tuple[ClaimKey, ClaimAllocation | None], ...] = ()
    """None: allocated already, only to be reserved."""
    lacking: str = ""
    """Why the node cannot give the devices any more."""


NOTHING: Final = ClaimDecision()


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
        self._rows = LabelIndex(table)
        self._node_devices = NodeDeviceCache(table, self.store)
        self._decisions: dict[Holder, ClaimDecision] = {}
        self._assumed: dict[ClaimKey, _AssumedAllocation] = {}
        self._busy: dict[DeviceId, set[ClaimKey]] = {}  # by promises
        self._stamps: Ints = np.zeros(len(table.alive), dtype=np.int64)
        self._all = 0  # counts the changes that may concern any row
        # (specs, NUMA nodes) -> row -> when it was asked, and the answer
        self._answers: dict[
            tuple[tuple[int, ...], Zones], dict[int, tuple[tuple[int, int], Outcome]]
        ] = {}
        self._source = DeviceSource(
            classes=self.store.classes,
            device_selectors=device_selectors or DeviceSelectors(),
            in_use=self._in_use,
            taints=self.store.taints,
            counters=self._counters,
        )
        self.store.on_nodes.append(self._offered)
        self.store.on_usage.append(self._touched)

    def feeds(self) -> Iterable[Feed]:
        return informers.feeds(self.store)

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS or pod.node:
            return  # a pod that has its node in the API has its claims allocated there too
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
        found = ((uid, what) for (uid, where), what in self._decisions.items() if where == row)
        return tuple(sorted(found, key=lambda one: one[0]))

    def decision(self, pod: Pod, node: str) -> ClaimDecision:
        return self._decisions.get((pod.uid, self._table.rows.get(node, -1)), NOTHING)

    def holders(self, key: ClaimKey) -> set[str]:
        """uids of the placed pods that are promised this claim's devices or use it already."""
        return {
            uid
            for (uid, _), decision in self._decisions.items()
            if any(mine == key for mine, _ in decision.claims)
        }

    def _decide(self, pod: Pod, row: int, assignment: Assignment) -> ClaimDecision:
        found = claim_rules.classify(self.store, pod)
        if found.problem:
            return ClaimDecision(lacking=found.problem)
        made: dict[ClaimKey, ClaimAllocation | None] = {
            claim.key: None for claim in found.allocated
        }
        made |= {claim.key: self._assumed[claim.key].allocation for claim in self._shared(found)}
        unallocated = self._open(found)
        if unallocated:
            outcome = self._preferred(pod, unallocated, row, assignment)
            if isinstance(outcome, NotAllocated):
                return ClaimDecision(lacking=outcome.reason)
            made |= dict(zip((one.key for one in unallocated), outcome.allocations, strict=True))
        return ClaimDecision(tuple((key, made[key]) for key in claim_rules.keys(pod)))

    def _preferred(
        self, pod: Pod, unallocated: tuple[ResourceClaim, ...], row: int, assignment: Assignment
    ) -> Outcome:
        """Devices on the pod's own NUMA nodes; from elsewhere where its policy lets them."""
        if assignment.numa:
            near = self._answer(unallocated, row, frozenset(assignment.numa))
            if isinstance(near, Allocated) or numa_alignment.must_align(pod.spec.host_request):
                return near
        return self._answer(unallocated, row, None)

    def _assume(self, key: ClaimKey, allocation: ClaimAllocation, holder: Holder) -> None:
        known = self._assumed.get(key)
        if known is not None:
            known.holders.add(holder)
            return
        self._assumed[key] = _AssumedAllocation(allocation, {holder})
        devices = _devices(allocation)
        for device in devices:
            self._busy.setdefault(device, set()).add(key)
        self.store.usage_changed(devices)

    def _revert(self, holder: Holder) -> None:
        decision = self._decisions.pop(holder, NOTHING)
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
                self._busy[device].discard(key)
                if not self._busy[device]:
                    del self._busy[device]
            self.store.usage_changed(devices)

    # --- what the facts say ---

    def _offered(self, names: Iterable[str] | None) -> None:
        self._node_devices.forget(names)
        self._touched(names)

    def _touched(self, names: Iterable[str] | None) -> None:
        if names is None:
            self._all += 1
        else:
            rows = self._table.rows
            self._bump(rows[name] for name in names if name in rows)

    def _bump(self, rows: Iterable[int]) -> None:
        short = len(self._table.alive) - len(self._stamps)
        if short > 0:
            self._stamps = np.concatenate([self._stamps, np.zeros(short, dtype=np.int64)])
        for row in rows:
            self._stamps[row] += 1

    def _in_use(self, device: DeviceId) -> bool:
        return device in self.store.allocated_by or device in self._busy

    def _counters(self, pool: PoolId) -> dict[tuple[str, str], Decimal]:
        left: dict[tuple[str, str], Decimal] = {}
        slices = self.store.pools[pool].slices
        for one in slices:
            for counters, counter, amount in one.counters:
                left[counters, counter] = left.get((counters, counter), Decimal(0)) + amount
        for device in (device for one in slices for device in one.devices):
            if device.consumes and self._in_use(device.id):
                for counters, counter, amount in device.consumes:
                    left[counters, counter] = left.get((counters, counter), Decimal(0)) - amount
        return left

    # --- questions ---

    def unresolvable(self, pod: Pod) -> str:
        """For example a claim that does not exist."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return ""
        return claim_rules.classify(self.store, pod).problem

    def signature(self, pod: Pod) -> tuple[object, ...]:
        """Equal for pods of one shape whose claims can be satisfied by the same nodes."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return ()
        found = claim_rules.classify(self.store, pod)
        if found.problem:
            return (found.problem,)
        fixed = (*found.allocated, *self._shared(found))
        return tuple(sorted(claim.key for claim in fixed)), self._specs(self._open(found))

    def depends_on_pods(self, pod: Pod) -> bool:
        return pod.spec.resource_claims is not NO_RESOURCE_CLAIMS

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.resource_claims is not NO_RESOURCE_CLAIMS:
            yield "claim no devices", replace(spec, resource_claims=NO_RESOURCE_CLAIMS)

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return
        found = claim_rules.classify(self.store, pod)
        if found.problem:
            yield found.problem, rows
            return
        left = rows
        for nodes in self._fixed(found):
            away = left & ~nodes.rows(self._table, self._rows)
            yield UNAVAILABLE, away
            left = left & ~away
        if unallocated := self._open(found):
            yield from self._refused(unallocated, left)

    def packing_cost(self, pod: Pod, rows: Ints, *, equal_pods: int) -> Ints | None:
        """
        For each of these rows how little its devices suit; None: all the same.

        With so many pods `alike` to be placed, the tightest row that may hold all of them is the
        best, and where none does, the roomiest: they shall span few nodes.
        """
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return None
        found = claim_rules.classify(self.store, pod)
        unallocated = self._open(found)
        if found.problem or not unallocated:
            return None
        answers = [self._answer(unallocated, int(row), None) for row in rows]
        return np.array([_cost(one, equal_pods) for one in answers], dtype=np.int64)

    def choose(
        self,
        pod: Pod,
        row: int,
        zones: Iterable[int],
        decide: Callable[[HostRequest], Assignment | NumaMisfit],
    ) -> Assignment | NumaMisfit:
        """Where on its host the pod would sit, with its devices where its policy wants them."""
        unallocated = self._open(claim_rules.classify(self.store, pod))
        if not unallocated:
            return decide(pod.spec.host_request)

        def has_devices(numa_nodes: frozenset[int]) -> bool:
            return isinstance(self._answer(unallocated, row, numa_nodes), Allocated)

        return numa_alignment.choose(pod.spec.host_request, tuple(zones), decide, has_devices)

    def _shared(self, found: PodClaims) -> list[ResourceClaim]:
        """Claims that a pod on its way will have allocated."""
        return [claim for claim in found.unallocated if claim.key in self._assumed]

    def _open(self, found: PodClaims) -> tuple[ResourceClaim, ...]:
        return tuple(claim for claim in found.unallocated if claim.key not in self._assumed)

    def _fixed(self, found: PodClaims) -> Iterator[NodeReach]:
        for claim in found.allocated:
            if claim.allocation is not None:
                yield claim.allocation.nodes
        for claim in self._shared(found):
            picks = self._assumed[claim.key].allocation.picks
            yield common(tuple(pick.nodes for pick in picks))

    def _specs(self, unallocated: Iterable[ResourceClaim]) -> tuple[int, ...]:
        return tuple(self.store.numbers[claim.key] for claim in unallocated)

    def _refused(
        self, unallocated: tuple[ResourceClaim, ...], rows: Bools
    ) -> Iterator[tuple[str, Bools]]:
        reasons: dict[str, Bools] = {}
        names = ["/".join(claim.key) for claim in unallocated]
        for row in np.flatnonzero(rows):
            outcome = self._answer(unallocated, int(row), None)
            if isinstance(outcome, NotAllocated):
                text = outcome.text(names)
                if outcome.broken:
                    # As in kube-scheduler: what is wrong with a claim fails it on all nodes.
                    yield text, rows
                    return
                reasons.setdefault(text, np.zeros_like(rows))[row] = True
        yield from sorted(reasons.items())

    def _answer(self, unallocated: tuple[ResourceClaim, ...], row: int, zones: Zones) -> Outcome:
        key = (self._specs(unallocated), zones)
        answers = self._answers.get(key)
        if answers is None:
            if len(self._answers) >= _CACHE_SIZE:
                self._answers.clear()
            answers = self._answers[key] = {}
        if row >= len(self._stamps):
            self._bump(())
        moment = (int(self._stamps[row]), self._all)
        known = answers.get(row)
        if known is None or known[0] != moment or not self._node_devices.stands(row):
            known = answers[row] = (moment, self._allocate(unallocated, row, zones))
        return known[1]

    def _allocate(self, unallocated: tuple[ResourceClaim, ...], row: int, zones: Zones) -> Outcome:
        specs = [claim.spec for claim in unallocated]
        return allocate(specs, self._node_devices.at(row), self._source, zones=zones)


def _cost(outcome: Outcome, alike: int) -> int:
    if isinstance(outcome, NotAllocated):
        return _FAR
    max_pods = outcome.max_pods
    return outcome.rank * _RANK + (max_pods if max_pods >= alike else _RANK - max_pods)


def _devices(allocation: ClaimAllocation) -> list[DeviceId]:
    return [pick.device for pick in allocation.picks if not pick.subrequest.admin]
