"""
Volumes: what is mounted where, and which nodes can reach it.

The books know which claims and disks the pods of a row mount. What a claim stands for is looked up
in `facts` when it matters, since that changes while the pods stay. A pod that is placed and not yet
bound also holds promises for its late claims: the volume each gets, or the node it is made for.

    take    count the pod's claims and disks; a pod without a node of its own is promised volumes
    give    the opposite
    refuse  VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone, in this order

A node that VolumeBinding refuses for two reasons at once (a bound volume out of reach and nothing
for a late claim) is in both of their answers, as kube-scheduler counts it.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from policies import vocabulary
from scheduler.columns.label_match import LabelIndex
from scheduler.columns.node_table import ABSENT, Bools, NodeTable
from scheduler.model.assignment import Assignment
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.pod_volumes import NO_VOLUMES, AttachableVolume, Disk
from scheduler.plugins.protocol import POD_EVENT, Plugin, Rejection, Relaxation
from scheduler.plugins.volumes import pod_claims as claim_rules
from scheduler.plugins.volumes.binding import (
    NOTHING,
    AssumedVolumes,
    Holder,
    VolumeBinding,
    VolumeDecision,
)
from scheduler.plugins.volumes.csi_limits import CsiLimits
from scheduler.plugins.volumes.pod_claims import PodVolumeClaims
from scheduler.plugins.volumes.storage_types import ONE_POD, ClaimKey, PersistentVolume
from scheduler.plugins.volumes.store import VolumeStore

DISK_TAKEN: Final = "node(s) had no available disk"
USED_BY_ANOTHER: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
OUT_OF_REACH: Final = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NO_ZONE: Final = "node(s) had no available volume zone"

# The label of a volume -> the label of a node that also answers for it.
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
        self.facts = VolumeStore()
        self._claims: dict[int, dict[ClaimKey, int]] = {}  # row -> claim -> mounts of its pods
        self._disks: dict[int, dict[Disk, int]] = {}
        self._inline: dict[int, dict[AttachableVolume, int]] = {}
        self._on: dict[ClaimKey, dict[int, int]] = {}  # claim -> row -> mounts
        self._users: dict[ClaimKey, int] = {}  # claim -> mounts that are not ephemeral
        self._own: dict[int, dict[ClaimKey, int]] = {}  # row -> claim -> those of them there
        self._promised: dict[Holder, VolumeDecision] = {}
        self._promises = AssumedVolumes()
        self._rows = LabelIndex(table)
        self._matching = VolumeBinding(table, self.facts, self._rows, self._promises)
        self._limits = CsiLimits(table, self.facts, self._mounted)
        self.facts.on_claim.append(self._claim_changed)
        self.facts.on_place.append(self._place_changed)
        self.facts.on_class.append(self._all_changed)

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.volumes is NO_VOLUMES:
            return
        # A pod that has its node in the API has its volumes by now, or does not wait for them.
        decision = NOTHING if pod.node else self._decide(pod, row)
        self._move(pod, row, +1)
        if decision:
            holder = (pod.uid, row)
            self._promised[holder] = decision
            self._promises.make(holder, self._table.names[row], decision)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        if pod.spec.volumes is NO_VOLUMES:
            return
        self._move(pod, row, -1)
        self._take_back((pod.uid, row))

    def drop(self, row: int) -> None:
        for holder in [holder for holder in self._promised if holder[1] == row]:
            self._take_back(holder)
        for key, count in self._own.pop(row, {}).items():
            _add(self._users, key, -count)
        for key in self._claims.pop(row, {}):
            rows = self._on[key]
            del rows[row]
            if not rows:
                del self._on[key]
        self._disks.pop(row, None)
        self._inline.pop(row, None)
        self._limits.touch(row)

    def state(self, row: int) -> tuple[object, ...]:
        promised = ((uid, found) for (uid, where), found in self._promised.items() if where == row)
        return (
            tuple(sorted(self._claims.get(row, {}).items())),
            tuple(sorted(self._own.get(row, {}).items())),
            tuple(sorted(self._disks.get(row, {}).items())),
            tuple(sorted(self._inline.get(row, {}).items())),
            tuple(sorted(promised, key=lambda found: found[0])),
        )

    def decision(self, pod: Pod, node: str) -> VolumeDecision:
        """What must be written and waited for before the pod may be bound to the node."""
        return self._promised.get((pod.uid, self._table.rows.get(node, -1)), NOTHING)

    def node_labels(self, node: str) -> dict[str, str] | None:
        """None: the node is not known."""
        found = self._table.nodes.get(node)
        return None if found is None else dict(found.labels)

    def _move(self, pod: Pod, row: int, sign: int) -> None:
        wish = pod.spec.volumes
        for ref, key in zip(wish.claims, wish.claim_keys(), strict=True):
            _tally(self._claims, row, key, sign)
            _tally(self._on, key, row, sign)
            if not ref.ephemeral:
                _tally(self._own, row, key, sign)
                _add(self._users, key, sign)
        for disk in wish.disks:
            _tally(self._disks, row, disk, sign)
        for found in wish.inline:
            _tally(self._inline, row, found, sign)
        self._limits.touch(row)

    def _decide(self, pod: Pod, row: int) -> VolumeDecision:
        found = claim_rules.judge(self.facts, pod)
        return self._matching.match(found.late).at(row) if found.late else NOTHING

    def _take_back(self, holder: Holder) -> None:
        decision = self._promised.pop(holder, None)
        if decision is not None:
            self._promises.take_back(holder, decision)

    # --- what the facts say ---

    def _mounted(self, row: int) -> Iterator[AttachableVolume]:
        for key in self._claims.get(row, ()):
            if (found := self.facts.attachable(key)) is not None:
                yield found
        yield from self._inline.get(row, ())

    def _claim_changed(self, key: ClaimKey) -> None:
        for row in self._on.get(key, ()):
            self._limits.touch(row)

    def _place_changed(self, node: str) -> None:
        if (row := self._table.rows.get(node)) is not None:
            self._limits.touch(row)

    def _all_changed(self) -> None:
        for row in self._claims:
            self._limits.touch(row)

    # --- filters ---

    def unresolvable(self, pod: Pod) -> str:
        """For example a claim that does not exist."""
        if not pod.spec.volumes.claims:
            return ""
        return claim_rules.judge(self.facts, pod).trouble

    def depends_on_pods(self, pod: Pod) -> bool:
        return pod.spec.volumes is not NO_VOLUMES

    def affects_equal_pods(self, pod: Pod) -> bool:
        """Equal pods mount the same volumes: mostly a node that takes one takes the others."""
        volumes = pod.spec.volumes
        if volumes is NO_VOLUMES:
            return False
        claims = claim_rules.judge(self.facts, pod)
        exclusive = any(ONE_POD in claim.modes for claim in claims.bound)
        return bool(volumes.disks or claims.late or exclusive)

    def shares_node(self, pod: Pod) -> bool:
        """Claims that are bound late: the node of the first pod decides about the volumes."""
        return bool(pod.spec.volumes.claims) and bool(claim_rules.judge(self.facts, pod).late)

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.volumes != NO_VOLUMES:
            yield "use other volumes", replace(spec, volumes=NO_VOLUMES)

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        wish = pod.spec.volumes
        if wish is NO_VOLUMES:
            return
        found = claim_rules.judge(self.facts, pod)
        if found.trouble:
            yield found.trouble, rows
            return
        left = rows
        for reason, refused in (
            (DISK_TAKEN, self._disk_conflicts(pod, rows)),
            (USED_BY_ANOTHER, self._in_use(pod, rows)),
        ):
            yield reason, left & refused
            left = left & ~refused
        volumes = [
            one for key in wish.claim_keys() if (one := self.facts.attachable(key)) is not None
        ]
        for reason, refused in self._limits.refuse((*volumes, *wish.inline), left):
            yield reason, refused
            left = left & ~refused
        stays = left
        for reason, refused in self._unreachable(found, left):
            yield reason, refused
            stays = stays & ~refused
        yield NO_ZONE, stays & self._out_of_zone(pod)

    def _disk_conflicts(self, pod: Pod, rows: Bools) -> Bools:
        found = np.zeros_like(rows)
        if pod.spec.volumes.disks:
            for row, disks in self._disks.items():
                found[row] = any(
                    mine.conflicts(other) for mine in pod.spec.volumes.disks for other in disks
                )
        return found

    def _in_use(self, pod: Pod, rows: Bools) -> Bools:
        """A claim for one pod that has one closes every node."""
        wish = pod.spec.volumes
        used = any(
            not ref.ephemeral and key in self._users and ONE_POD in self.facts.claims[key].modes
            for ref, key in zip(wish.claims, wish.claim_keys(), strict=True)
        )
        return np.full_like(rows, used)

    def _unreachable(self, found: PodVolumeClaims, rows: Bools) -> Iterator[tuple[str, Bools]]:
        left = rows
        away, gone = np.zeros_like(rows), np.zeros_like(rows)
        for claim in found.bound:
            volume = self.facts.volumes.get(claim.volume)
            if volume is None:
                gone |= left
                left = left & ~gone
            elif volume.affinity is not None:
                reached = np.zeros_like(rows)
                reached[self._rows.rows_of(volume.affinity)] = True
                away |= left & ~reached
                left = left & reached
        yield OUT_OF_REACH, away
        if found.late:
            yield from self._matching.match(found.late).refuse(rows)
        yield VOLUME_GONE, gone

    def _out_of_zone(self, pod: Pod) -> Bools:
        table = self._table
        refused = np.zeros_like(table.alive)
        for volume in claim_rules.zoned(self.facts, pod):
            for label, zones in _zones(volume):
                also = _ZONES[label]
                here = _any_of(table, label, zones)
                there = _any_of(table, also, zones)
                refused |= ~np.where(table.codes(label) != ABSENT, here, there)
        if refused.any():
            # A cluster of one zone may not label its nodes at all.
            refused &= np.logical_or.reduce([table.codes(key) != ABSENT for key in _ZONES])
        return refused


def _zones(volume: PersistentVolume) -> Iterator[tuple[str, list[str]]]:
    """(label, the values it allows); a list with an empty part says nothing."""
    labels = dict(volume.labels)
    for label in _ZONES:
        if label in labels:
            zones = [zone.strip() for zone in labels[label].split(_BETWEEN_ZONES)]
            if all(zones):
                yield label, zones


def _any_of(table: NodeTable, label: str, values: list[str]) -> Bools:
    found: Bools = np.logical_or.reduce([table.labelled(label, value) for value in values])
    return found


def _tally(where: dict[A, dict[B, int]], outer: A, inner: B, change: int) -> None:
    counts = where.setdefault(outer, {})
    _add(counts, inner, change)
    if not counts:
        del where[outer]


def _add(counts: dict[A, int], key: A, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
