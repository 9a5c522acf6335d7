"""
Tenants with active units in fair-share order, so that a pop does not compare all of them.

    class (urgency, below its guarantee or not)      at most eight, the lowest first
      └─ level: the members at the top of the tree     a heap by weighted share, then name
           └─ level: the members of one group            likewise
                └─ a tenant with active units

`FairShares.order` compares the path of a tenant from the top of the tree, so the first tenant is
below the first member of each level. A charge changes the shares on one path, and costs one heap
operation for each member of it. What changes all shares (decay, capacity, policies) costs a new
structure at the next pop; decay passes once per second. Heaps hold stale items: an item counts
while its share is that in `keys`.
"""

import heapq
from dataclasses import dataclass, field
from typing import Final

from scheduler.queueing.active import Requests, urgency
from scheduler.queueing.entry import Rank
from scheduler.tenancy.fairshare.shares import FairShares
from scheduler.tenancy.quota.tree import TenantNode

_Class = tuple[bool, bool, bool]  # the urgency, and not below the guarantee

_MAX_STALE: Final = 16  # items per heap


@dataclass(slots=True, eq=False)
class _Level:
    """The members directly below a group, or at the top, that have active units."""

    is_tenant: bool = False
    """The group itself has active units. They go first: a path sorts before its extensions."""
    below: dict[str, "_Level"] = field(default_factory=dict)
    keys: dict[str, float] = field(default_factory=dict)  # member -> its weighted share
    heap: list[tuple[float, str]] = field(default_factory=list)

    def put(self, name: str, share: float) -> None:
        if self.keys.get(name) == share:
            return
        self.keys[name] = share
        heapq.heappush(self.heap, (share, name))
        if len(self.heap) > 2 * len(self.keys) + _MAX_STALE:
            self.heap = [(share, name) for name, share in self.keys.items()]
            heapq.heapify(self.heap)

    def drop(self, name: str) -> None:
        del self.below[name], self.keys[name]

    def first(self) -> str:
        while self.keys.get(self.heap[0][1]) != self.heap[0][0]:
            heapq.heappop(self.heap)
        return self.heap[0][1]


@dataclass(frozen=True, slots=True)
class _Active:
    """A tenant as it was put, and where it is."""

    rank: Rank
    requests: Requests
    level: _Class
    path: tuple[str, ...]


class FairShareTenants:
    """A `TenantOrder`: pops in the order of `FairShares.order`."""

    def __init__(self, shares: FairShares) -> None:
        self._shares = shares
        self._ledger = shares.ledger
        self._tree = self._ledger.tree
        self._version = shares.version
        self._active: dict[str, _Active] = {}
        self._classes: dict[_Class, _Level] = {}
        self._levels: dict[str, set[_Level]] = {}  # member -> levels that have it
        self._below: dict[str, tuple[bool, ...]] = {}  # member -> which guarantees it is below

    def put(self, tenant: str, rank: Rank, requests: Requests) -> None:
        self.discard(tenant)
        members = self._ledger.tree.path(tenant)
        is_below = self._ledger.below_guarantee(tenant, requests)
        active = _Active(
            rank,
            requests,
            (*urgency(rank), not is_below),
            tuple(member.name for member in reversed(members)),
        )
        self._active[tenant] = active
        level = self._classes.setdefault(active.level, _Level())
        for member in reversed(members):
            if member.guaranteed:
                self._note_guarantees(member)
            if member.name not in level.below:
                level.below[member.name] = _Level()
                self._levels.setdefault(member.name, set()).add(level)
            level.put(member.name, self._shares.weighted(member))
            level = level.below[member.name]
        level.is_tenant = True

    def discard(self, tenant: str) -> None:
        active = self._active.pop(tenant, None)
        if active is None:
            return
        level = self._classes[active.level]
        walked = []
        for name in active.path:
            walked.append((level, name))
            level = level.below[name]
        level.is_tenant = False
        for above, name in reversed(walked):
            if level.is_tenant or level.below:
                return
            above.drop(name)
            self._levels[name].discard(above)
            if not self._levels[name]:
                del self._levels[name]
                self._below.pop(name, None)
            level = above
        if not level.below:
            del self._classes[active.level]

    def first(self) -> str:
        self._refresh()
        level, name = self._classes[min(self._classes)], ""
        while not level.is_tenant:
            name = level.first()
            level = level.below[name]
        return name

    def _refresh(self) -> None:
        """Follow what has been charged and uncharged, and what else changed the shares."""
        touched = self._ledger.take_touched()
        tree, version = self._ledger.tree, self._shares.version
        if touched is None or tree is not self._tree or version != self._version:
            self._tree, self._version = tree, version
            active, self._active = self._active, {}
            self._classes, self._levels, self._below = {}, {}, {}
            for tenant, one in active.items():
                self.put(tenant, one.rank, one.requests)
            return
        for name in touched:
            if name in self._levels:
                self._update(self._tree.member(name))

    def _update(self, member: TenantNode) -> None:
        share = self._shares.weighted(member)
        for level in self._levels[member.name]:
            level.put(member.name, share)
        if not member.guaranteed:
            return
        below = self._guarantees_below(member)
        if self._below[member.name] == below:
            return
        self._below[member.name] = below
        for tenant in self._tenants_of(member.name):
            active = self._active[tenant]
            self.put(tenant, active.rank, active.requests)

    def _note_guarantees(self, member: TenantNode) -> None:
        """For a tenant that is put by the usage now. Where the other tenants of the member were put
        by other usage, the next update puts all of them again."""
        below = self._guarantees_below(member)
        if self._below.setdefault(member.name, below) != below:
            self._below[member.name] = ()

    def _guarantees_below(self, member: TenantNode) -> tuple[bool, ...]:
        """For each guarantee of the member, whether its usage is below it: all of the usage that
        `Ledger.below_guarantee` depends on."""
        used = self._ledger.used(member.name)
        return tuple(used.get(name, 0) < amount for name, amount in member.guaranteed)

    def _tenants_of(self, name: str) -> list[str]:
        """Tenants with active units that are the member, or below it."""
        tenants = []
        levels = [(name, level.below[name]) for level in self._levels[name]]
        while levels:
            name, level = levels.pop()
            if level.is_tenant:
                tenants.append(name)
            levels += level.below.items()
        return tenants
