"""
VolumeBinding: which volume a PVC with delayed binding gets on each node, for all nodes at once.

    the PVC has a selected node              only that node; the volume is provisioned there
    a volume's claimRef names the PVC        the nodes that can mount the volume
    volumes of the class are available       on each node the smallest that fits and can be mounted
    no volume for this node                  the class must be able to provision one there

The PVCs of one pod are matched smallest first, and each volume serves one of them. Decisions for
pods that are placed and not yet bound (`AssumedVolumes`) count as if they were in the API: a volume
is not given twice, and pods that share a PVC follow the first of them.

Pure: the same store, assumed volumes and nodes give the same decision. Among equal volumes the
first name wins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.columns.label_match import LabelIndex
from scheduler.columns.node_table import Bools, NodeTable
from scheduler.model.label_selector import selects
from scheduler.plugins.volumes.storage_types import (
    ClaimRef,
    PersistentVolume,
    PersistentVolumeClaim,
    PvcKey,
    StorageClass,
)
from scheduler.plugins.volumes.store import VolumeStore

NOTHING_TO_BIND: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"

_FITS, _NO_MATCH, _NO_CAPACITY = 0, 1, 2  # the verdict on a row
_NO_VOLUME: Final = -1

Holder = tuple[str, int]  # uid of the pod, row
VolumeNumbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class VolumeDecision:
    """What PreBind does for a pod's PVCs with delayed binding, on its node."""

    static_bindings: tuple[tuple[PvcKey, str], ...] = ()
    """PVCs with the existing volumes that they get."""
    provisions: tuple[PvcKey, ...] = ()
    """PVCs for which the class provisions a volume."""
    unmatched: tuple[PvcKey, ...] = ()
    """PVCs without a volume on this node: the pod cannot be bound there."""

    def __bool__(self) -> bool:
        return bool(self.static_bindings or self.provisions or self.unmatched)


NO_DECISION: Final = VolumeDecision()


@dataclass(slots=True)
class AssumedVolumes:
    """Decisions for pods that are placed and not yet bound; pods may share a PVC."""

    nodes: dict[PvcKey, dict[Holder, str]] = field(default_factory=dict)
    volumes: dict[PvcKey, dict[Holder, str]] = field(default_factory=dict)
    version: int = 0
    _pvcs_by_volume: dict[str, set[PvcKey]] = field(default_factory=dict)  # volume -> PVCs

    def assume(self, holder: Holder, node: str, decision: VolumeDecision) -> None:
        for key in decision.provisions:
            self.nodes.setdefault(key, {})[holder] = node
        for key, volume in decision.static_bindings:
            self.volumes.setdefault(key, {})[holder] = volume
            self._pvcs_by_volume.setdefault(volume, set()).add(key)
        self.version += 1

    def revert(self, holder: Holder, decision: VolumeDecision) -> None:
        for key in decision.provisions:
            _discard(self.nodes, key, holder)
        for key, volume in decision.static_bindings:
            _discard(self.volumes, key, holder)
            if volume not in self.volumes.get(key, {}).values():
                pvcs = self._pvcs_by_volume[volume]
                pvcs.discard(key)
                if not pvcs:
                    del self._pvcs_by_volume[volume]
        self.version += 1

    def node_for(self, pvc: PersistentVolumeClaim) -> str | None:
        return next(iter(self.nodes.get(pvc.key, {}).values()), None)

    def owner_of(self, volume: PersistentVolume, store: VolumeStore) -> ClaimRef | None:
        """The PVC that has the volume or is assumed to get it; bound PVCs are not assumed."""
        if volume.claim_ref is not None:
            return volume.claim_ref
        for key in self._pvcs_by_volume.get(volume.name, ()):
            pvc = store.pvcs.get(key)
            if pvc is not None and not pvc.bound:
                return ClaimRef(key, pvc.uid)
        return None


