"""
The placement tables of the policies in force.

    levels    topology levels, narrowest first; each with its node labels, the best first
    models    a GPU's name on its nodes -> its hardware tier, VRAM, and whether it is high-end
    tiers     a tenant tier -> its rank, and the hardware tiers that it may use and prefers
    policy    all tables as the documents write them: quotas, shares, priority classes

Immutable: `watch.policies` builds new tables from every set of policies. Without policies
`NO_POLICIES` holds: the usual levels, no models, and no limits on tiers. `plugins.gpu_classes`,
`plugins.tenant_tiers` and `plugins.fabric` apply the tables to nodes and pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from policies import quantity, vocabulary
from policies.engine import policyset
from policies.engine.policyset import PolicySet


@dataclass(frozen=True, slots=True)
class TopologyLevel:
    """Nodes with the same value of a label are near each other."""

    name: str
    labels: tuple[str, ...]
    """Node labels that name the domain; the first one that a node has counts."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A row of the GPU model table."""

    tier: str
    vram: int
    """Bytes of one GPU."""
    high_end: bool = False


@dataclass(frozen=True, slots=True)
class TenantTier:
    """A row of the tenant tier table."""

    name: str
    rank: int
    allowed: tuple[str, ...] = vocabulary.HARDWARE_TIERS
    preferred: tuple[str, ...] = ()
    """Hardware tiers, best first."""
    boost: int = 0
    """Added to the priority of its pods, among the pending pods of one tenant."""


LEVELS: Final = (
    TopologyLevel("clique", (vocabulary.GPU_CLIQUE_LABEL,)),
    TopologyLevel("rack", (vocabulary.RACK_LABEL,)),
    TopologyLevel("fabric", (vocabulary.FABRIC_ID_LABEL,)),
    TopologyLevel("zone", (vocabulary.ZONE_LABEL,)),
)
"""Topology levels where no policy names any, narrowest first."""


@dataclass(frozen=True, slots=True)
class PlacementTables:
    levels: tuple[TopologyLevel, ...] = LEVELS
    models: Mapping[str, GpuModel] = field(default_factory=dict)
    tiers: Mapping[str, TenantTier] = field(default_factory=dict)
    policy: policyset.PolicyTables = field(default_factory=lambda: policyset.PolicyTables.of(()))
    digest: str = ""
    """Of the policies; schedulers with equal digests place alike."""

    @classmethod
    def of(cls, policies: PolicySet) -> "PlacementTables":
        tables = policies.tables
        levels = tuple(
            TopologyLevel(level.name, tuple(level.labels)) for level in reversed(tables.topology)
        )
        return cls(
            levels=levels or LEVELS,
            models={
                name: GpuModel(row.tier, quantity.units(row.vram), row.high_end)
                for name, row in tables.gpu_models.items()
            },
            tiers={
                row.name: TenantTier(
                    row.name,
                    row.rank,
                    row.hardware_tiers.allowed,
                    row.hardware_tiers.preferred,
                    row.priority_boost,
                )
                for row in tables.tiers.values()
            },
            policy=tables,
            digest=policies.digest,
        )

    def level(self, name: str) -> TopologyLevel | None:
        return next((level for level in self.levels if level.name == name), None)

    def model(self, name: str) -> GpuModel | None:
        """By the name on the node; GPU Feature Discovery marks shared GPUs with a suffix."""
        return self.models.get(name) or self.models.get(name.removesuffix("-SHARED"))

    def vram(self, model: str) -> int:
        """Bytes of one such GPU; 0: no policy names it."""
        row = self.model(model)
        return 0 if row is None else row.vram

    def rank(self, tier: str) -> int | None:
        """None: no policy names such a tier."""
        row = self.tiers.get(tier)
        return None if row is None else row.rank

    def boost(self, tier: str) -> int:
        row = self.tiers.get(tier)
        return 0 if row is None else row.boost


NO_POLICIES: Final = PlacementTables.of(PolicySet())
