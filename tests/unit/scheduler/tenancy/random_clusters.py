"""
Random clusters and what is to happen on them: values, and how they are drawn.

    Wish     a unit that comes: whose, how many, how much, how long it says, how long it runs
    World    nodes, quotas, and steps: time that passes, and then something happens
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from cluster import errors
from policies.documents.tenancy import Backfill, Quota, Sharing
from policies.engine.policyset import PolicyTables as PolicyTables
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.fake_api import Lost

GPU = "nvidia.com/gpu"
GROUP = "g"
GROUPED = ("a", "b")
"""Tenants of the group, where there is one."""
TENANTS = (*GROUPED, "c")
EVERYBODY = (*TENANTS, GROUP)
GANG_TIMEOUT = 10.0 + 0.05 * 3
"""Of the largest gang here."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A unit that comes: `size` 0 is a single pod; times None are said by nobody, and for ever."""

    tenant: str = "a"
    size: int = 0
    more: int = 0
    """Members above what the gang needs."""
    gpus: int = 1
    priority: int = 0
    preemptible: bool = False
    says: int | None = None
    lasts: int | None = None

    @property
    def members(self) -> int:
        return self.size + self.more if self.size else 1

    @property
    def least(self) -> int:
        """GPUs without which none of it runs."""
        return max(1, self.size) * self.gpus


@dataclass(frozen=True, slots=True)
class Come:
    wish: Wish


@dataclass(frozen=True, slots=True)
class End:
    """A pod that has a node ends by itself; the number says which."""

    which: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """A unit that waits is taken back; the number says which."""

    which: int


@dataclass(frozen=True, slots=True)
class Lose:
    """A node goes, and its pods with it."""

    which: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Another scheduler takes over while this unit is looked after, after so many turns of the
    event loop; it knows nothing but the API."""

    wish: Wish
    turns: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The next binds are answered so."""

    faults: tuple[int, ...]


BIND_FAULTS: tuple[type[Exception] | None, ...] = (None, Lost, errors.Retry, errors.Refused)
What = Come | End | Cancel | Lose | Fail | Restart
Step = tuple[int, What]
"""Seconds that pass, and what happens then."""


@dataclass(frozen=True, slots=True)
class World:
    nodes: tuple[int, ...]
    """GPUs of each."""
    steps: tuple[Step, ...]
    limits: dict[str, int] = field(default_factory=dict)
    promises: dict[str, int] = field(default_factory=dict)
    """By tenant, or for the group."""
    grouped: bool = False
    grace: int = 0
    overrun: str = "move"

    def whose(self, member: str) -> tuple[str, ...]:
        """The tenants whose use counts for this one."""
        return GROUPED if member == GROUP else (member,)

    def path(self, tenant: str) -> tuple[str, ...]:
        return (tenant, GROUP) if self.grouped and tenant in GROUPED else (tenant,)

    def quota(self, name: str) -> dict[str, dict[str, int]]:
        limit, promise = self.limits.get(name), self.promises.get(name)
        found = {} if limit is None else {"max": {GPU: limit}}
        if promise is not None:
            found["guaranteed"] = {GPU: promise if limit is None else min(promise, limit)}
        return found

    def promised(self, name: str) -> int:
        return self.quota(name).get("guaranteed", {}).get(GPU, 0)

    def tables(self) -> PlacementTables:
        names: list[dict[str, Any]] = []
        if self.grouped:
            names = [{"name": name, "parent": GROUP} for name in GROUPED]
            names.append({"name": GROUP, "quota": self.quota(GROUP)})
        quotas = {name: Quota.model_validate(self.quota(name)) for name in TENANTS}
        sharing = Sharing.model_validate({"tenants": names})
        backfill = Backfill.model_validate({"overrun": self.overrun})
        said = PolicyTables({}, {}, {}, (), sharing=sharing, quotas=quotas, backfill=backfill)
        return PlacementTables(policy=said)


def unit_of(pod: str) -> str:
    return pod.partition("-")[0]


# --- drawing ---


def examples(number: int) -> int:
    """So many, or as many as the environment asks for in a long run by hand."""
    return int(os.environ.get("HISTORIES", number))


durations = st.sampled_from((None, 20, 60, 200))


def wishes(**fixed: Any) -> st.SearchStrategy[Wish]:
    drawn: dict[str, Any] = {
        "tenant": st.sampled_from(TENANTS),
        "size": st.sampled_from((0, 0, 2, 3)),
        "more": st.sampled_from((0, 0, 1)),
        "gpus": st.integers(1, 3),
        "priority": st.sampled_from((0, 0, 5, 10)),
        "preemptible": st.booleans(),
        "says": durations,
    }
    return st.builds(Wish, **{**drawn, **fixed})


def steps(others: Iterable[st.SearchStrategy[Any]], *, most: int) -> st.SearchStrategy[Any]:
    """So many units come at most, and half as many at the least; now and then something else."""
    seconds = st.sampled_from((0, 1, 1, 3, 40))
    come = st.tuples(seconds, comes)
    other = st.none() | st.tuples(seconds, st.one_of(*others))
    drawn = st.lists(st.tuples(come, other), min_size=most // 2, max_size=most)
    return drawn.map(lambda rows: tuple(one for row in rows for one in row if one is not None))


def worlds(*others: st.SearchStrategy[Any], most: int = 8, **fixed: Any) -> Any:
    drawn: dict[str, Any] = {
        "nodes": st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple),
        "steps": steps(others, most=most),
        "limits": st.dictionaries(st.sampled_from(EVERYBODY), st.integers(2, 8), max_size=2),
        "promises": st.dictionaries(
            st.sampled_from(EVERYBODY), st.integers(1, 6), min_size=1, max_size=3
        ),
        "grouped": st.booleans(),
        "grace": st.sampled_from((0, 5)),
    }
    return st.builds(World, **{**drawn, **fixed})


comes = st.builds(Come, wishes())
ends = st.builds(End, st.integers(0, 20))
cancels = st.builds(Cancel, st.integers(0, 20))
loses = st.builds(Lose, st.integers(0, 20))
restarts = st.builds(Restart, wishes(), st.integers(0, 30))
fails = st.builds(
    Fail, st.lists(st.integers(0, len(BIND_FAULTS) - 1), min_size=1, max_size=4).map(tuple)
)
