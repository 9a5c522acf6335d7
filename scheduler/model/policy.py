"""
What policies lay down for placement, in the form in which it is asked for.

    levels    topology levels, narrowest first; each with the labels that tell it, the best first
    models    a GPU's name on its nodes -> its hardware tier, VRAM, and whether it is high-end
    tiers     a class of tenants -> its rank, and the hardware that it may use and likes best
    policy    all tables as the documents write them: quotas, shares, priority classes

Immutable, and made anew from every set of policies (`following`). Where no policy says anything,
`PLAIN` holds: the usual levels, no models, and tiers that may use everything. What a node or a pod
is by these tables is decided in `rules.hardware`, `rules.tiers` and `rules.fabric`.
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
    """Node labels that tell it; the first that a node has counts."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What the model table says about one GPU."""

    tier: str
    vram: int
    """Bytes of one GPU."""
    high_end: bool = False


@dataclass(frozen=True, slots=True)
class TenantTier:
    """A class of tenants."""

    name: str
    rank: int
    allowed: tuple[str, ...] = vocabulary.HARDWARE_TIERS
    preferred: tuple[str, ...] = ()
    """Hardware tiers, best first."""
    boost: int = 0
    """Added to the priority of its pods, among those of one tenant that wait."""


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
    """Of the policies; two schedulers with one digest place alike."""

    @classmethod
    def of(cls, policies: PolicySet) -> "PlacementTables":
        said = policies.tables
        levels = tuple(
            TopologyLevel(one.name, tuple(one.labels)) for one in reversed(said.topology)
        )
        return cls(
            levels=levels or LEVELS,
            models={
                name: GpuModel(row.tier, quantity.units(row.vram), row.high_end)
                for name, row in said.gpu_models.items()
            },
            tiers={
                row.name: TenantTier(
                    row.name,
                    row.rank,
                    row.hardware_tiers.allowed,
                    row.hardware_tiers.preferred,
                    row.priority_boost,
                )
                for row in said.tiers.values()
            },
            policy=said,
            digest=policies.digest,
        )

    def level(self, name: str) -> TopologyLevel | None:
        return next((level for level in self.levels if level.name == name), None)

    def model(self, name: str) -> GpuModel | None:
        """By the name on the node; GPU Feature Discovery marks shared GPUs with a suffix."""
        return self.models.get(name) or self.models.get(name.removesuffix("-SHARED"))

    def vram(self, model: str) -> int:
        """Bytes of one such GPU; 0: no policy names it."""
        found = self.model(model)
        return 0 if found is None else found.vram

    def rank(self, tier: str) -> int | None:
        """None: no policy names such a tier."""
        found = self.tiers.get(tier)
        return None if found is None else found.rank

    def boost(self, tier: str) -> int:
        found = self.tiers.get(tier)
        return 0 if found is None else found.boost


PLAIN: Final = PlacementTables.of(PolicySet())
