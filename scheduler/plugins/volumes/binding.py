"""
Which volume a late claim gets on which node, and where one could be made: for all nodes at once.

    a node was selected for the claim        that node alone, and the volume is made there
    a volume names the claim already         the nodes that reach the volume
    volumes of the class are available       on each node the smallest that fits and is reached
    none on this node                        the class must be able to make one there

Claims of one pod are served smallest first, and no volume serves two of them. What was promised to
pods that are placed and not bound yet (`AssumedVolumes`) counts as if the API said so already: a
volume is not given twice, and pods that share a claim follow the first of them.

Pure: same facts, same promises, same nodes, same choice. Among equal volumes the first name wins.
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
    ClaimKey,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeOwnerRef,
)
from scheduler.plugins.volumes.store import VolumeStore

NOTHING_TO_BIND: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"

_FITS, _NOTHING, _SHORT = 0, 1, 2  # what becomes of a row
_NO_VOLUME: Final = -1

Holder = tuple[str, int]  # uid of the pod, row
Picks = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class VolumeDecision:
    """What becomes of a pod's late claims on its node."""

    given: tuple[tuple[ClaimKey, str], ...] = ()
    """Claims with the volumes they get."""
    made: tuple[ClaimKey, ...] = ()
    """Claims for which a volume is made."""
    lacking: tuple[ClaimKey, ...] = ()
    """Claims for which there is nothing on this node: the pod cannot be bound there."""

    def __bool__(self) -> bool:
        return bool(self.given or self.made or self.lacking)


NOTHING: Final = VolumeDecision()


@dataclass(slots=True)
class AssumedVolumes:
    """What placed pods were promised; each promise is held by those who share it."""

    nodes: dict[ClaimKey, dict[Holder, str]] = field(default_factory=dict)
    volumes: dict[ClaimKey, dict[Holder, str]] = field(default_factory=dict)
    version: int = 0
    _takers: dict[str, set[ClaimKey]] = field(default_factory=dict)  # volume -> claims

    def make(self, holder: Holder, node: str, decision: VolumeDecision) -> None:
        for key in decision.made:
            self.nodes.setdefault(key, {})[holder] = node
        for key, volume in decision.given:
            self.volumes.setdefault(key, {})[holder] = volume
            self._takers.setdefault(volume, set()).add(key)
        self.version += 1

    def take_back(self, holder: Holder, decision: VolumeDecision) -> None:
        for key in decision.made:
            _discard(self.nodes, key, holder)
        for key, volume in decision.given:
            _discard(self.volumes, key, holder)
            if volume not in self.volumes.get(key, {}).values():
                takers = self._takers[volume]
                takers.discard(key)
                if not takers:
                    del self._takers[volume]
        self.version += 1

    def node_for(self, claim: PersistentVolumeClaim) -> str | None:
        return next(iter(self.nodes.get(claim.key, {}).values()), None)

    def owner_of(self, volume: PersistentVolume, facts: VolumeStore) -> VolumeOwnerRef | None:
        """The claim it belongs to or will; a promise to a claim that is bound by now is over."""
        if volume.claim is not None:
            return volume.claim
        for key in self._takers.get(volume.name, ()):
            claim = facts.claims.get(key)
            if claim is not None and not claim.bound:
                return VolumeOwnerRef(key, claim.uid)
        return None


def _discard(where: dict[ClaimKey, dict[Holder, str]], key: ClaimKey, holder: Holder) -> None:
    holders = where[key]
    del holders[holder]
    if not holders:
        del where[key]


@dataclass(frozen=True, slots=True)
class RowMatches:
    """What becomes of late claims on every row."""

    verdict: NDArray[np.int8]
    made: tuple[PersistentVolumeClaim, ...]
    """Claims that a node was selected for."""
    matched: tuple[PersistentVolumeClaim, ...]
    """Claims that a volume was looked for, smallest first."""
    picks: tuple[Picks, ...]
    """For each of them the number of the volume on every row."""
    volumes: tuple[PersistentVolume, ...]

    def refuse(self, rows: Bools) -> Iterator[tuple[str, Bools]]:
        yield NOTHING_TO_BIND, rows & (self.verdict == _NOTHING)
        yield NO_SPACE, rows & (self.verdict == _SHORT)

    def at(self, row: int) -> VolumeDecision:
        given, made = [], [claim.key for claim in self.made]
        for claim, picks in zip(self.matched, self.picks, strict=True):
            if picks[row] == _NO_VOLUME:
                made.append(claim.key)
            else:
                given.append((claim.key, self.volumes[picks[row]].name))
        if self.verdict[row] != _FITS:
            return VolumeDecision(
                given=tuple(given), lacking=tuple(made) or tuple(k for k, _ in given)
            )
        return VolumeDecision(tuple(given), tuple(made))


