"""
Groups of GPUs inside a host, and the choice of GPUs for a pod.

    level      GPUs of one group
    island     reach each other over NVLink
    switch     are on one PCIe switch
    NUMA node  are beside the same CPUs

A level that no GPU of the host reports does not exist there. `pick` takes all GPUs from one group
of the first level that has such a group, otherwise from the fewest groups. Among groups that
suffice, the harm to the group decides:

    0  fills up a group that is in use                     nothing is left of it
    1  takes a whole unused group                          nothing is left of it
    2  takes a part of a group that is in use
    3  breaks an unused group                              the last resort

then the group with the fewest GPUs left, then the lowest indices. `floating` GPUs, whose indices
are unknown, may be in any group, so each group counts them against itself.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from policies.hosts.topology import Gpu

Key = str | int
Members = tuple[int, ...]

BREAKS: Final = 3
SEVERAL: Final = 3


@dataclass(frozen=True, slots=True)
class IslandLevel:
    """A partition of the host's GPUs; `level` 0 island, 1 switch, 2 NUMA node."""

    level: int
    group: Mapping[int, Key]  # GPU index -> its group
    size: Mapping[Key, int]  # group -> its GPUs, free or not


class GpuPick(NamedTuple):
    """GPUs by index, and what taking them costs; the smaller the better."""

    level: int
    """The level of which one group sufficed; `SEVERAL` when none did."""
    groups: int
    harm: int
    left: int
    """Free GPUs that stay behind in the group."""
    indices: Members


class PickCost(NamedTuple):
    """The cost of a pick before its indices are known: `finer` levels choose among `pool`."""

    level: int
    harm: int
    left: int
    pool: Members
    finer: Sequence[IslandLevel]


NOTHING: Final = PickCost(0, 0, 0, (), ())
NONE_PICKED: Final = GpuPick(0, 0, 0, 0, ())


@lru_cache(maxsize=512)
def levels_of(gpus: tuple[Gpu, ...]) -> tuple[IslandLevel, ...]:
    """The levels that the host reports; a GPU in no group is a group of its own."""
    levels: list[IslandLevel] = []
    names_by_level: tuple[Mapping[int, Key | None], ...] = (
        {gpu.index: gpu.island or None for gpu in gpus},
        {gpu.index: gpu.switch or None for gpu in gpus},
        {gpu.index: gpu.zone for gpu in gpus},
    )
    for level, names in enumerate(names_by_level):
        if all(name is None for name in names.values()):
            continue
        group = {index: -1 - index if name is None else name for index, name in names.items()}
        size: dict[Key, int] = {}
        for key in group.values():
            size[key] = size.get(key, 0) + 1
        levels.append(IslandLevel(level, group, size))
    return tuple(levels)


def pick(
    levels: Sequence[IslandLevel],
    count: int,
    *,
    usable: Sequence[int],
    free: Collection[int],
    floating: int = 0,
) -> GpuPick | None:
    """The best `count` of the usable GPUs; `free` are all that no pod uses. None: too few."""
    cost = pick_cost(levels, count, usable=usable, free=free, floating=floating)
    return None if cost is None else finish_pick(levels, cost, count, free)


def pick_cost(
    levels: Sequence[IslandLevel],
    count: int,
    *,
    usable: Sequence[int],
    free: Collection[int],
    floating: int = 0,
) -> PickCost | None:
    """As `pick`, without the indices; `usable` in rising order."""
    if count == 0:
        return NOTHING
    if len(usable) - floating < count:
        return None
    pool = tuple(usable)
    for place, level in enumerate(levels):
        best = _best(level, pool, free, count, floating)
        if best is not None:
            harm, left, members = best
            return PickCost(level.level, harm, left, members, levels[place + 1 :])
    return PickCost(SEVERAL, 0, len(pool) - count, pool, levels)


def finish_pick(
    levels: Sequence[IslandLevel], cost: PickCost, count: int, free: Collection[int]
) -> GpuPick:
    """The pick of this cost, with its indices."""
    if count == 0:
        return NONE_PICKED
    indices = _narrow(cost.finer, cost.pool, free, count)
    groups = 1
    if cost.level == SEVERAL and levels:
        groups = len({levels[0].group[index] for index in indices})
    return GpuPick(cost.level, groups, cost.harm, cost.left, indices)


def _best(
    level: IslandLevel, pool: Members, free: Collection[int], count: int, floating: int
) -> tuple[int, int, Members] | None:
    """(harm, left, usable members) of the best group that holds the count by itself."""
    able = {
        key: members
        for key, members in _groups(level, pool).items()
        if len(members) - floating >= count
    }
    if not able:
        return None
    group, here = level.group, dict.fromkeys(able, 0)
    for index in free:
        if (key := group[index]) in here:
            here[key] += 1
    return min((*_harm(level.size[key], here[key], count), able[key]) for key in able)


def _groups(level: IslandLevel, pool: Members) -> dict[Key, Members]:
    group = level.group
    first = group[pool[0]]
    if group[pool[-1]] == first and all(group[index] == first for index in pool):
        return {first: pool}
    groups: dict[Key, list[int]] = {}
    for index in pool:
        groups.setdefault(group[index], []).append(index)
    return {key: tuple(members) for key, members in groups.items()}


def _harm(size: int, here: int, count: int) -> tuple[int, int]:
    """(harm, left) of taking so many of the `here` free GPUs of a group."""
    untouched, left = here == size, here - count
    if left == 0:
        return (1 if untouched else 0), 0
    return (BREAKS if untouched else 2), left


def _narrow(
    levels: Sequence[IslandLevel], pool: Members, free: Collection[int], count: int
) -> Members:
    """The best of the pool, which holds enough: whole groups first, the rest from one group."""
    if not levels or len(pool) == count:
        return pool[:count]
    level, finer = levels[0], levels[1:]
    if len(_groups(level, pool)) == 1:
        return _narrow(finer, pool, free, count)
    taken: list[int] = []
    while len(taken) < count:
        wanted = count - len(taken)
        best = _best(level, pool, free, wanted, 0)
        if best is not None:
            taken += _narrow(finer, best[2], free, wanted)
            break
        largest = min(_groups(level, pool).values(), key=lambda members: (-len(members), members))
        taken += largest
        pool = tuple(index for index in pool if index not in largest)
    return tuple(sorted(taken))
