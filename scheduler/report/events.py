"""
Constructors of the scheduler's Events, one function each.

Reasons are stable: users and programs search for them. The note gives the request and the finding.
`cluster.events.correlator` bounds notes and aggregates repeats into series. The state of a pod
belongs in its condition (`conditions`): an Event may be dropped.
"""

from collections.abc import Sequence
from typing import Final

from cluster.events import correlator
from policies import duration, vocabulary
from policies.documents.faults import Fault
from policies.documents.reservation import ResourceReservation
from policies.text import counted, listed, timestamp
from scheduler.model.plan import NoFit, Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import PartialGang, Unit

SCHEDULED: Final = "Scheduled"
FAILED: Final = "FailedScheduling"
GANG_WAITING: Final = "GangWaiting"
GANG_SCHEDULED: Final = "GangScheduled"
GANG_TIMED_OUT: Final = "GangTimedOut"
GANG_RELEASED: Final = "GangReleased"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
PREEMPTED: Final = "Preempted"
PREEMPTING: Final = "Preempting"
START_ESTIMATED: Final = "StartEstimated"
START_DELAYED: Final = "StartDelayed"
RESERVATION_ENDED: Final = "ReservationEnded"
RESERVATION_STARTED: Final = "ReservationStarted"
RESERVATION_MOVED: Final = "ReservationMoved"
RESERVATION_INCOMPLETE: Final = "ReservationIncomplete"
POLICIES_REFUSED: Final = "PoliciesRefused"
PROVISIONING_REQUESTED: Final = "ProvisioningRequested"
PROVISIONED: Final = "Provisioned"
PROVISIONING_FAILED: Final = "ProvisioningFailed"
SCHEDULER_ERROR: Final = "SchedulerError"


def scheduled(placement: Placement) -> correlator.EventReport:
    note = f"Successfully assigned {placement.pod.key} to {placement.node}"
    return correlator.report(_about(placement.pod), SCHEDULED, note, action="Binding")


def failed_scheduling(pod: Pod, why: NoFit) -> correlator.EventReport:
    return correlator.report(_about(pod), FAILED, why.text, action="Scheduling", warning=True)


def quota_exceeded(pod: Pod, why: NoFit) -> correlator.EventReport:
    return correlator.report(
        _about(pod), QUOTA_EXCEEDED, why.text, action="Scheduling", warning=True
    )


def preempted(pod: Pod, preemptor: Unit, reason: str) -> correlator.EventReport:
    note = f"Preempted by {_unit(preemptor)}: {reason}"
    return correlator.report(_about(pod), PREEMPTED, note, action="Preempting", warning=True)


def preempting(unit: Unit, victims: Sequence[Pod]) -> correlator.EventReport:
    named = listed([str(pod.key) for pod in victims])
    note = f"{_unit(unit)} waits for {counted(len(victims), 'victim')} to terminate: {named}"
    return correlator.report(_about(unit.pods[0]), PREEMPTING, note, action="Preempting")


def start_estimated(unit: Unit, start: float, waits_for: Sequence[str]) -> correlator.EventReport:
    """On the first pod; `start` in seconds of the epoch."""
    named = f", when {', '.join(waits_for)} have ended" if waits_for else ""
    note = f"{_unit(unit)} is expected to start by {timestamp(start)}{named}"
    return correlator.report(_about(unit.pods[0]), START_ESTIMATED, note, action="Scheduling")


def start_delayed(unit: Unit, start: float | None, why: str) -> correlator.EventReport:
    """`start` in seconds of the epoch; None: the scheduler can estimate no start for now."""
    when = "at a time not known yet" if start is None else f"by {timestamp(start)}"
    note = f"{_unit(unit)} is expected to start {when}: {why}"
    about = _about(unit.pods[0])
    return correlator.report(about, START_DELAYED, note, action="Scheduling", warning=True)


def member_reservation_ended(leader: Pod, gang: str, why: str) -> correlator.EventReport:
    note = _released_members(gang, why)
    return correlator.report(_about(leader), RESERVATION_ENDED, note, action="Reserving")


