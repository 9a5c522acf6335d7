"""
Devices of one node for the claims of one pod: a search with a bound, or why there are none.

    claims in the pod's order ──▶ requests in their order ──▶ ways, the first that can be had
                                                                │
                          count: so many of the devices that are selected, free and bearable
                          All:   every one that is selected, each free

A device is taken once, unless it is asked for with admin access, which takes nothing away from
anybody. Constraints hold over all devices of a claim that they cover. Counters that devices of a
pool share are drawn upon. Where the search takes a wrong turn it goes back; after `MAX_STEPS` it
gives up and says so. Pure and deterministic: the same shelf, the same devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

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
_KEEP_OUT: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class DevicePick:
    """One device for one way of a request."""

    subrequest: DeviceRequest
    device: DeviceId
    nodes: NodeReach
    """The nodes that reach the device."""


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """The devices of one claim, and the way taken for each of its requests."""

    picks: tuple[DevicePick, ...]
    ways: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocated:
    """An allotment for each claim, in their order."""

    allocations: tuple[ClaimAllocation, ...]
    rank: int = 0
    """How far down the lists of ways one had to go; 0: the first way everywhere."""
    max_pods: int = 0
    """How many pods like this one the node's free devices could hold at the most."""


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """`broken`: a claim or a class is at fault, not this node."""

    reason: str
    broken: bool = False
    claim: int | None = None
    """The place of the claim that the reason is about."""

    def text(self, names: Sequence[str]) -> str:
        """Told about claims of these names: equal claims are refused for equal reasons."""
        return self.reason if self.claim is None else f"claim {names[self.claim]}{self.reason}"


Outcome = Allocated | NotAllocated


class NodeDevices:
    """What one node offers, whoever holds it: all devices that it can reach, in a fixed order."""

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
        """Pools that are being published, or cannot be believed, with what is said of them."""
        self._matching: dict[tuple[str, tuple[str, ...]], frozenset[int] | str] = {}

    def matching(
        self,
        subrequest: DeviceRequest,
        classes: Mapping[str, DeviceClass],
        device_selectors: DeviceSelectors,
    ) -> frozenset[int] | str:
        """The numbers of the devices that class and request select, or what went wrong."""
        key = (subrequest.class_name, subrequest.selectors)
        known = self._matching.get(key)
        if known is None:
            known = self._matching[key] = self._match(
                subrequest, classes[subrequest.class_name], device_selectors
            )
        return known

    def _match(
        self, subrequest: DeviceRequest, found: DeviceClass, device_selectors: DeviceSelectors
    ) -> frozenset[int] | str:
        numbers = []
        for item in self.items:
            by_class = device_selectors.matches(found.selectors, item.device)
            if isinstance(by_class, str):
                return f"class {found.name}: {by_class}"
            by_request = by_class and device_selectors.matches(subrequest.selectors, item.device)
            if isinstance(by_request, str):
                return f": {by_request}"
            if by_request:
                numbers.append(item.number)
        return frozenset(numbers)


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """What the search asks of the facts."""

    classes: Mapping[str, DeviceClass]
    device_selectors: DeviceSelectors
    in_use: Callable[[DeviceId], bool]
    taints: Callable[[Device], Sequence[DeviceTaint]]
    counters: Callable[[PoolId], dict[tuple[str, str], Decimal]]
    """What is left of each shared counter of a pool."""


def allocate(
    wanted: Sequence[ClaimSpec],
    devices: NodeDevices,
    source: DeviceSource,
    *,
    zones: frozenset[int] | None = None,
    max_steps: int = MAX_STEPS,
) -> Outcome:
    """`zones`: devices that tell another NUMA node than these are left alone."""
    search = _Search(wanted, devices, source, zones, max_steps)
    try:
        if search.run():
            return Allocated(
                tuple(
                    ClaimAllocation(tuple(picks), tuple(ways))
                    for picks, ways in zip(search.picks, search.ways, strict=True)
                ),
                search.rank,
                search.max_pods(),
            )
    except _Unresolvable as error:
        return error.refused
    return NotAllocated(GAVE_UP if search.steps > max_steps else search.why())


