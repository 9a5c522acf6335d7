"""
Random clusters and the actions on them: values, and how they are drawn.

    Workload   a unit: tenant, members, requests, expected duration, run time
    Scenario   nodes, quotas, and steps: seconds that pass, and then an action
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
from tests.unit.scheduler.fake_api import LostResponse

GPU = "nvidia.com/gpu"
GROUP = "g"
GROUPED = ("a", "b")
"""Tenants of the group, in scenarios with a group."""
TENANTS = (*GROUPED, "c")
MEMBERS = (*TENANTS, GROUP)
GANG_TIMEOUT = 10.0 + 0.05 * 3
"""Of the largest gang here."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`size` 0 is a single pod; no expected duration: not stated, no run time: for ever."""

    tenant: str = "a"
    size: int = 0
    more: int = 0
    """Members above the minimum."""
    gpus: int = 1
    priority: int = 0
    preemptible: bool = False
    expected_duration: int | None = None
    run_time: int | None = None

    @property
    def members(self) -> int:
        return self.size + self.more if self.size else 1

    @property
    def minimum(self) -> int:
        """GPUs of the minimum."""
        return max(1, self.size) * self.gpus


@dataclass(frozen=True, slots=True)
class Create:
    workload: Workload


@dataclass(frozen=True, slots=True)
class End:
    """A running pod ends; the number selects it."""

    which: int


@dataclass(frozen=True, slots=True)
class Delete:
    """A pending unit is deleted; the number selects it."""

    which: int


@dataclass(frozen=True, slots=True)
class LoseNode:
    """A node is deleted, with its pods."""

    which: int


@dataclass(frozen=True, slots=True)
class Restart:
    """A successor takes over while this unit is scheduled, after so many turns of the event loop;
    it knows nothing but the API."""

    workload: Workload
    turns: int


@dataclass(frozen=True, slots=True)
class FailBinds:
    """The next binds fail so."""

    faults: tuple[int, ...]


BIND_FAULTS: tuple[type[Exception] | None, ...] = (None, LostResponse, errors.Retry, errors.Refused)
Action = Create | End | Delete | LoseNode | FailBinds | Restart
Step = tuple[int, Action]
"""Seconds that pass, and the action then."""


@dataclass(frozen=True, slots=True)
class Scenario:
    nodes: tuple[int, ...]
    """GPUs of each."""
    steps: tuple[Step, ...]
    limits: dict[str, int] = field(default_factory=dict)
    guarantees: dict[str, int] = field(default_factory=dict)
    """By tenant, or for the group."""
    grouped: bool = False
    grace: int = 0
    overrun: str = "move"

    def tenants_of(self, member: str) -> tuple[str, ...]:
        """The tenants whose usage counts for this member."""
        return GROUPED if member == GROUP else (member,)

    def path(self, tenant: str) -> tuple[str, ...]:
        return (tenant, GROUP) if self.grouped and tenant in GROUPED else (tenant,)

    def quota(self, name: str) -> dict[str, dict[str, int]]:
        limit, guarantee = self.limits.get(name), self.guarantees.get(name)
        found = {} if limit is None else {"max": {GPU: limit}}
        if guarantee is not None:
            found["guaranteed"] = {GPU: guarantee if limit is None else min(guarantee, limit)}
        return found

    def guaranteed(self, name: str) -> int:
        return self.quota(name).get("guaranteed", {}).get(GPU, 0)

    def tables(self) -> PlacementTables:
        names: list[dict[str, Any]] = []
        if self.grouped:
            names = [{"name": name, "parent": GROUP} for name in GROUPED]
            names.append({"name": GROUP, "quota": self.quota(GROUP)})
        quotas = {name: Quota.model_validate(self.quota(name)) for name in TENANTS}
        sharing = Sharing.model_validate({"tenants": names})
        backfill = Backfill.model_validate({"overrun": self.overrun})
        policy = PolicyTables({}, {}, {}, (), sharing=sharing, quotas=quotas, backfill=backfill)
        return PlacementTables(policy=policy)


def unit_of(pod: str) -> str:
    return pod.partition("-")[0]


# --- drawing ---


def examples(number: int) -> int:
    """The number, unless the environment sets another for a long run by hand."""
    return int(os.environ.get("HISTORIES", number))


durations = st.sampled_from((None, 20, 60, 200))


def workloads(**fixed: Any) -> st.SearchStrategy[Workload]:
    drawn: dict[str, Any] = {
        "tenant": st.sampled_from(TENANTS),
        "size": st.sampled_from((0, 0, 2, 3)),
        "more": st.sampled_from((0, 0, 1)),
        "gpus": st.integers(1, 3),
        "priority": st.sampled_from((0, 0, 5, 10)),
        "preemptible": st.booleans(),
        "expected_duration": durations,
    }
    return st.builds(Workload, **{**drawn, **fixed})


def steps(others: Iterable[st.SearchStrategy[Any]], *, most: int) -> st.SearchStrategy[Any]:
    """At most so many units are created, and at least half as many; other actions in between."""
    seconds = st.sampled_from((0, 1, 1, 3, 40))
    come = st.tuples(seconds, creates)
    other = st.none() | st.tuples(seconds, st.one_of(*others))
    drawn = st.lists(st.tuples(come, other), min_size=most // 2, max_size=most)
    return drawn.map(lambda rows: tuple(one for row in rows for one in row if one is not None))


def scenarios(*others: st.SearchStrategy[Any], most: int = 8, **fixed: Any) -> Any:
    drawn: dict[str, Any] = {
        "nodes": st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple),
        "steps": steps(others, most=most),
        "limits": st.dictionaries(st.sampled_from(MEMBERS), st.integers(2, 8), max_size=2),
        "guarantees": st.dictionaries(
            st.sampled_from(MEMBERS), st.integers(1, 6), min_size=1, max_size=3
        ),
        "grouped": st.booleans(),
        "grace": st.sampled_from((0, 5)),
    }
    return st.builds(Scenario, **{**drawn, **fixed})


creates = st.builds(Create, workloads())
ends = st.builds(End, st.integers(0, 20))
deletions = st.builds(Delete, st.integers(0, 20))
node_losses = st.builds(LoseNode, st.integers(0, 20))
restarts = st.builds(Restart, workloads(), st.integers(0, 30))
bind_failures = st.builds(
    FailBinds, st.lists(st.integers(0, len(BIND_FAULTS) - 1), min_size=1, max_size=4).map(tuple)
)
