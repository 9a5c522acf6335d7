from typing import Any

import pytest

from policies import vocabulary
from policies.checks import numa
from policies.checks.numa import NumaSizes, Size
from policies.pods import intent
from tests.builders import a_container, a_pod

Json = dict[str, Any]
GI = 2**30
LABEL = vocabulary.numa_node_label
POLICY = vocabulary.NUMA_POLICY_ANNOTATION
RESOURCES = vocabulary.NUMA_RESOURCES_ANNOTATION
WIDE, DEEP = Size(32000, 128 * GI, 4), Size(16000, 512 * GI, 4)
FIX = f": with {POLICY} single-numa it waits for a larger node; request less, or use restricted"


def a_numa_pod(
    policy: str = "single-numa", *, resources: str | None = None, **amounts: str
) -> Json:
    annotations = {POLICY: policy} | ({RESOURCES: resources} if resources else {})
    named = {"nvidia.com/gpu" if name == "gpu" else name: count for name, count in amounts.items()}
    container = a_container() | {"resources": {"requests": named}}
    return a_pod(annotations=annotations, containers=[container])


@pytest.mark.parametrize(
    ("pod", "known", "want"),
    [
        pytest.param(a_numa_pod(cpu="32", memory="128Gi", gpu="4"), [WIDE], None, id="just fits"),
        pytest.param(
            a_numa_pod(cpu="40"),
            [WIDE, DEEP],
            "requests 40 CPUs on one NUMA node, the largest known has 32",
            id="more CPUs than any has",
        ),
        pytest.param(
            a_numa_pod(memory="1Ti"),
            [WIDE, DEEP],
            "requests 1Ti of memory on one NUMA node, the largest known has 512Gi",
            id="more memory than any has",
        ),
        pytest.param(
            a_numa_pod(cpu="33500m", gpu="8"),
            [WIDE, DEEP],
            "requests 33500m CPUs on one NUMA node, the largest known has 32, "
            "and 8 GPUs on one NUMA node, the largest known has 4",
            id="more of two resources",
        ),
        pytest.param(
            a_numa_pod(cpu="32", memory="512Gi"),
            [WIDE, DEEP],
            "requests 32 CPUs and 512Gi of memory on one NUMA node, no known one has all",
            id="each amount exists, but not on one",
        ),
        pytest.param(
            a_numa_pod(cpu="40", gpu="4", resources="nvidia.com/gpu"),
            [WIDE],
            None,
            id="a resource left out of the list may sit anywhere",
        ),
        pytest.param(a_numa_pod("restricted", cpu="40"), [WIDE], None, id="restricted may span"),
        pytest.param(a_numa_pod("isolated", cpu="40"), [WIDE], None, id="isolated may span"),
        pytest.param(a_numa_pod("best-effort", cpu="40"), [WIDE], None, id="best-effort may span"),
        pytest.param(a_numa_pod(cpu="40"), [], None, id="nothing is known of any node"),
        pytest.param(a_numa_pod(cpu="many"), [WIDE], None, id="an amount that is none"),
        pytest.param(a_numa_pod() | {"spec": []}, [WIDE], None, id="a spec that is none"),
    ],
)
def test_what_is_too_large(pod: Json, known: list[Size], want: str | None) -> None:
    got = numa.warning(pod, intent.read(pod).numa, known)
    assert got == (None if want is None else want + FIX)


def a_node(labels: dict[str, str], **allocatable: Any) -> Json:
    offered = {name.replace("gpu", "nvidia.com/gpu"): n for name, n in allocatable.items()}
    return {"metadata": {"labels": labels}, "status": {"allocatable": offered}}


TWO = {
    vocabulary.NUMA_NODE_COUNT_LABEL: "2",
    LABEL(0, "cpus"): "0-3",
    LABEL(0, "memory"): "1Gi",
    LABEL(1, "cpus"): "4-5",
    LABEL(1, "memory"): "2Gi",
}
FIRST = {vocabulary.gpu_numa_labels(gpu)[0]: "0" for gpu in range(2)}


@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param(a_node({}), set(), id="a node without NUMA data"),
        pytest.param({}, set(), id="no node at all"),
        pytest.param(a_node(TWO), {Size(4000, GI), Size(2000, 2 * GI)}, id="two sizes"),
        pytest.param(
            a_node(TWO | FIRST, gpu="2"),
            {Size(4000, GI, 2), Size(2000, 2 * GI)},
            id="GPUs count where they sit",
        ),
        pytest.param(
            a_node(TWO | FIRST, gpu="3"),
            {Size(4000, GI, 3), Size(2000, 2 * GI, 1)},
            id="a GPU on an unknown NUMA node may be on any",
        ),
        pytest.param(
            a_node(TWO, gpu="4"),
            {Size(4000, GI, 4), Size(2000, 2 * GI, 4)},
            id="GPUs without any place",
        ),
        pytest.param(
            a_node(TWO, gpu="nonsense"),
            {Size(4000, GI), Size(2000, 2 * GI)},
            id="a number of GPUs that is none",
        ),
    ],
)
def test_sizes_of_a_node(node: Json, want: set[Size]) -> None:
    assert numa.sizes_of(node) == want


SMALL = Size(1000, GI)
NOTHING: frozenset[Size] = frozenset()


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param([(NOTHING, {SMALL}), (NOTHING, {WIDE})], (WIDE,), id="a larger node comes"),
        pytest.param(
            [(NOTHING, {WIDE}), (NOTHING, {SMALL, DEEP})],
            (WIDE, DEEP),
            id="neither of two is the larger one",
        ),
        pytest.param(
            [(NOTHING, {SMALL}), (NOTHING, {WIDE}), ({WIDE}, NOTHING)],
            (SMALL,),
            id="the largest is removed",
        ),
        pytest.param(
            [(NOTHING, {WIDE}), (NOTHING, {WIDE}), ({WIDE}, NOTHING)],
            (WIDE,),
            id="one of two equals is removed",
        ),
        pytest.param(
            [(NOTHING, {WIDE, SMALL}), ({WIDE, SMALL}, {DEEP, SMALL})],
            (DEEP,),
            id="a node changes",
        ),
        pytest.param([(NOTHING, {WIDE}), ({WIDE}, {WIDE})], (WIDE,), id="a node stays as it is"),
        pytest.param([(NOTHING, {WIDE}), ({WIDE}, NOTHING)], (), id="the last node is removed"),
    ],
)
def test_what_is_known_follows_the_nodes(
    changes: list[tuple[set[Size], set[Size]]], want: tuple[Size, ...]
) -> None:
    known = NumaSizes()
    for before, after in changes:
        known.change(frozenset(before), frozenset(after))
    assert known.largest == want