def _discard(assumed: dict[PvcKey, dict[Holder, str]], key: PvcKey, holder: Holder) -> None:
    holders = assumed[key]
    del holders[holder]
    if not holders:
        del assumed[key]


@dataclass(frozen=True, slots=True)
class RowMatches:
    """The decision for PVCs with delayed binding, on every row."""

    verdict: NDArray[np.int8]
    node_selected: tuple[PersistentVolumeClaim, ...]
    """PVCs with a selected node."""
    matched: tuple[PersistentVolumeClaim, ...]
    """PVCs that may get an existing volume, smallest first."""
    picks: tuple[VolumeNumbers, ...]
    """For each matched PVC the index in `volumes` on every row."""
    volumes: tuple[PersistentVolume, ...]

    def filter(self, rows: Bools) -> Iterator[tuple[str, Bools]]:
        yield NOTHING_TO_BIND, rows & (self.verdict == _NO_MATCH)
        yield NO_SPACE, rows & (self.verdict == _NO_CAPACITY)

    def decision_at(self, row: int) -> VolumeDecision:
        bindings, provisions = [], [pvc.key for pvc in self.node_selected]
        for pvc, picks in zip(self.matched, self.picks, strict=True):
            if picks[row] == _NO_VOLUME:
                provisions.append(pvc.key)
            else:
                bindings.append((pvc.key, self.volumes[picks[row]].name))
        if self.verdict[row] != _FITS:
            unmatched = tuple(provisions) or tuple(key for key, _ in bindings)
            return VolumeDecision(tuple(bindings), unmatched=unmatched)
        return VolumeDecision(tuple(bindings), tuple(provisions))


