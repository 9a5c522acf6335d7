"""The co-location requirement of a pod: the accepted values, and the message for each other one."""

import pytest

from policies import vocabulary
from policies.pods import fabric, intent
from policies.pods.fabric import NO_FABRIC, Fabric
from tests.builders import a_pod

CO_LOCATE = vocabulary.CO_LOCATE_ANNOTATION
LEAST = vocabulary.MIN_FABRIC_TIER_ANNOTATION


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, NO_FABRIC, id="nothing"),
        pytest.param(
            {vocabulary.REQUIRE_CLIQUE_ANNOTATION: "true"}, Fabric(clique=True), id="a clique"
        ),
        pytest.param(
            {vocabulary.REQUIRE_CLIQUE_ANNOTATION: "false"}, NO_FABRIC, id="no clique after all"
        ),
        pytest.param({CO_LOCATE: "strict"}, Fabric(co_locate="strict"), id="the narrowest level"),
        pytest.param({CO_LOCATE: "required"}, Fabric(co_locate="strict"), id="another word for it"),
        pytest.param(
            {CO_LOCATE: "strict:rack"}, Fabric(co_locate="strict", level="rack"), id="a level"
        ),
        pytest.param(
            {CO_LOCATE: "preferred:zone"},
            Fabric(co_locate="preferred", level="zone"),
            id="a level if possible",
        ),
        pytest.param({CO_LOCATE: "none"}, NO_FABRIC, id="no level"),
        pytest.param({LEAST: "IB"}, Fabric(least="infiniband"), id="another spelling"),
        pytest.param(
            {vocabulary.NETWORK_SENSITIVE_ANNOTATION: "false"},
            Fabric(sensitive=False),
            id="not sensitive is said too",
        ),
        pytest.param(
            {vocabulary.SPREAD_ZONES_ANNOTATION: "true"}, Fabric(spread_zones=True), id="zones"
        ),
    ],
)
def test_what_is_read(annotations: dict[str, str], want: Fabric) -> None:
    found = intent.read(a_pod(annotations=annotations))
    assert (found.fabric, found.problems) == (want, ())


@pytest.mark.parametrize(
    ("key", "value", "want"),
    [
        pytest.param(
            CO_LOCATE, "close", "found 'close', want strict, preferred or none", id="mode"
        ),
        pytest.param(
            CO_LOCATE, "none:rack", "found 'none:rack', want strict", id="a level of none"
        ),
        pytest.param(CO_LOCATE, "strict:", "found 'strict:', want strict", id="no level behind it"),
        pytest.param(CO_LOCATE, "strict:a b", "found 'strict:a b', want strict", id="no name"),
        pytest.param(
            LEAST,
            "token-ring",
            "found 'token-ring', want one of nvswitch, nvlink, infiniband, roce, ethernet",
            id="fabric",
        ),
        pytest.param(
            vocabulary.REQUIRE_CLIQUE_ANNOTATION,
            "yes",
            "found 'yes', want true or false",
            id="flag",
        ),
    ],
)
def test_what_is_refused(key: str, value: str, want: str) -> None:
    found = intent.read(a_pod(annotations={key: value}))
    [problem] = found.problems
    assert (problem.rule, found.fabric) == ("fabric", NO_FABRIC)
    assert problem.message.startswith(f"{key}: {want}"), problem.message


def test_every_key_has_a_parser() -> None:
    assert {key.name for key in fabric.KEYS} == {*fabric.PARSERS}
