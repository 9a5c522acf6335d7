"""What a pod requires of other pods, as read from its spec."""

from typing import Any

import pytest

from scheduler.model import pod_affinity
from scheduler.model.fields import pairs
from scheduler.model.label_selector import LabelRequirement
from scheduler.model.pod_affinity import (
    NO_INTER_POD,
    InterPodConstraints,
    NamespaceScope,
    PodAffinityTerm,
    SpreadConstraint,
)
from tests.unit.scheduler.plugins.interpod.builders import (
    HOST,
    ZONE,
    Json,
    affinity,
    anti_affinity,
    preferred,
    spread,
    term,
)

OWN = NamespaceScope(("ns",))
IS_X = LabelRequirement("app", "In", ("x",))


def read(labels: dict[str, str] | None = None, **spec: Any) -> InterPodConstraints:
    return pod_affinity.read("ns", pairs(labels or {"app": "x", "version": "1"}), spec)


WISHES = [
    pytest.param({}, NO_INTER_POD, id="none"),
    pytest.param(
        {"affinity": {"nodeAffinity": {}, "podAffinity": {}}}, NO_INTER_POD, id="empty ones"
    ),
    pytest.param(
        {"affinity": affinity(term(ZONE))},
        InterPodConstraints(affinity=(PodAffinityTerm(OWN, (IS_X,), ZONE),)),
        id="the namespace is its own",
    ),
    pytest.param(
        {"affinity": anti_affinity(term(ZONE, namespaces=["b", "a", "b"]))},
        InterPodConstraints(
            anti_affinity=(PodAffinityTerm(NamespaceScope(("a", "b")), (IS_X,), ZONE),)
        ),
        id="or those that are named",
    ),
    pytest.param(
        {"affinity": anti_affinity(term(ZONE, namespaceSelector={}))},
        InterPodConstraints(
            anti_affinity=(PodAffinityTerm(NamespaceScope((), ()), (IS_X,), ZONE),)
        ),
        id="or all",
    ),
    pytest.param(
        {
            "affinity": preferred("podAntiAffinity", 7, term(ZONE))
            | preferred("podAffinity", 5, term(HOST))
        },
        InterPodConstraints(
            preferred=(
                (PodAffinityTerm(OWN, (IS_X,), HOST), 5),
                (PodAffinityTerm(OWN, (IS_X,), ZONE), -7),
            )
        ),
        id="preferences weigh for and against",
    ),
    pytest.param(
        {
            "affinity": anti_affinity(
                term(ZONE, matchLabelKeys=["version", "none"], mismatchLabelKeys=["app"])
            )
        },
        InterPodConstraints(
            anti_affinity=(
                PodAffinityTerm(
                    OWN,
                    (
                        IS_X,
                        LabelRequirement("app", "NotIn", ("x",)),
                        LabelRequirement("version", "In", ("1",)),
                    ),
                    ZONE,
                ),
            )
        ),
        id="keys take the values of the pod",
    ),
    pytest.param(
        {
            "affinity": anti_affinity(
                term(
                    ZONE,
                    {"matchExpressions": [{"key": "version", "operator": "In", "values": ["0"]}]},
                    matchLabelKeys=["version"],
                )
            )
        },
        InterPodConstraints(
            anti_affinity=(
                PodAffinityTerm(OWN, (LabelRequirement("version", "In", ("0",)),), ZONE),
            )
        ),
        id="what the API server resolved when the pod was made is left alone",
    ),
    pytest.param(
        {"affinity": anti_affinity(term(ZONE, None, matchLabelKeys=["version"]))},
        InterPodConstraints(anti_affinity=(PodAffinityTerm(OWN, None, ZONE),)),
        id="no selector stays none",
    ),
    pytest.param(
        {
            "topologySpreadConstraints": [
                spread(ZONE, matchLabelKeys=["version"], minDomains=3, nodeTaintsPolicy="Honor"),
                spread(HOST, soft=True, nodeAffinityPolicy="Ignore"),
            ]
        },
        InterPodConstraints(
            hard_spread=(
                SpreadConstraint(
                    ZONE,
                    1,
                    (IS_X, LabelRequirement("version", "In", ("1",))),
                    min_domains=3,
                    honor_taints=True,
                ),
            ),
            soft_spread=(SpreadConstraint(HOST, 1, (IS_X,), honor_affinity=False),),
        ),
        id="spread with its policies",
    ),
    pytest.param(
        {
            "affinity": anti_affinity(
                term(ZONE, {"matchExpressions": [{"key": "app", "operator": "Near"}]})
            )
        },
        InterPodConstraints(
            anti_affinity=(PodAffinityTerm(OWN, (LabelRequirement("app", "Near"),), ZONE),)
        ),
        id="an unknown operator selects nothing",
    ),
]


@pytest.mark.parametrize(("spec", "want"), WISHES)
def test_constraints_are_read(spec: Json, want: InterPodConstraints) -> None:
    found = read(**spec)
    assert (found, hash(found)) == (want, hash(want))
