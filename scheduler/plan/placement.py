"""
One attempt to place the members of a unit, class by class, on a trial of the snapshot.

    a class of plain pods               nodes are chosen for all of them at once (`node_choice`)
    a class that depends on other pods  one by one: each placement changes the nodes for the next

Nodes that the unit already uses come first, so that it spans few. User preferences come before
packing, but never cost another node. Pods without GPUs avoid GPU hosts while other hosts have
capacity. Ties end in the order of node names.
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

_MAX_PREFERENCE_GRADES: Final = 4  # preference scores that are tried, best first


def dominant(spec: SchedulingSpec, table: NodeTable) -> tuple[str, float]:
    """The resource of which the pod takes the largest share of the cluster; GPUs before others."""
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
    """The input of an attempt. `levels`: topology levels, narrowest first."""

    snapshot: Snapshot
    memo: Memo
    levels: tuple[TopologyLevel, ...] = ()
    closed: Bools | None = None
    """Rows that are held for other units."""
    spread: bool = False
    """Place as kube-scheduler would, on the least used nodes, instead of packing."""

    def candidate_rows(self, spec: SchedulingSpec) -> Bools:
        rows = filters.candidates(self.snapshot, spec, self.memo)
        return rows if self.closed is None else rows & ~self.closed

    def codes(self) -> list[Codes]:
        return self.snapshot.placement_policy.nearness(self.levels)


@dataclass(slots=True)
class PlacementAttempt:
    """One attempt on one trial; `within` bounds it to some rows."""

    context: PlacementContext
    within: Bools | None = None
    outside: str = ""
    """The reason of rows that are not within; empty: there is none to report."""
    placements: list[Placement] = field(default_factory=list)
    unplaced: list[Pod] = field(default_factory=list)
    rows: dict[int, None] = field(default_factory=dict)  # nodes that this unit uses, in order
    remaining: int = 1
    """How many equal pods are still to be placed one by one."""

    def fill(self, members: Sequence[Pod]) -> None:
        """Place as many of these equal pods as possible; the others go to `unplaced`."""
        pod, snapshot = members[0], self.context.snapshot
        done = 0
        if not filters.unresolvable(snapshot, pod):
            rows = self.context.candidate_rows(pod.spec)
            if self.within is not None:
                rows = rows & self.within
            rows = filters.sharing_node(snapshot, pod, rows, len(members))
            if self.context.spread or filters.affects_equal_pods(snapshot, pod):
                done = self._one_by_one(members, rows)
            else:
                if filters.depends_on_pods(snapshot, pod):
                    rows = filters.stateful(snapshot, pod, rows)
                done = self._at_once(members, rows)
        self.unplaced += members[done:]

    def cost(self) -> tuple[int, ...]:
        """The order of attempts: most members placed, fewest nodes, fewest domains by level."""
        rows = list(self.rows)
        spans = (len(np.unique(codes[rows])) if rows else 0 for codes in self.context.codes())
        return (-len(self.placements), len(rows), *spans)

    def no_fit(self) -> NoFit:
        """The reasons of the first unplaced pod, in this attempt."""
        context = self.context
        return filters.explain(
            context.snapshot,
            self.unplaced[0],
            context.memo,
            closed=context.closed,
            outside=self.outside_rows(),
        )

    def outside_rows(self) -> filters.Outside | None:
        """The rows that the attempt may not use, with their reason."""
        return (self.outside, ~self.within) if self.outside and self.within is not None else None

    # --- plain pods ---

    def _at_once(self, members: Sequence[Pod], rows: Bools) -> int:
        pod, done = members[0], 0
        capacity = filters.capacity(self.context.snapshot, pod.spec, rows)
        while done < len(members):
            choice = self._choose(pod, rows, capacity, len(members) - done)
            if choice is None:
                break
            for row in choice.rows:
                most = min(int(capacity[row]), len(members) - done)
                placed = self._place_on(members[done : done + most], row)
                done += placed
                # A host whose NUMA nodes or devices reject one pod takes no more of them.
                capacity[row] = capacity[row] - placed if placed == most else 0
                if placed < most:
                    break
        return done

    def _place_on(self, pods: Sequence[Pod], row: int) -> int:
        """Place pods on one node until its NUMA nodes or devices reject one; returns how many."""
        snapshot = self.context.snapshot
        node = snapshot.table.names[row]
        for done, pod in enumerate(pods):
            chosen = snapshot.choose(pod, node)
            if isinstance(chosen, NumaMisfit):
                return done
            snapshot.place(pod, node, chosen)
            self.placements.append(Placement(pod, node, chosen))
            self.rows[row] = None
        return len(pods)

    def _choose(self, pod: Pod, rows: Bools, capacity: Ints, count: int) -> NodeChoice | None:
        count = min(count, int(capacity.sum()))
        if count == 0:
            return None
        if self.rows and (choice := self._on_used_nodes(capacity, count)) is not None:
            return choice
        pool = self._preferred(pod, rows, capacity, count)
        table = self.context.snapshot.table
        leftover = self._leftover(pod.spec, pool, count)
        return node_choice.choose(
            pool, count, self.context.codes(), leftover=leftover, rank=table.rank
        )

    def _leftover(self, spec: SchedulingSpec, capacity: Ints, count: int) -> Floats:
        """The cost of each row as the one that takes all pods; GPUs are packed by island."""
        snapshot, table = self.context.snapshot, self.context.snapshot.table
        name, _ = dominant(spec, table)
        each = spec.amount(name)
        if name in filters.GPUS:
            islands = snapshot.numa.packing()
            return gpu_packing.costs(
                table, islands, name, gpus_per_pod=each, capacity=capacity, count=count
            )
        free = table.free(name) - float(count * each)  # beyond an int64 on nodes of any size
        leftover: Floats = free / np.maximum(table.allocatable(name), 1)
        return leftover

    def _sparing_islands(self, spec: SchedulingSpec, capacity: Ints, count: int) -> Ints:
        """The capacity of hosts that break no free GPU island, if one of them takes all pods."""
        snapshot = self.context.snapshot
        name, _ = dominant(spec, snapshot.table)
        if name not in filters.GPUS:
            return capacity
        islands = snapshot.numa.packing()
        taken = count * spec.amount(name)
        spares_islands = gpu_packing.keeping_islands(snapshot.table, islands, name, taken)
        spares_islands = spares_islands & (capacity >= count)
        return np.where(spares_islands, capacity, np.int64(0)) if spares_islands.any() else capacity

    def _on_used_nodes(self, capacity: Ints, count: int) -> NodeChoice | None:
        """The nodes in use, if they take all pods or save another node."""
        used = sorted(self.rows, key=lambda row: (int(capacity[row]), row))
        used = [row for row in used if capacity[row] > 0]
        total = int(capacity[used].sum())
        if total < count:
            others = capacity.copy()
            others[used] = 0
            more = node_choice.fewest_nodes(others, count)
            if total == 0 or (more and node_choice.fewest_nodes(others, count - total) >= more):
                return None
        for row in used:  # the tightest that takes all pods, else all of them
            if capacity[row] >= count:
                return NodeChoice((row,), int(capacity[row]) - count)
        return NodeChoice(tuple(reversed(used)), total - count)

    def _preferred(self, pod: Pod, rows: Bools, capacity: Ints, count: int) -> Ints:
        """The capacity to choose from: preferred nodes, then hosts without GPUs, if they suffice.

        No preference breaks a free island of GPUs while another host suffices.
        """
        pool, needed = capacity, node_choice.fewest_nodes(capacity, count)
        preferences = scores.preferences(
            self.context.snapshot, pod, rows & (capacity > 0), self.context.memo
        )
        if preferences is not None:
            if pod.spec.host_request.gpus and needed == 1:
                pool = capacity = self._sparing_islands(pod.spec, capacity, count)
            for least in np.unique(preferences[capacity > 0])[: -_MAX_PREFERENCE_GRADES - 1 : -1]:
                preferred = np.where((capacity > 0) & (preferences >= least), capacity, 0)
                if node_choice.fewest_nodes(preferred, count) == needed:
                    pool = preferred
                    break
        if pod.spec.host_request.gpus == 0:
            hosts: Bools = self.context.snapshot.table.gpu_host
            plain = np.where(hosts, np.int64(0), pool)
            pool = plain if int(plain.sum()) >= count else pool
        return pool

    # --- pods that depend on other pods, and pods that are spread ---

    def _one_by_one(self, members: Sequence[Pod], rows: Bools) -> int:
        for done, pod in enumerate(members):
            self.remaining = len(members) - done
            if not self._place(pod, rows):
                return done
        return len(members)

    def _place(self, pod: Pod, rows: Bools) -> bool:
        context = self.context
        fits = filters.fitting(context.snapshot, pod.spec, rows)
        fits = filters.stateful(context.snapshot, pod, fits)
        while fits.any():
            row = self._best(pod, fits)
            if self._place_on([pod], row):
                return True
            fits[row] = False
        return False

    def _best(self, pod: Pod, fits: Bools) -> int:
        context, table = self.context, self.context.snapshot.table
        if pod.spec.host_request.gpus == 0:
            plain = fits & ~table.gpu_host
            fits = plain if plain.any() else fits
        score = scores.spreading if context.spread else scores.preferences
        points = score(context.snapshot, pod, fits, context.memo)
        rows = np.flatnonzero(fits)
        if points is not None:
            rows = rows[points[rows] == points[rows].max()]
        if not context.spread:
            rows = self._with_lowest_cost(pod, self._near_used_nodes(rows))
            near = np.zeros_like(fits)
            near[rows] = True
            capacity = filters.capacity(context.snapshot, pod.spec, near)
            spare = self._leftover(pod.spec, capacity, 1)[rows]
            rows = rows[spare == spare.min()]
        return int(rows[np.argmin(table.rank[rows])])

    def _with_lowest_cost(self, pod: Pod, rows: Ints) -> Ints:
        """The rows with the lowest packing cost, plugin by plugin."""
        for cost in self.context.snapshot.plugins.packing_cost:
            if len(rows) == 1:
                break
            costs = cost(pod, rows, equal_pods=self.remaining)
            if costs is not None:
                rows = rows[costs == costs.min()]
        return rows

    def _near_used_nodes(self, rows: Ints) -> Ints:
        """The rows that the unit uses, else those in its domains, narrowest first."""
        used = list(self.rows)
        if not used or len(rows) == 1:
            return rows
        is_used = np.zeros(len(self.context.snapshot.table.alive), dtype=np.bool_)
        is_used[used] = True
        used_rows = rows[is_used[rows]]
        if len(used_rows):
            return used_rows
        for codes in self.context.codes():
            in_domain = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.bool_)
            in_domain[codes[used]] = True
            in_domain[0] = False
            same_domain = rows[in_domain[codes[rows]]]
            if len(same_domain):
                return same_domain
        return rows
