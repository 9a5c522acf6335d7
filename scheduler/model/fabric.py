"""
What a pod asks of the network, of nearness, and of hardware by who it belongs to.

    FabricWish   which topology levels its group must or would share, the least fabric, and
                 whether a better one is liked; `NO_FABRIC`: nothing of it
    Standing     the tenant's tier, and the hardware tier that is liked best, as admission stamped
                 them; `NOBODY`: admission never saw the pod

A pod that trains on GPUs likes a better fabric unless it says otherwise. Spreading over zones is a
mild spread constraint over the pods with the same labels; what tells replicas apart is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from policies import vocabulary
from policies.pods import fabric
from scheduler.model import label_selector
from scheduler.model.pod_affinity import InterPodConstraints, SpreadConstraint

_OWN_NAMES: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "controller-revision-hash",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)


class TierRequirement(NamedTuple):
    tier: str = ""
    """Of the tenant."""
    hardware: str = ""
    """The hardware tier that is liked best."""


NOBODY: Final = TierRequirement()


@dataclass(frozen=True, slots=True)
class FabricRequirements:
    clique: bool = False
    strict: str | None = None
    """The topology level that the whole group must share; empty: the narrowest."""
    liked: str | None = None
    """The same, shared if possible."""
    least: int = 0
    """How good the fabric must be: 1 for the last of the fabric types, and up."""
    sensitive: bool = False

    @property
    def gathers(self) -> bool:
        """Asks for a level that is shared."""
        return self.clique or self.strict is not None or self.liked is not None


NO_FABRIC: Final = FabricRequirements()


def grade(fabric_type: str) -> int:
    """How good a fabric of this type is; 0: nobody knows it."""
    name = fabric.fabric_type(fabric_type)
    types = vocabulary.FABRIC_TYPES
    return len(types) - types.index(name) if name is not None else 0


def standing(labels: Mapping[str, str]) -> TierRequirement:
    tier = labels.get(vocabulary.TIER_LABEL, "")
    hardware = labels.get(vocabulary.HARDWARE_TIER_LABEL, "")
    return TierRequirement(tier, hardware) if tier or hardware else NOBODY


def read(said: fabric.Fabric, labels: Mapping[str, str], *, gpus: int) -> FabricRequirements:
    sensitive = said.sensitive
    if sensitive is None:
        sensitive = gpus > 0 and labels.get(vocabulary.WORKLOAD_TYPE_LABEL) == "training"
    if said is fabric.NO_FABRIC and not sensitive:
        return NO_FABRIC
    wish = FabricRequirements(
        clique=said.clique,
        strict=said.level if said.co_locate == "strict" else None,
        liked=said.level if said.co_locate == "preferred" else None,
        least=grade(said.least) if said.least else 0,
        sensitive=sensitive,
    )
    return NO_FABRIC if wish == NO_FABRIC else wish


def over_zones(wish: InterPodConstraints, labels: Mapping[str, str]) -> InterPodConstraints:
    """The wish with the pod's likes spread over zones, unless it says how itself."""
    mine = {key: value for key, value in labels.items() if key not in _OWN_NAMES}
    if not mine or any(one.key == vocabulary.ZONE_LABEL for one in (*wish.hard, *wish.soft)):
        return wish
    selector = label_selector.joined(label_selector.equals(mine))
    return replace(wish, soft=(*wish.soft, SpreadConstraint(vocabulary.ZONE_LABEL, 1, selector)))
