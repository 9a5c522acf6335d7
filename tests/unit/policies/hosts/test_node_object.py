"""What Node objects say, in the formats that are really written on them."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import vocabulary
from policies.hosts import node_object, topology
from policies.hosts.merge import HostFacts
from policies.hosts.topology import Gpu, Topology, Zone

LABEL = vocabulary.numa_node_label
COUNT = vocabulary.NUMA_NODE_COUNT_LABEL
GIB = 2**30
GFD = {
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.replicas": "1",
}


def annotation(**document: Any) -> dict[str, str]:
    return {vocabulary.NUMA_TOPOLOGY_ANNOTATION: orjson.dumps(document).decode()}


@pytest.mark.parametrize(
    ("labels", "annotations", "gpus", "want"),
    [
        pytest.param({}, {}, 8, None, id="a host that says nothing has no topology"),
        pytest.param(GFD, {}, 8, None, id="a model alone names no GPU"),
        pytest.param(
            {
                COUNT: "2",
                LABEL(0, "cpus"): "0-1_4-5",
                LABEL(0, "memory"): "1Ki",
                LABEL(0, "bandwidth"): "131072",
                LABEL(0, "distance-0"): "10",
                LABEL(0, "distance-1"): "21",
                LABEL(1, "cpus"): "2-3",
                LABEL(1, "memory"): "512",
            },
            {},
            0,
            Topology(
                (
                    Zone(0, 4000, 1024, bandwidth=131072, distances=((0, 10), (1, 21))),
                    Zone(1, 2000, 512),
                )
            ),
            id="labels, memory as quantity or bytes",
        ),
        pytest.param(
            {COUNT: "1"},
            {LABEL(0, "cpus"): "0-1,4"},
            0,
            Topology((Zone(0, 3000, 0),)),
            id="the comma form in annotations",
        ),
        pytest.param(
            {
                COUNT: "1",
                LABEL(0, "cpus"): "0",
                vocabulary.gpu_numa_labels(0)[0]: "0",
                vocabulary.gpu_numa_labels(1)[1]: "7",
            },
            {},
            3,
            Topology((Zone(0, 1000, 0),), (Gpu(0, 0), Gpu(1, None), Gpu(2, None))),
            id="GPUs in both spellings; a place the host lacks is unknown",
        ),
        pytest.param(
            {
                vocabulary.gpu_numa_labels(0)[0]: "1",
                vocabulary.GPU_VRAM_LABEL: "48Gi",
                vocabulary.GPU_MODEL_LABEL: "L40S",
                vocabulary.GPU_TOPOLOGY_LABEL: "NVLink",
            },
            {},
            1,
            Topology((), (Gpu(0, 1, "L40S", 48 * GIB, island="nvlink"),)),
            id="GPUs alone: their NUMA node is known, and its size is not",
        ),
        pytest.param(
            {COUNT: "1", LABEL(0, "cpus"): "0-63"},
            annotation(
                nodes=[{"id": 1, "cpus": "4-7", "memory": "2Ki"}, {"id": 0, "cpus": "0-3"}],
                gpus=[{"index": 0, "numa": 1}],
            ),
            1,
            Topology((Zone(0, 4000, 0), Zone(1, 4000, 2048)), (Gpu(0, 1),)),
            id="the labeler's annotation comes before labels",
        ),
        pytest.param(
            {
                **GFD,
                COUNT: "1",
                LABEL(0, "cpus"): "0-63",
                LABEL(0, "bandwidth"): "51200",
                "nvidia.com/gpu.clique": "7b968a6d.1",
                vocabulary.GPU_VRAM_LABEL: "40Gi",
                vocabulary.gpu_numa_labels(0)[0]: "0",
            },
            annotation(
                nodes=[{"id": 0, "cpus": "0-3", "memory": GIB}],
                gpus=[
                    {"index": 0, "vendor": "nvidia", "pci": "0000:1b:00.0", "root": "pci0000:1a"}
                ],
            ),
            1,
            Topology(
                (Zone(0, 4000, GIB, bandwidth=51200),),
                (
                    Gpu(
                        0,
                        0,
                        "NVIDIA-H100-80GB-HBM3",
                        81559 * 2**20,
                        "pci0000:1a",
                        "7b968a6d.1",
                        pci="0000:1b:00.0",
                    ),
                ),
            ),
            id="each fact from the best source that reports it",
        ),
        pytest.param(
            {},
            annotation(
                nodes=[{"id": 0, "cpus": "0", "memory": 1}],
                gpus=[
                    {"index": 0, "vendor": "intel", "numa": 0},
                    {"index": 0, "vendor": "nvidia", "numa": 0, "switch": "s"},
                    {"index": 1, "vendor": "nvidia"},
                ],
            ),
            2,
            Topology((Zone(0, 1000, 1),), (Gpu(0, 0, switch="s"), Gpu(1, None))),
            id="the GPUs are those of the maker that has most of them",
        ),
        pytest.param(
            {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "NVIDIA-L4-SHARED"},
            annotation(nodes=[{"id": 0, "cpus": "0"}], gpus=[{"index": 0, "numa": 0}]),
            4,
            Topology((Zone(0, 1000, 0),)),
            id="GPUs that are shared are not given by index",
        ),
        pytest.param(
            {COUNT: "2", LABEL(0, "cpus"): "0-1"},
            {vocabulary.NUMA_TOPOLOGY_ANNOTATION: "nonsense"},
            0,
            Topology(
                (Zone(0, 2000, 0),),
                problems=(
                    f"{vocabulary.NUMA_TOPOLOGY_ANNOTATION}: found 'nonsense', want JSON",
                    f"{COUNT} is 2, node 1 is missing",
                ),
            ),
            id="what cannot be read is named",
        ),
        pytest.param(
            {},
            annotation(nodes=[{"cpus": "0"}, {"id": 1, "cpus": "x"}, 3, {"id": 0, "cpus": "0"}]),
            0,
            Topology(
                (Zone(0, 1000, 0),),
                problems=(
                    f"{vocabulary.NUMA_TOPOLOGY_ANNOTATION}: a NUMA node without an id",
                    "NUMA node 1: found 'x', want a CPU list such as 0-15_32-47",
                ),
            ),
            id="a bad row costs that row alone",
        ),
    ],
)
def test_topologies(
    labels: dict[str, str], annotations: dict[str, str], gpus: int, want: Topology | None
) -> None:
    assert node_object.read(labels, annotations, gpus=gpus) == want


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param(
            {
                "feature.node.kubernetes.io/memory-numa": "true",
                "feature.node.kubernetes.io/pci-10de.present": "true",
                "feature.node.kubernetes.io/pci-0302_1002.present": "true",
                "feature.node.kubernetes.io/pci-0200_8086.present": "true",
                "feature.node.kubernetes.io/pci-1af4.present": "true",
                "feature.node.kubernetes.io/cpu-cpuid.AVX512F": "true",
            },
            {"several NUMA nodes": True, "GPU makers": ("amd", "nvidia")},
            id="several NUMA nodes and two makers; a network card is no GPU",
        ),
    ],
)
def test_node_feature_discovery(labels: dict[str, str], want: dict[str, Any]) -> None:
    assert node_object.discovered(labels) == HostFacts(node_object.NFD, host=want)


@pytest.mark.parametrize(
    ("labels", "gpus", "want"),
    [
        pytest.param({}, (), 0, id="unknown"),
        pytest.param({vocabulary.GPU_VRAM_LABEL: "1Ki"}, (), 1024, id="an admin says"),
        pytest.param(
            {vocabulary.GPU_VRAM_LABEL: "1Ki", vocabulary.GFD_MEMORY_LABEL: "2"},
            (),
            2 * 2**20,
            id="discovery knows better than an admin",
        ),
        pytest.param(
            {vocabulary.GPU_VRAM_LABEL: "1Ki", vocabulary.GFD_MEMORY_LABEL: "much"},
            (),
            1024,
            id="a slip counts as unsaid",
        ),
        pytest.param(
            GFD, (Gpu(0, 0, vram=7), Gpu(1, 0, vram=9), Gpu(2, 0)), 9, id="the largest GPU's"
        ),
    ],
)
def test_vram(labels: dict[str, str], gpus: tuple[Gpu, ...], want: int) -> None:
    assert node_object.vram(labels, Topology((), gpus) if gpus else None) == want


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-", "-1", "0-99999", "1,,2"])
def test_an_invalid_cpu_list_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="found"):
        topology.count_cpus(text)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=8))
def test_cpus_that_ranges_share_count_once(rows: list[tuple[int, int]]) -> None:
    text = ",".join(f"{low}-{low + more}" for low, more in rows)
    cpus = {cpu for low, more in rows for cpu in range(low, low + more + 1)}
    assert topology.count_cpus(text) == len(cpus)


def test_a_cpu_list_that_is_too_long_is_not_read() -> None:
    with pytest.raises(ValueError, match="of 69999 characters, want at most 32768 characters"):
        topology.count_cpus(",".join(["0-4095"] * 10_000))


def test_an_annotation_that_is_too_long_is_not_read() -> None:
    text = orjson.dumps({"nodes": [{"id": 0, "cpus": "0-3", "more": "x" * 2**16}]}).decode()
    facts = node_object.annotated(text)
    assert not facts
    assert facts.problems == (
        f"{vocabulary.NUMA_TOPOLOGY_ANNOTATION}: found {text[:40]!r}... of {len(text)} characters,"
        " want at most 65536 characters",
    )


class Counted(dict[str, str]):
    """A map that counts its lookups."""

    lookups = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(key, default)


def test_a_node_count_of_any_size_costs_what_the_largest_host_costs() -> None:
    labels = Counted({COUNT: "9999"} | {LABEL(n, "cpus"): "0" for n in range(64)})
    node_object.plain_labels(labels, {}, gpus=0)
    assert labels.lookups < 10_000


def test_a_value_of_any_depth_in_the_annotation_counts_as_absent() -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    row = {"index": 0, "vendor": deep, "island": deep, "vram": deep, "numa": deep, "model": deep}
    facts = node_object.annotated(orjson.dumps({"gpus": [row], "nodes": [deep]}).decode())
    assert facts.gpus == {0: {}}
