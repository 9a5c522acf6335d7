"""What expressions may cost, by the size of their inputs; work is counted in units, not seconds."""

from typing import Any, Final

import pytest

from policies.cel import cost, engines, protocol
from policies.cel.cost import BUDGET, CallCost, CostProfile, Meter, Site
from policies.cel.functions.overload import FunctionError
from policies.cel.protocol import Activation, EvaluationError

ENGINE: Final = engines.engine("cel-expr-python")
DENIED_IMAGES: Final = (
    "object.spec.containers.all(c,"
    " !object.metadata.annotations['team.io/denied-images'].contains(c.image))"
)


def a_pod(containers: int, characters: int) -> dict[str, Any]:
    """An annotation in which every image almost occurs at every place."""
    return {
        "metadata": {"annotations": {"team.io/denied-images": "r" * characters}},
        "spec": {
            "containers": [
                {"name": f"c{number}", "image": f"registry.example.com/x:{number}"}
                for number in range(containers)
            ]
        },
    }


def outcome(source: str, obj: object, old: object = None) -> object:
    program = ENGINE.compile(source, protocol.ADMISSION, result_type="any")
    try:
        return program.evaluate(Activation({"object": obj, "oldObject": old}))
    except EvaluationError as error:
        return error.kind, error.message


OVER: Final = ("budget", cost.MESSAGE)


@pytest.mark.parametrize(
    ("containers", "characters", "want"),
    [
        pytest.param(3, 100, True, id="a small pod"),
        pytest.param(4_000, 100, True, id="many containers, a short list"),
        pytest.param(1, 240_000, True, id="one container, a long list"),
        pytest.param(60, 240_000, True, id="within the budget, by the meter"),
        pytest.param(500, 240_000, OVER, id="more than the budget"),
        pytest.param(4_000, 240_000, OVER, id="seconds of CPU"),
    ],
)
def test_size_times_loops_is_bounded(containers: int, characters: int, want: object) -> None:
    assert outcome(DENIED_IMAGES, a_pod(containers, characters)) == want


TEXTS: Final = [f"text-{number:06}" for number in range(8_000)]
BIG: Final = {
    "texts": TEXTS,
    "few": list(range(300)),
    "maps": [{"name": text, "value": {"a": text}} for text in TEXTS],
    "long": "ab" * 100_000,
    "half": "ab" * 50_000 + "c",
}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("object.few.all(i, object.maps == oldObject.maps)", id="compares lists"),
        pytest.param("object.texts.all(t, t in object.texts)", id="searches for items"),
        pytest.param("sets.contains(object.texts, oldObject.texts)", id="compares sets"),
        pytest.param("object.texts.distinct().size() > 0", id="compares all pairs"),
        pytest.param("object.texts.map(t, t).size() > 0", id="collects"),
        pytest.param("object.texts.filter(t, true).size() > 0", id="filters"),
        pytest.param("object.few.map(i, object.long).join('').size() > 0", id="joins copies"),
        pytest.param("object.long.contains(object.half)", id="searches for a long text"),
        pytest.param("object.few.all(i, object.long.replace('a', 'bbbbb') != '')", id="replaces"),
        pytest.param("object.few.all(i, object.long.split('a').size() > 0)", id="splits"),
        pytest.param("object.few.all(i, object.long.findAll('ab').size() > 0)", id="finds all"),
        pytest.param("object.few.all(i, 'a'.matches(object.half) || true)", id="compiles patterns"),
        pytest.param("object.few.all(i, '%s'.format([object.maps]) != '')", id="writes a list"),
        pytest.param("object.few.all(i, object.texts.includes('x') || true)", id="in Python"),
        pytest.param("object.few.all(i, containers(object).size() == 0)", id="converts an object"),
        pytest.param("object.few.all(i, (object.texts + object.texts) != [])", id="adds lists"),
        pytest.param("object.few.exists(i, object.long.matches('(ab)*c$') || object.long.size() < 0 || object.long.lowerAscii() == '' || object.long.trim() == '')", id="a sum of calls"),
        pytest.param("object.few.all(map, object.few.all(list, !object.long.contains('x')))", id="variables named like types"),
        pytest.param("object.few.all(i, object.long.contains('x') || true)"
                     " && object.few.all(i, object.long.contains('y') || true)"
                     " && object.few.all(i, object.long.contains('z') || true)", id="an error beside true"),
    ],
)  # fmt: skip
def test_no_call_exceeds_the_budget(source: str) -> None:
    """Each of these took from half a second to a minute without a meter."""
    assert outcome(source, BIG, BIG) == OVER


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("object.texts.all(t, !t.contains('secret'))", id="each text once"),
        pytest.param("object.texts.all(t, t != object.long)", id="a comparison with a long text"),
        pytest.param("object.maps.all(m, m.name != '' && has(m.value))", id="fields"),
        pytest.param("object.maps == oldObject.maps", id="two lists, once"),
        pytest.param("!object.texts.exists(t, t.startsWith('x') || t == 'y')", id="constants"),
        pytest.param("object.texts.all(t, t.matches('^text-[0-9]+$'))", id="a pattern"),
        pytest.param("!('x' in object.texts)", id="one item"),
        pytest.param("object.long.contains('ab')", id="one long text"),
    ],
)
def test_usual_rules_stay_within_the_budget_for_large_objects(source: str) -> None:
    assert outcome(source, BIG, BIG) is True


