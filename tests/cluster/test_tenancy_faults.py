"""
Preemption and reservations under faults, as an independent witness sees them.

A node pool that is full. Each round brings gangs of a higher priority than all before, so that the
scheduler evicts victims for them; then the fault comes: the leader is ended at a chosen write,
evictions are answered wrongly or not at all, victims ignore their grace. In other rounds leaders
come that make their members, and the scheduler is ended while it reserves capacity for them. At
rest every pod of the round is placed, no gang is partial, no pod has changed its node, no node
holds more than it has, nothing is reserved, and free capacity counts as wasted evictions.

`KUBENEXUS_TENANCY_FAULTS=1` makes every fault many times; the counts are written to
build/reliability/tenancy.json, from which `reliability` makes the table of the documentation.
"""

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from policies import vocabulary
from policies.documents import crds
from tests.cluster import reliability
from tests.cluster.eviction_witness import SLOT, Evictions
from tests.cluster.gang_witness import Witness
from tests.cluster.node_pool import Json, NodePool
from tests.cluster.pod_watch import Stream
from tests.cluster.scheduler_proxy import SchedulerPair
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

COUNTS: Final = Path("build") / "reliability" / reliability.TENANCY
LONG: Final = bool(os.environ.get("KUBENEXUS_TENANCY_FAULTS"))
ONLY: Final = tuple(os.environ.get("KUBENEXUS_TENANCY_FAULTS_ONLY", "").split("|"))  # beginnings
NAME: Final = "tenancy-faults"
NODES, CPUS = 4, 6  # capacity for six gangs
SIZE: Final = 4  # of every gang
COME: Final = 2  # gangs in a round
SEED: Final = 7
QUIET: Final = 1.0  # seconds without a change after which a state counts as final
LONGEST: Final = 150.0
STAY: Final = "example.com/stay"
LED: Final = "led"  # nodes for gangs whose leader makes the others
AHEAD: Final = 8  # priority classes


@dataclass(frozen=True, slots=True)
class End:
    """The leader's end, at the write of this number, before it or when it is done."""

    write: str
    nth: int = 1
    before: bool = False
    graceful: bool = False


@dataclass(frozen=True, slots=True)
class Spoil:
    """This share of the writes is answered so."""

    write: str
    kinds: tuple[str, ...]
    share: float = 0.5


Fault = End | Spoil | None

ALL: Final = COME * SIZE
PREEMPTING: Final[dict[str, Fault]] = {
    "leader killed after the rehearsal": End("nomination", before=True),
    "leader killed after a nomination": End("nomination"),
    "leader killed before the first eviction": End("eviction", before=True),
    "leader killed after the first eviction": End("eviction"),
    "leader killed between evictions": End("eviction", nth=3),
    "leader killed after the last eviction": End("eviction", nth=ALL),
    "leader killed before the first bind": End("bind", before=True),
    "leader killed between binds": End("bind", nth=3),
    "leader asked to end between evictions": End("eviction", nth=3, graceful=True),
    "evictions answered 429": Spoil("eviction", ("busy", "busy-after"), 0.3),
    "evictions answered 429 as by a budget": Spoil("eviction", ("budget",), 0.3),
    "evictions answered 500, done or not": Spoil("eviction", ("broken", "lost", "cut")),
    "evictions without an answer, done or not": Spoil("eviction", ("hung", "late"), 0.3),
    "rehearsals answered 429 and 500": Spoil("rehearsal", ("budget", "busy", "broken"), 0.3),
    "binds of preemptors spoiled": Spoil("bind", ("refused", "broken", "lost", "cut")),
}
IGNORED: Final = "victims ignore their grace, leader killed meanwhile"
RESERVING: Final[dict[str, Fault]] = {
    "leader killed before the reservation": End("reservation", before=True),
    "leader killed after the reservation": End("reservation"),
    "leader killed before the bind of a gang's leader": End("bind", before=True),
    "leader killed after the bind of a gang's leader": End("bind"),
    "leader killed before the reservation's status": End("reservation status", before=True),
    "leader killed between binds of members": End("bind", nth=2),
}
# What every test run makes, once each.
SHORT: Final = (
    "leader killed before the first eviction",
    "leader killed between evictions",
    "leader killed between binds",
    "evictions answered 429 as by a budget",
    "evictions answered 500, done or not",
    IGNORED,
    "leader killed after the reservation",
    "leader killed after the bind of a gang's leader",
)
TIMES: Final = 20 if LONG else 1  # each end of a leader
SPOILED: Final = 10 if LONG else 1  # each way to answer


