"""Which classes of pods a change may help: hints, bounds, slices, and that none is missed."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.cache.snapshot import Snapshot
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.plan import filters, requeueing
from scheduler.plan.memo import Memo
from scheduler.plan.requeueing import Requeueing
from scheduler.plugins.protocol import ANY_EVENT, POD_EVENT, QueueingHint
from tests.unit.scheduler.builders import a_node, a_pod

HOST = "kubernetes.io/hostname"


@dataclass(eq=False)
class Class:
    pod: Pod
    queued: bool = False


@dataclass
class Backlog:
    """Classes of pods that wait, on a snapshot."""

    snapshot: Snapshot
    budget: int = requeueing.SLICE
    charged: dict[str, list[Pod]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.requeueing: Requeueing[Class] = Requeueing(self.snapshot, Memo(), budget=self.budget)

    def wait(self, name: str, **more: Any) -> Class:
        pods = Class(a_pod(name, **more))
        self.requeueing.add(pods)
        return pods

    def fill(self, node: str, cpu: str = "4") -> None:
        pod = a_pod(f"on-{node}-{len(self.charged.setdefault(node, []))}", cpu=cpu)
        self.snapshot.charge(pod, node)
        self.charged[node].append(pod)

    def free(self, *nodes: str) -> None:
        for node in nodes:
            self.snapshot.release(self.charged[node].pop(), node)
        self.requeueing.nodes_changed(nodes)

    def slice(self) -> dict[str, QueueingHint]:
        return {pods.pod.key.name: hint for pods, hint in self.requeueing.slice()}

    def all(self) -> tuple[dict[str, QueueingHint], int]:
        """Every hint, and the number of slices."""
        hints: dict[str, QueueingHint] = {}
        slices = 0
        while self.requeueing.pending:
            hints |= self.slice()
            slices += 1
        return hints, slices


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[SchedulingSpec]:
    """How often each spec was tested."""
    counts: Counter[SchedulingSpec] = Counter()
    open_rows = filters.open_rows

    def count(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> Any:
        counts[spec] += 1
        return open_rows(snapshot, spec, memo)

    monkeypatch.setattr(filters, "open_rows", count)
    return counts


def a_cluster(count: int = 3, *, budget: int = requeueing.SLICE) -> Backlog:
    """Nodes of 4 CPU, all of them full."""
    nodes = [a_node(f"n{i}", labels={HOST: f"n{i}"}) for i in range(count)]
    tests = Backlog(Snapshot.of(nodes), budget)
    for node in nodes:
        tests.fill(node.name)
    return tests


ONE_TEST = 1  # the budget of a slice that tests one class


# --- hints ---


def test_a_freed_node_fits_the_classes_that_no_node_could_take_before() -> None:
    tests = a_cluster()
    tests.wait("small", cpu="1")
    tests.wait("exact", cpu="4")
    tests.wait("large", cpu="5")
    tests.wait("pinned", nodeSelector={HOST: "n1"})
    tests.wait("elsewhere", nodeSelector={HOST: "n2"})
    tests.wait("nowhere", nodeSelector={HOST: "n9"})
    tests.free("n1")
    fits = QueueingHint.FITS
    assert tests.slice() == {"small": fits, "exact": fits, "pinned": fits}
    assert (tests.requeueing.pending, tests.slice()) == (False, {})


def test_what_a_plan_rejected_on_an_unchanged_node_is_likely_at_most() -> None:
    tests = a_cluster()
    tests.free("n0")
    tests.wait("p", cpu="1")
    nothing = tests.slice()
    tests.free("n1")
    assert (nothing, tests.slice()) == ({}, {"p": QueueingHint.LIKELY})


ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}


@pytest.mark.parametrize(
    ("pod", "free", "event", "want"),
    [
        pytest.param({"affinity": ANTI_AFFINITY}, True, POD_EVENT, QueueingHint.PERHAPS, id="pod"),
        pytest.param({"affinity": ANTI_AFFINITY}, True, ANY_EVENT, QueueingHint.PERHAPS, id="any"),
        pytest.param({"affinity": ANTI_AFFINITY}, True, "StorageClass", None, id="other kind"),
        pytest.param({"affinity": ANTI_AFFINITY}, False, POD_EVENT, None, id="no amounts anywhere"),
        pytest.param({}, True, POD_EVENT, None, id="does not depend on pods"),
    ],
)
def test_an_event_helps_pods_that_depend_on_it_and_for_which_a_node_has_the_amounts(
    pod: dict[str, Any], free: bool, event: str, want: QueueingHint | None
) -> None:
    tests = a_cluster()
    if free:
        tests.free("n0")
    tests.wait("p", **pod)
    tests.slice()
    tests.requeueing.cluster_event(event)
    assert tests.slice() == ({} if want is None else {"p": want})


def test_a_class_whose_test_fails_with_an_error_is_left_to_the_planner(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tests = a_cluster()
    tests.wait("broken", cpu="1")
    tests.wait("sound", cpu="2")
    open_rows = filters.open_rows

    def broken(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> Any:
        if spec.amount("cpu") == 1000:
            raise ValueError("no such thing")
        return open_rows(snapshot, spec, memo)

    monkeypatch.setattr(filters, "open_rows", broken)
    tests.free("n0")
    assert tests.slice() == {"broken": QueueingHint.LIKELY, "sound": QueueingHint.FITS}
    assert [record.message for record in caplog.records] == ["queueing hint failed"]


def test_a_node_that_changes_its_labels_is_tested_by_the_new_ones() -> None:
    tests = a_cluster()
    tests.wait("p", cpu="1", nodeSelector={"pool": "a"})
    tests.free("n0")
    before = tests.slice()
    tests.snapshot.put_node(a_node("n0", labels={"pool": "a"}))
    tests.requeueing.nodes_changed(["n0"])
    assert (before, tests.slice()) == ({}, {"p": QueueingHint.FITS})


# --- bounds ---


def test_classes_that_request_more_than_a_changed_node_has_cost_no_test(
    counted: Counter[SchedulingSpec],
) -> None:
    tests = a_cluster()
    for i in range(300):
        tests.wait(f"large-{i}", cpu=f"{4001 + i}m")
    for i in range(100):
        tests.wait(f"gpu-{i}", cpu=f"{1 + i}m", gpus=1)
    tests.free("n0")
    assert (tests.all(), sum(counted.values())) == (({}, 1), 0)


def test_pinned_classes_cost_a_test_when_their_own_node_changes(
    counted: Counter[SchedulingSpec],
) -> None:
    tests = a_cluster(50)
    for i in range(50):
        tests.wait(f"p{i}", nodeSelector={HOST: f"n{i}"})
    tests.fill("n7", "1")
    tests.free("n7")
    tests.free("n7")
    first = tests.all()
    counted.clear()
    tests.fill("n8", "1")
    tests.free("n8")
    tests.free("n8")
    assert (first, tests.all(), sum(counted.values())) == (
        ({"p7": QueueingHint.FITS}, 1),
        ({"p8": QueueingHint.FITS}, 1),
        1,
    )


def test_classes_of_a_full_pool_cost_no_test_when_nodes_of_another_pool_change(
    counted: Counter[SchedulingSpec],
) -> None:
    nodes = [a_node(f"{pool}{i}", labels={"pool": pool}) for pool in "ab" for i in range(3)]
    tests = Backlog(Snapshot.of(nodes))
    for node in nodes:
        tests.fill(node.name)
    for i in range(100):
        tests.wait(f"p{i}", cpu=f"{1 + i}m", nodeSelector={"pool": "a"})
    tests.free("b0")
    first = tests.all()
    counted.clear()
    tests.free("b1")
    assert (first, tests.all(), sum(counted.values())) == (({}, 1), ({}, 1), 0)


# --- slices ---


def test_a_round_is_cut_into_slices_of_bounded_work(
    counted: Counter[SchedulingSpec],
) -> None:
    rows = 512  # of the table of 300 nodes
    tests = a_cluster(300, budget=10 * (8192 + rows))
    for i in range(95):
        tests.wait(f"p{i:02}", cpu=f"{1 + i}m")
    tests.free(*(f"n{i}" for i in range(300)))
    sizes = []
    while tests.requeueing.pending:
        sizes.append(len(tests.slice()))
    assert (sizes, max(counted.values())) == ([10] * 9 + [5], 1)


def test_a_class_is_tested_again_only_against_what_changed_since(
    counted: Counter[SchedulingSpec],
) -> None:
    tests = a_cluster(budget=ONE_TEST)
    first, second = tests.wait("first", cpu="3"), tests.wait("second", cpu="2")
    tests.free("n0")
    hints = [tests.slice()]
    tests.free("n1")
    hints += [tests.slice(), tests.slice(), tests.slice()]
    # The second class was tested after both changes, the first once after each of them.
    assert hints == [
        {"first": QueueingHint.FITS},
        {"second": QueueingHint.FITS},
        {"first": QueueingHint.LIKELY},
        {},
    ]
    assert counted == {first.pod.spec: 2, second.pod.spec: 1}


def test_no_class_starves_while_changes_stream_in(
    counted: Counter[SchedulingSpec],
) -> None:
    tests = a_cluster(budget=ONE_TEST)
    for i in range(20):
        tests.wait(f"p{i}", cpu=f"{1 + i}m")
    for _ in range(60):
        tests.free("n0")
        tests.slice()
        tests.fill("n0")
    assert sorted(counted.values()) == [3] * 20


def test_a_class_that_is_about_to_be_planned_costs_no_test(
    counted: Counter[SchedulingSpec],
) -> None:
    tests = a_cluster()
    tests.wait("p", cpu="1").queued = True
    tests.free("n0")
    assert (tests.all(), sum(counted.values())) == (({}, 1), 0)


def test_slots_of_classes_that_left_are_used_again() -> None:
    tests = a_cluster()
    for i in range(1000):
        tests.requeueing.discard(tests.wait(f"p{i}", cpu=f"{1 + i}m"))
    state = vars(tests.requeueing)
    assert (len(tests.requeueing), len(state["_classes"])) == (0, 1)


def test_kinds_of_classes_that_left_are_forgotten_although_no_node_changes() -> None:
    """Users write as many selectors as they like; the nodes stand still."""
    tests = a_cluster()
    tests.free("n0")
    for i in range(2500):
        waiting = tests.wait(f"p{i}", cpu="1", nodeSelector={HOST: f"z{i}"})
        tests.requeueing.nodes_changed(["n0"])
        tests.all()
        tests.requeueing.discard(waiting)
    assert len(vars(vars(tests.requeueing)["_kinds"])["_codes"]) <= 1100


# --- nothing is missed, and nothing is invented ---


class Changes(RuleBasedStateMachine):
    """
    After any sequence of changes and slices, the classes that are hinted are those that a test of
    all classes at once would have found, at the moment of the hint; and once all is quiet no class
    is left that such a test would find.
    """

    NODES = ("a", "b", "c")
    POOLS = ("x", "y")

    @initialize(tests_a_slice=st.integers(1, 3))
    def begin(self, tests_a_slice: int) -> None:
        nodes = [a_node("a", labels={"pool": "x"}), a_node("b", labels={"pool": "y"})]
        self.tests = Backlog(Snapshot.of(nodes), tests_a_slice * 8192)
        self.waiting: dict[Class, set[str]] = {}  # -> nodes that changed since its plan failed
        self.events: set[Class] = set()  # classes that an event may have helped since
        self.numbers = 0

    def change(self, node: str) -> None:
        for nodes in self.waiting.values():
            nodes.add(node)
        self.tests.requeueing.nodes_changed([node])

    def helped(self, pods: Class) -> bool:
        rows = filters.open_rows(self.tests.snapshot, pods.pod.spec, Memo())
        names = {name for name, row in self.tests.snapshot.table.rows.items() if rows[row]}
        return bool(names & self.waiting[pods]) or bool(names and pods in self.events)

    @rule(node=st.sampled_from(NODES), pool=st.sampled_from(POOLS), cpu=st.integers(0, 4))
    def put_node(self, node: str, pool: str, cpu: int) -> None:
        if self.tests.snapshot.put_node(a_node(node, cpu=str(cpu), labels={"pool": pool})):
            self.change(node)

    @rule(node=st.sampled_from(NODES))
    def drop_node(self, node: str) -> None:
        if node in self.tests.snapshot:
            self.tests.snapshot.drop_node(node)
            self.tests.charged.pop(node, None)

    @rule(node=st.sampled_from(NODES), cpu=st.integers(1, 4))
    def pod_starts(self, node: str, cpu: int) -> None:
        if node in self.tests.snapshot:
            self.tests.fill(node, str(cpu))

    @rule(node=st.sampled_from(NODES))
    def pod_ends(self, node: str) -> None:
        if self.tests.charged.get(node):
            for nodes in self.waiting.values():
                nodes.add(node)
            self.tests.free(node)

    @rule(kind=st.sampled_from([POD_EVENT, ANY_EVENT, "StorageClass"]))
    def event(self, kind: str) -> None:
        if kind != "StorageClass":
            self.events |= {pods for pods in self.waiting if pods.pod.spec.inter_pod.is_hard}
        self.tests.requeueing.cluster_event(kind)

    @rule(cpu=st.integers(1, 4), pool=st.sampled_from(POOLS), social=st.booleans())
    def plans_fail(self, cpu: int, pool: str, social: bool) -> None:
        """With pods of two classes, one of them bound to a pool."""
        affinity = ANTI_AFFINITY if social else {}
        for selector in ({}, {"pool": pool}):
            self.numbers += 1
            pods = self.tests.wait(
                f"p{self.numbers}", cpu=str(cpu), nodeSelector=selector, affinity=affinity
            )
            self.waiting[pods] = set()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def another_plan_fails(self, data: st.DataObject) -> None:
        """A pod of the same class did not fit on the nodes as they are now."""
        pods = data.draw(st.sampled_from(list(self.waiting)))
        self.waiting[pods] = set()
        self.events.discard(pods)
        self.tests.requeueing.add(pods)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        pods = data.draw(st.sampled_from(list(self.waiting)))
        del self.waiting[pods]
        self.tests.requeueing.discard(pods)

    @rule()
    def slice(self) -> None:
        for pods, _ in self.tests.requeueing.slice():
            assert self.helped(pods)
            del self.waiting[pods]
            self.tests.requeueing.discard(pods)

    @invariant()
    def nothing_waits_that_can_be_helped_once_quiet(self) -> None:
        if not self.tests.requeueing.pending:
            assert not [pods for pods in self.waiting if self.helped(pods)]

    def teardown(self) -> None:
        if hasattr(self, "tests"):
            for _ in range(len(self.waiting) + 2):
                self.slice()
            assert not self.tests.requeueing.pending
            self.nothing_waits_that_can_be_helped_once_quiet()


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
