"""A metered tree gives what the plain one gives, and every function has a cost."""

from typing import Any, Final

import pytest

from policies.cel import declarations, engines, library, metering, protocol, rewrite
from policies.cel.cost import CallCost, CostProfile
from policies.cel.protocol import Activation, EvaluationError

ENGINE: Final = engines.engine("cel-expr-python")
OBJECT: Final[dict[str, Any]] = {
    "name": "web",
    "image": "registry.example.com/web:1",
    "labels": {"a": "1", "b": "2"},
    "items": [{"name": "x", "value": "1Gi"}, {"name": "y", "value": "2"}],
    "texts": ["b", "a", "c", "a"],
    "numbers": [3, 1, 2],
    "empty": [],
}


def sites(source: str) -> list[tuple[str, int]]:
    program: Any = ENGINE.compile(source, protocol.ADMISSION, result_type="any")
    return [(site.cost.name, site.depth) for site in program._profile.sites]


def outcome(source: str) -> object:
    program = ENGINE.compile(source, protocol.ADMISSION, result_type="any")
    try:
        return program.evaluate_tagged(Activation({"object": OBJECT, "oldObject": None}))
    except EvaluationError as error:
        return error.kind, error.message


@pytest.mark.parametrize(
    "source",
    [
        "object.image.contains(object.name)",
        "object.image.contains(object.name) && object.image.startsWith(object.name + '/')",
        "object.texts.all(t, t in object.texts)",
        "object.texts.map(t, t + object.name)",
        "object.texts.filter(t, t > object.name).size()",
        "object.texts.map(t, t.upperAscii()).join(object.name)",
        "object.items.exists_one(i, i.name == object.name)",
        "object.items.map(i, quantity(i.value)).map(q, q.isGreaterThan(quantity('1')))",
        "object.items.filter(i, has(i.value)).map(i, i.value.matches('^[0-9]+$'))",
        "object.texts.sort() == object.texts.distinct().sort()",
        "sets.contains(object.texts, object.texts.map(t, t))",
        "object.labels.all(k, object.labels[k] != k)",
        "object.labels.transformMap(k, v, v + k)",
        "object.labels.transformList(k, v, k + v).sort()",
        "object.?labels.?a.orValue('none') + object.name",
        "object.?missing.orValue(object.name) == object.name",
        "object.?labels.optMap(l, l.a + object.name).orValue('')",
        "object.?missing == optional.none()",
        "cel.bind(x, object.name + object.image, x + x).size()",
        "object.missing.contains(object.name) || true",
        "object.missing.contains(object.name)",
        "object.numbers.contains(object.name)",
        "object.numbers[0] + object.numbers[1] == object.numbers[0] * 2 - 2",
        "object.numbers.sum() + object.numbers.max()",
        "object.numbers == [3, 1, 2] + object.empty && object.labels == {'a': '1', 'b': '2'}",
        "object.texts + object.texts == [object.texts, object.texts].flatten()",
        "object.empty.map(e, e + 1)",
        "object.texts.all(list, list.size() == 1) && object.texts.all(string, string != '')",
        "object.texts.all(type, object.name.contains(type) || type.size() == 1)",
        "object.image.split('/').map(p, p.split(':')).size()",
        "object.image.replace(object.name, 'x').indexOf('x')",
        "object.image.find('[0-9]+$') + object.image.findAll('e').join('')",
        "object.name.matches(object.name)",
        "bytes(object.name) + b'x' == b'webx'",
        "string(1) + string(bytes(object.name))",
        "'%s and %d'.format([object.name, object.numbers[0]])",
        "containers(object).size() + object.name.size()",
        "url('https://' + object.name).getHost() == object.name",
        "type(object.name + 'x') == string",
        "object.items.sortBy(i, i.name).map(i, i.name)",
        "1 / 0 > object.name.size() || object.name.contains(object.name)",
    ],
)
def test_the_value_is_the_same(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = outcome(source)
    monkeypatch.setattr(CostProfile, "bound", lambda profile, volume: 1 << 60)
    monkeypatch.setattr(CostProfile, "free_volume", lambda profile: -1)
    assert outcome(source) == plain
    assert sites(source)


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("object.name == 'web' && has(object.labels.a)", [], id="constants"),
        pytest.param("object.name in ['a', 'b']", [], id="a list of constants"),
        pytest.param("object.image.startsWith('registry/')", [], id="a constant prefix"),
        pytest.param("requests(object, 'cpu') + 1 > 5", [], id="a fact that is computed once"),
        pytest.param("object.items.all(i, i.name != '')", [], id="a loop without costly calls"),
        pytest.param("object.name == object.image", [("SHORTER", 0)], id="a comparison"),
        pytest.param(
            "object.items.all(i, object.image.contains(i.name))", [("SEARCH", 1)], id="in a loop"
        ),
        pytest.param(
            "object.items.all(i, object.texts.all(t, t.contains(i.name)))",
            [("SEARCH", 2)],
            id="in two loops",
        ),
        pytest.param(
            "object.texts.map(t, t).join('')", [("COLLECT", 1), ("LINEAR", 0)], id="after a loop"
        ),
        pytest.param("containers(object).size()", [("WHOLE", 0), ("TEXT", 0)], id="a whole object"),
        pytest.param("cel.bind(x, object.name, x + x)", [("LINEAR", 0)], id="a name is no loop"),
    ],
)
def test_calls_that_cost_by_size(source: str, want: list[tuple[str, int]]) -> None:
    assert sites(source) == want


def test_functions_without_a_cost_are_known_by_name() -> None:
    """A new function is linear in its arguments until it is listed, and no name is listed twice."""
    listed = metering.FREE & metering.COSTS.keys()
    assert listed == set()
    assert not metering.FREE & (library.NAMES - {"first", "last"})
    assert {function.name for function in rewrite.FUNCTIONS} - metering.FREE - {
        "cel.@joinMaps"
    } <= metering.COSTS.keys()
    assert "regex" in declarations.EXTENSIONS
    assert set(metering.COSTS.values()) == set(CallCost) - {CallCost.LINEAR, CallCost.COLLECT}
