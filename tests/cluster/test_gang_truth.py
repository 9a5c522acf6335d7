"""
Whole gangs or nothing, under faults, as an independent witness sees it.

More gangs than fit on the nodes, each made by a ReplicaSet; two schedulers of which one leads,
both behind a proxy that spoils a quarter of the binds. In every round whole gangs are taken away,
so that others are being bound when the fault comes. Afterwards no gang may be partial, no pod may
have changed its node, and no node may have held more than it has, at any instant.

`KUBENEXUS_GANG_FAULTS=1` makes every fault many times; the counts are written to
build/reliability/gangs.json, from which `reliability` makes the table of the documentation.
"""

import http.client
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kubenexus.clusterfile import load
from kubenexus.dev.plane.control_plane import ControlPlane, await_ready, healthy
from kubenexus.dev.process import ports, self_exec
from kubenexus.dev.process.child import Child, stop_all
from policies import vocabulary
from tests.cluster import reliability
from tests.cluster.gang_witness import PodLedger, Witness
from tests.cluster.pod_watch import Stream
from tests.cluster.scheduler_proxy import start_proxy
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

COUNTS: Final = Path("build") / "reliability" / reliability.GANGS
LONG: Final = bool(os.environ.get("KUBENEXUS_GANG_FAULTS"))
GANGS: Final = 100 if LONG else 30
SIZES: Final = range(4, 17)
SEED: Final = 11
QUIET: Final = 3.0  # seconds without a change after which a state counts as final
LONGEST: Final = 180.0
STALL: Final = 6.0  # seconds: longer than a bind waits for its answer


