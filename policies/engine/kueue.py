"""
The queue of Kueue that work stands in, and what it says of the tier. Pure: nothing is looked up.

    label queue-name ──▶ LocalQueue ──spec.clusterQueue──▶ ClusterQueue ──label──▶ tier
                         of the same namespace             if it takes the namespace

LocalQueues are of one namespace, so that nobody reaches another one's by naming it. Whoever may
write LocalQueues could still point one anywhere; a ClusterQueue therefore counts only for the
namespaces that its `namespaceSelector` takes, as it does for Kueue itself. A queue that leads
nowhere gives no tier, and why is said to the user.
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
    """What is remembered of a ClusterQueue."""

    tier: str = ""
    """As its label has it; empty: it says none."""
    takes: Selector | None = None
    """Namespaces whose work it takes; None: of no namespace."""

    @classmethod
    def read(cls, obj: Json) -> "ClusterQueue":
        label = _labels(obj).get(vocabulary.TIER_LABEL)
        selector = mapping(obj.get("spec")).get("namespaceSelector")
        try:
            takes = Selector.model_validate(selector) if isinstance(selector, Mapping) else None
        except ValidationError:
            takes = None  # Kueue cannot read it either
        return cls(label if isinstance(label, str) else "", takes)


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue that an object stands in, as far as it could be followed."""

    name: str
    leads_to: str | None = None
    """The ClusterQueue that the LocalQueue names; None: there is no such LocalQueue."""
    found: ClusterQueue | None = None
    """That ClusterQueue; None: there is none of the name."""
    served: bool = True
    """Whether the cluster has queues at all."""


@dataclass(frozen=True, slots=True)
class QueueResult:
    """The tier, or why the queue says none; neither where it is silent on purpose."""

    tier: str | None = None
    trouble: str = ""


NOTHING: Final = QueueResult()


def leads_to(local_queue: Json) -> str:
    """The ClusterQueue that a LocalQueue names."""
    return str(mapping(local_queue.get("spec")).get("clusterQueue") or "")


def name_of(obj: Json) -> str:
    """The queue that an object names itself; empty: none."""
    found = _labels(obj).get(vocabulary.QUEUE_NAME_LABEL)
    return found if isinstance(found, str) else ""


def name_in(obj: Json) -> str:
    """The queue that an object names, or else what it makes: Jobs of a CronJob, pods."""
    named = name_of(obj)
    if named or obj.get("kind") == "Pod":
        return named
    jobs = mapping(mapping(obj.get("spec")).get("jobTemplate"))
    below = (name_of(part) for part in (jobs, *(template.pod for template in pods_of(obj))))
    return next(filter(None, below), "")


def says(
    queue: Queue, *, namespace: str, labels: Mapping[str, str], tiers: Iterable[str]
) -> QueueResult:
    """What the queue says to work of a namespace with these labels, among these tiers."""
    found, known = queue.found, tuple(tiers)
    if not queue.served:
        why = "this cluster has no LocalQueues; install Kueue, or remove the label"
        return _silent(queue, f"{why} {vocabulary.QUEUE_NAME_LABEL}")
    if queue.leads_to is None:
        why = f"namespace {namespace!r} has no LocalQueue of that name; create it, or correct"
        return _silent(queue, f"{why} the label {vocabulary.QUEUE_NAME_LABEL}")
    its = f"its ClusterQueue {queue.leads_to!r}"
    if found is None:
        return _silent(queue, f"{its} does not exist; create it, or name another in the LocalQueue")
    if not found.tier:
        return NOTHING
    if found.takes is None or not label_selectors.matches(found.takes, labels):
        fix = "ask the cluster admin to change its spec.namespaceSelector"
        return _silent(queue, f"{its} takes no work of namespace {namespace!r}; {fix}")
    if found.tier.lower() not in known:
        want = f"want one of {', '.join(known)}: ask the cluster admin to correct the label"
        return _silent(queue, f"{its} has {vocabulary.TIER_LABEL} {found.tier!r}, {want}")
    return QueueResult(found.tier.lower())


def _silent(queue: Queue, why: str) -> QueueResult:
    return QueueResult(trouble=f"queue {queue.name!r} gives no tier: {why}")


def _labels(obj: Json) -> Json:
    return mapping(mapping(obj.get("metadata")).get("labels"))
