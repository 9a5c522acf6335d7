"""
The GPUs of every row, by the node's labels and devices and by the policies' table of models.

    hardware tier   label hardware.kubenexus.io/tier, else gpu.nvidia.com/class (a tier or a model),
                    else the model's tier by the table; otherwise unknown
    VRAM            reported by the node for each GPU, else the model's by the table
    high-end        by the table alone

Labels name the model, else devices do. A row is read again when its node or the tables change.
`tenant_tiers` and `placement_policy` use these facts.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from policies import vocabulary
from scheduler.columns.node_table import Bools, Codes, Ints, NodeTable
from scheduler.model.node import Node
from scheduler.model.policy import GpuModel, PlacementTables

UNKNOWN: Final = 0
CODES: Final = {name: code for code, name in enumerate(vocabulary.HARDWARE_TIERS, 1)}


class GpuClasses:
    """One array for each fact, over rows; meaningless where no node is alive."""

    def __init__(self, table: NodeTable, tables: PlacementTables) -> None:
        self._table, self._tables = table, tables
        self._classes = _by_class(tables)
        self._at = -1
        self._seen: list[Node | None] = []  # row -> the node that its facts are of
        self._tiers: Codes = np.zeros(0, dtype=np.int32)
        self._vram: Ints = np.zeros(0, dtype=np.int64)
        self._high_end: Bools = np.zeros(0, dtype=np.bool_)

    def tiers(self) -> Codes:
        """The code of each row's hardware tier."""
        self._renew()
        return self._tiers

    def vram(self) -> Ints:
        """Bytes of one GPU; 0: unknown."""
        self._renew()
        return self._vram

    def high_end(self) -> Bools:
        self._renew()
        return self._high_end

    def _renew(self) -> None:
        table = self._table
        if self._at == table.statics:
            return
        size = len(table.alive)
        if len(self._seen) != size:
            self._seen = [None] * size
            self._tiers = np.zeros(size, dtype=np.int32)
            self._vram = np.zeros(size, dtype=np.int64)
            self._high_end = np.zeros(size, dtype=np.bool_)
        for name, row in table.rows.items():
            node = table.nodes[name]
            if self._seen[row] is not node:
                self._seen[row] = node
                self._read(row, node)
        self._at = table.statics

    def _read(self, row: int, node: Node) -> None:
        labels = dict(node.labels)
        model = self._model(labels, node)
        tier = self._tier(labels, model)
        self._tiers[row] = CODES.get(tier, UNKNOWN)
        self._vram[row] = node.vram or (model.vram if model is not None and node.gpus else 0)
        self._high_end[row] = model is not None and model.high_end

    def _model(self, labels: Mapping[str, str], node: Node) -> GpuModel | None:
        for key in (vocabulary.GFD_PRODUCT_LABEL, vocabulary.GPU_MODEL_LABEL):
            model = self._tables.model(labels.get(key, ""))
            if model is not None:
                return model
        gpu_class = labels.get(vocabulary.GPU_CLASS_LABEL, "").lower()
        if gpu_class in self._classes:
            return self._classes[gpu_class]
        devices = node.topology.gpus if node.topology is not None else ()
        models = (self._tables.model(gpu.model) for gpu in devices)
        return next((model for model in models if model is not None), None)

    def _tier(self, labels: Mapping[str, str], model: GpuModel | None) -> str:
        for key in (vocabulary.HARDWARE_TIER_LABEL, vocabulary.GPU_CLASS_LABEL):
            value = labels.get(key, "").lower()
            if value in CODES:
                return value
            if key == vocabulary.GPU_CLASS_LABEL and value in self._classes:
                return self._classes[value].tier
        return model.tier if model is not None else ""


def _by_class(tables: PlacementTables) -> dict[str, GpuModel]:
    """A class label may be a model's name in small letters."""
    return {name.lower(): tables.models[name] for name in reversed(tuple(tables.models))}
