"""Who counts where: assumptions, confirmations, strangers, and nodes that come and go."""

from collections.abc import Callable

import pytest

from scheduler.cache.cache import Cache
from scheduler.errors import InvariantError
from scheduler.model.assignment import Assignment, NumaShare
from scheduler.model.gang import GangKey
from scheduler.model.plan import NoFit
from scheduler.model.unit import Unit
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_gang, a_node, a_pod, placed

Step = Callable[[Cache], object]

MINE = a_pod("mine", cpu="1")
ON_A = a_pod("mine", cpu="1", node="a")
ON_B = a_pod("mine", cpu="1", node="b")
FOREIGN = a_pod("foreign", cpu="2", node="a", schedulerName="other")


def free(cache: Cache, node: str) -> int:
    table = cache.snapshot.table
    return table.free_at(table.rows[node], "cpu")


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        pytest.param([], (4000, 4000), id="no pod is placed"),
        pytest.param([lambda c: c.assume(placed(MINE, "a"))], (3000, 4000), id="assumed counts"),
        pytest.param(
            [lambda c: c.assume(placed(MINE, "a")), lambda c: c.forget(MINE.uid)],
            (4000, 4000),
            id="forgotten does not",
        ),
        pytest.param(
            [lambda c: c.assume(placed(MINE, "a")), lambda c: c.put_pod(ON_A)],
            (3000, 4000),
            id="confirmed counts once",
        ),
        pytest.param(
            [
                lambda c: c.assume(placed(MINE, "a")),
                lambda c: c.put_pod(ON_A),
                lambda c: c.forget(MINE.uid),
            ],
            (3000, 4000),
            id="what the watch confirmed is not forgotten",
        ),
        pytest.param(
            [
                lambda c: c.assume(placed(MINE, "a")),
                lambda c: c.confirm(MINE.uid),
                lambda c: c.forget(MINE.uid),
            ],
            (3000, 4000),
            id="what the API server took is not forgotten",
        ),
        pytest.param(
            [lambda c: c.assume(placed(MINE, "a")), lambda c: c.put_pod(MINE)],
            (3000, 4000),
            id="an old state of the pod does not end the assumption",
        ),
        pytest.param(
            [lambda c: c.assume(placed(MINE, "a")), lambda c: c.put_pod(ON_B)],
            (4000, 3000),
            id="another scheduler bound it elsewhere",
        ),
        pytest.param(
            [lambda c: c.assume(placed(MINE, "a")), lambda c: c.drop_pod(MINE.uid)],
            (4000, 4000),
            id="deleted while its bind is in flight",
        ),
        pytest.param([lambda c: c.put_pod(FOREIGN)], (2000, 4000), id="strangers count"),
        pytest.param(
            [lambda c: c.put_pod(a_pod("foreign", cpu="2", node="a", deleted=True))],
            (2000, 4000),
            id="terminating pods count until they are gone",
        ),
        pytest.param(
            [
                lambda c: c.put_pod(FOREIGN),
                lambda c: c.put_pod(
                    a_pod("foreign", cpu="2", node="a", status={"phase": "Succeeded"})
                ),
            ],
            (4000, 4000),
            id="finished pods do not",
        ),
        pytest.param(
            [lambda c: c.put_pod(ON_A), lambda c: c.put_pod(a_pod("mine", cpu="3", node="a"))],
            (1000, 4000),
            id="a resized pod counts as it is now",
        ),
        pytest.param(
            [lambda c: c.put_pod(FOREIGN), lambda c: c.put_node(a_node("a", cpu="8"))],
            (6000, 4000),
            id="a changed node keeps its pods",
        ),
        pytest.param(
            [
                lambda c: c.put_pod(FOREIGN),
                lambda c: c.drop_node("a"),
                lambda c: c.put_pod(ON_A),
                lambda c: c.put_node(a_node("a")),
            ],
            (1000, 4000),
            id="a node that returns finds its pods, those bound meanwhile too",
        ),
        pytest.param(
            [lambda c: c.put_pod(a_pod("huge", cpu="9", node="a"))],
            (-5000, 4000),
            id="a stranger may overcommit a node",
        ),
    ],
)
def test_what_is_free(steps: list[Step], want: tuple[int, int]) -> None:
    cache = Cache()
    cache.put_node(a_node("a"))
    cache.put_node(a_node("b"))
    for step in steps:
        step(cache)
    assert (free(cache, "a"), free(cache, "b")) == want


