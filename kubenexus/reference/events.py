"""
docs/reference/events.md: Events and conditions by their stable reason.
"""

from typing import Final

from kubenexus.reference import markdown
from scheduler.gang import stale_gang_eviction
from scheduler.report import conditions as scheduling
from scheduler.report import events
from webhook.admission import audit
from webhook.policy_source import status_writer

Row = tuple[str, str, str]

_HEADS: Final = ("Reason", "Type", "When")

ADMISSION: Final[tuple[Row, ...]] = (
    (audit.DENIED, "Warning", "a rule denied the request; the note names every failed rule"),
    (audit.WARNED, "Warning", "a rule that warns failed, or the product itself warns"),
    (audit.AUDITED, "Normal", "a rule that is only audited failed"),
    (audit.EXCEPTED, "Normal", "a rule failed and an exception let it pass"),
    (audit.INJECTED, "Normal", "policies wrote fields; with `--event-defaults` only"),
    (
        status_writer.REFUSED,
        "Warning",
        "newer policies have faults and the last good ones stay in force; on the policy object, or"
        " on the product's namespace for policies from files",
    ),
)
SCHEDULING: Final[tuple[Row, ...]] = (
    (events.SCHEDULED, "Normal", "the pod was bound to its node"),
    (
        events.FAILED,
        "Warning",
        "the pod or its gang is unschedulable, the binding failed or was rejected, or its gang's"
        " scheduling gate could not be removed; the note tells which",
    ),
    (events.GANG_WAITING, "Normal", "members of the gang do not exist yet"),
    (events.GANG_SCHEDULED, "Normal", "members of a gang were bound together; on the first one"),
    (
        events.GANG_TIMED_OUT,
        "Warning",
        "the gang's timeout has passed: members are still missing, or the gang is partial and this"
        " pod is not evicted",
    ),
    (
        events.GANG_RELEASED,
        "Warning",
        "the gang stayed partial past its timeout and the scheduler evicted this member, so that"
        " its controller recreates it and the gang can start complete",
    ),
    (
        events.QUOTA_EXCEEDED,
        "Warning",
        "the tenant's quota, or that of a group above it, is used up; the note tells what"
        " is requested, used and allowed",
    ),
    (
        events.PREEMPTED,
        "Warning",
        "the scheduler evicts the pod so that another pod or gang fits; the note names the"
        " preemptor and the reason: higher priority, reclaim of a guarantee, a preemptible pod, or"
        " an overrun of the expected duration",
    ),
    (
        events.RESERVATION_ENDED,
        "Normal",
        "the scheduler released reserved capacity: on a gang's leader, of its pending members; on a"
        " ResourceReservation, of its tenant, or of pending members whose leader no longer exists",
    ),
    (events.RESERVATION_STARTED, "Normal", "a tenant's reservation is in effect"),
    (
        events.RESERVATION_MOVED,
        "Normal",
        "the scheduler moved the capacity reserved for pending members of a gang to other nodes; on"
        " its leader",
    ),
    (
        events.RESERVATION_INCOMPLETE,
        "Warning",
        "a node with reserved capacity was lost, and the scheduler searches for other capacity; on"
        " a gang's leader, or on a ResourceReservation",
    ),
    (
        events.PREEMPTING,
        "Normal",
        "the pod or gang waits for its victims to terminate; the note names them",
    ),
    (
        events.START_ESTIMATED,
        "Normal",
        "the pod or gang waits for capacity and is expected to start by the time in the note, which"
        " names the pods that end last before it; on the first pod",
    ),
    (
        events.START_DELAYED,
        "Warning",
        "the estimated start changed: a pod overran its expected duration, a node was lost, or a"
        " unit of higher priority took the capacity; the note tells which",
    ),
    (
        events.PROVISIONING_REQUESTED,
        "Normal",
        "a ProvisioningRequest requests nodes for the gang; on the first pod, as the next two",
    ),
    (
        events.PROVISIONED,
        "Normal",
        "the autoscaler provisioned the request, and the scheduler retries the gang",
    ),
    (
        events.PROVISIONING_FAILED,
        "Warning",
        "the request failed, expired or was revoked, with the autoscaler's message, or the"
        " scheduler could not create it; another one follows",
    ),
    (
        events.SCHEDULER_ERROR,
        "Warning",
        "the scheduler itself failed on the pod or its gang, which it tries again after 5s to 5m or"
        " when a pod of it changes; the note names the error",
    ),
    (
        events.POLICIES_REFUSED,
        "Warning",
        "newer policies have faults and the last good ones stay in force; on the policy object, or"
        " on the product's namespace for policies from files",
    ),
)
CONDITIONS: Final[tuple[Row, ...]] = (
    (
        scheduling.UNSCHEDULABLE,
        "`PodScheduled`",
        "the pod fits no node now, but may fit another one: autoscalers act on this reason",
    ),
    (scheduling.WAITING, "`PodScheduled`", "the pod's gang is forming: it is not planned yet"),
    (
        scheduling.QUOTA,
        "`PodScheduled`",
        "the tenant's quota is used up; another node would not help",
    ),
    (
        scheduling.INVALID,
        "`PodScheduled`",
        "the pod, or members that its gang needs, have requests that no node can satisfy; another"
        " node would not help",
    ),
    (
        scheduling.PROVISIONING,
        "`PodScheduled`",
        "a ProvisioningRequest asks for nodes for the pod's gang; autoscalers add no node for the"
        " pod itself",
    ),
    (
        scheduling.REFUSED,
        "`PodScheduled`",
        "the API server or a policy on it rejects the binding; retried after 5m to 1h",
    ),
    (
        scheduling.ERROR,
        "`PodScheduled`",
        "the scheduler itself failed on the pod or its gang; another node would not help",
    ),
    (
        stale_gang_eviction.DISRUPTION_REASON,
        "`DisruptionTarget`",
        "the scheduler evicts the pod because its gang is partial",
    ),
)
POLICIES: Final = (
    ("Compiled", "True `Valid`, False `Invalid`", "whether the policy has faults of its own"),
    (
        "Ready",
        "True `InForce`, False `Invalid` or `PolicySetRejected`",
        "whether it is in force; `PolicySetRejected` names the faulty policies that keep the set"
        " out",
    ),
)


def page() -> str:
    return markdown.page(
        "Events and conditions",
        "Events are `events.k8s.io/v1`. Repeats become one Event with a count, and Events may be"
        " dropped under load; conditions hold the state.",
        "## Admission",
        "Of the controller `kubenexus-webhook`; [Audit](../audit.md) describes their objects.",
        markdown.table(_HEADS, map(_row, ADMISSION)),
        "## Scheduling",
        "Of the controller `kubenexus-scheduler`, about pods.",
        markdown.table(_HEADS, map(_row, SCHEDULING)),
        "## Conditions of pods",
        markdown.table(("Reason", "Condition", "When"), map(_row, CONDITIONS)),
        "## Conditions of policies",
        "In `status.conditions` of PlatformPolicy and TenantPolicy.",
        markdown.table(("Condition", "Status and reason", "Meaning"), map(_row, POLICIES)),
    )


def _row(row: Row) -> Row:
    name, kind, when = row
    return markdown.code(name), kind, when