class _Unresolvable(Exception):
    def __init__(self, refused: NotAllocated) -> None:
        super().__init__(refused.reason)
        self.refused = refused


@dataclass(slots=True)
class _ConstraintState:
    """A constraint at work: the values of the devices that it covers so far."""

    constraint: MatchAttribute
    values: list[Attribute] = field(default_factory=list)

    def admits(self, found: Attribute | None) -> bool:
        if found is None or found.kind.endswith("s"):
            return False
        if self.constraint.distinct:
            return found not in self.values
        return not self.values or found == self.values[0]


class _Search:
    def __init__(
        self,
        wanted: Sequence[ClaimSpec],
        devices: NodeDevices,
        source: DeviceSource,
        zones: frozenset[int] | None,
        max_steps: int,
    ) -> None:
        self._wanted, self._devices, self._source = wanted, devices, source
        self._zones, self._most = zones, max_steps
        self.steps = 0
        self.rank = 0
        self.picks: list[list[DevicePick]] = [[] for _ in wanted]
        self.ways: list[list[str]] = [[] for _ in wanted]
        self._rules = [[_ConstraintState(one) for one in spec.constraints] for spec in wanted]
        self._at_start = frozenset(
            item.number for item in devices.items if not source.in_use(item.device.id)
        )
        self._free = set(self._at_start)
        self._mine: list[set[int]] = [set() for _ in wanted]  # claim -> numbers it has
        self._left: dict[PoolId, dict[tuple[str, str], Decimal]] = {}
        self._order = ordered(devices.items, self._free, _least(wanted))
        self._known: dict[tuple[int, str], list[OrderedDevice]] = {}

    def run(self) -> bool:
        return self._request(0, 0)

    def max_pods(self) -> int:
        allocated_by = {(claim, way) for claim, ways in enumerate(self.ways) for way in ways}
        free: set[int] = set()
        for key in allocated_by & self._known.keys():
            free.update(item.number for item in self._known[key])
        picks = sum(not pick.subrequest.admin for picks in self.picks for pick in picks)
        return len(free & self._at_start) // max(1, picks)

    def why(self) -> str:
        """Why nothing was found, with what was left out because it is not modelled."""
        numbers: set[int] = set()
        for subrequest in (
            subrequest for spec in self._wanted for subrequest in spec.subrequests()
        ):
            found = self._devices.matching(
                subrequest, self._source.classes, self._source.device_selectors
            )
            numbers |= found if isinstance(found, frozenset) else frozenset()
        unsupported = {self._devices.items[number].device.unsupported for number in numbers} - {""}
        if unsupported:
            return f"{CANNOT}: {min(unsupported)} are not honoured by this scheduler yet"
        return CANNOT

    # --- the search ---

    def _request(self, claim: int, number: int) -> bool:
        if claim == len(self._wanted):
            return True
        requests = self._wanted[claim].requests
        if number == len(requests):
            return self._request(claim + 1, 0)
        request = requests[number]
        for way, subrequest in enumerate(request.ways):
            self.ways[claim].append(subrequest.name)
            self.rank += way
            if self._way(claim, number, request, subrequest):
                return True
            self.rank -= way
            self.ways[claim].pop()
        return False

    def _way(
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
            way = subrequest.name.rpartition("/")[2]
            pool = self._devices.unusable_pools[0]
            reason = f", request {way}: asks for all devices, but resource pool {pool}"
            raise _Unresolvable(NotAllocated(reason, claim=claim))
        items = self._selected(claim, subrequest)
        if not items or len(self.picks[claim]) + len(items) > MAX_RESULTS:
            return False
        allocated_by: list[OrderedDevice] = []
        for item in items:
            if not self._take(claim, request, subrequest, item):
                break
            allocated_by.append(item)
        if len(allocated_by) == len(items) and self._request(claim, number + 1):
            return True
        for item in reversed(allocated_by):
            self._give_back(claim, request, subrequest, item)
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
            if self.steps > self._most:
                return False
            if self._take(claim, request, subrequest, items[at]):
                if self._some(claim, number, request, subrequest, at + 1, left - 1):
                    return True
                self._give_back(claim, request, subrequest, items[at])
        return False

    def _selected(self, claim: int, subrequest: DeviceRequest) -> list[OrderedDevice]:
        """The devices that may be meant, best first; All means those in use as well."""
        key = (claim, subrequest.name)
        known = self._known.get(key)
        if known is None:
            found = self._devices.matching(
                subrequest, self._source.classes, self._source.device_selectors
            )
            if isinstance(found, str):
                whose = None if found.startswith("class ") else claim
                raise _Unresolvable(NotAllocated(found, broken=True, claim=whose))
            known = self._known[key] = [item for item in self._order if item.number in found]
            if subrequest.mode != ALL:
                known = self._known[key] = [item for item in known if self._open(subrequest, item)]
        return known

    def _open(self, subrequest: DeviceRequest, item: OrderedDevice) -> bool:
        """Whether the device could be had when the search began."""
        if item.device.unsupported or (not subrequest.admin and item.number not in self._at_start):
            return False
        zone = item.position.zone
        if self._zones is not None and zone is not None and zone not in self._zones:
            return False
        return all(
            taint.effect not in _KEEP_OUT
            or any(one.tolerates(taint) for one in subrequest.tolerations)
            for taint in self._source.taints(item.device)
        )

    # --- taking ---

    def _take(
        self, claim: int, request: ClaimRequest, subrequest: DeviceRequest, item: OrderedDevice
    ) -> bool:
        device = item.device
        if item.number in self._mine[claim] or (
            not subrequest.admin and item.number not in self._free
        ):
            return False
        if subrequest.mode == ALL and not self._open(subrequest, item):
            return False
        rules = [
            (rule, device.attribute(rule.constraint.attribute))
            for rule in self._rules[claim]
            if rule.constraint.covers(request.name, subrequest.name)
        ]
        if not all(rule.admits(value) for rule, value in rules):
            return False
        if device.consumes and not self._consume(device):
            return False
        for rule, value in rules:
            if value is not None:
                rule.values.append(value)
        self._mine[claim].add(item.number)
        if not subrequest.admin:
            self._free.discard(item.number)
        self.picks[claim].append(
            DevicePick(subrequest, device.id, self._devices.nodes[item.number])
        )
        return True

    def _give_back(
        self, claim: int, request: ClaimRequest, subrequest: DeviceRequest, item: OrderedDevice
    ) -> None:
        self.picks[claim].pop()
        if not subrequest.admin:
            self._free.add(item.number)
        self._mine[claim].discard(item.number)
        for rule in self._rules[claim]:
            if rule.constraint.covers(request.name, subrequest.name):
                rule.values.pop()
        for counters, counter, amount in item.device.consumes:
            self._left[item.device.id[:2]][counters, counter] += amount

    def _consume(self, device: Device) -> bool:
        pool = device.id[:2]
        left = self._left.get(pool)
        if left is None:
            left = self._left[pool] = self._source.counters(pool)
        if any(
            left.get((one.counters, one.counter), Decimal(-1)) < one.amount
            for one in device.consumes
        ):
            return False
        for counters, counter, amount in device.consumes:
            left[counters, counter] -= amount
        return True


def _least(wanted: Sequence[ClaimSpec]) -> int:
    """How many devices the pod wants at the least, as its first ways say it."""
    return sum(
        request.ways[0].count
        for spec in wanted
        for request in spec.requests
        if request.ways and request.ways[0].mode != ALL
    )
