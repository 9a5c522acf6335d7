"""Host ports: which nodes have them free, and usage that is exact."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.cache import Cache
from scheduler.cache.snapshot import Snapshot
from scheduler.model.pod import HostPort, Pod
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from tests.unit.scheduler.builders import a_node, a_pod, placed

Json = dict[str, Any]

TAKEN = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."


def binds(name: str, *ports: Json, **more: Any) -> Pod:
    return a_pod(name, containers=[{"name": "c", "ports": list(ports)}], **more)


def port(number: int = 80, protocol: str | None = None, ip: str | None = None) -> Json:
    fields = {"hostPort": number, "containerPort": 8080, "protocol": protocol, "hostIP": ip}
    return {key: value for key, value in fields.items() if value is not None}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [{"ports": [{"containerPort": 80}]}]}, [], id="no host port"),
        pytest.param(
            {"containers": [{"ports": [port(81), port(80)]}, {"ports": [port(80)]}]},
            [HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "0.0.0.0", 81)],
            id="sorted, each once",
        ),
        pytest.param(
            {
                "initContainers": [
                    {"ports": [port(1)]},
                    {"ports": [port(2, "UDP", "::1")], "restartPolicy": "Always"},
                ]
            },
            [HostPort("UDP", "::1", 2)],
            id="of the init containers only sidecars",
        ),
        pytest.param(
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
            [HostPort("TCP", "0.0.0.0", 80)],
            id="on the host's network every port is a host port",
        ),
    ],
)
def test_what_is_read(spec: Json, want: list[HostPort]) -> None:
    assert a_pod(**spec).spec.ports == tuple(want)


@pytest.mark.parametrize(
    ("held", "wanted", "collides"),
    [
        pytest.param(port(), port(), True, id="the same port"),
        pytest.param(port(), port(81), False, id="another port"),
        pytest.param(port(), port(protocol="UDP"), False, id="another protocol"),
        pytest.param(port(), port(ip="10.0.0.1"), True, id="all addresses, then one"),
        pytest.param(port(ip="10.0.0.1"), port(), True, id="one address, then all"),
        pytest.param(port(ip="10.0.0.1"), port(ip="10.0.0.1"), True, id="one address twice"),
        pytest.param(port(ip="10.0.0.1"), port(ip="10.0.0.2"), False, id="two addresses"),
        pytest.param(port(ip="::"), port(ip="::1"), False, id=":: is an address like others"),
        pytest.param(port(ip="::"), port(), True, id=":: and 0.0.0.0"),
        pytest.param(port(ip="0.0.0.0"), port(), True, id="0.0.0.0 written or by default"),
        pytest.param(port(protocol="TCP"), port(), True, id="TCP written or by default"),
    ],
)
def test_collisions(held: Json, wanted: Json, collides: bool) -> None:
    snapshot, memo = Snapshot.of([a_node("n")], [(binds("held", held), "n")]), Memo()
    pod = binds("wanted", wanted)
    message = filters.explain(snapshot, pod, memo).text if collides else ""
    fits = bool(filters.feasible(snapshot, pod, memo).any())
    assert (fits, message) == ((False, TAKEN) if collides else (True, ""))


def test_a_port_that_two_pods_hold_is_free_when_both_are_gone() -> None:
    """A pod with spec.nodeName passes no filter, so two pods can bind one port."""
    one, two, pod = binds("one", port()), binds("two", port()), binds("pod", port())
    snapshot = Snapshot.of([a_node("n")], [(one, "n"), (two, "n")])
    free = []
    for gone in (one, two):
        snapshot.release(gone, "n")
        free.append(bool(filters.feasible(snapshot, pod, Memo()).any()))
    assert free == [False, True]


def test_a_node_that_is_deleted_and_returns_has_its_ports_charged() -> None:
    cache, pod = Cache(), binds("pod", port())
    cache.put_node(a_node("n"))
    cache.assume(placed(binds("held", port()), "n"))
    cache.drop_node("n")
    cache.put_node(a_node("other"))
    empty = bool(filters.feasible(cache.snapshot, pod, Memo()).any())
    cache.drop_node("other")
    cache.put_node(a_node("n"))
    assert (empty, bool(filters.feasible(cache.snapshot, pod, Memo()).any())) == (True, False)


PORTS = st.builds(
    port,
    st.sampled_from([80, 81]),
    st.sampled_from([None, "UDP"]),
    st.sampled_from([None, "10.0.0.1", "::"]),
)
PODS = st.lists(st.tuples(st.lists(PORTS, max_size=3), st.integers(0, 2)), max_size=6)


def collide(one: Json, other: Json) -> bool:
    same = all(
        one.get(key, default) == other.get(key, default)
        for key, default in (("hostPort", 0), ("protocol", "TCP"))
    )
    addresses = {one.get("hostIP", "0.0.0.0"), other.get("hostIP", "0.0.0.0")}
    return same and (len(addresses) == 1 or "0.0.0.0" in addresses)


@settings(max_examples=60, deadline=None)
@given(PODS, st.lists(PORTS, min_size=1, max_size=3))
def test_colliding_ports_are_rejected_and_uncharge_undoes_charge(
    found: list[tuple[list[Json], int]], wanted: list[Json]
) -> None:
    snapshot = Snapshot.of([a_node(f"n{i}", cpu="99") for i in range(3)])
    empty = snapshot.state()
    pods = [(binds(f"p{i}", *ports), f"n{row}") for i, (ports, row) in enumerate(found)]
    moments = [empty]
    for pod, node in pods:
        snapshot.charge(pod, node)
        moments.append(snapshot.state())
    rows = filters.feasible(snapshot, binds("wanted", *wanted), Memo())
    got = {name for name, row in snapshot.table.rows.items() if rows[row]}
    want = {
        f"n{i}"
        for i in range(3)
        if not any(
            collide(mine, theirs)
            for ports, row in found
            if row == i
            for theirs in ports
            for mine in wanted
        )
    }
    assert got == want
    for pod, node in reversed(pods):
        assert snapshot.state() == moments.pop()
        snapshot.release(pod, node)
    assert snapshot.state() == empty
