"""The chart says what the code says. What Helm makes of it is tests/cluster/test_chart.py's."""

import re

import pytest
import yaml
from prometheus_client import REGISTRY

from kubenexus import rbac
from kubenexus.dev.binaries import versions
from kubenexus.install import chart
from kubenexus.labeler import labels
from policies import vocabulary
from policies.documents import crds
from scheduler.report.metrics import Metrics
from tests.pages import ROOT
from webhook import metrics as webhook_metrics
from webhook.registration import configurations

CHART = ROOT / chart.CHART
# What a metric exports under its name, by its type.
ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
METRIC = re.compile(r"\bkubenexus_(?:webhook|scheduler)_\w+")


@pytest.mark.parametrize("name", sorted(chart.files(CHART)))
def test_what_is_made_from_code_is_up_to_date(name: str) -> None:
    assert (CHART / name).read_text() == chart.files(CHART)[name], "run `make generate`"


def test_the_default_release_registers_exactly_what_the_code_registers() -> None:
    known = yaml.safe_load((CHART / "files/registration.yaml").read_text())
    mutating, validating = configurations.configurations(
        ca_pem=b"", base_url="", schedulers=(chart.SCHEDULER,)
    )
    for kind, code in (("mutating", mutating), ("validating", validating)):
        assert [(one["name"], one["rules"], one["matchConditions"]) for one in known[kind]] == [
            (one["name"], one["rules"], one["matchConditions"]) for one in code["webhooks"]
        ]


def test_only_the_certificate_hook_reads_secrets() -> None:
    readers = {
        component
        for granted in (
            rbac.cluster_roles(),
            rbac.release_namespace_roles(),
            rbac.dry_run_namespace_roles(),
        )
        for component, rules in granted.items()
        for rule in rules
        if {"secrets", "*"} & {*rule["resources"]} and {"get", "list", "watch"} & {*rule["verbs"]}
    }
    assert readers == {"certificates"}


def test_only_the_scheduler_and_tenant_admins_write_reservations() -> None:
    people = rbac.user_roles()
    granted = {**rbac.cluster_roles(), **{name: role["rules"] for name, role in people.items()}}
    writers = {
        name
        for name, rules in granted.items()
        for rule in rules
        if "resourcereservations" in rule["resources"] and "create" in rule["verbs"]
    }
    # No label makes a role of Kubernetes, such as `edit`, hold the right.
    assert (writers, people["tenant-manager"]["labels"]) == ({"scheduler", "tenant-manager"}, {})


def test_no_role_grants_everything() -> None:
    granted = [
        rule
        for table in (
            rbac.cluster_roles(),
            rbac.release_namespace_roles(),
            rbac.dry_run_namespace_roles(),
        )
        for rules in table.values()
        for rule in rules
    ]
    assert [
        rule for rule in granted if "*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
    ] == []


@pytest.mark.parametrize(
    ("key", "want"),
    [
        pytest.param(vocabulary.NUMA_NODE_COUNT_LABEL, True, id="how many NUMA nodes"),
        pytest.param(vocabulary.numa_node_label(12, "distance-3"), True, id="a distance"),
        pytest.param(vocabulary.gpu_numa_labels(7)[0], True, id="a GPU's NUMA node"),
        pytest.param(vocabulary.HARDWARE_TIER_LABEL, False, id="what an admin says of a node"),
        pytest.param("node-role.kubernetes.io/control-plane", False, id="a role"),
        pytest.param("evil.example/numa.kubenexus.io", False, id="a key that only resembles it"),
    ],
)
def test_the_labeler_is_held_to_the_keys_that_it_writes(key: str, want: bool) -> None:
    text = (CHART / "templates/labeler.yaml").read_text()
    patterns = set(re.findall(r"key\.matches\('([^']+)'\)", text))
    assert ([bool(re.search(one, key)) for one in patterns], labels.is_ours(key)) == ([want], want)


def test_every_metric_that_the_chart_names_is_one() -> None:
    # Importing the webhook's metrics puts them into the process's registry.
    registries = (REGISTRY, Metrics().registry)
    assert webhook_metrics.CONTENT_TYPE
    known = {
        family.name + end
        for registry in registries
        for family in registry.collect()
        for end in ENDINGS.get(family.type, ("",))
    }
    named = {
        match[0]
        for path in ("templates/monitoring.yaml", "files/dashboard.json")
        for match in METRIC.finditer((CHART / path).read_text())
    }
    assert (named - known, len(named) > 0) == (set(), True)


def test_the_chart_brings_every_kind() -> None:
    found = {path.name for path in (CHART / "files/crds").glob("*.yaml")}
    assert found == {f"{one['spec']['names']['plural']}.yaml" for one in crds.definitions()}


def test_the_chart_requires_the_oldest_kubernetes_that_it_is_tested_on() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    oldest = min(tuple(map(int, one.split("."))) for one in versions.KNOWN_KUBERNETES)
    assert about["kubeVersion"] == f">={oldest[0]}.{oldest[1]}.0-0"


def test_the_rules_that_helm_leaves_alone_are_those_that_the_webhook_writes() -> None:
    text = (CHART / "templates/_helpers.tpl").read_text()
    assert set(re.findall(r'eq \.name "([^"]+)"', text)) == {configurations.POLICY_WEBHOOK}