def test_a_removed_row_is_used_again_without_its_past() -> None:
    cache = Cache()
    cache.put_node(a_node("a"))
    cache.put_pod(FOREIGN)
    cache.drop_node("a")
    cache.put_node(a_node("c", cpu="1"))
    assert (free(cache, "c"), len(cache.snapshot)) == (1000, 1)


def test_pods_that_came_before_their_node_are_counted_with_it() -> None:
    cache = Cache()
    cache.put_pod(FOREIGN)
    cache.put_node(a_node("a"))
    assert free(cache, "a") == 2000


def test_assignments_are_rebuilt_from_pods_and_from_a_changed_topology() -> None:
    held = Assignment((NumaShare(1, 1000, 0),), (2,))
    pod = a_pod(
        "held",
        gpus=1,
        node="a",
        annotations={"numa.scheduling.kubenexus.io/assigned": held.render()},
    )
    cache = Cache()
    cache.put_node(a_node("a", gpus=4))
    cache.put_pod(pod)
    cache.put_node(a_node("a", gpus=4, zones=2))
    layout = cache.snapshot.host_usage["a"]
    assert (layout.numa_nodes[1].cpu, layout.numa_nodes[0].cpu, sorted(layout.free_gpus)) == (
        1000,
        2000,
        [0, 1, 3],
    )


def test_members_count_while_they_have_a_node_and_stay() -> None:
    cache, gang = Cache(), GangKey("ns", "g")
    cache.put_node(a_node("a"))
    first, second = a_gang(2)
    counts = [cache.bound(gang)]
    for step in (
        lambda: cache.assume(placed(first, "a")),
        lambda: cache.put_pod(a_pod("g-1", gang=("g", 2), node="a")),
        lambda: cache.put_pod(a_pod("g-1", gang=("g", 2), node="a", deleted=True)),
        lambda: cache.forget(first.uid),
    ):
        step()
        counts.append(cache.bound(gang))
    assert counts == [0, 1, 2, 1, 0]
    assert second.uid == "uid-g-1"


def test_placing_a_pod_twice_is_a_bug() -> None:
    cache = Cache()
    cache.put_node(a_node("a"))
    cache.assume(placed(MINE, "a"))
    with pytest.raises(InvariantError, match="placed already"):
        cache.assume(placed(MINE, "a"))


def test_placing_what_does_not_fit_is_a_bug() -> None:
    cache = Cache()
    cache.put_node(a_node("a"))
    with pytest.raises(InvariantError, match="less than nothing left of cpu"):
        cache.assume(placed(a_pod("huge", cpu="5"), "a"))


def test_an_equal_node_is_no_change() -> None:
    cache = Cache()
    assert [cache.put_node(a_node("a")), cache.put_node(a_node("a"))] == [True, False]


def test_many_nodes_keep_their_facts_when_the_columns_grow() -> None:
    snapshot = Cache().snapshot
    taint = {"key": "odd", "effect": "NoSchedule"}
    for i in range(200):
        name = f"n{i:03}"
        snapshot.put_node(
            a_node(name, labels={"half": str(i % 2)}, taints=[taint] if i % 2 else [])
        )
        assert snapshot.table.labelled("half", "1").sum() == (i + 1) // 2
    plans = [
        planner.plan(Unit(pod.key, (pod,)), snapshot)
        for pod in (a_pod(nodeSelector={"half": "1"}), a_pod(nodeSelector={"half": "0"}))
    ]
    assert [
        plan.text if isinstance(plan, NoFit) else plan.placements[0].node for plan in plans
    ] == [
        "0/200 nodes are available: 100 node(s) didn't match Pod's node affinity/selector, "
        "100 node(s) had untolerated taint(s).",
        "n000",
    ]
