"""
What a pod requires of the network fabric and of co-location, and its tiers.

    FabricRequirements   the topology levels that its gang must or should share, the minimum fabric,
                         and whether a better fabric is preferred; `NO_FABRIC`: no requirement
    PodTiers             the tenant's tier and the preferred hardware tier, as admission labels
                         them; `NO_TIERS`: admission did not label the pod

A training pod with GPUs prefers a better fabric unless it declares otherwise. Spreading over zones
is a soft spread constraint over the pods with the same labels; labels that differ between the
replicas of one workload are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from policies import vocabulary
from policies.pods import fabric
from scheduler.model import label_selector
from scheduler.model.pod_affinity import InterPodConstraints, SpreadConstraint

_REPLICA_LABELS: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "controller-revision-hash",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)


class PodTiers(NamedTuple):
    tenant: str = ""
    """The tenant's tier."""
    hardware: str = ""
    """The preferred hardware tier."""


NO_TIERS: Final = PodTiers()


@dataclass(frozen=True, slots=True)
class FabricRequirements:
    clique: bool = False
    strict: str | None = None
    """The topology level that the whole gang must share; empty: the narrowest."""
    preferred: str | None = None
    """The topology level that the gang shares if possible; empty: the narrowest."""
    minimum: int = 0
    """The lowest grade of fabric that will do: 1 for the last of the fabric types, and up."""
    sensitive: bool = False

    @property
    def co_located(self) -> bool:
        """The gang must or should share a topology level."""
        return self.clique or self.strict is not None or self.preferred is not None


NO_FABRIC: Final = FabricRequirements()


def grade(fabric_type: str) -> int:
    """The grade of a fabric type, higher is better; 0: unknown type."""
    name = fabric.fabric_type(fabric_type)
    types = vocabulary.FABRIC_TYPES
    return len(types) - types.index(name) if name is not None else 0


def read_tiers(labels: Mapping[str, str]) -> PodTiers:
    tenant = labels.get(vocabulary.TIER_LABEL, "")
    hardware = labels.get(vocabulary.HARDWARE_TIER_LABEL, "")
    return PodTiers(tenant, hardware) if tenant or hardware else NO_TIERS


def read(declared: fabric.Fabric, labels: Mapping[str, str], *, gpus: int) -> FabricRequirements:
    sensitive = declared.sensitive
    if sensitive is None:
        sensitive = gpus > 0 and labels.get(vocabulary.WORKLOAD_TYPE_LABEL) == "training"
    if declared is fabric.NO_FABRIC and not sensitive:
        return NO_FABRIC
    requirements = FabricRequirements(
        clique=declared.clique,
        strict=declared.level if declared.co_locate == "strict" else None,
        preferred=declared.level if declared.co_locate == "preferred" else None,
        minimum=grade(declared.least) if declared.least else 0,
        sensitive=sensitive,
    )
    return NO_FABRIC if requirements == NO_FABRIC else requirements


def spread_over_zones(
    constraints: InterPodConstraints, labels: Mapping[str, str]
) -> InterPodConstraints:
    """Adds a soft spread over zones, unless the pod has a constraint on zones already."""
    common = {key: value for key, value in labels.items() if key not in _REPLICA_LABELS}
    spreads = (*constraints.hard_spread, *constraints.soft_spread)
    if not common or any(spread.topology_key == vocabulary.ZONE_LABEL for spread in spreads):
        return constraints
    selector = label_selector.joined(label_selector.equals(common))
    zones = SpreadConstraint(vocabulary.ZONE_LABEL, 1, selector)
    return replace(constraints, soft_spread=(*constraints.soft_spread, zones))
