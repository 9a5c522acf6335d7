"""
Whose turn it is between tenants, on a real API server, and that no crash changes it.

Where an order is tested, all units wait before the scheduler starts, so that it chooses among
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
from tests.cluster.gang_witness import PodLedger, Witness
from tests.cluster.node_pool import Json, Replica, until
from tests.cluster.pod_watch import Stream
from tests.cluster.tenant_env import PLATFORM_POLICIES, TENANT_POLICIES, TenantEnv

pytestmark = pytest.mark.cluster

STAY = "example.com/stay"


@pytest.fixture
def tenant_env(control_plane: ControlPlane, stack: Stack) -> Iterator[TenantEnv]:
    tenant_env = TenantEnv(control_plane, stack, letters="abcd")
    yield tenant_env
    tenant_env.close()


@contextmanager
def while_it_is_dead(stack: Stack) -> Iterator[None]:
    """What is done inside is done between a crash of the scheduler and its next start."""
    stack.child(SCHEDULER).kill()
    yield
    stack.restart(SCHEDULER)


def counts(tenant_env: TenantEnv) -> dict[str, int]:
    """Pods with a node, by the tenant's letter."""
    return {letter: len(tenant_env.placed(name)) for letter, name in tenant_env.names.items()}


def settled(tenant_env: TenantEnv, want: dict[str, int]) -> dict[str, int]:
    return until(lambda: counts(tenant_env), lambda found: found == want, 60.0)


def test_guarantees_first_then_the_lowest_share_for_its_weight(
    tenant_env: TenantEnv, stack: Stack
) -> None:
    """
    `a` and `b` share 3 : 1 what is their group's, and the group has as much as `c`. The last
    request is within the guarantee of `d`, which has used more than all others: it is served first,
    and the scheduler evicts no pod for it.
    """
    group = f"{tenant_env.a}-group"
    tenant_env.policy(tenant_env.names["d"], guaranteed={"cpu": "1"})
    tenant_env.platform_policy(
        sharing={
            "tenants": [
                {"name": group},
                {"name": tenant_env.a, "parent": group, "weight": 3},
                {"name": tenant_env.b, "parent": group},
                {"name": tenant_env.names["c"]},
            ]
        }
    )
    with while_it_is_dead(stack):
        remember(tenant_env, f"{TENANT_POLICIES}/{tenant_env.names['d']}", {"usage": used("0.900")})
        tenant_env.node("5")
        for name in (tenant_env.a, tenant_env.b, tenant_env.names["c"]):
            tenant_env.create(name, *(tenant_env.pod(name, f"p{i}") for i in range(6)))
        tenant_env.create(tenant_env.names["d"], tenant_env.pod(tenant_env.names["d"], "mine"))
    half = {"a": 1, "b": 1, "c": 2, "d": 1}
    assert settled(tenant_env, half) == half
    with while_it_is_dead(stack):
        tenant_env.node("4")
    whole = {"a": 3, "b": 1, "c": 4, "d": 1}
    assert settled(tenant_env, whole) == whole
    left = {
        letter: len(tenant_env.node_pools[name].pods()) for letter, name in tenant_env.names.items()
    }
    assert left == {"a": 6, "b": 6, "c": 6, "d": 1}


def test_what_was_used_before_a_crash_decides_after_it(tenant_env: TenantEnv, stack: Stack) -> None:
    """By their names and ages `a` would be first, then `b`: what they used puts them behind `c`."""
    names = tenant_env.names
    tenant_env.policy(tenant_env.a, max={"cpu": "8"})
    tenant_env.platform_policy(sharing={"tenants": [{"name": names[letter]} for letter in "abc"]})
    shares = [{"name": tenant_env.b, **used("0.300")}]
    with while_it_is_dead(stack):
        remember(tenant_env, f"{TENANT_POLICIES}/{tenant_env.a}", {"usage": used("0.500")})
        remember(tenant_env, f"{PLATFORM_POLICIES}/{tenant_env.a}-platform", {"shares": shares})
        tenant_env.node("2")
        for letter in "abc":
            tenant_env.create(names[letter], tenant_env.pod(names[letter], "p"))
    want = {"a": 0, "b": 1, "c": 1, "d": 0}
    assert settled(tenant_env, want) == want