def member_reservation_moved(
    leader: Pod, gang: str, nodes: Sequence[str], why: str
) -> correlator.EventReport:
    """`nodes` are those with reserved capacity now."""
    group = f"pending members of pod group {gang}"
    note = f"moved the capacity reserved for {group} to {listed(nodes)}: {why}"
    return correlator.report(_about(leader), RESERVATION_MOVED, note, action="Reserving")


def member_reservation_incomplete(
    leader: Pod, gang: str, reserved: int, pending: int, why: str
) -> correlator.EventReport:
    note = (
        f"reserved capacity for {reserved} of {pending} pending members of pod group {gang};"
        f" searching for the rest: {why}"
    )
    about = _about(leader)
    return correlator.report(about, RESERVATION_INCOMPLETE, note, action="Reserving", warning=True)


def member_reservation_dropped(
    namespace: str, name: str, uid: str, gang: str, why: str
) -> correlator.EventReport:
    """On the ResourceReservation, because its leader no longer exists."""
    about, note = _reservation(namespace, name, uid), _released_members(gang, why)
    return correlator.report(about, RESERVATION_ENDED, note, action="Reserving")


def _released_members(gang: str, why: str) -> str:
    return f"released the capacity reserved for pending members of pod group {gang}: {why}"


def tenant_reservation_started(
    namespace: str, name: str, uid: str, tenant: str, reserved: str
) -> correlator.EventReport:
    about, note = _reservation(namespace, name, uid), f"reserved for tenant {tenant}: {reserved}"
    return correlator.report(about, RESERVATION_STARTED, note, action="Reserving")


def tenant_reservation_ended(
    namespace: str, name: str, uid: str, tenant: str, why: str
) -> correlator.EventReport:
    note = f"released the capacity reserved for tenant {tenant}: {why}"
    about = _reservation(namespace, name, uid)
    return correlator.report(about, RESERVATION_ENDED, note, action="Reserving")


def tenant_reservation_incomplete(
    namespace: str, name: str, uid: str, tenant: str, why: str
) -> correlator.EventReport:
    """Nodes with reserved capacity were lost."""
    note = f"searching for other capacity to reserve for tenant {tenant}: {why}"
    about = _reservation(namespace, name, uid)
    return correlator.report(about, RESERVATION_INCOMPLETE, note, action="Reserving", warning=True)


def _reservation(namespace: str, name: str, uid: str) -> correlator.Ref:
    kind = ResourceReservation.__name__
    return correlator.Ref(kind, name, namespace, uid, vocabulary.API_VERSION)


def provisioning_requested(
    unit: Unit, name: str, pods: int, class_name: str
) -> correlator.EventReport:
    """On the first pod, as all Events about the requests of a gang."""
    note = (
        f"ProvisioningRequest {name} requests nodes for {counted(pods, 'pod')}, class {class_name}"
    )
    return _provisioning(unit, PROVISIONING_REQUESTED, note)


def provisioned(unit: Unit, name: str, message: str) -> correlator.EventReport:
    note = f"ProvisioningRequest {name} is provisioned: {message}; retrying the pod group"
    return _provisioning(unit, PROVISIONED, note)


def provisioning_failed(
    unit: Unit, name: str, message: str, retry_at: float
) -> correlator.EventReport:
    """`retry_at` in seconds of the epoch."""
    retry = f"the next request follows at {timestamp(retry_at)}"
    note = f"ProvisioningRequest {name} provides no nodes: {message}; {retry}"
    return _provisioning(unit, PROVISIONING_FAILED, note, warning=True)


def provisioning_request_failed(unit: Unit, why: str) -> correlator.EventReport:
    note = f"cannot create a ProvisioningRequest, retrying: {why}"
    return _provisioning(unit, PROVISIONING_FAILED, note, warning=True)


def _provisioning(
    unit: Unit, reason: str, note: str, *, warning: bool = False
) -> correlator.EventReport:
    about = _about(unit.pods[0])
    return correlator.report(about, reason, note, action="Provisioning", warning=warning)


def _unit(unit: Unit) -> str:
    kind = "pod group" if unit.is_gang else "pod"
    owner = f" of tenant {unit.tenant}" if unit.tenant else ""
    return f"{kind} {unit.key}{owner}"


