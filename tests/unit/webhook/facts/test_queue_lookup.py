"""The Kueue queue of a workload: its own label, those above it, and when a lookup is needed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from policies.engine.kueue import ClusterQueue, Queue
from tests.builders import a_job, a_pod
from webhook.facts.queue_lookup import CACHE_SECONDS, QueueLookup
from webhook.review.codec import Review

Json = dict[str, Any]

NAME = "kueue.x-k8s.io/queue-name"
NEW = "applied a moment ago"


@dataclass
class Cluster:
    """Controllers by uid, some queues, and a record of the requests to the API server."""

    above: dict[str, Json] = field(default_factory=dict)
    with_queues: tuple[str, ...] = ("team-a",)
    requests: list[str] = field(default_factory=list)
    time: float = 0.0

    def may_hold(self, namespace: str) -> bool:
        return namespace in self.with_queues

    def known(self, namespace: str, name: str) -> Queue | None:
        return None if name == NEW else Queue(name, "research", ClusterQueue("gold"))

    def controller(self, obj: Mapping[str, Any], namespace: str) -> Json | None:
        for reference in obj["metadata"].get("ownerReferences", ()):
            self.requests.append(f"{reference['kind']} {reference['name']}")
            return self.above.get(reference["uid"])
        return None

    def read_queue(self, namespace: str, name: str) -> Queue:
        self.requests.append(f"LocalQueue {name}")
        return Queue(name)

    def lookup(self) -> QueueLookup:
        return QueueLookup(
            self, controller=self.controller, read_queue=self.read_queue, now=lambda: self.time
        )


def made_by(
    obj: Json, kind: str, uid: str, api_version: str = "batch/v1", *, controller: bool = True
) -> Json:
    reference = {"apiVersion": api_version, "kind": kind, "name": uid, "uid": uid}
    owners = [reference | {"controller": controller}]
    return obj | {"metadata": {**obj["metadata"], "ownerReferences": owners}}


def in_queue(obj: Json, queue: str) -> Json:
    labels = {**obj["metadata"].get("labels", {}), NAME: queue}
    return obj | {"metadata": obj["metadata"] | {"labels": labels}}


def a_review(
    obj: Json, operation: str = "CREATE", namespace: str = "team-a", **more: Any
) -> Review:
    group, _, version = obj["apiVersion"].rpartition("/")
    return Review(
        uid="u",
        operation=operation,
        kind=obj["kind"],
        resource=f"{obj['kind'].lower()}s",
        group=group,
        version=version,
        namespace=namespace,
        object=obj,
        **more,
    )


JOB = a_job("j")
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}}
POD = made_by(a_pod(), "Job", "j")
CHILD = made_by(JOB, "JobSet", "s", "jobset.x-k8s.io/v1alpha2")


@pytest.mark.parametrize(
    ("review", "above", "queue", "want_requests"),
    [
        pytest.param(a_review(a_pod()), {}, None, [], id="a pod that stands in none"),
        pytest.param(a_review(in_queue(a_pod(), "gpu")), {}, "gpu", [], id="a pod's own"),
        pytest.param(a_review(in_queue(JOB, "gpu")), {}, "gpu", [], id="a workload's own"),
        pytest.param(a_review(POD), {"j": in_queue(JOB, "gpu")}, "gpu", ["Job j"], id="its Job's"),
        pytest.param(
            a_review(POD),
            {"j": CHILD, "s": in_queue(JOB_SET, "gpu")},
            "gpu",
            ["Job j", "JobSet s"],
            id="that of its Job's JobSet",
        ),
        pytest.param(
            a_review(in_queue(POD, "mine")),
            {"j": in_queue(CHILD, "theirs"), "s": in_queue(JOB_SET, "gpu")},
            "gpu",
            ["Job j", "JobSet s"],
            id="the highest takes precedence over all below",
        ),
        pytest.param(
            a_review(in_queue(POD, "gpu")),
            {"j": JOB},
            "gpu",
            ["Job j"],
            id="its own where no object above names one",
        ),
        pytest.param(
            a_review(in_queue(POD, "gpu")), {}, "gpu", ["Job j"], id="its own without its Job"
        ),
        pytest.param(
            a_review(POD, namespace="team-b"),
            {"j": in_queue(JOB, "gpu")},
            None,
            [],
            id="no lookup where the namespace has no queues",
        ),
        pytest.param(
            a_review(in_queue(a_pod(), NEW)),
            {},
            NEW,
            [f"LocalQueue {NEW}"],
            id="a queue that is not known is read",
        ),
        pytest.param(
            a_review(made_by(a_pod(), "AppWrapper", "w", "workload.codeflare.dev/v1beta2")),
            {"w": in_queue(JOB, "gpu")},
            None,
            [],
            id="kinds that are not known to make pods are not read",
        ),
        pytest.param(
            a_review(made_by(a_pod(), "Job", "j", controller=False)),
            {"j": in_queue(JOB, "gpu")},
            None,
            [],
            id="an owner that does not control it",
        ),
        pytest.param(
            a_review(in_queue(POD, "gpu"), "UPDATE"), {}, None, [], id="a pod that exists"
        ),
        pytest.param(
            a_review(in_queue(a_pod(), "gpu"), subresource="resize"), {}, None, [], id="a part"
        ),
        pytest.param(
            a_review({"apiVersion": "v1", "kind": "Service", "metadata": {"labels": {NAME: "g"}}}),
            {},
            None,
            [],
            id="what makes no pods",
        ),
    ],
)
def test_the_queue_that_work_stands_in(
    review: Review, above: dict[str, Json], queue: str | None, want_requests: list[str]
) -> None:
    cluster = Cluster(above)
    lookup = cluster.lookup()
    needs_lookup = lookup.needs_lookup(review)
    found = lookup.queue(review)
    want = Queue(NEW) if queue == NEW else Queue(queue or "", "research", ClusterQueue("gold"))
    assert (found, cluster.requests, needs_lookup) == (
        None if queue is None else want,
        want_requests,
        bool(want_requests),
    )


def test_a_controller_is_read_once_for_all_its_pods_until_the_entry_expires() -> None:
    cluster = Cluster({"j": in_queue(JOB, "gpu")})
    lookup = cluster.lookup()
    seen = []
    for cluster.time in (0.0, CACHE_SECONDS / 2, CACHE_SECONDS + 1):
        needs_lookup = lookup.needs_lookup(a_review(POD))
        found = lookup.queue(a_review(POD))
        seen.append((needs_lookup, found and found.name, len(cluster.requests)))
        cluster.above = {"j": in_queue(JOB, "other")}
    assert seen == [(True, "gpu", 1), (False, "gpu", 1), (True, "other", 2)]


def test_a_false_owner_reference_does_not_affect_the_true_one() -> None:
    cluster = Cluster({"j": in_queue(JOB, "gpu")})
    lookup = cluster.lookup()
    false = made_by(a_pod(), "Job", "j")
    false["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert [
        lookup.queue(a_review(false)),
        lookup.queue(a_review(POD)),
    ] == [None, Queue("gpu", "research", ClusterQueue("gold"))]
