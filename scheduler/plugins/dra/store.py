"""
The watched DRA objects, with the indexes that filters need.

    slices  ──▶ pools: the newest generation of each, complete or not
    claims  ──▶ allocated_by: the claims that have each device
    rules   ──▶ taints that are not in the slices

Listeners learn of changes: `on_claim` gets the key of a claim, `on_nodes` the nodes whose devices
changed, `on_usage` the nodes whose devices were allocated or released; both get None when it may be
any node. `on_slice` gets the slice before and after. `version` counts all changes. The store
ignores a claim that is older than the known one: it has the scheduler's own writes before the watch
does.

One writer, the event loop. No I/O: `informers` lists the watched resources.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scheduler.plugins.dra.claim_types import ClaimKey, ClaimSpec, DeviceClass, ResourceClaim
from scheduler.plugins.dra.device_types import (
    Device,
    DeviceId,
    DeviceTaint,
    DeviceTaintRule,
    PoolId,
    ResourceSlice,
)


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The slices of a pool in its newest generation, by name."""

    id: PoolId
    slices: tuple[ResourceSlice, ...] = ()
    complete: bool = True
    duplicate: str = ""
    """A name that two of its devices share; it makes the pool invalid."""

    @property
    def usable(self) -> bool:
        return self.complete and not self.duplicate

    def __str__(self) -> str:
        return "/".join(self.id)