def failed_binding(pod: Pod, why: str) -> correlator.EventReport:
    note = f"binding failed; the scheduler plans the pod again: {why}"
    return correlator.report(_about(pod), FAILED, note, action="Binding", warning=True)


def rejected_binding(pod: Pod, why: str, *, retry_after: float) -> correlator.EventReport:
    """`retry_after` in seconds."""
    delay = duration.show(retry_after)
    note = f"API server rejected the binding; retrying in {delay}: {why}"
    return correlator.report(_about(pod), FAILED, note, action="Binding", warning=True)


def scheduler_error(pod: Pod, text: str) -> correlator.EventReport:
    return correlator.report(_about(pod), SCHEDULER_ERROR, text, action="Scheduling", warning=True)


def unreadable_pod(namespace: str, name: str, uid: str, error: str) -> correlator.EventReport:
    note = (
        f"the scheduler cannot read the pod ({error}) and leaves it alone until it changes; other"
        " pods are not affected. Correct the value on the pod"
    )
    about = correlator.Ref("Pod", name, namespace, uid)
    return correlator.report(about, SCHEDULER_ERROR, note, action="Scheduling", warning=True)


def error_text(unit: str, error: str, *, retry_after: float) -> str:
    """What happened, that other work goes on, what to do; `retry_after` in seconds."""
    return (
        f"the scheduler failed on {unit} ({error}) and tries it again in"
        f" {duration.show(retry_after)}, or when it changes; other pods are not affected."
        " Check the values on the pod for extremes, and report the error with the scheduler's log"
    )


def gate_not_removed(pod: Pod, why: str) -> correlator.EventReport:
    note = f"the gang is complete, but its scheduling gate was not removed: {why}"
    return correlator.report(_about(pod), FAILED, note, action="Scheduling", warning=True)


def policies_refused(fault: Fault) -> correlator.EventReport:
    """On the faulty policy object; for policies from files on the product's namespace."""
    kind, _, name = fault.source.partition("/")
    about = correlator.Ref("Namespace", vocabulary.SYSTEM_NAMESPACE)
    if kind in ("PlatformPolicy", "TenantPolicy"):
        about = correlator.Ref(kind, name, api_version=vocabulary.POLICY_API_VERSION)
    note = f"new policies rejected, the last good ones stay in force: {fault}"
    return correlator.report(about, POLICIES_REFUSED, note, action="Load", warning=True)


def gang_waiting(pod: Pod, text: str) -> correlator.EventReport:
    return correlator.report(_about(pod), GANG_WAITING, text, action="Scheduling")


def gang_timed_out(pod: Pod, text: str) -> correlator.EventReport:
    return correlator.report(_about(pod), GANG_TIMED_OUT, text, action="Scheduling", warning=True)


def gang_released(pod: Pod, partial: PartialGang) -> correlator.EventReport:
    note = released_note(partial)
    return correlator.report(_about(pod), GANG_RELEASED, note, action="Releasing", warning=True)


def released_note(partial: PartialGang) -> str:
    return f"{_partial(partial)}; evicted, so that the gang can start complete"


def gang_retained(pod: Pod, partial: PartialGang, *, bare: bool) -> correlator.EventReport:
    """A member of a partial gang that is not evicted."""
    why = "no controller would recreate it" if bare else "eviction of partial gangs is off"
    note = f"{_partial(partial)}; this pod stays because {why}: delete it to free its node"
    return correlator.report(_about(pod), GANG_TIMED_OUT, note, action="Releasing", warning=True)


def _partial(partial: PartialGang) -> str:
    count = f"{len(partial.live)} of {partial.size} members"
    return f"pod group {partial.key.name} had {count} bound for {partial.timeout:g}s"


def gang_scheduled(pod: Pod, gang: str, pods: int, nodes: int) -> correlator.EventReport:
    note = f"pod group {gang}: {counted(pods, 'pod')} assigned to {counted(nodes, 'node')}"
    return correlator.report(_about(pod), GANG_SCHEDULED, note, action="Binding")


def _about(pod: Pod) -> correlator.Ref:
    return correlator.Ref("Pod", pod.key.name, pod.key.namespace, pod.uid)
