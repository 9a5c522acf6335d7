"""
Volumes: the PVCs and disks that pods mount on each row, and the nodes that can mount them.

The state is keyed by PVC. The plugin looks up the volume behind a PVC in `store` on use, since it
may change while the pods stay. A pod that is placed and not yet bound also has a decision for its
PVCs with delayed binding: the volume that each gets, or the node to provision it for.

    charge      count the pod's PVCs and disks; assume volumes for a pod without a node
    uncharge    the opposite
    filter      VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone, in this order

As in kube-scheduler, a node that VolumeBinding rejects for two reasons (a bound volume that it
cannot mount, and no volume for a delayed PVC) is counted under both reasons.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from policies import vocabulary
from scheduler.columns.label_match import LabelIndex
from scheduler.columns.node_table import ABSENT, Bools, NodeTable
from scheduler.feed import Feed
from scheduler.model.assignment import Assignment
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.pod_volumes import NO_VOLUMES, AttachableVolume, Disk
from scheduler.plugins.protocol import POD_EVENT, Plugin, Rejection, Relaxation
from scheduler.plugins.volumes import informers
from scheduler.plugins.volumes import pod_claims as claim_rules
from scheduler.plugins.volumes.binding import (
    NO_DECISION,
    AssumedVolumes,
    Holder,
    VolumeBinding,
    VolumeDecision,
)
from scheduler.plugins.volumes.csi_limits import CsiLimits
from scheduler.plugins.volumes.pod_claims import PodVolumeClaims
from scheduler.plugins.volumes.storage_types import READ_WRITE_ONCE_POD, PersistentVolume, PvcKey
from scheduler.plugins.volumes.store import VolumeStore

DISK_CONFLICT: Final = "node(s) had no available disk"
IN_USE_BY_OTHER_POD: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
AFFINITY_MISMATCH: Final = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NO_ZONE: Final = "node(s) had no available volume zone"

# The label of a volume -> the label of a node that it also matches.
_ZONES: Final = {
    vocabulary.BETA_ZONE_LABEL: vocabulary.ZONE_LABEL,
    vocabulary.BETA_REGION_LABEL: vocabulary.REGION_LABEL,
    vocabulary.ZONE_LABEL: vocabulary.ZONE_LABEL,
    vocabulary.REGION_LABEL: vocabulary.REGION_LABEL,
}
_BETWEEN_ZONES: Final = "__"

A = TypeVar("A", bound=Hashable)
B = TypeVar("B", bound=Hashable)


class VolumePlugin(Plugin):
    """kube-scheduler's VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone."""

    events = frozenset(
        {
            POD_EVENT,
            "PersistentVolumeClaim",
            "PersistentVolume",
            "StorageClass",
            "CSINode",
            "CSIDriver",
            "CSIStorageCapacity",
            "VolumeAttachment",
        }
    )

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.store = VolumeStore()
        self._pvcs: dict[int, dict[PvcKey, int]] = {}  # row -> PVC -> mounts
        self._disks: dict[int, dict[Disk, int]] = {}
        self._inline: dict[int, dict[AttachableVolume, int]] = {}
        self._rows_by_pvc: dict[PvcKey, dict[int, int]] = {}  # PVC -> row -> mounts
        self._users: dict[PvcKey, int] = {}  # PVC -> mounts that are not ephemeral
        self._persistent: dict[int, dict[PvcKey, int]] = {}  # row -> PVC -> the same
        self._decisions: dict[Holder, VolumeDecision] = {}
        self._assumed = AssumedVolumes()
        self._labels = LabelIndex(table)
        self._binding = VolumeBinding(table, self.store, self._labels, self._assumed)
        self._limits = CsiLimits(table, self.store, self._mounted)
        self.store.on_pvc.append(self._pvc_changed)
        self.store.on_node.append(self._node_changed)
        self.store.on_class.append(self._all_changed)

    def feeds(self) -> Iterable[Feed]:
        return informers.feeds(self.store)

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.volumes is NO_VOLUMES:
            return
        # A pod that has its node in the API needs no decision any more.
        decision = NO_DECISION if pod.node else self._decide(pod, row)
        self._move(pod, row, +1)
        if decision:
            holder = (pod.uid, row)
            self._decisions[holder] = decision
            self._assumed.assume(holder, self._table.names[row], decision)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.volumes is NO_VOLUMES:
            return
        self._move(pod, row, -1)
        self._revert((pod.uid, row))

    def drop(self, row: int) -> None:
        for holder in [holder for holder in self._decisions if holder[1] == row]:
            self._revert(holder)
        for key, count in self._persistent.pop(row, {}).items():
            _add(self._users, key, -count)
        for key in self._pvcs.pop(row, {}):
            rows = self._rows_by_pvc[key]
            del rows[row]
            if not rows:
                del self._rows_by_pvc[key]
        self._disks.pop(row, None)
        self._inline.pop(row, None)
        self._limits.invalidate(row)

    def state(self, row: int) -> tuple[object, ...]:
        decisions = (
            (uid, decision) for (uid, where), decision in self._decisions.items() if where == row
        )
        return (
            tuple(sorted(self._pvcs.get(row, {}).items())),
            tuple(sorted(self._persistent.get(row, {}).items())),
            tuple(sorted(self._disks.get(row, {}).items())),
            tuple(sorted(self._inline.get(row, {}).items())),
            tuple(sorted(decisions, key=lambda item: item[0])),
        )

    def decision(self, pod: Pod, node: str) -> VolumeDecision:
        """What PreBind writes and waits for before the pod is bound to the node."""
        return self._decisions.get((pod.uid, self._table.rows.get(node, -1)), NO_DECISION)

    def node_labels(self, node: str) -> dict[str, str] | None:
        """None: the node is unknown."""
        known = self._table.nodes.get(node)
        return None if known is None else dict(known.labels)

    def _move(self, pod: Pod, row: int, sign: int) -> None:
        volumes = pod.spec.volumes
        for ref, key in zip(volumes.pvcs, volumes.pvc_keys(), strict=True):
            _tally(self._pvcs, row, key, sign)
            _tally(self._rows_by_pvc, key, row, sign)
            if not ref.ephemeral:
                _tally(self._persistent, row, key, sign)
                _add(self._users, key, sign)
        for disk in volumes.disks:
            _tally(self._disks, row, disk, sign)
        for inline in volumes.inline:
            _tally(self._inline, row, inline, sign)
        self._limits.invalidate(row)

    def _decide(self, pod: Pod, row: int) -> VolumeDecision:
        delayed = claim_rules.classify(self.store, pod).delayed
        return self._binding.match(delayed).decision_at(row) if delayed else NO_DECISION

    def _revert(self, holder: Holder) -> None:
        decision = self._decisions.pop(holder, None)
        if decision is not None:
            self._assumed.revert(holder, decision)

    # --- changes in the store ---

    def _mounted(self, row: int) -> Iterator[AttachableVolume]:
        for key in self._pvcs.get(row, ()):
            if (volume := self.store.attachable(key)) is not None:
                yield volume
        yield from self._inline.get(row, ())

    def _pvc_changed(self, key: PvcKey) -> None:
        for row in self._rows_by_pvc.get(key, ()):
            self._limits.invalidate(row)

    def _node_changed(self, node: str) -> None:
        if (row := self._table.rows.get(node)) is not None:
            self._limits.invalidate(row)

    def _all_changed(self) -> None:
        for row in self._pvcs:
            self._limits.invalidate(row)

    # --- filters ---

    def unresolvable(self, pod: Pod) -> str:
        """For example a PVC that does not exist."""
        if not pod.spec.volumes.pvcs:
            return ""
        return claim_rules.classify(self.store, pod).problem

    def depends_on_pods(self, pod: Pod) -> bool:
        return pod.spec.volumes is not NO_VOLUMES

    def affects_equal_pods(self, pod: Pod) -> bool:
        """Equal pods mount the same volumes: in most cases a node that fits one fits the others."""
        volumes = pod.spec.volumes
        if volumes is NO_VOLUMES:
            return False
        pvcs = claim_rules.classify(self.store, pod)
        exclusive = any(READ_WRITE_ONCE_POD in pvc.access_modes for pvc in pvcs.bound)
        return bool(volumes.disks or pvcs.delayed or exclusive)

    def shares_node(self, pod: Pod) -> bool:
        """With delayed binding the node of the first pod decides about the volumes."""
        return bool(pod.spec.volumes.pvcs) and bool(claim_rules.classify(self.store, pod).delayed)

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.volumes != NO_VOLUMES:
            yield "use other volumes", replace(spec, volumes=NO_VOLUMES)

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        volumes = pod.spec.volumes
        if volumes is NO_VOLUMES:
            return
        pvcs = claim_rules.classify(self.store, pod)
        if pvcs.problem:
            yield pvcs.problem, rows
            return
        left = rows
        for reason, rejected in (
            (DISK_CONFLICT, self._disk_conflicts(pod, rows)),
            (IN_USE_BY_OTHER_POD, self._in_use(pod, rows)),
        ):
            yield reason, left & rejected
            left = left & ~rejected
        mounted = (self.store.attachable(key) for key in volumes.pvc_keys())
        attachable = [volume for volume in mounted if volume is not None]
        for reason, rejected in self._limits.filter((*attachable, *volumes.inline), left):
            yield reason, rejected
            left = left & ~rejected
        remaining = left
        for reason, rejected in self._filter_binding(pvcs, left):
            yield reason, rejected
            remaining = remaining & ~rejected
        yield NO_ZONE, remaining & self._out_of_zone(pod)

    def _disk_conflicts(self, pod: Pod, rows: Bools) -> Bools:
        conflicting = np.zeros_like(rows)
        own = pod.spec.volumes.disks
        if own:
            for row, disks in self._disks.items():
                conflicting[row] = any(disk.conflicts(other) for disk in own for other in disks)
        return conflicting

    def _in_use(self, pod: Pod, rows: Bools) -> Bools:
        """A ReadWriteOncePod claim that a pod uses rejects every node."""
        volumes = pod.spec.volumes
        used = any(
            not ref.ephemeral
            and key in self._users
            and READ_WRITE_ONCE_POD in self.store.pvcs[key].access_modes
            for ref, key in zip(volumes.pvcs, volumes.pvc_keys(), strict=True)
        )
        return np.full_like(rows, used)

    def _filter_binding(self, pvcs: PodVolumeClaims, rows: Bools) -> Iterator[Rejection]:
        left = rows
        mismatch, missing = np.zeros_like(rows), np.zeros_like(rows)
        for pvc in pvcs.bound:
            volume = self.store.volumes.get(pvc.volume)
            if volume is None:
                missing |= left
                left = left & ~missing
            elif volume.affinity is not None:
                reachable = np.zeros_like(rows)
                reachable[self._labels.rows_of(volume.affinity)] = True
                mismatch |= left & ~reachable
                left = left & reachable
        yield AFFINITY_MISMATCH, mismatch
        if pvcs.delayed:
            yield from self._binding.match(pvcs.delayed).filter(rows)
        yield VOLUME_GONE, missing

    def _out_of_zone(self, pod: Pod) -> Bools:
        table = self._table
        rejected = np.zeros_like(table.alive)
        for volume in claim_rules.volumes_with_zones(self.store, pod):
            for label, zones in _zones(volume):
                by_label = _any_of(table, label, zones)
                by_other = _any_of(table, _ZONES[label], zones)
                rejected |= ~np.where(table.codes(label) != ABSENT, by_label, by_other)
        if rejected.any():
            # The nodes of a cluster with one zone may have no zone labels.
            rejected &= np.logical_or.reduce([table.codes(key) != ABSENT for key in _ZONES])
        return rejected


def _zones(volume: PersistentVolume) -> Iterator[tuple[str, list[str]]]:
    """(label, the values that it allows); a list with an empty part is ignored."""
    labels = dict(volume.labels)
    for label in _ZONES:
        if label in labels:
            zones = [zone.strip() for zone in labels[label].split(_BETWEEN_ZONES)]
            if all(zones):
                yield label, zones


def _any_of(table: NodeTable, label: str, values: list[str]) -> Bools:
    matching: Bools = np.logical_or.reduce([table.labelled(label, value) for value in values])
    return matching


def _tally(table: dict[A, dict[B, int]], outer: A, inner: B, change: int) -> None:
    counts = table.setdefault(outer, {})
    _add(counts, inner, change)
    if not counts:
        del table[outer]


def _add(counts: dict[A, int], key: A, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
