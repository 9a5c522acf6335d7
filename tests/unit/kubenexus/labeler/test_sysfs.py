"""Hosts of every kind, read from their /sys."""

from pathlib import Path
from typing import Any

import pytest

from kubenexus.labeler import sysfs
from kubenexus.labeler.sysfs import Gpu, Host, Numa
from tests.unit.kubenexus.labeler.sysfs_trees import Device, eight_gpus, put, tree

KIB = 1024


def eight_numa() -> dict[str, Any]:
    return {
        "cpus": [f"{8 * i}-{8 * i + 7},{64 + 8 * i}-{64 + 8 * i + 7}" for i in range(8)],
        "memory": [32_000_000] * 8,
        "distances": [
            " ".join("10" if i == j else ("12" if i // 4 == j // 4 else "32") for j in range(8))
            for i in range(8)
        ],
    }


@pytest.mark.parametrize(
    ("files", "want"),
    [
        pytest.param(
            {"cpus": ["0-3"], "memory": [8_000_000], "distances": ["10"]},
            Host((Numa(0, (0, 1, 2, 3), 8_000_000 * KIB, (10,)),)),
            id="one NUMA node, no GPU",
        ),
        pytest.param(
            {
                "cpus": ["0-1,4-5", "2-3,6-7"],
                "memory": [100, 200],
                "distances": ["10 21", "21 10"],
                "bandwidth": [131072, 131072],
            },
            Host(
                (
                    Numa(0, (0, 1, 4, 5), 100 * KIB, (10, 21), 131072),
                    Numa(1, (2, 3, 6, 7), 200 * KIB, (21, 10), 131072),
                )
            ),
            id="two NUMA nodes, whose firmware reports their bandwidth",
        ),
        pytest.param(
            {"cpus": ["0", "1", "2", "3"], "memory": [1, 1, 1, 1]},
            Host(tuple(Numa(i, (i,), KIB) for i in range(4))),
            id="four NUMA nodes without distances",
        ),
        pytest.param(
            eight_numa(),
            Host(
                tuple(
                    Numa(
                        i,
                        (*range(8 * i, 8 * i + 8), *range(64 + 8 * i, 72 + 8 * i)),
                        32_000_000 * KIB,
                        tuple(10 if i == j else (12 if i // 4 == j // 4 else 32) for j in range(8)),
                    )
                    for i in range(8)
                )
            ),
            id="eight NUMA nodes on two sockets",
        ),
        pytest.param(
            {"cpus": ["0-1", ""], "memory": [10, 500], "distances": ["10 17", "17 10"]},
            Host((Numa(0, (0, 1), 10 * KIB, (10, 17)), Numa(1, (), 500 * KIB, (17, 10)))),
            id="a NUMA node of memory alone",
        ),
        pytest.param(
            {"cpus": ["0-3", "4-7"], "memory": [1, 1], "online": "0-2,4,6-7"},
            Host((Numa(0, (0, 1, 2), KIB), Numa(1, (4, 6, 7), KIB))),
            id="CPUs that are off do not count",
        ),
        pytest.param(
            {
                "cpus": ["0"],
                "memory": [1],
                "devices": [
                    Device("0000:00:02.0", "0x8086", "0x030000", -1, "pci0000:00/0000:00:02.0"),
                    Device("0000:05:00.0", "0x1002", "0x120000", -1, "pci0000:00/0000:05:00.0"),
                    Device("0000:06:00.0", "0x8086", "0x038000", 7, "pci0000:00/0000:06:00.0"),
                ],
            },
            Host(
                (Numa(0, (0,), KIB),),
                (
                    Gpu(0, "amd", "0000:05:00.0", 0, "pci0000:00"),
                    Gpu(0, "intel", "0000:06:00.0", None, "pci0000:00"),
                ),
            ),
            id="accelerators of other vendors; a processor's own graphics is none",
        ),
    ],
)
def test_hosts(files: dict[str, Any], want: Host, tmp_path: Path) -> None:
    assert sysfs.read(tree(tmp_path, **files)) == want


def test_eight_gpus_over_two_sockets(tmp_path: Path) -> None:
    host = sysfs.read(tree(tmp_path, cpus=["0-31", "32-63"], memory=[1, 1], devices=eight_gpus()))
    assert [(gpu.index, gpu.numa, gpu.root, gpu.switch) for gpu in host.gpus] == [
        (0, 0, "pci0000:10", "0000:11:00.0"),
        (1, 0, "pci0000:10", "0000:11:00.0"),
        (2, 0, "pci0000:50", "0000:51:00.0"),
        (3, 0, "pci0000:50", "0000:51:00.0"),
        (4, 1, "pci0000:90", "0000:91:00.0"),
        (5, 1, "pci0000:90", "0000:91:00.0"),
        (6, 1, "pci0000:d0", "0000:d1:00.0"),
        (7, 1, "pci0000:d0", "0000:d1:00.0"),
    ]


def test_models_vram_and_islands_from_the_drivers(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "sys",
        cpus=["0"],
        memory=[1],
        hugepages=[{"hugepages-2048kB": 512, "hugepages-1048576kB": 0}],
        devices=[
            Device(
                "0000:05:00.0",
                "0x1002",
                "0x120000",
                0,
                "pci0000:00/0000:05:00.0",
                (
                    ("product_name", "AMD Instinct MI300X OAM"),
                    ("mem_info_vram_total", "206141652992"),
                    ("xgmi_hive_info/xgmi_hive_id", "11129539423894466"),
                ),
            ),
            Device("0000:1b:00.0", "0x10de", "0x030200", 0, "pci0000:1a/0000:1b:00.0"),
        ],
    )
    text = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 0\n"
    put(tmp_path / "proc/driver/nvidia/gpus/0000:1b:00.0/information", text)
    assert sysfs.read(root, tmp_path / "proc") == Host(
        (Numa(0, (0,), KIB, hugepages=(("hugepages-2Mi", 2**30),)),),
        (
            Gpu(
                0,
                "amd",
                "0000:05:00.0",
                0,
                "pci0000:00",
                model="AMD-Instinct-MI300X-OAM",
                vram=206141652992,
                island="xgmi-11129539423894466",
            ),
            Gpu(0, "nvidia", "0000:1b:00.0", 0, "pci0000:1a", model="NVIDIA-H100-80GB-HBM3"),
        ),
    )


def test_a_tree_without_numa_nodes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(sysfs.SysfsError, match="is the host's /sys mounted there"):
        sysfs.read(tmp_path)


def test_the_machine_that_runs_the_tests() -> None:
    if not Path("/sys/devices/system/node/node0").is_dir():
        pytest.skip("this kernel shows no NUMA nodes under /sys")
    host = sysfs.read()
    assert sum(len(node.cpus) for node in host.numa) >= 1
    assert all(node.memory >= 0 for node in host.numa)
    assert any(node.memory > 0 for node in host.numa)
