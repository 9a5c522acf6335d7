"""
Events and conditions: what is written on objects for people and programs, by its stable reason.
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
    (audit.DENIED, "Warning", "a rule refused the request; every failed rule is named"),
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
    (events.SCHEDULED, "Normal", "the pod has its node"),
    (
        events.FAILED,
        "Warning",
        "no node takes the pod or its gang, the API server did not take its bind, or its gang's"
        " gate could not be lifted; the note says which",
    ),
    (events.GANG_WAITING, "Normal", "members of the gang do not exist yet"),
    (events.GANG_SCHEDULED, "Normal", "members of a gang were bound together; on the first one"),
    (
        events.GANG_TIMED_OUT,
        "Warning",
        "the gang's timeout has passed: members are still missing, or it stands half bound and"
        " this pod keeps its node",
    ),
    (
        events.GANG_RELEASED,
        "Warning",
        "the gang could not be completed in time and this member was deleted, so that its"
        " controller makes it anew and the gang starts whole",
    ),
    (
        events.QUOTA_EXCEEDED,
        "Warning",
        "the tenant's quota, or that of a group above it, keeps the pod waiting; the note says"
        " what is requested, used and allowed",
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
    (events.PREEMPTING, "Normal", "the pod or gang waits for others to end; the note names them"),
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
        " unit of higher priority took the capacity; the note says which",
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
        events.POLICIES_REFUSED,
        "Warning",
        "newer policies have faults and the scheduler goes by the last good ones; on the policy"
        " object, or on the product's namespace for policies from files",
    ),
)
CONDITIONS: Final[tuple[Row, ...]] = (
    (
        scheduling.UNSCHEDULABLE,
        "`PodScheduled`",
        "no node takes the pod as things stand; another node might: autoscalers act on it",
    ),
    (scheduling.WAITING, "`PodScheduled`", "the pod's gang is not complete; nothing was tried"),
    (
        scheduling.QUOTA,
        "`PodScheduled`",
        "the tenant's quota keeps the pod waiting; another node would not help",
    ),
    (
        scheduling.INVALID,
        "`PodScheduled`",
        "the pod, or members that its gang needs, ask for what cannot be honoured; another node"
        " would not help",
    ),
    (
        scheduling.PROVISIONING,
        "`PodScheduled`",
        "the pod's gang lacks room, and nodes are asked for with a ProvisioningRequest; autoscalers"
        " leave the pod itself alone",
    ),
    (
        scheduling.REFUSED,
        "`PodScheduled`",
        "the API server, or a policy on it, refuses the bind; it is tried again after minutes",
    ),
    (
        stale_gang_eviction.DISRUPTION_REASON,
        "`DisruptionTarget`",
        "the pod is deleted to free its gang's nodes",
    ),
)
POLICIES: Final = (
    ("Compiled", "True `Sound`, False `Faulty`", "whether the policy has faults of its own"),
    (
        "Ready",
        "True `InForce`, False `Faulty` or `SetRefused`",
        "whether it is in force; `SetRefused` names the policies that keep the whole set back",
    ),
)


def page() -> str:
    return markdown.page(
        "Events and conditions",
        "Events are `events.k8s.io/v1`. Repeats become one Event with a count, and one may be"
        " dropped where too many come; conditions are the lasting word.",
        "## Admission",
        "Of the controller `kubenexus-webhook`; [Audit](../audit.md) says what each is about.",
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