class Site:
    """Pods of rising priority in a full node pool, the pair of schedulers, and their witness."""

    def __init__(
        self, node_pool: NodePool, pair: SchedulerPair, witness: Witness, books: Evictions
    ) -> None:
        self.node_pool, self.pair, self.witness, self.books = node_pool, pair, witness, books
        self.classes: list[str] = []
        self.ended = 0
        self.numbers = itertools.count(1)
        self.priority(0)

    def pod(self, name: str, *, priority: str, gang: tuple[str, int], **more: Any) -> Json:
        made = self.node_pool.pod(name, gang=gang, priorityClassName=priority, **more)
        made["spec"]["schedulerName"] = NAME
        return made

    def priority(self, number: int) -> str:
        """Of a class higher than all before; made ahead, for admission learns of it late."""
        while len(self.classes) < number + AHEAD:
            value = len(self.classes)
            name = f"{self.node_pool.namespace}-{value}"
            made = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            self.node_pool.api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made)
            self.classes.append(name)
        return self.classes[number]

    def come(self, gangs: int) -> list[Json]:
        """Gangs of a higher priority than all before."""
        number = next(self.numbers)
        priority = self.priority(number)
        pods = []
        for gang, member in itertools.product(range(gangs), range(SIZE)):
            name = f"r{number}-{gang}"
            one = self.pod(
                f"{name}-{member}",
                priority=priority,
                gang=(name, SIZE),
                terminationGracePeriodSeconds=number % 2,
                affinity=_not_on_led(),
            )
            pods.append(one)
        self.node_pool.create(*pods)
        return pods

    def rest(self, pods: list[Json]) -> str:
        """Once nothing moves; what is wrong then, empty when nothing is."""
        names = {pod["metadata"]["name"] for pod in pods}
        end, last, since = time.monotonic() + LONGEST, None, time.monotonic()
        while time.monotonic() < end:
            time.sleep(0.1)
            now = self.witness.read(lambda books: self.books.moves())
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since >= QUIET and not self.wrong(names):
                return ""
        return f"not at rest within {LONGEST:.0f} s: {self.wrong(names)}"

    def wrong(self, names: set[str]) -> str:
        books = self.books
        waiting, ending, partial = self.witness.read(
            lambda _: (sorted(books.waiting.values()), len(books.ending), books.partial())
        )
        kept = self.pair.steps().get("kept")
        if waiting or ending or partial or kept != 0.0:
            return f"waiting {waiting}, ending {ending}, partial {partial}, kept {kept}"
        known = set(self.node_pool.nodes_of_pods())
        return f"missing {sorted(names - known)}" if names - known else ""

    def break_it(self, fault: Fault) -> None:
        match fault:
            case End(write, nth, before, graceful):
                self.pair.ready()
                self.pair.end_leader_at(write, nth=nth, before=before, graceful=graceful)
            case Spoil(write, kinds, share):
                self.pair.arm(spoil=write, kinds=kinds, share=share)

    def heal(self, fault: Fault) -> None:
        if isinstance(fault, End):
            self.ended += 1
            self.pair.succeed(self.ended)

    def close(self) -> None:
        for name in self.classes:
            self.node_pool.api.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