class VolumeBinding:
    """Matches the PVCs of one pod at a time; the last result is cached."""

    def __init__(
        self, table: NodeTable, store: VolumeStore, labels: LabelIndex, assumed: AssumedVolumes
    ) -> None:
        self._table = table
        self._store = store
        self._labels = labels
        self._assumed = assumed
        self._key: tuple[object, ...] = ()
        self._last: RowMatches | None = None

    def match(self, pvcs: Sequence[PersistentVolumeClaim]) -> RowMatches:
        versions = (self._store.version, self._assumed.version, self._table.statics)
        key = (*versions, tuple(pvc.key for pvc in pvcs))
        if self._last is None or self._key != key:
            self._key, self._last = key, self._match(pvcs)
        return self._last

    def _match(self, pvcs: Sequence[PersistentVolumeClaim]) -> RowMatches:
        verdict = np.zeros(len(self._table.alive), dtype=np.int8)
        node_selected, matched = [], []
        for pvc in pvcs:
            node = self._node_of(pvc)
            if node is None:
                matched.append(pvc)
                continue
            node_selected.append(pvc)
            elsewhere = np.ones(len(verdict), dtype=np.bool_)
            if (row := self._table.rows.get(node)) is not None:
                elsewhere[row] = False
            verdict[elsewhere] = _NO_MATCH
        matched.sort(key=lambda pvc: pvc.size or 0)
        volumes, picks = self._pick(matched)
        everywhere = np.ones(len(verdict), dtype=np.bool_)
        for pvc in node_selected:
            self._check_provisioning(pvc, everywhere, verdict)
        for pvc, pick in zip(matched, picks, strict=True):
            self._check_provisioning(pvc, pick == _NO_VOLUME, verdict)
        return RowMatches(
            verdict, tuple(node_selected), tuple(matched), tuple(picks), tuple(volumes)
        )

    def _node_of(self, pvc: PersistentVolumeClaim) -> str | None:
        selected = pvc.selected_node
        return selected if selected is not None else self._assumed.node_for(pvc)

    # --- existing volumes ---

    def _pick(
        self, pvcs: Sequence[PersistentVolumeClaim]
    ) -> tuple[list[PersistentVolume], list[VolumeNumbers]]:
        """For each PVC the index of its volume on every row."""
        numbers: dict[str, int] = {}
        volumes: list[PersistentVolume] = []
        picks: list[VolumeNumbers] = []
        for pvc in pvcs:
            candidates = self._candidates(pvc)
            for volume in candidates:
                if volume.name not in numbers:
                    numbers[volume.name] = len(volumes)
                    volumes.append(volume)
            best = self._best(candidates, numbers, depth=len(picks) + 1)
            pick: VolumeNumbers = np.full(best.shape[1], _NO_VOLUME, dtype=np.int32)
            for layer in best:
                free = (pick == _NO_VOLUME) & (layer != _NO_VOLUME)
                for other in picks:
                    free &= layer != other
                pick[free] = layer[free]
            picks.append(pick)
        return volumes, picks

    def _best(
        self, candidates: Sequence[PersistentVolume], numbers: dict[str, int], *, depth: int
    ) -> VolumeNumbers:
        """On every row the first `depth` candidates that its node can mount."""
        best: VolumeNumbers = np.full((depth, len(self._table.alive)), _NO_VOLUME, dtype=np.int32)
        for volume in reversed(candidates):
            reached = (
                slice(None) if volume.affinity is None else self._labels.rows_of(volume.affinity)
            )
            if depth > 1:
                best[1:, reached] = best[:-1, reached]
            best[0, reached] = numbers[volume.name]
        return best

    def _candidates(self, pvc: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Smallest first; a volume whose claimRef names the PVC is the only candidate."""
        candidates = []
        for volume in self._store.volumes_by_class.get(pvc.class_name, {}).values():
            owner = self._assumed.owner_of(volume, self._store)
            if (owner is None or owner.refers_to(pvc)) and _fits(volume, pvc):
                if owner is not None:
                    return [volume]
                if _available(volume, pvc):
                    candidates.append(volume)
        candidates.sort(key=lambda volume: (volume.size, volume.name))
        return candidates

    # --- volumes to provision ---

    def _check_provisioning(
        self, pvc: PersistentVolumeClaim, needed: Bools, verdict: NDArray[np.int8]
    ) -> None:
        """Reject the `needed` rows where the class cannot provision; the first verdict stays."""
        storage_class = self._store.classes.get(pvc.class_name)
        if storage_class is None or not storage_class.can_provision:
            verdict[needed & (verdict == _FITS)] = _NO_MATCH
            return
        if storage_class.topologies:
            outside = ~self._labels.any_of(storage_class.topologies)
            verdict[needed & outside & (verdict == _FITS)] = _NO_MATCH
        enough = self._enough_capacity(pvc, storage_class)
        if enough is not None:
            verdict[needed & ~enough & (verdict == _FITS)] = _NO_CAPACITY

    def _enough_capacity(
        self, pvc: PersistentVolumeClaim, storage_class: StorageClass
    ) -> Bools | None:
        """The rows with enough storage capacity; None: the driver does not report it."""
        driver = self._store.drivers.get(storage_class.provisioner)
        if pvc.size is None or driver is None or not driver.reports_capacity:
            return None
        enough = np.zeros_like(self._table.alive)
        for capacity in self._store.capacities.get(storage_class.name, {}).values():
            fits = capacity.max_size is not None and capacity.max_size >= pvc.size
            if fits and capacity.nodes is not None:
                enough |= self._labels.all_of(capacity.nodes)
        return enough


def _fits(volume: PersistentVolume, pvc: PersistentVolumeClaim) -> bool:
    return (
        volume.size >= (pvc.size or 0)
        and volume.volume_mode == pvc.volume_mode
        and volume.attributes == pvc.attributes
        and not volume.deleting
    )


def _available(volume: PersistentVolume, pvc: PersistentVolumeClaim) -> bool:
    return (
        volume.phase == "Available"
        and (pvc.selector is None or selects(pvc.selector, dict(volume.labels)))
        and set(pvc.access_modes) <= set(volume.access_modes)
    )
