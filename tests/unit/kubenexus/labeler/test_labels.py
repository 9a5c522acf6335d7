"""What is written on a node, and that the scheduler reads the same host from it."""

import re
from pathlib import Path
from typing import Any

import pytest

from kubenexus.labeler import labels as facts
from kubenexus.labeler import sync, sysfs
from kubenexus.labeler.sysfs import Gpu, Host, Numa
from policies import vocabulary
from policies.hosts import node_object, topology
from policies.hosts.topology import Topology, Zone
from tests.unit.kubenexus.labeler.sysfs_trees import eight_gpus, tree

SWITCHES = ["0000:11:00.0", "0000:51:00.0", "0000:91:00.0", "0000:d1:00.0"]
PCI = [device.address for device in eight_gpus()[:8]]
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
TWO = Host(
    (Numa(0, (0, 1, 4, 5), 2048, (10, 21), 100), Numa(1, (2, 3, 6, 7), 4096, (21, 10))),
    (Gpu(0, "nvidia", "0000:01:00.0", 1, "pci0000:00", "0000:02:00.0"),),
)


def test_labels() -> None:
    assert facts.labels(TWO) == {
        "numa.kubenexus.io/node-count": "2",
        "numa.kubenexus.io/node-0-cpus": "0-1_4-5",
        "numa.kubenexus.io/node-0-memory": "2048",
        "numa.kubenexus.io/node-0-bandwidth": "100",
        "numa.kubenexus.io/node-0-distance-0": "10",
        "numa.kubenexus.io/node-0-distance-1": "21",
        "numa.kubenexus.io/node-1-cpus": "2-3_6-7",
        "numa.kubenexus.io/node-1-memory": "4096",
        "numa.kubenexus.io/node-1-distance-0": "21",
        "numa.kubenexus.io/node-1-distance-1": "10",
        "gpu.kubenexus.io/gpu0-numa": "1",
    }


def test_a_list_too_long_for_a_label_stands_in_the_annotation_alone() -> None:
    host = Host((Numa(0, tuple(range(0, 128, 2)), 1),))
    read = node_object.read(facts.labels(host), facts.annotations(host), gpus=0)
    assert "numa.kubenexus.io/node-0-cpus" not in facts.labels(host)
    assert read == Topology((Zone(0, 64_000, 1),))


@pytest.mark.parametrize("source", ["labels", "annotation"])
def test_the_scheduler_reads_the_same_host(source: str, tmp_path: Path) -> None:
    host = sysfs.read(
        tree(tmp_path, cpus=["0-31,64-95", "32-63,96-127"], memory=[9, 8], devices=eight_gpus())
    )
    labels = facts.labels(host)
    assert all(LABEL.fullmatch(value) for value in labels.values())
    read = (
        node_object.read(labels, {}, gpus=8)
        if source == "labels"
        else node_object.read({}, facts.annotations(host), gpus=8)
    )
    assert read == Topology(
        (Zone(0, 64_000, 9 * 1024), Zone(1, 64_000, 8 * 1024)),
        tuple(
            topology.Gpu(index, index // 4)
            if source == "labels"
            else topology.Gpu(index, index // 4, switch=SWITCHES[index // 2], pci=PCI[index])
            for index in range(8)
        ),
    )


def test_everything_that_the_kernel_reports_arrives() -> None:
    host = Host(
        (
            Numa(0, (0, 1), 4 * 2**30, (10, 12), 300, (("hugepages-2Mi", 2**30),)),
            Numa(1, (2, 3), 4 * 2**30, (12, 10)),
        ),
        (Gpu(0, "amd", "0000:05:00.0", 1, "pci0000:00", model="MI300X", vram=5, island="xgmi-9"),),
    )
    assert node_object.read({}, facts.annotations(host), gpus=1) == Topology(
        (
            Zone(0, 2000, 3 * 2**30, (("hugepages-2Mi", 2**30),), 300, ((0, 10), (1, 12))),
            Zone(1, 2000, 4 * 2**30, distances=((0, 12), (1, 10))),
        ),
        (topology.Gpu(0, 1, "MI300X", 5, "pci0000:00", "xgmi-9", pci="0000:05:00.0"),),
    )


def node(labels: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"labels": labels, "annotations": annotations or {}}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(
            node({**facts.labels(TWO), "other": "x"}, facts.annotations(TWO)),
            None,
            id="nothing is written when nothing changed",
        ),
        pytest.param(
            node(
                {
                    **facts.labels(TWO),
                    "numa.kubenexus.io/node-2-cpus": "8",
                    "gpu.kubenexus.io/gpu7-numa": "0",
                    "gpu.kubenexus.io/vram": "80Gi",
                    "numa.kubenexus.io/node-1-bandwidth": "51200",
                    "numa.kubenexus.io/node-0-memory": "1",
                },
                facts.annotations(TWO),
            ),
            {
                "metadata": {
                    "labels": {
                        "numa.kubenexus.io/node-0-memory": "2048",
                        "numa.kubenexus.io/node-2-cpus": None,
                        "gpu.kubenexus.io/gpu7-numa": None,
                    }
                }
            },
            id="what differs is written, what is stale is removed, what others wrote stays",
        ),
        pytest.param(
            {"metadata": {}},
            {"metadata": {"labels": facts.labels(TWO), "annotations": facts.annotations(TWO)}},
            id="everything on a node that says nothing",
        ),
    ],
)
def test_patches(found: dict[str, Any], want: dict[str, Any] | None) -> None:
    assert sync.patch(found, TWO) == want


def test_the_annotation_is_the_one_in_the_vocabulary() -> None:
    assert list(facts.annotations(TWO)) == [vocabulary.NUMA_TOPOLOGY_ANNOTATION]