class VolumeBinding:
    """Answers for the late claims of one pod at a time; the last answer is kept."""

    def __init__(
        self, table: NodeTable, facts: VolumeStore, rows: LabelIndex, promises: AssumedVolumes
    ) -> None:
        self._table, self._facts, self._rows, self._promises = table, facts, rows, promises
        self._key: tuple[object, ...] = ()
        self._last: RowMatches | None = None

    def match(self, claims: Sequence[PersistentVolumeClaim]) -> RowMatches:
        moment = (self._facts.version, self._promises.version, self._table.statics)
        key = (*moment, tuple(claim.key for claim in claims))
        if self._last is None or self._key != key:
            self._key, self._last = key, self._match(claims)
        return self._last

    def _match(self, claims: Sequence[PersistentVolumeClaim]) -> RowMatches:
        verdict = np.zeros(len(self._table.alive), dtype=np.int8)
        made, wanted = [], []
        for claim in claims:
            node = self._selected(claim)
            if node is None:
                wanted.append(claim)
                continue
            made.append(claim)
            elsewhere = np.ones(len(verdict), dtype=np.bool_)
            if (row := self._table.rows.get(node)) is not None:
                elsewhere[row] = False
            verdict[elsewhere] = _NOTHING
        wanted.sort(key=lambda claim: claim.size or 0)
        volumes, picks = self._pick(wanted)
        everywhere = np.ones(len(verdict), dtype=np.bool_)
        for claim in made:
            self._provide(claim, everywhere, verdict)
        for claim, pick in zip(wanted, picks, strict=True):
            self._provide(claim, pick == _NO_VOLUME, verdict)
        return RowMatches(verdict, tuple(made), tuple(wanted), tuple(picks), tuple(volumes))

    def _selected(self, claim: PersistentVolumeClaim) -> str | None:
        return claim.selected if claim.selected is not None else self._promises.node_for(claim)

    # --- volumes that are there ---

    def _pick(
        self, claims: Sequence[PersistentVolumeClaim]
    ) -> tuple[list[PersistentVolume], list[Picks]]:
        """For each claim the number of its volume on every row; numbers index the list."""
        numbers: dict[str, int] = {}
        volumes: list[PersistentVolume] = []
        picks: list[Picks] = []
        for claim in claims:
            found = self._candidates(claim)
            for volume in found:
                if volume.name not in numbers:
                    numbers[volume.name] = len(volumes)
                    volumes.append(volume)
            best = self._best(found, numbers, depth=len(picks) + 1)
            pick: Picks = np.full(best.shape[1], _NO_VOLUME, dtype=np.int32)
            for layer in best:
                free = (pick == _NO_VOLUME) & (layer != _NO_VOLUME)
                for other in picks:
                    free &= layer != other
                pick[free] = layer[free]
            picks.append(pick)
        return volumes, picks

    def _best(
        self, found: Sequence[PersistentVolume], numbers: dict[str, int], *, depth: int
    ) -> Picks:
        """On every row the `depth` first volumes of the list that are reached from there."""
        best: Picks = np.full((depth, len(self._table.alive)), _NO_VOLUME, dtype=np.int32)
        for volume in reversed(found):
            reached = (
                slice(None) if volume.affinity is None else self._rows.rows_of(volume.affinity)
            )
            if depth > 1:
                best[1:, reached] = best[:-1, reached]
            best[0, reached] = numbers[volume.name]
        return best

    def _candidates(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Smallest first; where one names the claim already, that one alone."""
        found = []
        for volume in self._facts.of_class.get(claim.class_name, {}).values():
            owner = self._promises.owner_of(volume, self._facts)
            if (owner is None or owner.means(claim)) and _suits(volume, claim):
                if owner is not None:
                    return [volume]
                if _available(volume, claim):
                    found.append(volume)
        found.sort(key=lambda volume: (volume.size, volume.name))
        return found

    # --- volumes to be made ---

    def _provide(
        self, claim: PersistentVolumeClaim, needed: Bools, verdict: NDArray[np.int8]
    ) -> None:
        """Where a volume must be made, say whether it can; a row's first refusal stays."""
        found = self._facts.classes.get(claim.class_name)
        if found is None or not found.makes_volumes:
            verdict[needed & (verdict == _FITS)] = _NOTHING
            return
        if found.topologies:
            outside = ~self._rows.any_of(found.topologies)
            verdict[needed & outside & (verdict == _FITS)] = _NOTHING
        if (room := self._roomy(claim, found)) is not None:
            verdict[needed & ~room & (verdict == _FITS)] = _SHORT

    def _roomy(self, claim: PersistentVolumeClaim, found: StorageClass) -> Bools | None:
        """The rows where the driver says that it has room; None: it does not say."""
        driver = self._facts.drivers.get(found.provisioner)
        if claim.size is None or driver is None or not driver.tells_capacity:
            return None
        room = np.zeros_like(self._table.alive)
        for capacity in self._facts.capacities.get(found.name, {}).values():
            enough = capacity.largest is not None and capacity.largest >= claim.size
            if enough and capacity.nodes is not None:
                room |= self._rows.all_of(capacity.nodes)
        return room


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.size >= (claim.size or 0)
        and volume.volume_mode == claim.volume_mode
        and volume.attributes == claim.attributes
        and not volume.deleting
    )


def _available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.phase == "Available"
        and (claim.selector is None or selects(claim.selector, dict(volume.labels)))
        and set(claim.modes) <= set(volume.modes)
    )
