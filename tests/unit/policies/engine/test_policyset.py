import pytest

from policies.documents import label_selectors
from policies.documents.rules import Selector
from policies.engine.policyset import PolicySet
from tests.policy_builders import a_namespace, a_platform_policy, a_tenant_policy, loaded

IN_AB = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}


@pytest.mark.parametrize(
    ("selector", "labels", "want"),
    [
        pytest.param({}, {}, True, id="an empty selector takes everything"),
        pytest.param({"matchLabels": {"x": "1"}}, {"x": "1", "y": "2"}, True, id="exact label"),
        pytest.param({"matchLabels": {"x": "1"}}, {"x": "2"}, False, id="another value"),
        pytest.param({"matchLabels": {"x": "1", "y": "1"}}, {"x": "1"}, False, id="one missing"),
        pytest.param(IN_AB, {"team": "b"}, True, id="In"),
        pytest.param(IN_AB, {}, False, id="In without the label"),
        pytest.param(
            {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}]},
            {},
            True,
            id="NotIn without the label",
        ),
        pytest.param(
            {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}]},
            {"x": "1"},
            False,
            id="NotIn with the value",
        ),
        pytest.param(
            {"matchExpressions": [{"key": "x", "operator": "Exists"}]}, {"x": ""}, True, id="Exists"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
            {"x": ""},
            False,
            id="DoesNotExist",
        ),
    ],
)
def test_selectors_answer_as_kubernetes_does(
    selector: dict[str, object], labels: dict[str, str], want: bool
) -> None:
    assert label_selectors.matches(Selector.model_validate(selector), labels) is want


def a_set() -> PolicySet:
    return loaded(
        a_tenant_policy("t-b", tenant="b"),
        a_tenant_policy("t-a", tenant="a"),
        a_tenant_policy("t-in", tenant="in", namespaceSelector=IN_AB),
        a_tenant_policy(
            "t-not",
            tenant="not",
            namespaceSelector={"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        ),
        a_tenant_policy(
            "t-name",
            tenant="name",
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "web"}},
        ),
        a_platform_policy("z"),
        a_platform_policy("c", namespaceSelector={"matchLabels": {"env": "prod"}}),
    )


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("x", {"tenant": "a"}, ["z", "t-a", "t-not"], id="by the tenant's label"),
        pytest.param("x", {"team": "b"}, ["z", "t-in"], id="by one of several values"),
        pytest.param("web", {}, ["z", "t-name", "t-not"], id="by a name that carries no label"),
        pytest.param(
            "x",
            {"tenant": "b", "env": "prod", "team": "a"},
            ["c", "z", "t-b", "t-in"],
            id="several",
        ),
        pytest.param("", {}, ["c", "z"], id="without a namespace, platform policies alone"),
    ],
)
def test_policies_of_a_namespace_come_in_their_order(
    name: str, labels: dict[str, str], want: list[str]
) -> None:
    namespace = a_namespace(name, **labels)["metadata"]["labels"]
    assert [policy.name for policy in a_set().for_namespace(name, namespace)] == want


def test_a_request_is_matched_only_with_policies_of_its_labels() -> None:
    crowd = loaded(
        *(a_tenant_policy(f"t-{number}", tenant=f"n{number}") for number in range(50)),
        a_platform_policy("c"),
    )
    compared: list[str] = []
    real = label_selectors.matches

    def counting(selector: Selector, labels: label_selectors.Labels) -> bool:
        compared.append(next(iter(selector.match_labels.values())))
        return real(selector, labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_selectors, "matches", counting)
        crowd.for_namespace("x", {"tenant.kubenexus.io/name": "n7"})
    assert compared == ["n7"]


def test_tables_are_those_of_all_platform_policies() -> None:
    tables = loaded(
        a_platform_policy("a", tiers=[{"name": "low", "rank": 1}, {"name": "high", "rank": 9}]),
        a_platform_policy(
            "b",
            priorityClasses=[{"name": "urgent", "tier": "high"}],
            hardware=[{"models": ["T4", "Tesla-T4"], "tier": "economy", "vram": "16Gi"}],
            topologyLevels=[{"name": "zone", "labels": ["topology.kubernetes.io/zone"]}],
        ),
    ).tables
    assert (
        list(tables.tiers),
        tables.priority_classes,
        sorted(tables.gpu_models),
        [level.name for level in tables.topology],
        list(loaded().tables.tiers),
    ) == (
        ["high", "low"],
        {"urgent": "high"},
        ["T4", "Tesla-T4"],
        ["zone"],
        ["gold", "silver", "bronze"],
    )
