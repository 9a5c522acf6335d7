"""
Allocates devices of one node to the claims of one pod, by a bounded search.

    claims in the pod's order ──▶ requests in their order ──▶ alternatives, the first that works
                                                                │
                          count: that many of the selected, free and tolerated devices
                          All:   every selected device, each of them free

A device is allocated once; a request with admin access leaves it free for others. Constraints hold
over all devices of a claim that they cover. Devices consume the shared counters of their pool. The
search backtracks, and gives up after `MAX_STEPS`. Pure and deterministic: the same devices give the
same result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from scheduler import bounded
from scheduler.plugins.dra.cel_selectors import DeviceSelectors
from scheduler.plugins.dra.claim_types import (
    ALL,
    MAX_RESULTS,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceRequest,
    MatchAttribute,
)
from scheduler.plugins.dra.device_order import DevicePosition, OrderedDevice, ordered
from scheduler.plugins.dra.device_types import Attribute, Device, DeviceId, DeviceTaint, PoolId
from scheduler.plugins.dra.node_selector import NodeReach

MAX_STEPS: Final = 20_000

CANNOT: Final = "cannot allocate all claims"
GAVE_UP: Final = "timed out trying to allocate devices"
_HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class DevicePick:
    """One device for one alternative of a request."""

    subrequest: DeviceRequest
    device: DeviceId
    nodes: NodeReach
    """The nodes that reach the device."""


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """The devices of one claim, and the chosen alternative of each request."""

    picks: tuple[DevicePick, ...]
    chosen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocated:
    """An allocation for each claim, in their order."""

    allocations: tuple[ClaimAllocation, ...]
    rank: int = 0
    """The sum of the positions of the chosen alternatives; 0: always the first."""
    max_pods: int = 0
    """An upper bound on the number of equal pods that the node's free devices can serve."""


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """`broken`: a claim or a class is invalid, so every node is rejected."""

    reason: str
    broken: bool = False
    claim: int | None = None
    """The index of the claim that the reason is about."""

    def text(self, names: Sequence[str]) -> str:
        """The reason with the claim's name; equal claims of other pods share the reason."""
        return self.reason if self.claim is None else f"claim {names[self.claim]}{self.reason}"


Outcome = Allocated | NotAllocated

MAX_MATCHES: Final = 256  # different requests that are kept for the devices of one node


class NodeDevices:
    """All devices that one node can reach, free or not, in a fixed order."""

    def __init__(
        self,
        devices: Sequence[tuple[Device, NodeReach]],
        positions: Sequence[DevicePosition],
        *,
        unusable_pools: Sequence[str] = (),
    ) -> None:
        self.items = tuple(
            OrderedDevice(number, device, position)
            for number, ((device, _), position) in enumerate(zip(devices, positions, strict=True))
        )
        self.nodes = tuple(nodes for _, nodes in devices)
        self.unusable_pools = tuple(unusable_pools)
        """Incomplete and invalid pools, each with its problem."""
        self._matching: dict[tuple[str, tuple[str, ...]], frozenset[int] | str] = {}

    def matching(
        self,
        subrequest: DeviceRequest,
        classes: Mapping[str, DeviceClass],
        device_selectors: DeviceSelectors,
    ) -> frozenset[int] | str:
        """The numbers of the devices that class and request select, or the error."""
        key = (subrequest.class_name, subrequest.selectors)
        known = self._matching.get(key)
        if known is None:
            known = self._match(subrequest, classes[subrequest.class_name], device_selectors)
            bounded.remember(self._matching, key, known, MAX_MATCHES)
        return known

    def _match(
        self,
        subrequest: DeviceRequest,
        device_class: DeviceClass,
        device_selectors: DeviceSelectors,
    ) -> frozenset[int] | str:
        numbers = []
        for item in self.items:
            by_class = device_selectors.matches(device_class.selectors, item.device)
            if isinstance(by_class, str):
                return f"class {device_class.name}: {by_class}"
            by_request = by_class and device_selectors.matches(subrequest.selectors, item.device)
            if isinstance(by_request, str):
                return f": {by_request}"
            if by_request:
                numbers.append(item.number)
        return frozenset(numbers)


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """What the search reads of the store and of the assumed allocations."""

    classes: Mapping[str, DeviceClass]
    device_selectors: DeviceSelectors
    in_use: Callable[[DeviceId], bool]
    taints: Callable[[Device], Sequence[DeviceTaint]]
    counters: Callable[[PoolId], dict[tuple[str, str], Decimal]]
    """The remaining amount of each shared counter of a pool."""


