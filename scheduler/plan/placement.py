"""
One attempt to place the members of a unit, class by class, on a trial of the snapshot.

    a class of plain pods                 nodes are chosen for all of them at once (`domains`)
    a class that looks at other pods      one after another: each changes where the next may go

Nodes that the unit uses already come first, so that it spans few. What the user prefers comes
before what packs best, but never costs another node. Hosts with GPUs are kept for those who ask
for GPUs while others have room. Every choice among nodes ends in the node's name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.assignment import NumaMisfit
from scheduler.model.plan import NoFit, Placement
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.policy import TopologyLevel
from scheduler.model.resources import PODS
from scheduler.plan import filters, node_choice, scores
from scheduler.plan.memo import Memo
from scheduler.plan.node_choice import Codes, Floats, NodeChoice
from scheduler.plugins.numa import gpu_packing

_MOST_WISHES: Final = 4  # grades of what is preferred that are tried, best first


def dominant(spec: SchedulingSpec, table: NodeTable) -> tuple[str, float]:
    """The resource of which the pod takes the largest part of the cluster; GPUs before others."""
    shares = {
        name: count / max(1, table.total(name)) for name, count in spec.requests if name != PODS
    }
    if not shares:
        return PODS, 0.0
    gpus = {name: share for name, share in shares.items() if name in filters.GPUS}
    pool = gpus or shares
    name = min(pool, key=lambda key: (-pool[key], key))
    return name, pool[name]


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """What an attempt stands on. `levels`: topology levels, narrowest first."""

    snapshot: Snapshot
    memo: Memo
    levels: tuple[TopologyLevel, ...] = ()
    closed: Bools | None = None
    """Rows held for somebody else."""
    spread: bool = False
    """Placed as kube-scheduler would, for room to breathe, rather than packed."""

    def open(self, spec: SchedulingSpec) -> Bools:
        rows = filters.candidates(self.snapshot, spec, self.memo)
        return rows if self.closed is None else rows & ~self.closed

    def codes(self) -> list[Codes]:
        return self.snapshot.placement_policy.nearness(self.levels)


@dataclass(slots=True)
class PlacementAttempt:
    """One attempt on one trial; `within` bounds it to some rows."""

    ground: PlacementContext
    within: Bools | None = None
    outside: str = ""
    """The reason of rows that are not within; empty: they are as good as any."""
    placements: list[Placement] = field(default_factory=list)
    left: list[Pod] = field(default_factory=list)
    rows: dict[int, None] = field(default_factory=dict)  # nodes that this unit uses, in order
    alike: int = 1
    """How many equal pods are still to be placed one by one."""

    def fill(self, members: Sequence[Pod]) -> None:
        """Place as many of these equal pods as possible; the others are left."""
        pod, snapshot = members[0], self.ground.snapshot
        done = 0
        if not filters.unresolvable(snapshot, pod):
            rows = self.ground.open(pod.spec)
            if self.within is not None:
                rows = rows & self.within
            rows = filters.sharing_node(snapshot, pod, rows, len(members))
            if self.ground.spread or filters.affects_equal_pods(snapshot, pod):
                done = self._one_by_one(members, rows)
            else:
                if filters.depends_on_pods(snapshot, pod):
                    rows = filters.stateful(snapshot, pod, rows)
                done = self._at_once(members, rows)
        self.left += members[done:]

    def cost(self) -> tuple[int, ...]:
        """What makes an attempt better than another: members placed, nodes, domains by level."""
        rows = list(self.rows)
        spans = (len(np.unique(codes[rows])) if rows else 0 for codes in self.ground.codes())
        return (-len(self.placements), len(rows), *spans)

    def why(self) -> NoFit:
        """The reasons of the first pod that was left, as things stand in this attempt."""
        ground = self.ground
        return filters.explain(
            ground.snapshot,
            self.left[0],
            ground.memo,
            closed=ground.closed,
            outside=self.bound(),
        )

    def bound(self) -> filters.Outside | None:
        """The rows that the attempt may not use, with their reason."""
        return (self.outside, ~self.within) if self.outside and self.within is not None else None

    # --- plain pods ---

    def _at_once(self, members: Sequence[Pod], rows: Bools) -> int:
        pod, done = members[0], 0
        room = filters.capacity(self.ground.snapshot, pod.spec, rows)
        while done < len(members):
            choice = self._choose(pod, rows, room, len(members) - done)
            if choice is None:
                break
            for row in choice.rows:
                most = min(int(room[row]), len(members) - done)
                placed = self._settle(members[done : done + most], row)
                done += placed
                # A host whose inside refused one takes no more of them.
                room[row] = room[row] - placed if placed == most else 0
                if placed < most:
                    break
        return done

    def _settle(self, pods: Sequence[Pod], row: int) -> int:
        """Place these pods on one node until its inside refuses one; how many were placed."""
        snapshot = self.ground.snapshot
        node = snapshot.table.names[row]
        for done, pod in enumerate(pods):
            chosen = snapshot.choose(pod, node)
            if isinstance(chosen, NumaMisfit):
                return done
            snapshot.place(pod, node, chosen)
            self.placements.append(Placement(pod, node, chosen))
            self.rows[row] = None
        return len(pods)

    def _choose(self, pod: Pod, rows: Bools, room: Ints, wanted: int) -> NodeChoice | None:
        wanted = min(wanted, int(room.sum()))
        if wanted == 0:
            return None
        if self.rows and (mine := self._on_mine(room, wanted)) is not None:
            return mine
        pool = self._preferred(pod, rows, room, wanted)
        table = self.ground.snapshot.table
        leftover = self._leftover(pod.spec, pool, wanted)
        return node_choice.choose(
            pool, wanted, self.ground.codes(), leftover=leftover, rank=table.rank
        )

    def _leftover(self, spec: SchedulingSpec, room: Ints, wanted: int) -> Floats:
        """What speaks against each row as the one that takes all; GPUs are packed by island."""
        snapshot, table = self.ground.snapshot, self.ground.snapshot.table
        name, _ = dominant(spec, table)
        each = spec.amount(name)
        if name in filters.GPUS:
            islands = snapshot.numa.packing()
            return gpu_packing.costs(table, islands, name, each=each, room=room, wanted=wanted)
        free = table.free(name) - wanted * each
        leftover: Floats = free / np.maximum(table.allocatable(name), 1)
        return leftover

    def _sparing(self, spec: SchedulingSpec, room: Ints, wanted: int) -> Ints:
        """The room on hosts whose whole islands stay whole, if one of them takes all."""
        snapshot = self.ground.snapshot
        name, _ = dominant(spec, snapshot.table)
        if name not in filters.GPUS:
            return room
        islands = snapshot.numa.packing()
        taken = wanted * spec.amount(name)
        kept = gpu_packing.sparing(snapshot.table, islands, name, taken) & (room >= wanted)
        return np.where(kept, room, np.int64(0)) if kept.any() else room

    def _on_mine(self, room: Ints, wanted: int) -> NodeChoice | None:
        """The nodes in use, when they hold all or save another node."""
        mine = sorted(self.rows, key=lambda row: (int(room[row]), row))
        mine = [row for row in mine if room[row] > 0]
        held = int(room[mine].sum())
        if held < wanted:
            others = room.copy()
            others[mine] = 0
            more = node_choice.fewest(others, wanted)
            if held == 0 or (more and node_choice.fewest(others, wanted - held) >= more):
                return None
        for row in mine:  # the tightest that holds all, else all of them
            if room[row] >= wanted:
                return NodeChoice((row,), int(room[row]) - wanted)
        return NodeChoice(tuple(reversed(mine)), held - wanted)

    def _preferred(self, pod: Pod, rows: Bools, room: Ints, wanted: int) -> Ints:
        """The room to choose from: what is preferred, then hosts without GPUs, if they suffice.

        No preference breaks an island of GPUs that is whole while another host will do.
        """
        pool, needed = room, node_choice.fewest(room, wanted)
        wishes = scores.preferences(self.ground.snapshot, pod, rows & (room > 0), self.ground.memo)
        if wishes is not None:
            if pod.spec.host_request.gpus and needed == 1:
                pool = room = self._sparing(pod.spec, room, wanted)
            for least in np.unique(wishes[room > 0])[: -_MOST_WISHES - 1 : -1]:
                liked = np.where((room > 0) & (wishes >= least), room, 0)
                if node_choice.fewest(liked, wanted) == needed:
                    pool = liked
                    break
        if pod.spec.host_request.gpus == 0:
            hosts: Bools = self.ground.snapshot.table.gpu_host
            plain = np.where(hosts, np.int64(0), pool)
            pool = plain if int(plain.sum()) >= wanted else pool
        return pool

    # --- pods that look at others, and pods that are spread ---

    def _one_by_one(self, members: Sequence[Pod], rows: Bools) -> int:
        for done, pod in enumerate(members):
            self.alike = len(members) - done
            if not self._place(pod, rows):
                return done
        return len(members)

    def _place(self, pod: Pod, rows: Bools) -> bool:
        ground = self.ground
        fits = filters.fitting(ground.snapshot, pod.spec, rows)
        fits = filters.stateful(ground.snapshot, pod, fits)
        while fits.any():
            row = self._best(pod, fits)
            if self._settle([pod], row):
                return True
            fits[row] = False
        return False

    def _best(self, pod: Pod, fits: Bools) -> int:
        ground, table = self.ground, self.ground.snapshot.table
        if pod.spec.host_request.gpus == 0:
            plain = fits & ~table.gpu_host
            fits = plain if plain.any() else fits
        score = scores.spreading if ground.spread else scores.preferences
        found = score(ground.snapshot, pod, fits, ground.memo)
        rows = np.flatnonzero(fits)
        if found is not None:
            rows = rows[found[rows] == found[rows].max()]
        if not ground.spread:
            rows = self._suiting(pod, self._near(rows))
            near = np.zeros_like(fits)
            near[rows] = True
            room = filters.capacity(ground.snapshot, pod.spec, near)
            spare = self._leftover(pod.spec, room, 1)[rows]
            rows = rows[spare == spare.min()]
        return int(rows[np.argmin(table.rank[rows])])

    def _suiting(self, pod: Pod, rows: Ints) -> Ints:
        """Of these rows those with the lowest packing cost, plugin by plugin."""
        for cost in self.ground.snapshot.plugins.packing_cost:
            if len(rows) == 1:
                break
            costs = cost(pod, rows, equal_pods=self.alike)
            if costs is not None:
                rows = rows[costs == costs.min()]
        return rows

    def _near(self, rows: Ints) -> Ints:
        """Of these rows those that the unit uses, else those in its domains, narrowest first."""
        mine = list(self.rows)
        if not mine or len(rows) == 1:
            return rows
        ours = np.zeros(len(self.ground.snapshot.table.alive), dtype=np.bool_)
        ours[mine] = True
        used = rows[ours[rows]]
        if len(used):
            return used
        for codes in self.ground.codes():
            held = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.bool_)
            held[codes[mine]] = True
            held[0] = False
            same = rows[held[codes[rows]]]
            if len(same):
                return same
        return rows
