"""
Whose turn it is between tenants, on a real API server, and that no crash changes it.

Where an order is looked at, everybody waits before the scheduler starts, so that it chooses among
all of them. A witness that shares no code with the scheduler watches where a limit must hold.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary
from tests.cluster.court import PLATFORM_POLICIES, TENANT_POLICIES, Court
from tests.cluster.gang_witness import Books, Witness
from tests.cluster.watching import Stream
from tests.cluster.yard import Json, Replica, until

pytestmark = pytest.mark.cluster

STAY = "example.com/stay"


@pytest.fixture
def court(control_plane: ControlPlane, stack: Stack) -> Iterator[Court]:
    court = Court(control_plane, stack, letters="abcd")
    yield court
    court.close()


@contextmanager
def while_it_is_dead(stack: Stack) -> Iterator[None]:
    """What is done inside is done between a crash of the scheduler and its next start."""
    stack.child(SCHEDULER).kill()
    yield
    stack.restart(SCHEDULER)


def counts(court: Court) -> dict[str, int]:
    """Pods with a node, by the tenant's letter."""
    return {letter: len(court.placed(name)) for letter, name in court.names.items()}


def settled(court: Court, want: dict[str, int]) -> dict[str, int]:
    return until(lambda: counts(court), lambda found: found == want, 60.0)


def test_promises_first_then_the_lowest_share_for_its_weight(court: Court, stack: Stack) -> None:
    """
    `a` and `b` share 3 : 1 what is their group's, and the group has as much as `c`. What is asked
    for last is within the promise of `d`, which has used more than all others: it is served first,
    and nobody goes for it.
    """
    group = f"{court.a}-group"
    court.policy(court.names["d"], guaranteed={"cpu": "1"})
    court.platform_policy(
        sharing={
            "tenants": [
                {"name": group},
                {"name": court.a, "parent": group, "weight": 3},
                {"name": court.b, "parent": group},
                {"name": court.names["c"]},
            ]
        }
    )
    with while_it_is_dead(stack):
        remember(court, f"{TENANT_POLICIES}/{court.names['d']}", {"usage": used("0.900")})
        court.node("5")
        for name in (court.a, court.b, court.names["c"]):
            court.create(name, *(court.pod(name, f"p{i}") for i in range(6)))
        court.create(court.names["d"], court.pod(court.names["d"], "mine"))
    half = {"a": 1, "b": 1, "c": 2, "d": 1}
    assert settled(court, half) == half
    with while_it_is_dead(stack):
        court.node("4")
    whole = {"a": 3, "b": 1, "c": 4, "d": 1}
    assert settled(court, whole) == whole
    left = {letter: len(court.yards[name].pods()) for letter, name in court.names.items()}
    assert left == {"a": 6, "b": 6, "c": 6, "d": 1}


def test_what_was_used_before_a_crash_decides_after_it(court: Court, stack: Stack) -> None:
    """By their names and ages `a` would be first, then `b`: what they used puts them behind `c`."""
    names = court.names
    court.policy(court.a, max={"cpu": "8"})
    court.platform_policy(sharing={"tenants": [{"name": names[letter]} for letter in "abc"]})
    shares = [{"name": court.b, **used("0.300")}]
    with while_it_is_dead(stack):
        remember(court, f"{TENANT_POLICIES}/{court.a}", {"usage": used("0.500")})
        remember(court, f"{PLATFORM_POLICIES}/{court.a}-platform", {"shares": shares})
        court.node("2")
        for letter in "abc":
            court.create(names[letter], court.pod(names[letter], "p"))
    want = {"a": 0, "b": 1, "c": 1, "d": 0}
    assert settled(court, want) == want


def used(share: str) -> Json:
    return {"share": share, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def remember(court: Court, path: str, status: Json) -> None:
    """As a leader would have written it before it died."""
    patch = {"status": status}
    court.api.call("PATCH", f"{path}/status", patch, content_type="application/merge-patch+json")


def test_what_was_lent_comes_back_although_the_scheduler_dies_meanwhile(
    court: Court, stack: Stack
) -> None:
    """
    `b` uses its own and all that `a` does not use. The pods that go are kept from ending by a
    finalizer, and the scheduler dies while they do; `c` would take the room.
    """
    court.node("3")
    court.policy(court.a, guaranteed={"cpu": "2"})
    court.policy(court.b, guaranteed={"cpu": "1"})
    lent = [court.pod(court.b, f"b{i}") for i in range(3)]
    for pod in lent:
        pod["metadata"]["finalizers"] = [STAY]
    court.create(court.b, *lent)
    court.bound(court.b, "b0", "b1", "b2")
    court.create(court.a, *(court.pod(court.a, f"a{i}", gang=("mine", 2)) for i in range(2)))
    until(lambda: nominated(court), lambda names: names == {"a0", "a1"}, 60.0)
    going = until(lambda: court.going(court.b), lambda names: len(names) == 2, 60.0)
    with while_it_is_dead(stack):
        court.create(court.names["c"], court.pod(court.names["c"], "thief"))
        for name in going:
            court.release(court.b, name)
    court.bound(court.a, "a0", "a1")
    [kept] = {"b0", "b1", "b2"} - going
    court.bound(court.b, kept)
    assert (len(going), counts(court)["c"]) == (2, 0)
    court.release(court.b, kept)


def nominated(court: Court) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in court.yards[court.a].pods()
        if pod["status"].get("nominatedNodeName")
    }


def test_a_limit_holds_while_one_replica_takes_over_from_another(
    court: Court, tmp_path: Path
) -> None:
    """Gangs of two come and go, a limit of six, and room for thirty-two."""
    node = court.node("32")
    court.policy(court.a, max={"cpu": "6"})
    name = f"turns-{court.a}"
    first, second = (Replica(court.plane, name, tmp_path / f"{name}-{i}.log") for i in range(2))
    pods = [
        court.pod(court.a, f"g{i:02}-{j}", gang=(f"g{i:02}", 2), schedulerName=name)
        for i in range(20)
        for j in range(2)
    ]
    books = Books({node: 6000})  # what the tenant may use there, not what the node has
    with Witness(Stream(court.plane, court.a), books) as witness:
        try:
            first.start()
            until(lambda: first.leads, bool)
            second.child.start()
            creating = threading.Thread(target=court.create, args=(court.a, *pods))
            creating.start()
            churn(court, witness, 12)
            first.kill()
            creating.join()
            churn(court, witness, 24)
            led = second.leads
            used = until(lambda: witness.ask(lambda seen: seen.used[node]), lambda m: m == 6000)
        finally:
            first.stop()
            second.stop()
    assert (led, used, books.over, books.partial()) == (True, 6000, [], [])


def churn(court: Court, witness: Witness, binds: int) -> None:
    """End what runs, gang by gang, until so many pods were bound in all."""

    def step() -> int:
        seen = witness.ask(lambda books: books.binds)
        running = {name[:3] for name in court.placed(court.a)}
        if seen < binds and running:
            chosen = f"labelSelector={vocabulary.GANG_NAME_LABEL}%3D{min(running)}"
            court.api.call("DELETE", f"/api/v1/namespaces/{court.a}/pods?{chosen}")
        return seen

    assert until(step, lambda seen: seen >= binds, 90.0) >= binds