class DeviceStore:
    """`put_*` and `drop_*` return whether something changed."""

    def __init__(self) -> None:
        self.version = 0
        self.claims: dict[ClaimKey, ResourceClaim] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.pools: dict[PoolId, DevicePool] = {}
        self.allocated_by: dict[DeviceId, set[ClaimKey]] = {}
        self.pools_by_node: dict[
            str, set[PoolId]
        ] = {}  # node name -> pools with slices of it alone
        self.shared: set[PoolId] = set()  # pools with slices for more than one node
        self._slices: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._specs: dict[ClaimSpec, tuple[int, int]] = {}  # -> its number, claims that have it
        self._numbers = itertools.count()
        # claim -> a number that equal specs share, quick to compare and to hash
        self.spec_numbers: dict[ClaimKey, int] = {}
        self.on_claim: list[Callable[[ClaimKey], None]] = []
        self.on_nodes: list[Callable[[Iterable[str] | None], None]] = []
        self.on_usage: list[Callable[[Iterable[str] | None], None]] = []
        self.on_slice: list[Callable[[ResourceSlice | None, ResourceSlice | None], None]] = []

    # --- claims ---

    def put_claim(self, claim: ResourceClaim) -> bool:
        old = self.claims.get(claim.key)
        if old is not None and old.uid == claim.uid and _older(claim.version, old.version):
            return False
        self.claims[claim.key] = claim
        if old == claim:
            return False
        if old is None or old.spec != claim.spec:
            self.spec_numbers[claim.key] = self._number(claim.spec)
            self._release_number(old)
        self._index_devices(claim.key, old, claim)
        return self._claim_changed(claim.key)

    def drop_claim(self, claim: ResourceClaim) -> bool:
        old = self.claims.get(claim.key)
        if old is None or (claim.uid and old.uid != claim.uid):
            return False
        del self.claims[claim.key], self.spec_numbers[claim.key]
        self._release_number(old)
        self._index_devices(claim.key, old, None)
        return self._claim_changed(claim.key)

    def _number(self, spec: ClaimSpec) -> int:
        number, claims = self._specs.get(spec) or (next(self._numbers), 0)
        self._specs[spec] = (number, claims + 1)
        return number

    def _release_number(self, old: ResourceClaim | None) -> None:
        """A number is never given twice: cached results under it stay true."""
        if old is None:
            return
        number, claims = self._specs.pop(old.spec)
        if claims > 1:
            self._specs[old.spec] = (number, claims - 1)

    # --- classes and rules ---

    def put_class(self, item: DeviceClass) -> bool:
        old, self.classes[item.name] = self.classes.get(item.name), item
        return old != item and self._all_changed()

    def drop_class(self, item: DeviceClass) -> bool:
        return self.classes.pop(item.name, None) is not None and self._all_changed()

    def put_rule(self, item: DeviceTaintRule) -> bool:
        old, self.rules[item.name] = self.rules.get(item.name), item
        return old != item and self._all_changed()

    def drop_rule(self, item: DeviceTaintRule) -> bool:
        return self.rules.pop(item.name, None) is not None and self._all_changed()

    def taints(self, device: Device) -> Sequence[DeviceTaint]:
        """Its taints from slices and from rules."""
        if not self.rules:
            return device.taints
        more = [
            self.rules[name].taint
            for name in sorted(self.rules)
            if self.rules[name].selects(device.id)
        ]
        return (*device.taints, *more)

    # --- slices ---

    def put_slice(self, item: ResourceSlice) -> bool:
        slices = self._slices.setdefault(item.pool, {})
        old, slices[item.name] = slices.get(item.name), item
        return old != item and self._slice_changed(old, item)

    def drop_slice(self, item: ResourceSlice) -> bool:
        slices = self._slices.get(item.pool, {})
        old = slices.pop(item.name, None)
        if old is None:
            return False
        if not slices:
            del self._slices[item.pool]
        return self._slice_changed(old, None)

    def visible(self, node: str) -> list[DevicePool]:
        """The pools that may have devices for this node, in order."""
        own = self.pools_by_node.get(node, set())
        return [self.pools[key] for key in sorted(own | self.shared if self.shared else own)]

    # --- indexes and listeners ---

    def _index_devices(
        self, key: ClaimKey, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> None:
        before, after = _exclusive_devices(old), _exclusive_devices(new)
        for device in before - after:
            claims = self.allocated_by[device]
            claims.discard(key)
            if not claims:
                del self.allocated_by[device]
        for device in after - before:
            self.allocated_by.setdefault(device, set()).add(key)
        if before != after:
            self.usage_changed(before ^ after)

    def usage_changed(self, devices: Iterable[DeviceId]) -> None:
        """These devices were allocated or released, in the API or by assumption."""
        nodes: set[str] = set()
        for driver, pool, _ in devices:
            known = self.pools.get((driver, pool))
            if known is None:
                continue
            nodes |= _node_names(known)
            if known.id in self.shared:
                nodes.add("")
        if nodes:
            for notify in self.on_usage:
                notify(None if "" in nodes else nodes)

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        for item in (old, new):
            if item is not None:
                self._rebuild_pool(item.pool)
        for notify in self.on_slice:
            notify(old, new)
        return self._changed()

    def _rebuild_pool(self, key: PoolId) -> None:
        before = self.pools.pop(key, None)
        shared = key in self.shared
        nodes = _node_names(before)
        for name in nodes:
            self.pools_by_node[name].discard(key)
            if not self.pools_by_node[name]:
                del self.pools_by_node[name]
        self.shared.discard(key)
        if slices := self._slices.get(key):
            self.pools[key] = _pool(key, slices.values())
        after = self.pools.get(key)
        for name in _node_names(after):
            self.pools_by_node.setdefault(name, set()).add(key)
        if after is not None and any(not (item.nodes and item.nodes.name) for item in after.slices):
            self.shared.add(key)
        is_shared = shared or key in self.shared
        self._notify_nodes(None if is_shared else nodes | _node_names(after))

    def _notify_nodes(self, names: Iterable[str] | None) -> None:
        for notify in self.on_nodes:
            notify(names)

    def _claim_changed(self, key: ClaimKey) -> bool:
        for notify in self.on_claim:
            notify(key)
        return self._changed()

    def _all_changed(self) -> bool:
        self._notify_nodes(None)
        return self._changed()

    def _changed(self) -> bool:
        self.version += 1
        return True


def _exclusive_devices(claim: ResourceClaim | None) -> set[DeviceId]:
    if claim is None or claim.allocation is None:
        return set()
    return {item.id for item in claim.allocation.devices if not item.admin}


def _node_names(pool: DevicePool | None) -> set[str]:
    """The nodes with slices of their own in the pool."""
    if pool is None:
        return set()
    return {item.nodes.name for item in pool.slices if item.nodes and item.nodes.name}


def _pool(key: PoolId, slices: Iterable[ResourceSlice]) -> DevicePool:
    by_name = sorted(slices, key=lambda item: item.name)
    newest = max(item.generation for item in by_name)
    current = tuple(item for item in by_name if item.generation == newest)
    names = Counter(device.id.device for item in current for device in item.devices)
    duplicate = next((name for name, times in names.items() if times > 1), "")
    return DevicePool(key, current, complete=len(current) == current[0].count, duplicate=duplicate)


def _older(version: str, than: str) -> bool:
    """Whether a state is older than another; only numeric versions compare."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
