"""
Deciding where a unit goes. Pure: same unit, same snapshot, same plan; no clock, no I/O.

    1. a forming gang is not planned; a pod that asks in vain is refused
    2. members of equal shape form a class; the leader's class first, then the most demanding
    3. each class fills nodes: one that holds all that is left, the tightest such; else the one
       that holds most of it. Nodes the gang already uses come first, so that it spans few nodes
    4. at least `need` members placed: `Placed`, the others follow if they fit; else the classes
       are tried once in the opposite order, and then it is `NoFit`
    5. whatever was placed on the snapshot is taken back: the caller assumes a plan, not planning

Hosts with GPUs are kept for pods that ask for GPUs while others have room. Every choice among
nodes ends in the node's name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from . import filters
from .columns import Bools, Columns, Ints
from .filters import Memo
from .hardware.choice import Misfit
from .model import PODS, Pod, Shape
from .outcome import GangCount, NoFit, Placed, Placement, Plan
from .snapshot import Snapshot
from .units import Unit, forming_count

__all__ = ["Memo", "helps", "plan"]


def plan(unit: Unit, snapshot: Snapshot, *, memo: Memo | None = None) -> Plan:
    """Nodes for the unit, or why there are none. The snapshot is left as it was."""
    if unit.forming:
        return NoFit(len(snapshot), gang=forming_count(unit), forming=True)
    memo = memo or Memo()
    key = (tuple(pod.shape for pod in unit.pods), unit.need if unit.is_gang else 0)
    # Between two changes that free something, what did not fit does not fit.
    moment = (snapshot.freed, len(snapshot))
    known = memo.misfits.get(key)
    if known is not None and known[0] == moment:
        return _for_gang(known[1], unit)
    found = _plan(unit, snapshot, memo)
    if isinstance(found, NoFit):
        memo.remember(memo.misfits, key, (moment, found))
        return _for_gang(found, unit)
    return found


def helps(shape: Shape, snapshot: Snapshot, node: str, memo: Memo) -> bool:
    """Whether a change on this node may help a unit with such a pod: it would fit there now."""
    return filters.fits_now(snapshot, shape, node, memo)


def _plan(unit: Unit, snapshot: Snapshot, memo: Memo) -> Placed | NoFit:
    classes = _classes(unit.pods, snapshot)
    orders = [classes] if len(classes) == 1 else [classes, classes[::-1]]
    best: NoFit | None = None
    for order in orders:
        with snapshot.trial():
            filling = _Filling(snapshot, memo)
            for members in order:
                filling.fill(members)
            if len(filling.placements) >= unit.need:
                return filling.placed()
            found = filling.misfit()
        if best is None or _have(found) > _have(best):
            best = found
    return best or NoFit(len(snapshot))


def _have(found: NoFit) -> int:
    return found.gang.have if found.gang else 0


def _for_gang(found: NoFit, unit: Unit) -> NoFit:
    """Counted for this gang: an equal one that did not fit may have another name."""
    if not unit.is_gang or unit.bound >= unit.size:
        return replace(found, gang=None)
    have = unit.bound + _have(found)
    return replace(found, gang=GangCount(unit.key.name, have, unit.size, "members fit"))


def _classes(pods: Sequence[Pod], snapshot: Snapshot) -> list[list[Pod]]:
    """Members of one shape and role together; leaders first, then by what they demand."""
    groups: dict[tuple[bool, Shape], list[Pod]] = {}
    for pod in pods:
        groups.setdefault((not (pod.gang and pod.gang.leader), pod.shape), []).append(pod)
    if len(groups) == 1:
        return list(groups.values())
    demand = {shape: _demand(shape, snapshot.columns) for _, shape in groups}
    return [
        groups[key] for key in sorted(groups, key=lambda k: (k[0], -demand[k[1]], groups[k][0].uid))
    ]


def _dominant(shape: Shape, columns: Columns) -> tuple[str, float]:
    """The resource of which the pod takes the largest part of the cluster; GPUs before others."""
    shares = {
        name: count / max(1, int(columns.allocatable(name).sum()))
        for name, count in shape.requests
        if name != PODS
    }
    if not shares:
        return PODS, 0.0
    gpus = {name: share for name, share in shares.items() if name in filters.GPUS}
    pool = gpus or shares
    name = min(pool, key=lambda key: (-pool[key], key))
    return name, pool[name]


def _demand(shape: Shape, columns: Columns) -> float:
    name, share = _dominant(shape, columns)
    return share + (1 if name in filters.GPUS else 0)


@dataclass(slots=True)
class _Filling:
    """One attempt on one trial."""

    snapshot: Snapshot
    memo: Memo
    placements: list[Placement] = field(default_factory=list)
    left: list[Pod] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)  # nodes that this unit uses

    def fill(self, members: Sequence[Pod]) -> None:
        """Place as many of these equal pods as possible; the others are left."""
        shape = members[0].shape
        done = 0
        if not shape.refusals:
            open_rows = filters.candidates(self.snapshot, shape, self.memo)
            room = filters.capacity(self.snapshot, shape, open_rows, len(members))
            dominant, _ = _dominant(shape, self.snapshot.columns)
            while done < len(members):
                row = self._pick(shape, dominant, room, len(members) - done)
                if row is None:
                    break
                most = min(int(room[row]), len(members) - done)
                done += self._settle(members[done : done + most], row)
                room[row] = 0
        self.left += members[done:]

    def _settle(self, pods: Sequence[Pod], row: int) -> int:
        """Place these pods on one node until its inside refuses one; how many were placed."""
        node = self.snapshot.columns.names[row]
        for done, pod in enumerate(pods):
            chosen = self.snapshot.choose(pod, node)
            if isinstance(chosen, Misfit):
                return done
            self.snapshot.place(pod, node, chosen)
            self.placements.append(Placement(pod, node, chosen))
            self.rows.add(row)
        return len(pods)

    def _pick(self, shape: Shape, dominant: str, room: Ints, wanted: int) -> int | None:
        """The tightest node that holds all that is wanted, else one that holds most of it."""
        pool = self._pool(shape, room, wanted)
        most = int(pool.max(initial=0))
        if most == 0:
            return None
        rows = np.flatnonzero(pool >= min(most, wanted))
        if len(rows) == 1:
            return int(rows[0])
        columns = self.snapshot.columns
        free = columns.free(dominant)[rows] - min(most, wanted) * shape.amount(dominant)
        leftover = free / np.maximum(columns.allocatable(dominant)[rows], 1)
        rows = rows[leftover == leftover.min()]
        return int(rows[np.argmin(columns.rank[rows])])

    def _pool(self, shape: Shape, room: Ints, wanted: int) -> Ints:
        """The rows to choose among: those in use if they suffice, then hosts without GPUs."""
        if self.rows:
            used = np.zeros_like(room)
            mine = sorted(self.rows)
            used[mine] = room[mine]
            if used.max(initial=0) >= wanted:
                return used
        if shape.ask.gpus == 0:
            hosts: Bools = self.snapshot.columns.gpu_host
            plain = np.where(hosts, np.int64(0), room)
            if int(plain.sum()) >= wanted:
                return plain
        return room

    def placed(self) -> Placed:
        """The gang itself waits for nothing: who is left is told about nodes alone."""
        why = self._why() if self.left else None
        return Placed(tuple(self.placements), tuple(self.left), why)

    def misfit(self) -> NoFit:
        return replace(self._why(), gang=GangCount("", len(self.placements), 0, ""))

    def _why(self) -> NoFit:
        """The reasons of the first pod that was left, as things stand in this attempt."""
        return filters.explain(self.snapshot, self.left[0], self.memo)
