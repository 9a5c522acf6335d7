"""
Devices: which of them the claims of pods hold, and which nodes can give a pod what its claims want.

A claim that is allocated in the API holds its devices by that, whoever uses it: see `facts`. A pod
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
from scheduler.model.assignment import Assignment, NumaMisfit
from scheduler.model.numa_request import HostRequest
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.plugins.dra import numa_alignment
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
_MOST_KEPT: Final = 256  # kinds of wishes whose answers are kept
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
    allotment: ClaimAllocation
    holders: set[Holder]


class DynamicResources(Plugin):
    """kube-scheduler's DynamicResources."""

    events = frozenset(
        {POD_EVENT, "ResourceClaim", "DeviceClass", "ResourceSlice", "DeviceTaintRule"}
    )

    def __init__(self, table: NodeTable, selecting: DeviceSelectors | None = None) -> None:
        super().__init__(table)
        self.facts = DeviceStore()
        self._rows = LabelIndex(table)
        self._shelves = NodeDeviceCache(table, self.facts)
        self._promised: dict[Holder, ClaimDecision] = {}
        self._promises: dict[ClaimKey, _AssumedAllocation] = {}
        self._busy: dict[DeviceId, set[ClaimKey]] = {}  # by promises
        self._stamps: Ints = np.zeros(len(table.alive), dtype=np.int64)
        self._all = 0  # counts the changes that may concern any row
        # (specs, NUMA nodes) -> row -> when it was asked, and the answer
        self._answers: dict[
            tuple[tuple[int, ...], Zones], dict[int, tuple[tuple[int, int], Outcome]]
        ] = {}
        self._world = DeviceSource(
            classes=self.facts.classes,
            selecting=selecting or DeviceSelectors(),
            in_use=self._in_use,
            marks=self.facts.marks,
            counters=self._counters,
        )
        self.facts.on_nodes.append(self._offered)
        self.facts.on_taken.append(self._touched)

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS or pod.node:
            return  # a pod that has its node in the API has its claims allocated there too
        holder = (pod.uid, row)
        decision = self._promised[holder] = self._decide(pod, row, assignment)
        for key, allotment in decision.claims:
            if allotment is not None:
                self._promise(key, allotment, holder)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.resource_claims is not NO_RESOURCE_CLAIMS:
            self._take_back((pod.uid, row))

    def drop(self, row: int) -> None:
        for holder in [holder for holder in self._promised if holder[1] == row]:
            self._take_back(holder)
        self._bump((row,))
        self._shelves.drop(row)

    def state(self, row: int) -> tuple[object, ...]:
        found = ((uid, what) for (uid, where), what in self._promised.items() if where == row)
        return tuple(sorted(found, key=lambda one: one[0]))

    def decision(self, pod: Pod, node: str) -> ClaimDecision:
        return self._promised.get((pod.uid, self._table.rows.get(node, -1)), NOTHING)

    def holders(self, key: ClaimKey) -> set[str]:
        """uids of the placed pods that are promised this claim's devices or use it already."""
        return {
            uid
            for (uid, _), decision in self._promised.items()
            if any(mine == key for mine, _ in decision.claims)
        }

    def _decide(self, pod: Pod, row: int, assignment: Assignment) -> ClaimDecision:
        found = claim_rules.judge(self.facts, pod)
        if found.trouble:
            return ClaimDecision(lacking=found.trouble)
        made: dict[ClaimKey, ClaimAllocation | None] = {
            claim.key: None for claim in found.allocated
        }
        made |= {claim.key: self._promises[claim.key].allotment for claim in self._shared(found)}
        wanting = self._open(found)
        if wanting:
            outcome = self._preferred(pod, wanting, row, assignment)
            if isinstance(outcome, NotAllocated):
                return ClaimDecision(lacking=outcome.reason)
            made |= dict(zip((one.key for one in wanting), outcome.allotments, strict=True))
        return ClaimDecision(tuple((key, made[key]) for key in claim_rules.keys(pod)))

    def _preferred(
        self, pod: Pod, wanting: tuple[ResourceClaim, ...], row: int, assignment: Assignment
    ) -> Outcome:
        """Devices on the pod's own NUMA nodes; from elsewhere where its policy lets them."""
        if assignment.numa:
            near = self._answer(wanting, row, frozenset(assignment.numa))
            if isinstance(near, Allocated) or numa_alignment.binds(pod.spec.host_request):
                return near
        return self._answer(wanting, row, None)

    def _promise(self, key: ClaimKey, allotment: ClaimAllocation, holder: Holder) -> None:
        known = self._promises.get(key)
        if known is not None:
            known.holders.add(holder)
            return
        self._promises[key] = _AssumedAllocation(allotment, {holder})
        devices = _devices(allotment)
        for device in devices:
            self._busy.setdefault(device, set()).add(key)
        self.facts.touched(devices)

    def _take_back(self, holder: Holder) -> None:
        decision = self._promised.pop(holder, NOTHING)
        for key, _ in decision.claims:
            promise = self._promises.get(key)
            if promise is None:
                continue
            promise.holders.discard(holder)
            if promise.holders:
                continue
            del self._promises[key]
            devices = _devices(promise.allotment)
            for device in devices:
                self._busy[device].discard(key)
                if not self._busy[device]:
                    del self._busy[device]
            self.facts.touched(devices)

    # --- what the facts say ---

    def _offered(self, names: Iterable[str] | None) -> None:
        self._shelves.forget(names)
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
        return device in self.facts.taken or device in self._busy

    def _counters(self, pool: PoolId) -> dict[tuple[str, str], Decimal]:
        left: dict[tuple[str, str], Decimal] = {}
        slices = self.facts.pools[pool].slices
        for one in slices:
            for counters, counter, amount in one.counters:
                left[counters, counter] = left.get((counters, counter), Decimal(0)) + amount
        for device in (device for one in slices for device in one.devices):
            if device.draws and self._in_use(device.id):
                for counters, counter, amount in device.draws:
                    left[counters, counter] = left.get((counters, counter), Decimal(0)) - amount
        return left

    # --- questions ---

    def unresolvable(self, pod: Pod) -> str:
        """For example a claim that does not exist."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return ""
        return claim_rules.judge(self.facts, pod).trouble

    def signature(self, pod: Pod) -> tuple[object, ...]:
        """Equal for pods of one shape whose claims can be satisfied by the same nodes."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return ()
        found = claim_rules.judge(self.facts, pod)
        if found.trouble:
            return (found.trouble,)
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
        found = claim_rules.judge(self.facts, pod)
        if found.trouble:
            yield found.trouble, rows
            return
        left = rows
        for nodes in self._fixed(found):
            away = left & ~nodes.rows(self._table, self._rows)
            yield UNAVAILABLE, away
            left = left & ~away
        if wanting := self._open(found):
            yield from self._refused(wanting, left)

    def packing_cost(self, pod: Pod, rows: Ints, *, equal_pods: int) -> Ints | None:
        """
        For each of these rows how little its devices suit; None: all the same.

        With so many pods `alike` to be placed, the tightest row that may hold all of them is the
        best, and where none does, the roomiest: they shall span few nodes.
        """
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return None
        found = claim_rules.judge(self.facts, pod)
        wanting = self._open(found)
        if found.trouble or not wanting:
            return None
        answers = [self._answer(wanting, int(row), None) for row in rows]
        return np.array([_cost(one, equal_pods) for one in answers], dtype=np.int64)

    def choose(
        self,
        pod: Pod,
        row: int,
        zones: Iterable[int],
        decide: Callable[[HostRequest], Assignment | NumaMisfit],
    ) -> Assignment | NumaMisfit:
        """Where on its host the pod would sit, with its devices where its policy wants them."""
        wanting = self._open(claim_rules.judge(self.facts, pod))
        if not wanting:
            return decide(pod.spec.host_request)

        def gives(here: frozenset[int]) -> bool:
            return isinstance(self._answer(wanting, row, here), Allocated)

        return numa_alignment.choose(pod.spec.host_request, tuple(zones), decide, gives)

    def _shared(self, found: PodClaims) -> list[ResourceClaim]:
        """Claims that a pod on its way will have allocated."""
        return [claim for claim in found.wanting if claim.key in self._promises]

    def _open(self, found: PodClaims) -> tuple[ResourceClaim, ...]:
        return tuple(claim for claim in found.wanting if claim.key not in self._promises)

    def _fixed(self, found: PodClaims) -> Iterator[NodeReach]:
        for claim in found.allocated:
            if claim.given is not None:
                yield claim.given.nodes
        for claim in self._shared(found):
            picks = self._promises[claim.key].allotment.picks
            yield common(tuple(pick.nodes for pick in picks))

    def _specs(self, wanting: Iterable[ResourceClaim]) -> tuple[int, ...]:
        return tuple(self.facts.numbers[claim.key] for claim in wanting)

    def _refused(
        self, wanting: tuple[ResourceClaim, ...], rows: Bools
    ) -> Iterator[tuple[str, Bools]]:
        reasons: dict[str, Bools] = {}
        names = ["/".join(claim.key) for claim in wanting]
        for row in np.flatnonzero(rows):
            outcome = self._answer(wanting, int(row), None)
            if isinstance(outcome, NotAllocated):
                text = outcome.text(names)
                if outcome.broken:
                    # As in kube-scheduler: what is wrong with a claim fails it on all nodes.
                    yield text, rows
                    return
                reasons.setdefault(text, np.zeros_like(rows))[row] = True
        yield from sorted(reasons.items())

    def _answer(self, wanting: tuple[ResourceClaim, ...], row: int, zones: Zones) -> Outcome:
        key = (self._specs(wanting), zones)
        answers = self._answers.get(key)
        if answers is None:
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            answers = self._answers[key] = {}
        if row >= len(self._stamps):
            self._bump(())
        moment = (int(self._stamps[row]), self._all)
        known = answers.get(row)
        if known is None or known[0] != moment or not self._shelves.stands(row):
            known = answers[row] = (moment, self._allocate(wanting, row, zones))
        return known[1]

    def _allocate(self, wanting: tuple[ResourceClaim, ...], row: int, zones: Zones) -> Outcome:
        specs = [claim.spec for claim in wanting]
        return allocate(specs, self._shelves.at(row), self._world, zones=zones)


def _cost(outcome: Outcome, alike: int) -> int:
    if isinstance(outcome, NotAllocated):
        return _FAR
    room = outcome.room
    return outcome.rank * _RANK + (room if room >= alike else _RANK - room)


def _devices(allotment: ClaimAllocation) -> list[DeviceId]:
    return [pick.device for pick in allotment.picks if not pick.ask.admin]
