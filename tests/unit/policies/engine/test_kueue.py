"""What a queue of Kueue says of the tier, and which queue an object names."""

from typing import Any

import pytest

from policies.engine import kueue
from policies.engine.kueue import ClusterQueue, Queue, QueueResult
from tests.builders import a_job, a_pod

Json = dict[str, Any]

NAME = "kueue.x-k8s.io/queue-name"
TIER = "tenant.kubenexus.io/tier"
TIERS = ("gold", "silver", "bronze")
LABELS = {"kubernetes.io/metadata.name": "team-a", "team": "vision"}
SILENT = "queue 'gpu' gives no tier: "


def a_cluster_queue(tier: str | None = "gold", selector: Json | None = None) -> Json:
    spec: Json = {} if selector is None else {"namespaceSelector": selector}
    labels = {} if tier is None else {TIER: tier}
    return {"metadata": {"name": "research", "labels": labels}, "spec": spec}


def leading_to(cluster_queue: Json) -> Queue:
    return Queue("gpu", "research", ClusterQueue.read(cluster_queue))


@pytest.mark.parametrize(
    ("queue", "want"),
    [
        pytest.param(leading_to(a_cluster_queue("gold", {})), QueueResult("gold"), id="its label"),
        pytest.param(
            leading_to(a_cluster_queue("GOLD", {})), QueueResult("gold"), id="in capitals"
        ),
        pytest.param(
            leading_to(a_cluster_queue("gold", {"matchLabels": {"team": "vision"}})),
            QueueResult("gold"),
            id="a ClusterQueue for namespaces like this one",
        ),
        pytest.param(
            leading_to(
                a_cluster_queue(
                    "gold",
                    {"matchExpressions": [{"key": "team", "operator": "In", "values": ["vision"]}]},
                )
            ),
            QueueResult("gold"),
            id="a ClusterQueue for some values of a label",
        ),
        pytest.param(
            leading_to(a_cluster_queue(None, {})),
            QueueResult(),
            id="no label: it says nothing on purpose",
        ),
        pytest.param(
            Queue("gpu", served=False),
            QueueResult(
                problem=f"{SILENT}this cluster has no LocalQueues; "
                f"install Kueue, or remove the label {NAME}"
            ),
            id="no Kueue",
        ),
        pytest.param(
            Queue("gpu"),
            QueueResult(
                problem=f"{SILENT}namespace 'team-a' has no LocalQueue of that name; "
                f"create it, or correct the label {NAME}"
            ),
            id="no LocalQueue",
        ),
        pytest.param(
            Queue("gpu", "research"),
            QueueResult(
                problem=f"{SILENT}its ClusterQueue 'research' does not exist; "
                "create it, or name another in the LocalQueue"
            ),
            id="no ClusterQueue",
        ),
        pytest.param(
            leading_to(a_cluster_queue("gold", {"matchLabels": {"team": "language"}})),
            QueueResult(
                problem=f"{SILENT}its ClusterQueue 'research' takes no work of namespace 'team-a'; "
                "ask the cluster admin to change its spec.namespaceSelector"
            ),
            id="a ClusterQueue for other namespaces",
        ),
        pytest.param(
            leading_to(a_cluster_queue("gold")),
            QueueResult(
                problem=f"{SILENT}its ClusterQueue 'research' takes no work of namespace 'team-a'; "
                "ask the cluster admin to change its spec.namespaceSelector"
            ),
            id="without a selector a ClusterQueue takes nothing",
        ),
        pytest.param(
            leading_to(a_cluster_queue("gold", {"matchExpressions": [{"key": "a"}]})),
            QueueResult(
                problem=f"{SILENT}its ClusterQueue 'research' takes no work of namespace 'team-a'; "
                "ask the cluster admin to change its spec.namespaceSelector"
            ),
            id="a selector that cannot be read takes nothing",
        ),
        pytest.param(
            leading_to(a_cluster_queue("platinum", {})),
            QueueResult(
                problem=f"{SILENT}its ClusterQueue 'research' has {TIER} 'platinum', want one of "
                "gold, silver, bronze: ask the cluster admin to correct the label"
            ),
            id="no tier of this cluster",
        ),
    ],
)
def test_the_tier_of_a_queue(queue: Queue, want: QueueResult) -> None:
    assert kueue.tier_of(queue, namespace="team-a", labels=LABELS, tiers=TIERS) == want


def labelled(obj: Json, queue: str) -> Json:
    metadata = obj.get("metadata", {})
    return obj | {"metadata": metadata | {"labels": {**metadata.get("labels", {}), NAME: queue}}}


def a_cron_job(job_labels: Json, pod: Json) -> Json:
    template = {"metadata": {"labels": job_labels}, "spec": {"template": pod}}
    spec = {"jobTemplate": template}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(a_pod(), "", id="none"),
        pytest.param(a_pod(labels={NAME: "gpu"}), "gpu", id="a pod's own"),
        pytest.param(labelled(a_job(), "gpu"), "gpu", id="a workload's own"),
        pytest.param(a_job(pod=a_pod(labels={NAME: "gpu"})), "gpu", id="its pods'"),
        pytest.param(
            labelled(a_job(pod=a_pod(labels={NAME: "other"})), "gpu"),
            "gpu",
            id="a workload's takes precedence over its pods'",
        ),
        pytest.param(a_cron_job({NAME: "gpu"}, a_pod()), "gpu", id="that of a CronJob's Jobs"),
        pytest.param({"kind": "Pod", "metadata": {"labels": {NAME: 3}}}, "", id="no text"),
    ],
)
def test_the_queue_that_an_object_names(obj: Json, want: str) -> None:
    assert kueue.name_in(obj) == want


def test_a_local_queue_leads_to_its_cluster_queue() -> None:
    assert [
        kueue.cluster_queue_of(row) for row in ({"spec": {"clusterQueue": "research"}}, {})
    ] == [
        "research",
        "",
    ]
