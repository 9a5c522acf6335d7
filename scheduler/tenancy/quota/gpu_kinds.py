"""
The names under which a quota counts the GPUs of a node: every name of its model, and its tier.

A model has several names in the policies' table (`H100`, `NVIDIA-H100-80GB-HBM3`): a quota for one
of them counts nodes with the label of another. The caller drops names that no quota uses.
"""

from policies import vocabulary
from policies.documents.tenancy import GPU_MODEL, HARDWARE_TIER
from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.plugins.gpu_classes import CODES, UNKNOWN

_TIERS = {code: name for name, code in CODES.items()}


class GpuKinds:
    """Reads the snapshot's nodes and tables."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __call__(self, name: str) -> tuple[str, ...]:
        snapshot = self._snapshot
        row = snapshot.table.rows.get(name)
        if row is None:
            return ()
        kinds = [GPU_MODEL + alias for alias in self._aliases(snapshot.table.nodes[name])]
        tier = int(snapshot.placement_policy.hardware.tiers()[row])
        if tier != UNKNOWN:
            kinds.append(HARDWARE_TIER + _TIERS[tier])
        return tuple(kinds)

    def _aliases(self, node: Node) -> tuple[str, ...]:
        labels = dict(node.labels)
        stated = [labels.get(vocabulary.GFD_PRODUCT_LABEL), labels.get(vocabulary.GPU_MODEL_LABEL)]
        stated += [gpu.model for gpu in (node.topology.gpus[:1] if node.topology else ())]
        model = next((name for name in stated if name), None)
        if model is None:
            return ()
        row = self._snapshot.tables.policy.gpu_models.get(model.removesuffix("-SHARED"))
        return (model,) if row is None else tuple(row.models)
