"""The shipped policies, by their own PolicyTests, and the hardware table by its traps."""

from pathlib import Path

import pytest

import policies
from kubenexus.policy.policy_test import runner
from policies.engine import loader
from policies.engine.policy_tests import TestResult
from tests.policy_builders import a_compiler

LIBRARY = Path(policies.__file__).parent / "library"
RESULTS = runner.run([LIBRARY / "tests"], policies=[], compiler=a_compiler()).tests


@pytest.mark.parametrize("result", [pytest.param(row, id=row.name) for row in RESULTS])
def test_the_library_does_what_its_tests_say(result: TestResult) -> None:
    found = {case.name: case.problems for case in result.cases if case.problems}
    assert (list(map(str, result.faults)), found) == ([], {})


def test_every_shipped_policy_has_a_test() -> None:
    tested = {
        name
        for file in (LIBRARY / "tests").glob("*.yaml")
        for name in (file.read_text().split("policies: [", 1)[1].split("]")[0].split(", "))
    }
    shipped = {f"../{file.name}" for file in LIBRARY.glob("*.yaml")}
    assert shipped - tested == set()


@pytest.mark.parametrize(
    ("model", "want"),
    [
        pytest.param("NVIDIA-A100-SXM4-80GB", ("premium", "80Gi"), id="an A100 of 80 GB"),
        pytest.param("NVIDIA-A100-SXM4-40GB", ("standard", "40Gi"), id="an A100 of 40 GB"),
        pytest.param("NVIDIA-RTX-A4000", ("economy", "16Gi"), id="an RTX A4000 is no A40"),
        pytest.param("NVIDIA-A40", ("standard", "48Gi"), id="an A40"),
        pytest.param("NVIDIA-GH200-480GB", ("premium", "96Gi"), id="a GH200 is no H200"),
        pytest.param("NVIDIA-H200", ("premium", "141Gi"), id="an H200"),
        pytest.param("NVIDIA-L4", ("economy", "24Gi"), id="an L4 is no L40"),
        pytest.param("NVIDIA-H100-80GB-HBM3", ("premium", "80Gi"), id="an H100"),
        pytest.param("NVIDIA-H100", None, id="a name that no node carries"),
    ],
)
def test_what_a_gpu_is(model: str, want: tuple[str, str] | None) -> None:
    tables = loader.load_files(LIBRARY, compiler=a_compiler()).policies.tables
    found = tables.gpu_models.get(model)
    assert (None if found is None else (found.tier, found.vram)) == want


def test_topology_goes_from_wide_to_narrow() -> None:
    tables = loader.load_files(LIBRARY, compiler=a_compiler()).policies.tables
    levels = [level.name for level in tables.topology]
    assert levels == ["region", "zone", "rack", "fabric", "clique"]
