"""
Everything the API says about devices, with the indexes that filters need; fed from watches.

    slices  ──▶ pools: the newest generation of each, complete or not
    claims  ──▶ taken: which devices are held, and by which claims
    rules   ──▶ taints that slices do not show

Whoever depends on a fact is told when it changes: `on_claim` with the claim's key; `on_nodes` with
the names of nodes whose devices changed, `on_usage` with those whose devices were taken or given
back, both with None when it may be any node; `on_slice` with the slice before and after. `version`
counts all changes. A state of a claim that is older than the one known is left alone: this
program's own writes are known before the watch shows them.

One writer, the event loop. No I/O: `feeds` says which collections tell these facts.
"""

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
    """The name that two of its devices have; such a pool is not believed."""

    @property
    def usable(self) -> bool:
        return self.complete and not self.duplicate

    def __str__(self) -> str:
        return "/".join(self.id)


class DeviceStore:
    """Put and drop; each answers whether anything changed."""

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
        self.classes_version = 0  # counts the changes of classes and rules
        self._slices: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._specs: dict[ClaimSpec, int] = {}
        # claim -> a number that equal specs share: quick to compare and to hash
        self.numbers: dict[ClaimKey, int] = {}
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
            self.numbers[claim.key] = self._number(claim.spec)
        self._hold(claim.key, old, claim)
        return self._claim_changed(claim.key)

    def drop_claim(self, claim: ResourceClaim) -> bool:
        old = self.claims.get(claim.key)
        if old is None or (claim.uid and old.uid != claim.uid):
            return False
        del self.claims[claim.key], self.numbers[claim.key]
        self._hold(claim.key, old, None)
        return self._claim_changed(claim.key)

    def _number(self, spec: ClaimSpec) -> int:
        return self._specs.setdefault(spec, len(self._specs))

    # --- classes and rules ---

    def put_class(self, found: DeviceClass) -> bool:
        old, self.classes[found.name] = self.classes.get(found.name), found
        return old != found and self._all_changed()

    def drop_class(self, found: DeviceClass) -> bool:
        return self.classes.pop(found.name, None) is not None and self._all_changed()

    def put_rule(self, found: DeviceTaintRule) -> bool:
        old, self.rules[found.name] = self.rules.get(found.name), found
        return old != found and self._all_changed()

    def drop_rule(self, found: DeviceTaintRule) -> bool:
        return self.rules.pop(found.name, None) is not None and self._all_changed()

    def taints(self, device: Device) -> Sequence[DeviceTaint]:
        """Its taints, whoever put them there."""
        if not self.rules:
            return device.taints
        more = [
            self.rules[name].taint
            for name in sorted(self.rules)
            if self.rules[name].selects(device.id)
        ]
        return (*device.taints, *more)

    # --- slices ---

    def put_slice(self, found: ResourceSlice) -> bool:
        here = self._slices.setdefault(found.pool, {})
        old, here[found.name] = here.get(found.name), found
        return old != found and self._slice_changed(old, found)

    def drop_slice(self, found: ResourceSlice) -> bool:
        here = self._slices.get(found.pool, {})
        old = here.pop(found.name, None)
        if old is None:
            return False
        if not here:
            del self._slices[found.pool]
        return self._slice_changed(old, None)

    def visible(self, node: str) -> list[DevicePool]:
        """The pools that may have devices for this node, in order."""
        mine = self.pools_by_node.get(node, set())
        return [self.pools[key] for key in sorted(mine | self.shared if self.shared else mine)]

    # --- telling ---

    def _hold(self, key: ClaimKey, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before, after = _held(old), _held(new)
        for device in before - after:
            holders = self.allocated_by[device]
            holders.discard(key)
            if not holders:
                del self.allocated_by[device]
        for device in after - before:
            self.allocated_by.setdefault(device, set()).add(key)
        if before != after:
            self.usage_changed(before ^ after)

    def usage_changed(self, devices: Iterable[DeviceId]) -> None:
        """These devices were taken or given back."""
        nodes: set[str] = set()
        for driver, pool, _ in devices:
            found = self.pools.get((driver, pool))
            if found is None:
                continue
            nodes |= _names(found)
            if found.id in self.shared:
                nodes.add("")
        if nodes:
            for tell in self.on_usage:
                tell(None if "" in nodes else nodes)

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        for one in (old, new):
            if one is not None:
                self._regather(one.pool)
        for tell in self.on_slice:
            tell(old, new)
        return self._changed()

    def _regather(self, key: PoolId) -> None:
        before = self.pools.pop(key, None)
        shared = key in self.shared
        nodes = _names(before)
        for name in nodes:
            self.pools_by_node[name].discard(key)
            if not self.pools_by_node[name]:
                del self.pools_by_node[name]
        self.shared.discard(key)
        if slices := self._slices.get(key):
            self.pools[key] = _pool(key, slices.values())
        after = self.pools.get(key)
        for name in _names(after):
            self.pools_by_node.setdefault(name, set()).add(key)
        if after is not None and any(not (one.nodes and one.nodes.name) for one in after.slices):
            self.shared.add(key)
        wide = shared or key in self.shared
        self._tell_nodes(None if wide else nodes | _names(after))

    def _tell_nodes(self, names: Iterable[str] | None) -> None:
        for tell in self.on_nodes:
            tell(names)

    def _claim_changed(self, key: ClaimKey) -> bool:
        for tell in self.on_claim:
            tell(key)
        return self._changed()

    def _all_changed(self) -> bool:
        self.classes_version += 1
        self._tell_nodes(None)
        return self._changed()

    def _changed(self) -> bool:
        self.version += 1
        return True


def _held(claim: ResourceClaim | None) -> set[DeviceId]:
    if claim is None or claim.allocation is None:
        return set()
    return {one.id for one in claim.allocation.devices if not one.admin}


def _names(pool: DevicePool | None) -> set[str]:
    """The nodes that have slices of their own in the pool."""
    if pool is None:
        return set()
    return {one.nodes.name for one in pool.slices if one.nodes and one.nodes.name}


def _pool(key: PoolId, slices: Iterable[ResourceSlice]) -> DevicePool:
    found = sorted(slices, key=lambda one: one.name)
    newest = max(one.generation for one in found)
    mine = tuple(one for one in found if one.generation == newest)
    names = Counter(device.id.device for one in mine for device in one.devices)
    duplicate = next((name for name, times in names.items() if times > 1), "")
    return DevicePool(key, mine, complete=len(mine) == mine[0].count, duplicate=duplicate)


def _older(version: str, than: str) -> bool:
    """Whether a state is from before another; what is no number says nothing."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
