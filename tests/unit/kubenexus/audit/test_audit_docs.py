"""The page about audits says what the code does."""

import re
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kubenexus import cli as root
from kubenexus.audit import cli, report, scan
from policies.pods import workloads
from policies.vocabulary import POLICY_GROUP
from tests.pages import ROOT
from webhook import metrics
from webhook.admission import audit
from webhook.facts import cluster_facts
from webhook.registration import configurations

PAGE = (ROOT / "docs" / "audit.md").read_text()


REASONS = (audit.DENIED, audit.WARNED, audit.AUDITED, audit.EXCEPTED, audit.INJECTED)


def manifests() -> dict[str, Any]:
    [block] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return {obj["kind"]: obj for obj in yaml.safe_load_all(block)}


def test_every_reason_metric_and_number_is_on_the_page() -> None:
    wanted = [
        *(f"`{reason}`" for reason in REASONS),
        *(f"`{name}`" for name in configurations.EXCLUDED_NAMESPACES),
        f"at most {cluster_facts.EVENTS_PER_SECOND:.0f} per second and queues {cluster_facts.EVENT_CAPACITY:,}",
        f"pages of {scan.PAGE}, and the table keeps {report.ROWS:,} rows",
        f"{audit.ANNOTATION_LIMIT // 1024} KiB",
    ]
    assert [words for words in wanted if words not in PAGE] == []
    shown = set(re.findall(r"`(kubenexus_webhook_events\w+)", PAGE))
    known = {
        line.split()[2]
        for line in metrics.exposition().decode().splitlines()
        if line.startswith("# HELP kubenexus_webhook_events") and "_created " not in line
    }
    assert shown == known


def test_the_role_reads_every_kind_of_the_table() -> None:
    allowed: dict[str, set[str]] = {}
    for rule in manifests()["ClusterRole"]["rules"]:
        for group in rule["apiGroups"]:
            allowed.setdefault(group, set()).update(rule["resources"])
    needed = {
        **workloads.resources_by_group(),
        POLICY_GROUP: ["platformpolicies", "tenantpolicies"],
    }
    needed[""] = [*needed[""], "namespaces"]
    needed["kueue.x-k8s.io"] = ["clusterqueues", "localqueues"]
    lacking = {
        group: missing
        for group, names in needed.items()
        if "*" not in allowed.get(group, ()) and (missing := set(names) - allowed.get(group, set()))
    }
    assert lacking == {}
    assert set(allowed) == set(needed)


def test_the_arguments_of_the_cron_job_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "none.yaml")
    [container] = manifests()["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]
    got = CliRunner().invoke(root.app, container["args"])
    assert (got.exit_code, "none.yaml" in got.stderr) == (cli.BAD_INPUT, True)
    assert "Usage" not in got.stderr