def used(share: str) -> Json:
    return {"share": share, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def remember(tenant_env: TenantEnv, path: str, status: Json) -> None:
    """As a leader would have written it before it died."""
    patch = {"status": status}
    tenant_env.api.call(
        "PATCH", f"{path}/status", patch, content_type="application/merge-patch+json"
    )


def test_what_was_lent_comes_back_although_the_scheduler_dies_meanwhile(
    tenant_env: TenantEnv, stack: Stack
) -> None:
    """
    `b` uses its own and all that `a` does not use. A finalizer keeps the
    victims from ending, and the scheduler dies meanwhile; `c` would take the capacity.
    """
    tenant_env.node("3")
    tenant_env.policy(tenant_env.a, guaranteed={"cpu": "2"})
    tenant_env.policy(tenant_env.b, guaranteed={"cpu": "1"})
    lent = [tenant_env.pod(tenant_env.b, f"b{i}") for i in range(3)]
    for pod in lent:
        pod["metadata"]["finalizers"] = [STAY]
    tenant_env.create(tenant_env.b, *lent)
    tenant_env.bound(tenant_env.b, "b0", "b1", "b2")
    tenant_env.create(
        tenant_env.a, *(tenant_env.pod(tenant_env.a, f"a{i}", gang=("mine", 2)) for i in range(2))
    )
    until(lambda: nominated(tenant_env), lambda names: names == {"a0", "a1"}, 60.0)
    victims = until(
        lambda: tenant_env.terminating(tenant_env.b), lambda names: len(names) == 2, 60.0
    )
    with while_it_is_dead(stack):
        tenant_env.create(tenant_env.names["c"], tenant_env.pod(tenant_env.names["c"], "thief"))
        for name in victims:
            tenant_env.release(tenant_env.b, name)
    tenant_env.bound(tenant_env.a, "a0", "a1")
    [kept] = {"b0", "b1", "b2"} - victims
    tenant_env.bound(tenant_env.b, kept)
    assert (len(victims), counts(tenant_env)["c"]) == (2, 0)
    tenant_env.release(tenant_env.b, kept)


def nominated(tenant_env: TenantEnv) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in tenant_env.node_pools[tenant_env.a].pods()
        if pod["status"].get("nominatedNodeName")
    }


def test_a_limit_holds_while_one_replica_takes_over_from_another(
    tenant_env: TenantEnv, tmp_path: Path
) -> None:
    """Gangs of two come and go, a limit of six, and capacity for thirty-two."""
    node = tenant_env.node("32")
    tenant_env.policy(tenant_env.a, max={"cpu": "6"})
    name = f"turns-{tenant_env.a}"
    first, second = (
        Replica(tenant_env.plane, name, tmp_path / f"{name}-{i}.log") for i in range(2)
    )
    pods = [
        tenant_env.pod(tenant_env.a, f"g{i:02}-{j}", gang=(f"g{i:02}", 2), schedulerName=name)
        for i in range(20)
        for j in range(2)
    ]
    books = PodLedger({node: 6000})  # what the tenant may use there, not what the node has
    with Witness(Stream(tenant_env.plane, tenant_env.a), books) as witness:
        try:
            first.start()
            until(lambda: first.leads, bool)
            second.child.start()
            creating = threading.Thread(target=tenant_env.create, args=(tenant_env.a, *pods))
            creating.start()
            churn(tenant_env, witness, 12)
            first.kill()
            creating.join()
            churn(tenant_env, witness, 24)
            led = second.leads
            used = until(lambda: witness.read(lambda seen: seen.used[node]), lambda m: m == 6000)
        finally:
            first.stop()
            second.stop()
    assert (led, used, books.over, books.partial()) == (True, 6000, [], [])


def churn(tenant_env: TenantEnv, witness: Witness, binds: int) -> None:
    """End what runs, gang by gang, until so many pods were bound in all."""

    def step() -> int:
        seen = witness.read(lambda books: books.binds)
        running = {name[:3] for name in tenant_env.placed(tenant_env.a)}
        if seen < binds and running:
            chosen = f"labelSelector={vocabulary.GANG_NAME_LABEL}%3D{min(running)}"
            tenant_env.api.call("DELETE", f"/api/v1/namespaces/{tenant_env.a}/pods?{chosen}")
        return seen

    assert until(step, lambda seen: seen >= binds, 90.0) >= binds
