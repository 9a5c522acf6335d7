import re
from pathlib import Path
from typing import Any

import pytest

from kubenexus.clusterfile import load
from kubenexus.clusterfile.schema import ClusterFile
from policies import vocabulary
from policies.documents import yaml_reader
from tests.pages import ROOT

HEAD = "apiVersion: dev.kubenexus.io/v1alpha1\nkind: Cluster\n"
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def a_file(body: str, *, head: str = HEAD) -> load.Cluster:
    (document,) = yaml_reader.parse(head + body, "cluster.yaml")
    return load.from_document(document)


def a_node(more: str, *, cpu: str = "8", memory: str = "16Gi") -> dict[str, Any]:
    (node,) = a_file(f"nodes:\n- {{name: n, cpu: {cpu}, memory: {memory}, {more}}}\n").nodes
    return node


def test_a_node_with_everything_becomes_an_object_that_an_api_server_accepts() -> None:
    node = a_node(
        "pods: 30, gpus: {model: NVIDIA-L4, count: 3, memory: 24Gi}, numa: {nodes: 2}, zone: a, "
        "region: r, rack: r1, fabric: {type: infiniband, id: ib-0}, clique: c.1, "
        "labels: {hardware.kubenexus.io/tier: premium}, resources: {ephemeral-storage: 1Ti}, "
        "taints: [{key: k, effect: NoSchedule}], unschedulable: true"
    )
    capacity = {
        "cpu": "8",
        "ephemeral-storage": "1Ti",
        "memory": "16Gi",
        "nvidia.com/gpu": "3",
        "pods": "30",
    }
    assert node == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n",
            "labels": {
                "kubernetes.io/hostname": "n",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": "a",
                "topology.kubernetes.io/region": "r",
                "network.kubenexus.io/rack-id": "r1",
                "network.kubenexus.io/fabric-type": "infiniband",
                "network.kubenexus.io/fabric-id": "ib-0",
                "nvidia.com/gpu.clique": "c.1",
                "nvidia.com/gpu.product": "NVIDIA-L4",
                "nvidia.com/gpu.count": "3",
                "nvidia.com/gpu.memory": "24576",
                "numa.kubenexus.io/node-count": "2",
                "numa.kubenexus.io/node-0-cpus": "0-3",
                "numa.kubenexus.io/node-0-memory": "8Gi",
                "numa.kubenexus.io/node-1-cpus": "4-7",
                "numa.kubenexus.io/node-1-memory": "8Gi",
                "gpu.kubenexus.io/gpu0-numa": "0",
                "gpu.kubenexus.io/gpu1-numa": "1",
                "gpu.kubenexus.io/gpu2-numa": "1",
                "hardware.kubenexus.io/tier": "premium",
            },
        },
        "spec": {
            "taints": [{"key": "k", "value": "", "effect": "NoSchedule"}],
            "unschedulable": True,
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def test_listed_numa_nodes_keep_their_cpus_distances_and_gpus() -> None:
    node = a_node(
        "gpus: {model: MI300X, count: 2, memory: 192Gi, resource: amd.com/gpu}, numa: ["
        "{cpus: '0-1,4-5', memory: 8Gi, gpus: [1], bandwidth: 200000, distances: [10, 21]}, "
        "{cpus: 2-3_6-7, memory: 7Gi, gpus: [0]}]"
    )
    found = {
        key: value
        for key, value in node["metadata"]["labels"].items()
        if key.startswith(("numa.", "gpu."))
    }
    assert found == {
        "gpu.kubenexus.io/model": "MI300X",
        "gpu.kubenexus.io/count": "2",
        "gpu.kubenexus.io/vram": "192Gi",
        "numa.kubenexus.io/node-count": "2",
        "numa.kubenexus.io/node-0-cpus": "0-1_4-5",
        "numa.kubenexus.io/node-0-memory": "8Gi",
        "numa.kubenexus.io/node-0-bandwidth": "200000",
        "numa.kubenexus.io/node-0-distance-0": "10",
        "numa.kubenexus.io/node-0-distance-1": "21",
        "gpu.kubenexus.io/gpu1-numa": "0",
        "numa.kubenexus.io/node-1-cpus": "2-3_6-7",
        "numa.kubenexus.io/node-1-memory": "7Gi",
        "gpu.kubenexus.io/gpu0-numa": "1",
    }


def test_memory_that_splits_into_no_round_number_is_written_in_bytes() -> None:
    labels = a_node("numa: {nodes: 3}", cpu="3", memory="1000001Ki")["metadata"]["labels"]
    assert [labels[vocabulary.numa_node_label(index, "memory")] for index in range(3)] == [
        "341333674",
    ] * 3


@pytest.mark.parametrize(
    ("count", "want"),
    [
        pytest.param("", ["n"], id="without a count the name stands alone"),
        pytest.param(", count: 1", ["n-0"], id="a count of one is numbered"),
        pytest.param(
            ", count: 11",
            [f"n-{index:02d}" for index in range(11)],
            id="numbers get zeros so that names sort as numbers",
        ),
    ],
)
def test_names_of_a_group(count: str, want: list[str]) -> None:
    cluster = a_file(f"nodes: [{{name: n, cpu: 1, memory: 1Gi{count}}}]\n")
    assert [node["metadata"]["name"] for node in cluster.nodes] == want


def test_a_namespace_carries_its_tenant_as_labels() -> None:
    cluster = a_file(
        "nodes: [{name: n, cpu: 1, memory: 1Gi}]\n"
        "namespaces: [{name: a, tenant: t, tier: gold}, {name: b}]\n"
    )
    assert [namespace["metadata"] for namespace in cluster.namespaces] == [
        {
            "name": "a",
            "labels": {
                "kubernetes.io/metadata.name": "a",
                "tenant.kubenexus.io/name": "t",
                "tenant.kubenexus.io/tier": "gold",
            },
        },
        {"name": "b", "labels": {"kubernetes.io/metadata.name": "b"}},
    ]


def test_plain_nodes_take_turns_in_three_zones() -> None:
    nodes = load.plain(4).nodes
    found = [
        (node["metadata"]["name"], node["metadata"]["labels"][vocabulary.ZONE_LABEL])
        for node in nodes
    ]
    assert found == [("node-0", "a"), ("node-1", "b"), ("node-2", "c"), ("node-3", "a")]
    assert nodes[0]["status"]["allocatable"] == {"cpu": "32", "memory": "128Gi", "pods": "110"}
    assert load.plain(0).nodes == ()


NODE = "nodes:\n  - name: n\n    cpu: 8\n    memory: 16Gi\n"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(
            NODE.replace("cpu: 8", "cpu: -8"),
            "5:10: nodes[0].cpu: found -8, want an amount above zero",
            id="a negative capacity",
        ),
        pytest.param(
            NODE.replace("16Gi", "16Gib"),
            "6:13: nodes[0].memory: found '16Gib', want a quantity such as 500m, 2, 1.5Gi or 80G",
            id="a quantity with a wrong suffix",
        ),
        pytest.param(
            NODE + "    resources: {a/b: -1}\n",
            "7:22: nodes[0].resources.a/b: found -1, want zero or more",
            id="a negative further resource",
        ),
        pytest.param(
            NODE.replace("cpu", "cpus"),
            "5:11: unknown key 'cpus'; the keys here are name, count, cpu, memory, pods, resources,"
            " gpus, numa, zone, region, rack, fabric, clique, labels, taints, unschedulable",
            id="a misspelled key is named before what it leaves missing",
        ),
        pytest.param(
            NODE.replace("    memory: 16Gi\n", ""),
            "4:5: nodes[0].memory is missing; add it",
            id="a missing key",
        ),
        pytest.param(
            NODE + "    numa: {nodes: 3}\n",
            "7:11: 8 CPUs cannot be split evenly over 3 NUMA nodes; change cpu, or write numa as a "
            "list of {cpus, memory, gpus}",
            id="CPUs that cannot be dealt evenly",
        ),
        pytest.param(
            NODE + "    numa: [{cpus: 0-3, memory: 8Gi}]\n",
            "7:11: numa lists 4 CPUs and cpu is 8; make them agree",
            id="NUMA nodes that leave CPUs out",
        ),
        pytest.param(
            NODE + "    numa: [{cpus: 0-4, memory: 8Gi}, {cpus: 4-6, memory: 8Gi}]\n",
            "7:11: numa lists CPU 4 twice; give it to one NUMA node",
            id="a CPU on two NUMA nodes",
        ),
        pytest.param(
            NODE + "    numa: [{cpus: 0-7, memory: 17Gi}]\n",
            "7:11: numa lists 17Gi of memory and the node has 16Gi; make them agree",
            id="NUMA nodes with more memory than the node",
        ),
        pytest.param(
            NODE + "    numa: [{cpus: 0-7, memory: 16Gi, gpus: [0]}]\n",
            "7:11: numa lists GPUs [0] and the node has 0; list each index from 0 once",
            id="a GPU that the node does not have",
        ),
        pytest.param(
            NODE + "    numa: [{cpus: 7-0, memory: 16Gi}]\n",
            "7:19: nodes[0].numa[0].cpus: found '7-0', want CPU ids such as 0-31 or 0-15_32-47",
            id="a CPU range that runs backwards",
        ),
        pytest.param(
            NODE + "    numa: [{cpus: 0-7, memory: 16Gi, cores: 8}]\n",
            "7:45: unknown key 'cores'; the keys here are cpus, memory, gpus, bandwidth, distances",
            id="an unknown key of a NUMA node",
        ),
        pytest.param(
            NODE + "    numa: [{cpus: 0-7, memory: 16Gi, distances: [10, 21]}]\n",
            "7:11: distances want one number for each of the 1 NUMA nodes",
            id="distances to NUMA nodes that are not there",
        ),
        pytest.param(
            NODE + "    count: 6000\n  - {name: m, count: 6000, cpu: 1, memory: 1Gi}\n",
            "8:5: more than 10000 nodes in all; describe fewer",
            id="too many nodes",
        ),
        pytest.param(
            NODE + "    zone: a,b\n",
            "7:11: nodes[0].zone: found 'a,b', want at most 63 letters, digits, '-', '_' or '.', "
            "with a letter or digit at both ends; shorten or rename it",
            id="a value that no label can hold",
        ),
        pytest.param(
            NODE + "    count: true\n",
            "7:12: nodes[0].count: found True, want a whole number",
            id="a count that is no number",
        ),
        pytest.param(
            NODE + "  - {name: n, cpu: 1, memory: 1Gi}\n",
            "7:12: a node called 'n' is listed twice; give each node its own name",
            id="two nodes of one name",
        ),
        pytest.param(
            NODE + "namespaces: [{name: a}, {name: a}]\n",
            "7:32: a namespace called 'a' is listed twice; remove one",
            id="two namespaces of one name",
        ),
        pytest.param(
            NODE + "namespaces: [{name: a, tier: platinum}]\n",
            "7:30: namespaces[0].tier: found 'platinum', want 'gold', 'silver' or 'bronze'",
            id="a tier that does not exist",
        ),
        pytest.param(
            "nodes: []\n", "3:8: nodes: found [], want at least one entry", id="no node at all"
        ),
        pytest.param(
            NODE + "---\n" + HEAD + NODE,
            "8:1: a second document; a cluster file holds exactly one",
            id="a second document",
        ),
    ],
)
def test_bad_input_is_reported_with_its_place(body: str, want: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(HEAD + body)
    with pytest.raises(yaml_reader.DocumentError) as caught:
        load.load(path)
    assert str(caught.value) == f"{path}:{want}"


def test_the_message_about_an_empty_file_names_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("# nothing yet\n")
    with pytest.raises(yaml_reader.DocumentError, match="describes nothing; want `apiVersion: dev"):
        load.load(path)


def test_every_label_value_of_the_quickstart_is_legal() -> None:
    found = load.load(ROOT / "examples/quickstart/cluster.yaml")
    for item in (*found.nodes, *found.namespaces):
        for key, value in item["metadata"]["labels"].items():
            assert LABEL_VALUE.fullmatch(value), key


def test_the_format_has_a_json_schema() -> None:
    schema = ClusterFile.model_json_schema()
    assert sorted(schema["properties"]) == ["apiVersion", "kind", "namespaces", "nodes"]
