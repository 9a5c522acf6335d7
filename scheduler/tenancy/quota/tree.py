"""
The tree of tenants and groups of tenants in the policies: parents, weights, quotas.

    top ─┬─ research (weight 3) ─┬─ vision   (guaranteed 16 GPUs, max 32)
         │                       └─ language
         └─ services (weight 1)

A tenant that is not listed is at the top, with the weight of its tier, or 1. Pods without a tenant
belong to `NO_TENANT`, which is at the top too. `ledger` has the usage.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from policies import duration, quantity
from policies.documents.tenancy import GPU_MODEL, HARDWARE_TIER, Quota
from policies.engine.policyset import PolicyTables
from scheduler import bounded

Amounts = Mapping[str, int]  # resource name -> amount; CPU in thousandths
Pairs = tuple[tuple[str, int], ...]

NO_TENANT: Final = ""
HALF_LIFE: Final = 3600.0
_MAX_PATHS: Final = 4096


@dataclass(frozen=True, slots=True)
class TenantNode:
    """A tenant, or a group of tenants."""

    name: str
    parent: str | None = None
    weight: int = 1
    guaranteed: Pairs = ()
    max: Pairs = ()


class TenantTree:
    """Immutable."""

    def __init__(self, members: Iterable[TenantNode] = (), *, half_life: float = HALF_LIFE) -> None:
        self.half_life = half_life
        self._members = {member.name: member for member in members}
        self._paths: dict[str, tuple[TenantNode, ...]] = {}
        self.groups = frozenset(m.parent for m in self._members.values() if m.parent is not None)
        self.gpu_kinds = frozenset(
            name
            for member in self._members.values()
            for name, _ in (*member.guaranteed, *member.max)
            if name.startswith((GPU_MODEL, HARDWARE_TIER))
        )
        """Kinds of GPUs that a quota names."""

    @classmethod
    def of(cls, tables: PolicyTables) -> Self:
        """A tenant's own quota takes precedence over its row in the tree."""
        return cls(
            _members(tables),
            half_life=max(1.0, duration.parse(tables.sharing.half_life)),
        )

    @property
    def empty(self) -> bool:
        """Without quotas, guarantees and weights only the fair-share order applies."""
        return not self._members

    @property
    def limited(self) -> bool:
        return any(member.max for member in self._members.values())

    def __iter__(self) -> Iterable[TenantNode]:
        return iter(self._members.values())

    def member(self, name: str) -> TenantNode:
        return self._members.get(name) or TenantNode(name)

    def path(self, tenant: str) -> tuple[TenantNode, ...]:
        """The tenant, its group, and so on up to the top."""
        path = self._paths.get(tenant)
        if path is None:
            path = bounded.remember(self._paths, tenant, self._climb(tenant), _MAX_PATHS)
        return path

    def _climb(self, tenant: str) -> tuple[TenantNode, ...]:
        path = [self.member(tenant)]
        while (parent := path[-1].parent) is not None and len(path) <= len(self._members):
            path.append(self.member(parent))
        return tuple(path)


def _members(tables: PolicyTables) -> Iterable[TenantNode]:
    """A tenant that is not listed has the weight of its tier."""
    listed = {share.name: share for share in tables.sharing.tenants}
    quotas = {name: quota for name, quota in tables.quotas.items() if quota.guaranteed or quota.max}
    tiers = {name: tables.tiers[t] for name, t in tables.tenants.items() if t and t in tables.tiers}
    weighted = {name for name, tier in tiers.items() if tier.weight != 1}
    for name in sorted({*listed, *quotas, *weighted}):
        share, own = listed.get(name), quotas.get(name)
        shared = share.quota if share else Quota()
        yield TenantNode(
            name,
            parent=share.parent if share else None,
            weight=share.weight if share else tiers[name].weight if name in tiers else 1,
            guaranteed=_pairs({**shared.guaranteed, **(own.guaranteed if own else {})}),
            max=_pairs({**shared.max, **(own.max if own else {})}),
        )


def _pairs(amounts: Mapping[str, object]) -> Pairs:
    return tuple(sorted((name, quantity.amount(name, value)) for name, value in amounts.items()))


def total(amounts: Iterable[Amounts]) -> dict[str, int]:
    """The sum by resource."""
    sums: dict[str, int] = {}
    for row in amounts:
        for name, amount in row.items():
            sums[name] = sums.get(name, 0) + amount
    return sums
