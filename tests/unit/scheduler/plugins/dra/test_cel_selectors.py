"""CEL selectors over devices: what they see, and what an error says."""

import pytest

from policies.cel import engines, protocol
from scheduler.plugins.dra.cel_selectors import MAX_PROGRAMS, DeviceSelectors, MatchResult
from scheduler.plugins.dra.device_types import Device, ResourceSlice
from tests.unit.scheduler.plugins.dra.builders import DRIVER, a_device, slice_json

ATTRIBUTES = {
    "model": {"string": "H100"},
    "numaNode": {"int": 1},
    "healthy": {"bool": True},
    "driverVersion": {"version": "1.10.0"},
    "other.example.com/speed": {"int": 400},
}
HERE = f'device.attributes["{DRIVER}"]'
SIZE = f'device.capacity["{DRIVER}"].memory'
ON = f"{DRIVER}/a/gpu-0"


def the_device() -> Device:
    row = a_device("gpu-0", attributes=ATTRIBUTES)
    return ResourceSlice.read(slice_json("a", [row])).devices[0]


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param(f'device.driver == "{DRIVER}"', True, id="the driver"),
        pytest.param(f'{HERE}.model == "H100"', True, id="a string of the driver's own domain"),
        pytest.param(f"{HERE}.numaNode == 1 && {HERE}.healthy", True, id="a number and a bool"),
        pytest.param(
            'device.attributes["other.example.com"].speed > 300', True, id="another domain"
        ),
        pytest.param(f'{HERE}.driverVersion.isGreaterThan(semver("1.9.0"))', True, id="a version"),
        pytest.param(f'{SIZE}.compareTo(quantity("80Gi")) >= 0', True, id="a quantity, compared"),
        pytest.param(f'{SIZE}.isGreaterThan(quantity("80Gi"))', False, id="a quantity too small"),
        pytest.param(f'{SIZE} == quantity("81920Mi")', True, id="equal quantities"),
        pytest.param("device.allowMultipleAllocations", False, id="not shared"),
        pytest.param('"none.example.com" in device.attributes', False, id="a domain it lacks"),
        pytest.param(
            'has(device.attributes["none.example.com"].x)', False, id="nothing in such a domain"
        ),
        pytest.param(
            'device.attributes["none.example.com"].?x.orValue(true)', True, id="or a default"
        ),
        pytest.param(
            f"cel.bind(mine, {HERE}, mine.healthy && mine.numaNode == 1)", True, id="a short name"
        ),
        pytest.param(
            f"{HERE}.cores == 4",
            f'selector #0 on device {ON}: CEL runtime error: Key not found in map : "cores"',
            id="a name that is missing is an error",
        ),
        pytest.param(
            "device.driver",
            f"selector #0 on device {ON}: CEL runtime error: the expression gave a value of type "
            "string; a rule must give true or false",
            id="what is no yes and no no",
        ),
    ],
)
def test_selectors(source: str, want: MatchResult) -> None:
    assert DeviceSelectors().matches([source], the_device()) == want


def test_an_invalid_selector_is_reported() -> None:
    found = DeviceSelectors().matches(["true", "device.driver =="], the_device())
    assert isinstance(found, str)
    assert found.startswith("selector #1: CEL compile error: ")


def test_results_are_cached_until_the_device_changes() -> None:
    made: list[str] = []

    def engine() -> protocol.Engine:
        made.append("engine")
        return engines.engine()

    selecting, device = DeviceSelectors(engine), the_device()
    first = [selecting.matches([f'{HERE}.model == "H100"'], device) for _ in range(3)]
    changed = a_device("gpu-0", model="A100")
    other = ResourceSlice.read(slice_json("a", [changed])).devices[0]
    assert (first, selecting.matches([f'{HERE}.model == "H100"'], other), made) == (
        [True] * 3,
        False,
        ["engine"],
    )


@pytest.mark.parametrize("name", engines.ENGINES)
def test_both_engines_agree_on_plain_selectors(name: str) -> None:
    selecting = DeviceSelectors(lambda: engines.engine(name))
    sources = [f'{SIZE}.compareTo(quantity("80Gi")) >= 0', f'{HERE}.model in ["H100", "H200"]']
    assert selecting.matches(sources, the_device()) is True


class CountingEngine:
    """Compiles nothing, and counts how often it is called."""

    def __init__(self) -> None:
        self.compiled = 0

    def compile(self, source: str, env: protocol.Environment, **_: object) -> protocol.Program:
        self.compiled += 1
        raise protocol.CompileError(f"cannot compile {source}")


def test_as_many_programs_are_kept_as_the_limit_says_those_in_use_among_them() -> None:
    """Users write as many claims, each with a selector of its own, as they like."""
    engine, device = CountingEngine(), the_device()
    selecting = DeviceSelectors(lambda: engine)  # type: ignore[arg-type,return-value]  # a fake
    for number in range(3 * MAX_PROGRAMS):
        selecting.__dict__["_results"].clear()
        selecting.matches(["in use"], device)
        selecting.matches([f"number {number}"], device)
    kept = len(selecting.__dict__["_programs"])
    assert (kept, engine.compiled) == (MAX_PROGRAMS, 3 * MAX_PROGRAMS + 1)
