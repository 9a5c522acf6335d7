import pytest

from policies import numa_nodes, vocabulary
from policies.numa_nodes import Gpu, Topology, Zone

LABEL = vocabulary.numa_node_label


@pytest.mark.parametrize(
    ("labels", "annotations", "gpus", "want"),
    [
        pytest.param({}, {}, 8, None, id="a host that says nothing has no topology"),
        pytest.param(
            {
                vocabulary.NUMA_NODE_COUNT_LABEL: "2",
                LABEL(0, "cpus"): "0-1_4-5",
                LABEL(0, "memory"): "1Ki",
                LABEL(1, "cpus"): "2-3",
                LABEL(1, "memory"): "512",
            },
            {},
            0,
            Topology((Zone(0, 4000, 1024), Zone(1, 2000, 512))),
            id="labels, memory as quantity or bytes",
        ),
        pytest.param(
            {vocabulary.NUMA_NODE_COUNT_LABEL: "1"},
            {LABEL(0, "cpus"): "0-1,4"},
            0,
            Topology((Zone(0, 3000, 0),)),
            id="the comma form in annotations",
        ),
        pytest.param(
            {
                vocabulary.NUMA_NODE_COUNT_LABEL: "1",
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
            {vocabulary.NUMA_NODE_COUNT_LABEL: "1", LABEL(0, "cpus"): "0-63"},
            {
                vocabulary.NUMA_TOPOLOGY_ANNOTATION: (
                    '{"nodes":[{"id":1,"cpus":"4-7","memory":"2Ki"},{"id":0,"cpus":"0-3"}],'
                    '"gpus":[{"index":0,"numa":1}]}'
                )
            },
            1,
            Topology((Zone(0, 4000, 0), Zone(1, 4000, 2048)), (Gpu(0, 1),)),
            id="the labeler's annotation comes before labels",
        ),
        pytest.param(
            {vocabulary.NUMA_NODE_COUNT_LABEL: "2", LABEL(0, "cpus"): "0-1"},
            {vocabulary.NUMA_TOPOLOGY_ANNOTATION: "nonsense"},
            0,
            Topology(
                (Zone(0, 2000, 0),),
                problems=(
                    f"{vocabulary.NUMA_TOPOLOGY_ANNOTATION}: found 'nonsense', want JSON",
                    f"{vocabulary.NUMA_NODE_COUNT_LABEL} says 2, node 1 unsaid",
                ),
            ),
            id="what cannot be read is named",
        ),
    ],
)
def test_topologies(
    labels: dict[str, str], annotations: dict[str, str], gpus: int, want: Topology | None
) -> None:
    assert numa_nodes.read(labels, annotations, gpus=gpus) == want


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-", "-1", "0-99999", "1,,2"])
def test_a_cpu_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="found"):
        numa_nodes.count_cpus(text)
