"""Kube-scheduler's default scores: known figures, and a plain reading of each for any cluster."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.plan import filters, scores
from scheduler.plan.memo import Memo
from scheduler.plugins.node_resources import NodeResources
from tests.unit.scheduler.builders import a_node, a_pod, pod_json

Json = dict[str, Any]
MB = 2**20


def soft(key: str) -> Json:
    return {"key": key, "effect": "PreferNoSchedule"}


def prefers(*terms: tuple[int, str, str]) -> Json:
    rows = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
        }
        for weight, key, value in terms
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rows}}}


def with_images(name: str, **sizes: int) -> Node:
    rows = [
        {"names": [image if ":" in image else f"{image}:1"], "sizeBytes": size}
        for image, size in sizes.items()
    ]
    return Node.read(
        {
            "metadata": {"name": name},
            "status": {"images": rows, "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}},
        }
    )


def holding(name: str, image: str) -> Node:
    return with_images(name, **{image: 9000 * MB})


def runs(*images: str) -> Pod:
    rows = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    return a_pod("p", containers=rows)


def by_node(snapshot: Snapshot, found: Any) -> dict[str, int] | None:
    if found is None:
        return None
    return {name: int(found[row]) for name, row in sorted(snapshot.table.rows.items())}


def preferences(cluster: list[Node], pod: Pod) -> dict[str, int] | None:
    snapshot, memo = Snapshot.of(cluster), Memo()
    rows = filters.feasible(snapshot, pod, memo)
    return by_node(snapshot, scores.preferences(snapshot, pod, rows, memo))


@pytest.mark.parametrize(
    ("cluster", "pod", "want"),
    [
        pytest.param([a_node("a"), a_node("b")], a_pod(), None, id="nothing preferred"),
        pytest.param(
            [
                a_node("a"),
                a_node("b", taints=[soft("k")]),
                a_node("c", taints=[soft("k"), soft("j")]),
            ],
            a_pod(),
            {"a": 300, "b": 150, "c": 0},
            id="fewer taints that speak against a node",
        ),
        pytest.param(
            [a_node("a"), a_node("b", taints=[soft("k")])],
            a_pod(tolerations=[{"key": "k", "operator": "Exists"}]),
            None,
            id="a tolerated taint does not count",
        ),
        pytest.param(
            [a_node("a"), a_node("b", taints=[soft("k")])],
            a_pod(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}]),
            {"a": 300, "b": 0},
            id="a toleration of another effect",
        ),
        pytest.param(
            [a_node("a", labels={"x": "1"}), a_node("b", labels={"y": "1"}), a_node("c")],
            a_pod(**prefers((30, "x", "1"), (10, "y", "1"))),
            {"a": 200, "b": 66, "c": 0},
            id="preferred terms by weight",
        ),
        pytest.param(
            [a_node("a", labels={"x": "1", "y": "1"}), a_node("b", labels={"x": "1"})],
            a_pod(**prefers((30, "x", "1"), (10, "y", "1"))),
            {"a": 200, "b": 150},
            id="weights add up",
        ),
        pytest.param(
            [a_node("a"), a_node("b")],
            a_pod(**prefers((30, "x", "1"))),
            None,
            id="a preference that no node meets",
        ),
        pytest.param(
            [with_images("a", big=511 * MB), with_images("b")],
            runs("big:1"),
            {"a": (255 * MB + MB // 2 - 23 * MB) * 100 // (977 * MB), "b": 0},
            id="an image, scaled by how many nodes have it",
        ),
        pytest.param(
            [with_images("a", small=40 * MB), with_images("b")],
            runs("small:1"),
            None,
            id="an image too small to count",
        ),
        pytest.param(
            [with_images("a", big=4000 * MB), with_images("b", big=1)],
            runs("big:1", "absent:1"),
            {"a": 100, "b": 100},
            id="an image has the size that was named first, and no more than 1000 MB a container",
        ),
        pytest.param(
            [holding("a", "host:5000/big:latest"), holding("b", "host:5000/big:1")],
            runs("host:5000/big"),
            {"a": 100, "b": 0},
            id="no tag means latest, and a port is no tag",
        ),
    ],
)
def test_what_the_user_prefers(cluster: list[Node], pod: Pod, want: dict[str, int] | None) -> None:
    assert preferences(cluster, pod) == want


def test_only_the_rows_that_are_compared_set_the_measure() -> None:
    """A node that does not fit is no better than the others, however much it is preferred."""
    cluster = [
        a_node("a", cpu="1", labels={"x": "1", "y": "1"}),
        a_node("b", labels={"x": "1"}),
        a_node("c"),
    ]
    pod = a_pod(cpu="2", **prefers((10, "x", "1"), (90, "y", "1")))
    found = preferences(cluster, pod)
    assert found is not None
    assert (found["b"], found["c"]) == (200, 0)


def test_an_image_that_is_pulled_is_seen() -> None:
    snapshot, memo = Snapshot.of([with_images("a"), with_images("b", big=9)]), Memo()
    pod = runs("big:1")
    rows = filters.feasible(snapshot, pod, memo)
    before = scores.preferences(snapshot, pod, rows, memo)
    snapshot.put_node(with_images("b"))
    snapshot.put_node(with_images("a", big=2000 * MB))
    after = by_node(snapshot, scores.preferences(snapshot, pod, rows, memo))
    snapshot.drop_node("a")
    gone = scores.preferences(snapshot, pod, snapshot.table.alive, memo)
    assert (before, after, gone) == (None, {"a": 100, "b": 0}, None)


def test_a_pulled_image_requeues_no_pod() -> None:
    snapshot = Snapshot.of([with_images("a")])
    before = snapshot.freed, snapshot.moved
    changed = snapshot.put_node(with_images("a", big=2000 * MB))
    assert (changed, (snapshot.freed, snapshot.moved)) == (False, before)


# Figures of kube-scheduler's own LeastAllocated and BalancedAllocation.
@pytest.mark.parametrize(
    ("nodes", "held", "pod", "want"),
    [
        pytest.param(
            {"a": ("4", "16Gi"), "b": ("8", "16Gi")},
            [],
            {"cpu": "2", "memory": "8Gi"},
            {"a": 50 + 75, "b": (75 + 50) // 2 + 50 + (50 + 87 - 100) // 2},
            id="an even pod on an even node",
        ),
        pytest.param(
            {"a": ("4", "4Gi")},
            [("a", {"cpu": "2", "memory": "1Gi"})],
            {"cpu": "1", "memory": "2Gi"},
            {"a": (25 + 25) // 2 + 50 + (50 + 100 - 87) // 2},
            id="a pod that evens out what is used",
        ),
        pytest.param(
            {"a": ("1", "400Mi")},
            [],
            {"containers": [{"name": "c"}]},
            {"a": (90 + 50) // 2},
            id="a pod without requests counts as 100m and 200 MB, and balances nothing",
        ),
        pytest.param(
            {"a": ("1", "400Mi")},
            [("a", {"containers": [{"name": "c"}, {"name": "d", "resources": {}}]})],
            {"cpu": "500m", "memory": "100Mi"},
            {"a": (30 + 0) // 2 + 50 + (50 + 87 - 100) // 2},
            id="pods without requests count on their node",
        ),
    ],
)
def test_what_is_left_and_how_evenly(
    nodes: dict[str, tuple[str, str]],
    held: list[tuple[str, Json]],
    pod: Json,
    want: dict[str, int],
) -> None:
    cluster = [a_node(name, cpu=cpu, memory=memory) for name, (cpu, memory) in nodes.items()]
    pods = [(a_pod(f"h{i}", **spec), node) for i, (node, spec) in enumerate(held)]
    snapshot = Snapshot.of(cluster, pods)
    found = scores.spreading(snapshot, a_pod(**pod), snapshot.table.alive, Memo())
    assert by_node(snapshot, found) == want


# --- for every cluster: as if each node had been read on its own ---

AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "50m", "700m", "1", "3"]),
        "memory": st.sampled_from(["0", "64Mi", "1Gi", "3Gi"]),
    },
)
SIZES = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "1", "4", "7"]),
        "memory": st.sampled_from(["0", "1Gi", "5Gi", "9Gi"]),
    },
)
CPU = {"0": 0, "50m": 50, "700m": 700, "1": 1000, "3": 3000, "4": 4000, "7": 7000}
MEMORY = {"0": 0, "64Mi": 64 * MB, **{f"{n}Gi": n * 2**30 for n in (1, 3, 5, 9)}}


def pod_of(name: str, containers: list[dict[str, str]]) -> Pod:
    rows = [{"name": f"c{i}", "resources": {"requests": r}} for i, r in enumerate(containers)]
    return Pod.read(pod_json(name, containers=rows))


def scored_requests(containers: list[dict[str, str]], *, defaults: bool) -> tuple[int, int]:
    cpu = sum(CPU[row["cpu"]] if "cpu" in row else 100 * defaults for row in containers)
    memory = sum(
        MEMORY[row["memory"]] if "memory" in row else 200 * MB * defaults for row in containers
    )
    return cpu, memory


def plainly(
    size: dict[str, str], held: list[list[dict[str, str]]], pod: list[dict[str, str]]
) -> int:
    """LeastAllocated and BalancedAllocation of one node, by their definitions."""
    sizes = (CPU[size.get("cpu", "0")], MEMORY[size.get("memory", "0")])
    left, before, after = [], [], []
    for i, amount in enumerate(sizes):
        if amount == 0:
            continue
        counted = sum(scored_requests(one, defaults=True)[i] for one in [*held, pod])
        left.append(0 if counted > amount else (amount - counted) * 100 // amount)
        used = sum(scored_requests(one, defaults=False)[i] for one in held)
        before.append(min(1.0, used / amount))
        after.append(min(1.0, (used + scored_requests(pod, defaults=False)[i]) / amount))
    score = sum(left) // len(left) if left else 0
    if any(scored_requests(pod, defaults=False)):
        even = [
            int((1 - abs((parts[0] - parts[-1]) / 2)) * 100) if parts else 100
            for parts in (after, before)
        ]
        score += 50 + (50 + even[0] - even[1]) // 2
    return score


PODS = st.lists(AMOUNTS, min_size=1, max_size=2)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(SIZES, min_size=1, max_size=3),
    st.lists(st.tuples(PODS, st.integers(0, 2)), max_size=14),
    st.lists(PODS, min_size=1, max_size=3),
)
def test_scores_follow_every_change(
    sizes: list[dict[str, str]],
    moves: list[tuple[list[dict[str, str]], int]],
    pods: list[list[dict[str, str]]],
) -> None:
    """Kept up to date pod by pod, and all at once, they are what a plain reading says."""
    names = [f"n{i}" for i in range(len(sizes))]
    cluster = [
        Node.read({"metadata": {"name": name}, "status": {"allocatable": size}})
        for name, size in zip(names, sizes, strict=True)
    ]
    snapshot, memo = Snapshot.of(cluster), Memo()
    held: dict[str, list[list[dict[str, str]]]] = {name: [] for name in names}
    last: tuple[list[dict[str, str]], int] = ([{}], 0)
    for number, (containers, spot) in enumerate([*moves, last]):
        for i, pod in enumerate(pods):
            incoming = pod_of(f"p{i}", pod)
            want = {
                name: plainly(size, held[name], pod)
                for name, size in zip(names, sizes, strict=True)
            }
            kept_up_to_date = scores.spreading(snapshot, incoming, snapshot.table.alive, memo)
            computed_anew = NodeResources(snapshot.table).spread_score(
                incoming, snapshot.table.alive
            )
            for scored in (kept_up_to_date, computed_anew):
                assert by_node(snapshot, scored) == want
        name = names[spot % len(names)]
        snapshot.charge(pod_of(f"h{number}", containers), name)
        held[name].append(containers)


def test_many_changes_between_two_questions() -> None:
    """More than are remembered, and more than are renewed one by one."""
    cluster = [a_node(f"n{i}", cpu="64", memory="64Gi", pods="999") for i in range(20)]
    snapshot, memo, pod = Snapshot.of(cluster), Memo(), a_pod("p", memory="1Gi")
    for count in (0, 1, 15, 5000):
        for i in range(count):
            (snapshot.charge if i < 3000 else snapshot.release)(pod, f"n{i % 20}")
        kept_up_to_date = scores.spreading(snapshot, pod, snapshot.table.alive, memo)
        computed_anew = NodeResources(snapshot.table).spread_score(pod, snapshot.table.alive)
        assert by_node(snapshot, kept_up_to_date) == by_node(snapshot, computed_anew)


def test_a_new_node_in_an_old_row_is_as_empty_as_it_is() -> None:
    snapshot, memo, pod = Snapshot.of([a_node("a")]), Memo(), a_pod(memory="1Gi")
    fresh = by_node(snapshot, scores.spreading(snapshot, pod, snapshot.table.alive, memo))
    snapshot.charge(a_pod("quiet", containers=[{"name": "c"}]), "a")
    snapshot.drop_node("a")
    snapshot.put_node(a_node("a"))
    again = by_node(snapshot, scores.spreading(snapshot, pod, snapshot.table.alive, memo))
    assert again == fresh


def test_a_trial_leaves_the_scores_as_they_were() -> None:
    snapshot, memo, pod = Snapshot.of([a_node("a"), a_node("b")]), Memo(), a_pod(memory="1Gi")
    rows = snapshot.table.alive
    before = by_node(snapshot, scores.spreading(snapshot, pod, rows, memo))
    with snapshot.trial():
        snapshot.place(pod, "a")
        inside = by_node(snapshot, scores.spreading(snapshot, pod, rows, memo))
    after = by_node(snapshot, scores.spreading(snapshot, pod, rows, memo))
    assert before == after != inside