def allocate(
    claims: Sequence[ClaimSpec],
    devices: NodeDevices,
    source: DeviceSource,
    *,
    zones: frozenset[int] | None = None,
    max_steps: int = MAX_STEPS,
) -> Outcome:
    """`zones`: leave out devices of other NUMA nodes than these."""
    search = _Search(claims, devices, source, zones, max_steps)
    try:
        if search.run():
            return Allocated(
                tuple(
                    ClaimAllocation(tuple(picks), tuple(chosen))
                    for picks, chosen in zip(search.picks, search.chosen, strict=True)
                ),
                search.rank,
                search.max_pods(),
            )
    except _Unresolvable as error:
        return error.result
    return NotAllocated(GAVE_UP if search.steps > max_steps else search.reason())


class _Unresolvable(Exception):
    def __init__(self, result: NotAllocated) -> None:
        super().__init__(result.reason)
        self.result = result


@dataclass(slots=True)
class _ConstraintState:
    """A constraint and the values of the devices that it covers so far."""

    constraint: MatchAttribute
    values: list[Attribute] = field(default_factory=list)

    def admits(self, value: Attribute | None) -> bool:
        if value is None or value.kind.endswith("s"):
            return False
        if self.constraint.distinct:
            return value not in self.values
        return not self.values or value == self.values[0]