class Site:
    """Gangs, two schedulers behind a proxy, and the handles to break them."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.plane, self.namespace, self._folder = plane, namespace, folder
        self.random = random.Random(SEED)
        self.sizes: dict[str, int] = {}  # gang -> members
        self._made = 0
        self.ended = 0  # schedulers that ended by themselves
        (self._port,) = ports.free(1)
        self.proxy = start_proxy(plane, folder, self._port, f"--seed={SEED}")
        self.schedulers = [self._start_scheduler(number) for number in range(2)]

    # --- Processes. ---

    def _start_scheduler(self, number: int) -> Child:
        config = self._folder / "proxied.kubeconfig"
        name = "proxied"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": name,
                            "cluster": {"server": f"http://{ports.HOST}:{self._port}"},
                        }
                    ],
                    "users": [{"name": name, "user": {}}],
                    "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
                    "current-context": name,
                }
            )
        )
        (port,) = ports.free(1)
        argv = [
            *self_exec.COMMAND,
            "scheduler",
            f"--kubeconfig={config}",
            f"--host={ports.HOST}",
            f"--port={port}",
            "--leader-elect",
        ]
        log = self._folder / f"scheduler-{number}.log"
        child = Child(f"scheduler {number}", argv, log=log, env=self_exec.environment(os.environ))
        child.start()
        await_ready([child], lambda: healthy(f"http://{ports.HOST}:{port}/healthz"), deadline=60.0)
        return child

    def spoiled(self) -> dict[str, int]:
        connection = http.client.HTTPConnection(ports.HOST, self._port, timeout=10.0)
        try:
            connection.request("GET", "/__spoiled")
            found: dict[str, int] = json.loads(connection.getresponse().read())
            return found
        finally:
            connection.close()

    def leader(self) -> Child | None:
        path = (
            f"/apis/coordination.k8s.io/v1/namespaces/{vocabulary.SYSTEM_NAMESPACE}"
            f"/leases/{vocabulary.SCHEDULER_NAME}"
        )
        try:
            holder = str(self.plane.api().call("GET", path)["spec"].get("holderIdentity"))
        except Exception:  # no lease yet, or no API server: the caller retries
            return None
        return next(
            (one for one in self.schedulers if one.alive and holder.endswith(f"{one.pid}")), None
        )

    def kill_leader(self) -> None:
        leader = eventually(self.leader, "a scheduler leads")
        leader.kill()
        leader.start()

    def revive(self) -> None:
        """What a kubelet does: a scheduler that ended by itself is started again."""
        for one in self.schedulers:
            if not one.alive:
                self.ended += 1
                one.start()

    def stop(self) -> None:
        stop_all([*self.schedulers, self.proxy], grace=5.0)

    # --- Gangs. ---

    def add(self, count: int) -> None:
        for _ in range(count):
            name, size = f"g{self._made}", self.random.choice(SIZES)
            self._made += 1
            self.sizes[name] = size
            self._apply(name, size)

    def _apply(self, name: str, size: int) -> None:
        labels = {
            "gang": name,
            vocabulary.GANG_NAME_LABEL: name,
            vocabulary.GANG_MIN_AVAILABLE_LABEL: str(size),
        }
        self.plane.api().call(
            "POST",
            f"/apis/apps/v1/namespaces/{self.namespace}/replicasets",
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": name},
                "spec": {
                    "replicas": size,
                    "selector": {"matchLabels": {"gang": name}},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            "schedulerName": vocabulary.SCHEDULER_NAME,
                            "terminationGracePeriodSeconds": 0,
                            "containers": [
                                {
                                    "name": "c",
                                    "image": "none",
                                    "resources": {"requests": {"cpu": "1"}},
                                }
                            ],
                        },
                    },
                },
            },
        )

    def remove(self, names: list[str]) -> None:
        for name in names:
            path = f"/apis/apps/v1/namespaces/{self.namespace}/replicasets/{name}"
            self.plane.api().call("DELETE", path + "?propagationPolicy=Background")
            del self.sizes[name]


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane) -> Iterator[dict[str, int]]:
    """Capacity for about six tenths of the gangs: their mean size is ten, one CPU per member."""
    count = max(2, GANGS * 6 // 24)
    items = load.plain(count).nodes
    for item in items:
        item["metadata"]["name"] = f"truth-{item['metadata']['name']}"
        for part in ("allocatable", "capacity"):
            item["status"][part] = {**item["status"].get(part, {}), "cpu": "24", "pods": "110"}
    control_plane.add_nodes(items)
    yield {item["metadata"]["name"]: 24_000 for item in items}
    for item in items:
        control_plane.api().call("DELETE", f"/api/v1/nodes/{item['metadata']['name']}")


@pytest.fixture
def site(
    control_plane: ControlPlane, nodes: dict[str, int], namespace: str, tmp_path: Path
) -> Iterator[Site]:
    made = Site(control_plane, namespace, tmp_path)
    yield made
    made.stop()


def settled(witness: Witness, site: Site) -> str:
    """Wait until nothing moved for a while; what is wrong then, empty when nothing is."""

    def picture(books: PodLedger) -> tuple[int, int, int]:
        have = sum(len(gang.members) for gang in books.gangs.values())
        return books.binds, have, len(books.partial())

    end, last, since = time.monotonic() + LONGEST, witness.read(picture), time.monotonic()
    while time.monotonic() < end:
        time.sleep(0.2)
        site.revive()
        now = witness.read(picture)
        if now != last:
            last, since = now, time.monotonic()
        elif now[2] == 0 and time.monotonic() - since >= QUIET and site.leader() is not None:
            return ""
    return f"not settled within {LONGEST:.0f} s: {witness.read(lambda books: books.partial())}"


def disturb(site: Site, witness: Witness, fault: Callable[[], None]) -> None:
    """Take whole gangs away, and make the fault while those that waited are being bound."""
    whole = [
        name
        for name, gang in witness.read(lambda books: dict(books.gangs)).items()
        if gang.whole and name in site.sizes
    ]
    gone = site.random.sample(sorted(whole), min(len(whole), max(4, GANGS // 12)))
    before = witness.read(lambda books: books.binds)
    site.remove(gone)
    site.add(len(gone))

    def begun() -> bool:
        site.revive()
        return witness.read(lambda books: books.binds) > before

    eventually(begun, "others are being bound")
    time.sleep(site.random.random() * 0.2)
    fault()


def lose_a_node(site: Site, nodes: dict[str, int]) -> None:
    """A node is deleted while gangs are bound to it, and comes back."""
    api, name = site.plane.api(), site.random.choice(sorted(nodes))
    item = api.call("GET", f"/api/v1/nodes/{name}")
    api.call("DELETE", f"/api/v1/nodes/{name}")
    kept = {key: item["metadata"].get(key) for key in ("name", "labels", "annotations")}
    time.sleep(1.0)
    status = {part: item["status"][part] for part in ("allocatable", "capacity")}
    site.plane.add_nodes(
        [{"apiVersion": "v1", "kind": "Node", "metadata": kept, "spec": {}, "status": status}]
    )


def stall_etcd(site: Site) -> None:
    """The store stands still, so that the API server hangs and then answers late."""
    etcd = next(child for child in site.plane.children if child.name == "etcd")
    assert etcd.pid is not None
    os.kill(etcd.pid, signal.SIGSTOP)
    try:
        time.sleep(STALL)
    finally:
        os.kill(etcd.pid, signal.SIGCONT)


Fault = Callable[[Site, dict[str, int]], None]

FAULTS: Final[dict[str, Fault]] = {
    "a quarter of the binds spoiled": lambda site, nodes: None,
    "leader killed": lambda site, nodes: site.kill_leader(),
    "API server killed": lambda site, nodes: site.plane.restart_apiserver(crash=True),
    "node deleted": lose_a_node,
    "etcd stalled": lambda site, nodes: stall_etcd(site),
}
# How often each is made in a long run.
TIMES: Final = {"leader killed": 20, "API server killed": 5, "node deleted": 5, "etcd stalled": 5}


@pytest.mark.timeout(2400 if LONG else 600)
def test_gangs_are_whole_or_nothing(
    site: Site, nodes: dict[str, int], control_plane: ControlPlane
) -> None:
    books = PodLedger(nodes)
    with Witness(Stream(control_plane, site.namespace), books) as witness:
        site.add(GANGS)
        assert settled(witness, site) == ""
        for fault, make in FAULTS.items():
            rounds = TIMES.get(fault, 1) if LONG else 1
            before = witness.read(PodLedger.summary)
            witness.read(PodLedger.forget_stretches)
            for _ in range(rounds):
                disturb(site, witness, partial(make, site, nodes))
                assert (fault, settled(witness, site)) == (fault, "")
            after = witness.read(PodLedger.summary)
            binds = after["binds"] - before["binds"]
            reliability.add(COUNTS, {"fault": fault, "times": rounds, **after, "binds": binds})
        spoiled = site.spoiled()
        final = witness.read(lambda books: (books.partial(), books.double, books.over))
    assert final == ([], [], [])
    assert spoiled["binds"] > sum(spoiled.values()) - spoiled["binds"] > 0