def _not_on_led() -> Json:
    term = {"matchExpressions": [{"key": LED, "operator": "DoesNotExist"}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.fixture
def site(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Site]:
    for kind in crds.definitions():
        control_plane.api().apply(kind)
    node_pool = NodePool(control_plane, namespace)
    capacity = {node_pool.add_node(f"n{i}", cpu=str(CPUS)): CPUS * SLOT for i in range(NODES)}
    node_pool.add_node(LED, cpu=str(SIZE), labels={LED: "true"})
    pair = SchedulerPair(control_plane, NAME, tmp_path, seed=SEED)
    books = Evictions(capacity)
    with Witness(Stream(control_plane, namespace), books) as witness:
        made = Site(node_pool, pair, witness, books)
        yield made
        made.close()
        pair.stop()
        node_pool.close()


def preempt(site: Site, fault: Fault) -> None:
    site.break_it(fault)
    pods = site.come(COME)
    site.heal(fault)
    assert site.rest(pods) == ""
    site.pair.arm()


def ignore_grace(site: Site, fault: Fault) -> None:
    """Finalizers keep the victims, and the leader is killed meanwhile."""
    site.pair.ready()
    for name in site.node_pool.nodes_of_pods():
        finalize(site, name, [STAY])
    pods = site.come(COME)
    ending = partial(site.witness.read, lambda _: len(site.books.ending))
    eventually(lambda: ending() >= ALL, "all victims are ending")
    eventually(site.pair.leader, "a scheduler leads").kill()
    site.pair.succeed(site.ended)
    eventually(
        lambda: site.pair.steps().get("kept") == COME, "the successor reserves their capacity"
    )
    nodes = site.node_pool.nodes_of_pods()
    assert not any(nodes[pod["metadata"]["name"]] for pod in pods)
    for name in nodes:
        finalize(site, name, None)
    assert site.rest(pods) == ""


def finalize(site: Site, name: str, finalizers: list[str] | None) -> None:
    site.node_pool.api.call(
        "PATCH",
        f"/api/v1/namespaces/{site.node_pool.namespace}/pods/{name}",
        {"metadata": {"finalizers": finalizers}},
        content_type="application/merge-patch+json",
    )


def reserve(site: Site, fault: Fault) -> None:
    """A leader comes, then, once it has a node, the members that it makes."""
    site.break_it(fault)
    number = next(site.numbers)
    job, priority = f"job{number}", site.priority(number)
    make = partial(
        site.pod,
        priority=priority,
        gang=(job, SIZE),
        nodeSelector={"node-pool": site.node_pool.namespace, LED: "true"},
        terminationGracePeriodSeconds=0,
    )
    leader = make(f"{job}-leader")
    leader["metadata"]["labels"][vocabulary.GANG_ROLE_LABEL] = "leader"
    leader["metadata"]["annotations"][vocabulary.GANG_MEMBERS_ANNOTATION] = "cpu=1"
    site.node_pool.create(leader)
    late = isinstance(fault, End) and fault.nth > 1
    if not late:
        site.heal(fault)
    eventually(lambda: site.node_pool.nodes_of_pods()[f"{job}-leader"], "the leader has a node")
    members = [make(f"{job}-{i}") for i in range(1, SIZE)]
    site.node_pool.create(*members)
    if late:
        site.heal(fault)
    assert site.rest([leader, *members]) == ""
    eventually(lambda: not reservations(site), "no reservation is left")
    for pod in (leader, *members):
        path = f"/api/v1/namespaces/{site.node_pool.namespace}/pods/{pod['metadata']['name']}"
        site.node_pool.api.call("DELETE", path)


def reservations(site: Site) -> list[Json]:
    space = site.node_pool.namespace
    path = f"/apis/{vocabulary.API_VERSION}/namespaces/{space}/resourcereservations"
    rows: list[Json] = site.node_pool.api.call("GET", path)["items"]
    return rows


def rounds(site: Site, name: str) -> None:
    """Plays the fault `times` times, and records what the witness saw."""
    books, read = site.books, site.witness.read
    fault = PREEMPTING.get(name) or RESERVING.get(name)
    play = ignore_grace if name == IGNORED else preempt if name in PREEMPTING else reserve
    begun = time.monotonic()
    before = read(lambda _: (len(books.evicted), books.binds))
    wasted, times = 0, SPOILED if isinstance(fault, Spoil) else TIMES
    for _ in range(times):
        play(site, fault)
        free = read(lambda _: books.free())
        wasted += free
        if free:
            fill_up(site, free)
    evicted, binds = read(lambda _: (len(books.evicted), books.binds))
    row = {
        "fault": name,
        "times": times,
        "evicted": evicted - before[0],
        "wasted": wasted,
        "binds": binds - before[1],
        "partial": len(read(lambda _: books.partial())),
        "double": len(books.double),
        "over": len(books.over),
        "seconds": round((time.monotonic() - begun) / times, 1),
    }
    if LONG:
        reliability.add(COUNTS, row)


def fill_up(site: Site, slots: int) -> None:
    """The node pool is full again before the next round."""
    number = next(site.numbers)
    priority = site.priority(number)
    pods = [
        site.pod(
            f"f{number}-{i}", priority=priority, gang=(f"f{number}-{i}", 1), affinity=_not_on_led()
        )
        for i in range(slots)
    ]
    site.node_pool.create(*pods)
    assert site.rest(pods) == ""


@pytest.mark.timeout(3600 if LONG else 600)
def test_no_eviction_is_wasted_and_no_capacity_stays_reserved(site: Site) -> None:
    assert site.rest(site.come(NODES * CPUS // SIZE)) == ""
    wanted = [name for name in (*PREEMPTING, IGNORED, *RESERVING) if LONG or name in SHORT]
    for name in wanted:
        if name.startswith(ONLY):
            rounds(site, name)
    books = site.books
    assert site.witness.read(
        lambda _: (books.free(), books.partial(), books.double, books.over)
    ) == (
        0,
        [],
        [],
        [],
    )