class _Search:
    def __init__(
        self,
        claims: Sequence[ClaimSpec],
        devices: NodeDevices,
        source: DeviceSource,
        zones: frozenset[int] | None,
        max_steps: int,
    ) -> None:
        self._claims = claims
        self._devices = devices
        self._source = source
        self._zones = zones
        self._max_steps = max_steps
        self.steps = 0
        self.rank = 0
        self.picks: list[list[DevicePick]] = [[] for _ in claims]
        self.chosen: list[list[str]] = [[] for _ in claims]
        self._constraints = [
            [_ConstraintState(constraint) for constraint in spec.constraints] for spec in claims
        ]
        self._initially_free = frozenset(
            item.number for item in devices.items if not source.in_use(item.device.id)
        )
        self._free = set(self._initially_free)
        self._picked: list[set[int]] = [set() for _ in claims]  # claim -> numbers of its devices
        self._counters_left: dict[PoolId, dict[tuple[str, str], Decimal]] = {}
        self._order = ordered(devices.items, self._free, _minimum(claims))
        self._candidates: dict[tuple[int, str], list[OrderedDevice]] = {}

    def run(self) -> bool:
        return self._request(0, 0)

    def max_pods(self) -> int:
        chosen = {(claim, name) for claim, names in enumerate(self.chosen) for name in names}
        free: set[int] = set()
        for key in chosen & self._candidates.keys():
            free.update(item.number for item in self._candidates[key])
        picks = sum(not pick.subrequest.admin for picks in self.picks for pick in picks)
        return len(free & self._initially_free) // max(1, picks)

    def reason(self) -> str:
        """Why the search failed, with the unsupported devices that it left out."""
        numbers: set[int] = set()
        for subrequest in (
            subrequest for spec in self._claims for subrequest in spec.subrequests()
        ):
            matching = self._devices.matching(
                subrequest, self._source.classes, self._source.device_selectors
            )
            numbers |= matching if isinstance(matching, frozenset) else frozenset()
        unsupported = {self._devices.items[number].device.unsupported for number in numbers} - {""}
        if unsupported:
            return f"{CANNOT}: {min(unsupported)} are not supported by this scheduler"
        return CANNOT

    # --- search ---

    def _request(self, claim: int, number: int) -> bool:
        if claim == len(self._claims):
            return True
        requests = self._claims[claim].requests
        if number == len(requests):
            return self._request(claim + 1, 0)
        request = requests[number]
        for position, subrequest in enumerate(request.alternatives):
            self.chosen[claim].append(subrequest.name)
            self.rank += position
            if self._try(claim, number, request, subrequest):
                return True
            self.rank -= position
            self.chosen[claim].pop()
        return False

    def _try(
        self, claim: int, number: int, request: ClaimRequest, subrequest: DeviceRequest
    ) -> bool:
        if subrequest.mode == ALL:
            return self._all(claim, number, request, subrequest)
        if len(self.picks[claim]) + subrequest.count > MAX_RESULTS:
            return False
        return self._some(claim, number, request, subrequest, 0, subrequest.count)

    def _all(
        self, claim: int, number: int, request: ClaimRequest, subrequest: DeviceRequest
    ) -> bool:
        if self._devices.unusable_pools:
            name = subrequest.name.rpartition("/")[2]
            pool = self._devices.unusable_pools[0]
            reason = f", request {name}: asks for all devices, but resource pool {pool}"
            raise _Unresolvable(NotAllocated(reason, claim=claim))
        items = self._selected(claim, subrequest)
        if not items or len(self.picks[claim]) + len(items) > MAX_RESULTS:
            return False
        picked: list[OrderedDevice] = []
        for item in items:
            if not self._pick(claim, request, subrequest, item):
                break
            picked.append(item)
        if len(picked) == len(items) and self._request(claim, number + 1):
            return True
        for item in reversed(picked):
            self._unpick(claim, request, subrequest, item)
        return False

    def _some(
        self,
        claim: int,
        number: int,
        request: ClaimRequest,
        subrequest: DeviceRequest,
        start: int,
        left: int,
    ) -> bool:
        if left == 0:
            return self._request(claim, number + 1)
        items = self._selected(claim, subrequest)
        for at in range(start, len(items) - left + 1):
            self.steps += 1
            if self.steps > self._max_steps:
                return False
            if self._pick(claim, request, subrequest, items[at]):
                if self._some(claim, number, request, subrequest, at + 1, left - 1):
                    return True
                self._unpick(claim, request, subrequest, items[at])
        return False

    def _selected(self, claim: int, subrequest: DeviceRequest) -> list[OrderedDevice]:
        """The candidates, best first; for mode All also devices that are in use."""
        key = (claim, subrequest.name)
        known = self._candidates.get(key)
        if known is None:
            matching = self._devices.matching(
                subrequest, self._source.classes, self._source.device_selectors
            )
            if isinstance(matching, str):
                about = None if matching.startswith("class ") else claim
                raise _Unresolvable(NotAllocated(matching, broken=True, claim=about))
            known = self._candidates[key] = [
                item for item in self._order if item.number in matching
            ]
            if subrequest.mode != ALL:
                known = self._candidates[key] = [
                    item for item in known if self._available(subrequest, item)
                ]
        return known

    def _available(self, subrequest: DeviceRequest, item: OrderedDevice) -> bool:
        """Whether the device was available when the search began."""
        if item.device.unsupported or (
            not subrequest.admin and item.number not in self._initially_free
        ):
            return False
        zone = item.position.zone
        if self._zones is not None and zone is not None and zone not in self._zones:
            return False
        return all(
            taint.effect not in _HARD_EFFECTS
            or any(item.tolerates(taint) for item in subrequest.tolerations)
            for taint in self._source.taints(item.device)
        )

    # --- one device ---

    def _pick(
        self, claim: int, request: ClaimRequest, subrequest: DeviceRequest, item: OrderedDevice
    ) -> bool:
        device = item.device
        if item.number in self._picked[claim] or (
            not subrequest.admin and item.number not in self._free
        ):
            return False
        if subrequest.mode == ALL and not self._available(subrequest, item):
            return False
        rules = [
            (rule, device.attribute(rule.constraint.attribute))
            for rule in self._constraints[claim]
            if rule.constraint.covers(request.name, subrequest.name)
        ]
        if not all(rule.admits(value) for rule, value in rules):
            return False
        if device.consumes and not self._consume(device):
            return False
        for rule, value in rules:
            if value is not None:
                rule.values.append(value)
        self._picked[claim].add(item.number)
        if not subrequest.admin:
            self._free.discard(item.number)
        self.picks[claim].append(
            DevicePick(subrequest, device.id, self._devices.nodes[item.number])
        )
        return True

    def _unpick(
        self, claim: int, request: ClaimRequest, subrequest: DeviceRequest, item: OrderedDevice
    ) -> None:
        self.picks[claim].pop()
        if not subrequest.admin:
            self._free.add(item.number)
        self._picked[claim].discard(item.number)
        for rule in self._constraints[claim]:
            if rule.constraint.covers(request.name, subrequest.name):
                rule.values.pop()
        for counters, counter, amount in item.device.consumes:
            self._counters_left[item.device.id[:2]][counters, counter] += amount

    def _consume(self, device: Device) -> bool:
        pool = device.id[:2]
        left = self._counters_left.get(pool)
        if left is None:
            left = self._counters_left[pool] = self._source.counters(pool)
        if any(
            left.get((use.counters, use.counter), Decimal(-1)) < use.amount
            for use in device.consumes
        ):
            return False
        for counters, counter, amount in device.consumes:
            left[counters, counter] -= amount
        return True


def _minimum(claims: Sequence[ClaimSpec]) -> int:
    """The number of devices that the first alternatives request, without mode All."""
    return sum(
        request.alternatives[0].count
        for spec in claims
        for request in spec.requests
        if request.alternatives and request.alternatives[0].mode != ALL
    )
