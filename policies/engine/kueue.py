"""
The tier that a Kueue queue gives to its workloads. Pure: the caller looks the queues up.

    label queue-name ──▶ LocalQueue ──spec.clusterQueue──▶ ClusterQueue ──label──▶ tier
                         of the same namespace             if it selects the namespace

A LocalQueue belongs to one namespace, so that a workload cannot use another namespace's by naming
it. A user who may write LocalQueues could still point one to any ClusterQueue; a ClusterQueue
therefore counts only for the namespaces that its `namespaceSelector` selects, as for Kueue itself.
A queue that cannot be resolved gives no tier, and the user gets the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from policies import vocabulary
from policies.documents import label_selectors
from policies.documents.rules import Selector
from policies.json_fields import Json, mapping
from policies.pods.workloads import pods_of


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """The tier and the namespaces of a ClusterQueue."""

    tier: str = ""
    """The value of its label; empty: none."""
    namespaces: Selector | None = None
    """The namespaces that it selects; None: no namespace."""

    @classmethod
    def read(cls, obj: Json) -> "ClusterQueue":
        label = _labels(obj).get(vocabulary.TIER_LABEL)
        selector = mapping(obj.get("spec")).get("namespaceSelector")
        try:
            selected = Selector.model_validate(selector) if isinstance(selector, Mapping) else None
        except ValidationError:
            selected = None  # Kueue cannot read it either
        return cls(label if isinstance(label, str) else "", selected)


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of an object, resolved as far as possible."""

    name: str
    cluster_queue_name: str | None = None
    """The ClusterQueue that the LocalQueue names; None: the LocalQueue does not exist."""
    cluster_queue: ClusterQueue | None = None
    """That ClusterQueue; None: it does not exist."""
    served: bool = True
    """Whether the cluster serves LocalQueues at all."""


@dataclass(frozen=True, slots=True)
class QueueResult:
    """The tier, or why the queue gives none; neither where its ClusterQueue has no tier."""

    tier: str | None = None
    problem: str = ""


NO_TIER: Final = QueueResult()


def cluster_queue_of(local_queue: Json) -> str:
    """The ClusterQueue that a LocalQueue names."""
    return str(mapping(local_queue.get("spec")).get("clusterQueue") or "")


def name_of(obj: Json) -> str:
    """The queue that an object names itself; empty: none."""
    name = _labels(obj).get(vocabulary.QUEUE_NAME_LABEL)
    return name if isinstance(name, str) else ""


def name_in(obj: Json) -> str:
    """The queue that an object names, or else the Jobs or pods that it makes."""
    named = name_of(obj)
    if named or obj.get("kind") == "Pod":
        return named
    jobs = mapping(mapping(obj.get("spec")).get("jobTemplate"))
    below = (name_of(part) for part in (jobs, *(template.pod for template in pods_of(obj))))
    return next(filter(None, below), "")


def tier_of(
    queue: Queue, *, namespace: str, labels: Mapping[str, str], tiers: Iterable[str]
) -> QueueResult:
    """The tier that the queue gives to workloads of a namespace, one of `tiers`."""
    cluster_queue, known = queue.cluster_queue, tuple(tiers)
    if not queue.served:
        why = "this cluster has no LocalQueues; install Kueue, or remove the label"
        return _no_tier(queue, f"{why} {vocabulary.QUEUE_NAME_LABEL}")
    if queue.cluster_queue_name is None:
        why = f"namespace {namespace!r} has no LocalQueue of that name; create it, or correct"
        return _no_tier(queue, f"{why} the label {vocabulary.QUEUE_NAME_LABEL}")
    its = f"its ClusterQueue {queue.cluster_queue_name!r}"
    if cluster_queue is None:
        return _no_tier(
            queue, f"{its} does not exist; create it, or name another in the LocalQueue"
        )
    if not cluster_queue.tier:
        return NO_TIER
    if cluster_queue.namespaces is None or not label_selectors.matches(
        cluster_queue.namespaces, labels
    ):
        fix = "ask the cluster admin to change its spec.namespaceSelector"
        return _no_tier(queue, f"{its} takes no work of namespace {namespace!r}; {fix}")
    if cluster_queue.tier.lower() not in known:
        fix = f"want one of {', '.join(known)}: ask the cluster admin to correct the label"
        return _no_tier(queue, f"{its} has {vocabulary.TIER_LABEL} {cluster_queue.tier!r}, {fix}")
    return QueueResult(cluster_queue.tier.lower())


def _no_tier(queue: Queue, why: str) -> QueueResult:
    return QueueResult(problem=f"queue {queue.name!r} gives no tier: {why}")


def _labels(obj: Json) -> Json:
    return mapping(mapping(obj.get("metadata")).get("labels"))
