"""Searches in the event loop while they are short, else in a fork; one at a time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings

from policies import vocabulary
from scheduler import fork
from scheduler.fork import ForkError, ForkPolicy
from scheduler.model.gang import GangKey
from scheduler.tenancy.preemption.evaluator import names_of
from scheduler.tenancy.preemption.pdb import DisruptionBudget
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.forks import ALWAYS, at_once
from tests.unit.scheduler.tenancy import oracles
from tests.unit.scheduler.tenancy.builders import (
    GPU,
    backfill,
    pending_pod,
    running_pod,
    tables,
    tenant_pod,
)
from tests.unit.scheduler.tenancy.histories import Story
from tests.unit.scheduler.tenancy.preemption.preemption_cases import (
    remove_evicted,
    two_victims_and_a_gang,
)
from tests.unit.scheduler.tenancy.random_clusters import (
    Scenario,
    deletions,
    ends,
    examples,
    node_losses,
    restarts,
    scenarios,
)

pytestmark = pytest.mark.timeout(300)

T = TypeVar("T")


class Held:
    """A fork whose result arrives when the test says so."""

    def __init__(self) -> None:
        self.started = 0
        self.release = asyncio.Event()

    async def __call__(self, work: Callable[[], T], *, seconds: float) -> T:
        self.started += 1
        result = work()
        await self.release.wait()
        return result


async def timed_out(work: Callable[[], T], *, seconds: float) -> T:
    raise ForkError("no result within 60 s")


async def a_few_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def settle(bench: Bench) -> None:
    await bench.settle()
    remove_evicted(bench)
    await bench.settle()


def nodes_of(bench: Bench, *names: str) -> list[str]:
    return [bench.api.pods[name]["spec"].get("nodeName", "") for name in names]


def test_a_search_in_a_real_fork_places_the_preemptor() -> None:
    async def scene() -> tuple[list[str], float]:
        bench = Bench(fork=ForkPolicy(fork.run, after=ALWAYS))
        await two_victims_and_a_gang(bench)
        await settle(bench)
        return nodes_of(bench, "new0", "new1"), bench.metrics.preemption.labels(
            "search"
        )._value.get()

    nodes, searches = asyncio.run(scene())
    assert (sorted(nodes), searches) == (["n", "o"], 1.0)


async def _nothing(bench: Bench) -> None:
    pass


async def _victim_ends(bench: Bench) -> None:
    bench.delete("low-n")


async def _both_victims_end(bench: Bench) -> None:
    bench.delete("low-n")
    bench.delete("low-o")


async def _preemptor_is_deleted(bench: Bench) -> None:
    bench.delete("new0")
    bench.delete("new1")


async def _node_is_lost(bench: Bench) -> None:
    bench.drop_node("n")


async def _another_unit_takes_the_capacity(bench: Bench) -> None:
    bench.delete("low-n")
    tenant_pod(bench, "a", "taken", node="n", gpus=2, priority=50)


@pytest.mark.parametrize(
    ("change", "evicted", "placed"),
    [
        pytest.param(_nothing, ["low-n", "low-o"], True, id="nothing changed"),
        pytest.param(_victim_ends, ["low-o"], True, id="one victim ended: the other one suffices"),
        pytest.param(_both_victims_end, [], True, id="both victims ended: none is needed"),
        pytest.param(_preemptor_is_deleted, [], False, id="the preemptor is gone"),
        pytest.param(_node_is_lost, [], False, id="a node is gone: no victims suffice"),
        pytest.param(
            _another_unit_takes_the_capacity, [], False, id="a pod that may not be evicted"
        ),
    ],
)
def test_victims_are_confirmed_on_the_present_cluster(
    change: Callable[[Bench], object], evicted: list[str], placed: bool
) -> None:
    async def scene() -> tuple[list[str], bool]:
        held = Held()
        bench = Bench(fork=ForkPolicy(held, after=ALWAYS))
        await two_victims_and_a_gang(bench)
        await bench.scheduler.drain()
        await a_few_turns()
        assert held.started == 1
        await change(bench)  # type: ignore[misc]  # each is a coroutine function
        held.release.set()
        await settle(bench)
        for _ in range(3):  # what the fork found may be outdated: the search is repeated
            bench.now += 10.0
            await settle(bench)
        return sorted(bench.api.evicted), "new0" in bench.api.pods and all(
            nodes_of(bench, "new0", "new1")
        )

    assert asyncio.run(scene()) == (evicted, placed)


def test_planning_goes_on_while_a_search_runs_in_a_fork() -> None:
    async def scene() -> list[str]:
        held = Held()
        bench = Bench(fork=ForkPolicy(held, after=ALWAYS))
        await two_victims_and_a_gang(bench)
        await bench.scheduler.drain()
        await a_few_turns()
        bench.node("free", gpus=1)
        tenant_pod(bench, "b", "other", gpus=1)
        await bench.scheduler.drain()
        await a_few_turns()
        return [*nodes_of(bench, "other"), str(held.started), *bench.api.evicted]

    assert asyncio.run(scene()) == ["free", "1"]


def test_a_second_search_waits_for_the_first() -> None:
    async def scene() -> tuple[int, list[str]]:
        held = Held()
        bench = Bench(fork=ForkPolicy(held, after=ALWAYS))
        await two_victims_and_a_gang(bench)
        tenant_pod(bench, "a", "second", gpus=1, priority=10)
        await bench.scheduler.drain()
        await a_few_turns()
        started = held.started
        held.release.set()
        await settle(bench)
        return started, sorted(nodes_of(bench, "new0", "new1"))

    assert asyncio.run(scene()) == (1, ["n", "o"])


def test_an_abandoned_search_evicts_no_pod_and_is_counted() -> None:
    async def scene() -> tuple[list[str], float]:
        bench = Bench(fork=ForkPolicy(timed_out, after=ALWAYS))
        await two_victims_and_a_gang(bench)
        await bench.settle()
        return bench.api.evicted, bench.metrics.preemption.labels("abandoned")._value.get()

    assert asyncio.run(scene()) == ([], 1.0)


@settings(max_examples=examples(25))
@given(scenarios(ends))
def test_searches_in_forks_waste_no_eviction(scenario: Scenario) -> None:
    story = asyncio.run(Story(scenario, fork=ForkPolicy(at_once, after=ALWAYS)).play(longer=300.0))
    helped = story.evicted_for()
    assert (helped.keys() - story.starts.keys(), story.steps("wasted")) == (set(), 0)


@settings(max_examples=examples(25))
@given(scenarios(ends))
def test_searches_in_forks_leave_guarantees_intact(scenario: Scenario) -> None:
    story = Story(scenario, fork=ForkPolicy(at_once, after=ALWAYS))
    begun = oracles.record(story)
    asyncio.run(story.play(longer=200.0))
    breached = [oracles.breached_guarantees(story, one) for one in oracles.victims(story, begun)]
    assert [names for names in breached if names] == []


@settings(max_examples=examples(25))
@given(scenarios(ends, deletions, node_losses, restarts))
def test_searches_in_forks_leave_limits_intact(scenario: Scenario) -> None:
    story = Story(scenario, fork=ForkPolicy(at_once, after=ALWAYS))
    asyncio.run(story.play(longer=200.0))
    assert story.api.broken == []


def _a_node_is_added(bench: Bench) -> None:
    bench.node("p", gpus=2)
    bench.node("q", gpus=2)


def _a_guarantee_protects_a_victim(bench: Bench) -> None:
    bench.scheduler.adopt(tables(b={"guaranteed": {GPU: 4}}))


def _a_budget_allows_one_victim(bench: Bench) -> None:
    budget = {
        "metadata": {"name": "x", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 1},
    }
    bench.scheduler.budgets.put(DisruptionBudget.read(budget))


@pytest.mark.parametrize(
    ("change", "confirmed"),
    [
        pytest.param(lambda bench: None, ["low-n", "low-o"], id="nothing changed"),
        pytest.param(lambda bench: bench.delete("low-n"), None, id="a victim ended"),
        pytest.param(lambda bench: bench.drop_node("n"), None, id="a node is gone"),
        pytest.param(_a_node_is_added, None, id="the unit fits without victims"),
        pytest.param(_a_guarantee_protects_a_victim, None, id="a guarantee would be breached"),
        pytest.param(_a_budget_allows_one_victim, None, id="a budget would be exceeded"),
    ],
)
def test_what_confirms_the_victims_of_a_search(
    change: Callable[[Bench], None], confirmed: list[str] | None
) -> None:
    """Two preemptible pods of b, and a gang of a that needs both nodes."""

    async def scene() -> list[str] | None:
        bench = Bench(fork=ForkPolicy(Held(), after=ALWAYS))
        bench.scheduler.adopt(tables())
        labels = {"app": "x", vocabulary.PREEMPTIBLE_LABEL: "true"}
        for node in ("n", "o"):
            bench.node(node, gpus=2)
            tenant_pod(bench, "b", f"low-{node}", node=node, gpus=2, labels=labels)
        for number in range(2):
            tenant_pod(bench, "a", f"new{number}", gpus=2, gang=("new", 2))
        await bench.scheduler.drain()
        evaluator = bench.scheduler.tenancy.preemption._evaluator
        unit = bench.scheduler.queue.unit(GangKey("ns", "new"))
        assert unit is not None
        found = evaluator.search(unit, evaluator.rules(unit))
        assert found is not None
        change(bench)
        plan = evaluator.confirm(unit, names_of(found))
        return None if plan is None else sorted(victim.pod.key.name for victim in plan.victims)

    assert asyncio.run(scene()) == confirmed


def test_a_unit_that_changed_meanwhile_gets_no_reserved_capacity() -> None:
    async def scene() -> tuple[bool, int]:
        held = Held()
        bench = Bench(fork=ForkPolicy(held, after=ALWAYS))
        await two_victims_and_a_gang(bench)
        await bench.scheduler.drain()
        await a_few_turns()
        bench.delete("new0")
        held.release.set()
        preemption = bench.scheduler.tenancy.preemption
        while preemption._searches.busy:
            await asyncio.sleep(0)
        return preemption.in_progress(GangKey("ns", "new")), len(bench.scheduler.cache.reserved)

    assert asyncio.run(scene()) == (False, 0)


def test_a_unit_without_victims_gets_a_start_reservation() -> None:
    """The pod of the same priority stays until its end, so evicting the other one does not help."""

    async def scene() -> list[str]:
        bench = Bench(fork=ForkPolicy(at_once, after=ALWAYS))
        bench.scheduler.adopt(backfill())
        bench.node("n", gpus=2)
        running_pod(bench, "stays", "n", "300s", priority=10)
        running_pod(bench, "low", "n", "300s")
        pending_pod(bench, "new", "1h", gpus=2, priority=10)
        await bench.settle()
        await bench.settle(1.5)
        return [name for name, _ in bench.events("StartEstimated")]

    assert asyncio.run(scene()) == ["new"]