def test_a_variable_counts_as_an_input() -> None:
    env = protocol.ADMISSION.extended({"variables.list": "string"})
    program = ENGINE.compile("object.few.all(i, variables.list.contains('xyz') || true)", env)
    activation = Activation({"object": {"few": list(range(5_000))}})
    activation.bind("variables.list", "short")
    assert program.evaluate(activation) is True
    activation.bind("variables.list", "x" * 200_000)
    with pytest.raises(EvaluationError) as caught:
        program.evaluate(activation)
    assert caught.value.kind == "budget"


@pytest.mark.parametrize(
    ("site", "volume", "want"),
    [
        (Site(CallCost.LINEAR), 79, 8),
        (Site(CallCost.LINEAR, depth=1), 79, 80),
        (Site(CallCost.LINEAR, depth=2), 79, 800),
        (Site(CallCost.LINEAR, depth=9), 79, 80_000),
        (Site(CallCost.LINEAR, factor=4), 79, 32),
        (Site(CallCost.LINEAR, result=100), 79, 800),
        (Site(CallCost.LINEAR, is_made=True), 79, 80),
        (Site(CallCost.SEARCH, variable=1), 79, 8),
        (Site(CallCost.SEARCH, variable=2), 79, 64),
        (Site(CallCost.PAIRS), 79, 80),
        (Site(CallCost.COLLECT, depth=1), 79, 200),
    ],
)
def test_bounds(site: Site, volume: int, want: int) -> None:
    assert CostProfile((site,)).bound(volume) == want


@pytest.mark.parametrize(
    ("call", "made", "sizes", "want"),
    [
        (CallCost.LINEAR, 0, [25, 5], 3 + 1),
        (CallCost.LINEAR, 0, [-4], 3 + 1_000),
        (CallCost.LINEAR, 1, [-4], 3 + 3 * 1_000),
        (CallCost.TEXT, 0, [-4], 1),
        (CallCost.TEXT, 0, [40], 5),
        (CallCost.SHORTER, 0, [0, 0], 5),
        (CallCost.SHORTER, 0, [-4, -2], 1 + 1_000),
        (CallCost.SEARCH, 0, [100, 20, 20], 11 * 6),
        (CallCost.MEMBER, 0, [20, -6], 3 * 5),
        (CallCost.PAIRS, 0, [-3], 2 * (2 + 1_000)),
        (CallCost.WHOLE, 0, [0], 1_001),
        (CallCost.COLLECT, 0, [-6], 10),
    ],
)
def test_units(call: CallCost, made: int, sizes: list[int], want: int) -> None:
    meter = Meter()
    meter.start(4_000)
    assert meter.spend(call, 2, made, sizes)
    assert meter.spent == 2 * want


def test_a_meter_counts_during_an_evaluation_alone() -> None:
    meter = Meter()
    meter.charge(BUDGET + 1)
    meter.start(0)
    meter.charge(BUDGET)
    with pytest.raises(FunctionError, match="cost budget of 10,000,000 units"):
        meter.charge(1)
    meter.stop()
    meter.charge(1)
    assert meter.exceeded


@pytest.mark.parametrize(
    "sites",
    [
        (Site(CallCost.LINEAR),),
        (Site(CallCost.SEARCH, depth=1), Site(CallCost.COLLECT, depth=1)),
        (Site(CallCost.PAIRS, depth=2, factor=4),),
        (Site(CallCost.WHOLE),),
        (),
    ],
)
def test_the_free_volume_is_the_largest_within_the_budget(sites: tuple[Site, ...]) -> None:
    profile = CostProfile(sites)
    free = profile.free_volume()
    if profile.needs_whole_objects:
        assert free == -1
    elif sites:
        assert profile.bound(free) <= BUDGET < profile.bound(free + 1)
    else:
        assert free == 1 << 32
