"""
What people read about their pods: Events, each made by a named function.

Reasons are stable words that people and programs search for; the note says what was wanted and
what was found. `cluster.events.correlator` bounds notes and folds repeats into series. The state
of a pod belongs in its condition (`conditions`): an Event may be dropped.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from cluster.events import correlator
from policies import vocabulary
from policies.documents.faults import Fault
from policies.documents.reservation import ResourceReservation
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


def scheduled(placement: Placement) -> correlator.EventReport:
    note = f"Successfully assigned {placement.pod.key} to {placement.node}"
    return correlator.report(_about(placement.pod), SCHEDULED, note, action="Binding")


def failed_scheduling(pod: Pod, why: NoFit) -> correlator.EventReport:
    return correlator.report(_about(pod), FAILED, why.text, action="Scheduling", warning=True)


def quota_exceeded(pod: Pod, why: NoFit) -> correlator.EventReport:
    return correlator.report(
        _about(pod), QUOTA_EXCEEDED, why.text, action="Scheduling", warning=True
    )


def preempted(pod: Pod, unit: Unit) -> correlator.EventReport:
    note = f"Preempted by {_unit(unit)}"
    return correlator.report(_about(pod), PREEMPTED, note, action="Preempting", warning=True)


def preempting(unit: Unit, victims: Sequence[Pod]) -> correlator.EventReport:
    named = ", ".join(str(pod.key) for pod in victims[:5])
    more = f" and {len(victims) - 5} more" if len(victims) > 5 else ""
    note = f"{_unit(unit)} waits for {_count(len(victims), 'pod')} to end: {named}{more}"
    return correlator.report(_about(unit.pods[0]), PREEMPTING, note, action="Preempting")


def start_estimated(unit: Unit, start: float, waits_for: Sequence[str]) -> correlator.EventReport:
    """On the first pod; `start` in seconds of the epoch."""
    named = f", when {', '.join(waits_for)} have ended" if waits_for else ""
    note = f"{_unit(unit)} is expected to start by {instant_text(start)}{named}"
    return correlator.report(_about(unit.pods[0]), START_ESTIMATED, note, action="Scheduling")


def start_delayed(unit: Unit, start: float | None, why: str) -> correlator.EventReport:
    """`start` in seconds of the epoch; None: the scheduler can estimate no start for now."""
    when = "at a time not known yet" if start is None else f"by {instant_text(start)}"
    note = f"{_unit(unit)} is expected to start {when}: {why}"
    about = _about(unit.pods[0])
    return correlator.report(about, START_DELAYED, note, action="Scheduling", warning=True)


def instant_text(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def member_reservation_ended(leader: Pod, gang: str, why: str) -> correlator.EventReport:
    note = _released_members(gang, why)
    return correlator.report(_about(leader), RESERVATION_ENDED, note, action="Reserving")


def member_reservation_moved(
    leader: Pod, gang: str, nodes: Sequence[str], why: str
) -> correlator.EventReport:
    """`nodes` are those with reserved capacity now."""
    named = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
    note = f"moved the capacity reserved for pending members of pod group {gang} to {named}: {why}"
    return correlator.report(_about(leader), RESERVATION_MOVED, note, action="Reserving")


def member_reservation_incomplete(
    leader: Pod, gang: str, reserved: int, wanted: int, why: str
) -> correlator.EventReport:
    note = (
        f"reserved capacity for {reserved} of {wanted} pending members of pod group {gang};"
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
        f"ProvisioningRequest {name} requests nodes for {_count(pods, 'pod')}, class {class_name}"
    )
    return _provisioning(unit, PROVISIONING_REQUESTED, note)


def provisioned(unit: Unit, name: str, message: str) -> correlator.EventReport:
    note = f"ProvisioningRequest {name} is provisioned: {message}; retrying the pod group"
    return _provisioning(unit, PROVISIONED, note)


def provisioning_failed(
    unit: Unit, name: str, message: str, retry_at: float
) -> correlator.EventReport:
    """`retry_at` in seconds of the epoch."""
    retry = f"the next request follows at {instant_text(retry_at)}"
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
    what = "pod group" if unit.is_gang else "pod"
    whose = f" of tenant {unit.tenant}" if unit.tenant else ""
    return f"{what} {unit.key}{whose}"


def failed_binding(pod: Pod, why: str) -> correlator.EventReport:
    note = f"the pod was not bound and is planned again: {why}"
    return correlator.report(_about(pod), FAILED, note, action="Binding", warning=True)


def refused_binding(pod: Pod, why: str) -> correlator.EventReport:
    note = f"the API server refuses to bind the pod, which is left alone for minutes: {why}"
    return correlator.report(_about(pod), FAILED, note, action="Binding", warning=True)


def gate_not_lifted(pod: Pod, why: str) -> correlator.EventReport:
    note = f"the gang is complete and its gate was not lifted: {why}"
    return correlator.report(_about(pod), FAILED, note, action="Scheduling", warning=True)


def policies_refused(fault: Fault) -> correlator.EventReport:
    """About the object that is faulty, where it is one; else about the product's namespace."""
    kind, _, name = fault.source.partition("/")
    about = correlator.Ref("Namespace", vocabulary.SYSTEM_NAMESPACE)
    if kind in ("PlatformPolicy", "TenantPolicy"):
        about = correlator.Ref(kind, name, api_version=vocabulary.POLICY_API_VERSION)
    note = f"the scheduler goes by the last good policies: {fault}"
    return correlator.report(about, POLICIES_REFUSED, note, action="Load", warning=True)


def gang_waiting(pod: Pod, text: str) -> correlator.EventReport:
    return correlator.report(_about(pod), GANG_WAITING, text, action="Scheduling")


def gang_timed_out(pod: Pod, text: str) -> correlator.EventReport:
    return correlator.report(_about(pod), GANG_TIMED_OUT, text, action="Scheduling", warning=True)


def gang_released(pod: Pod, half: PartialGang) -> correlator.EventReport:
    note = released_note(half)
    return correlator.report(_about(pod), GANG_RELEASED, note, action="Releasing", warning=True)


def released_note(half: PartialGang) -> str:
    return f"{_half(half)}; released, so that the gang starts whole"


def gang_kept(pod: Pod, half: PartialGang, *, bare: bool) -> correlator.EventReport:
    """A member that keeps its node although its gang is not whole."""
    why = "nobody would recreate it" if bare else "releasing is off"
    note = f"{_half(half)}; this pod stays because {why}: delete it to free its node"
    return correlator.report(_about(pod), GANG_TIMED_OUT, note, action="Releasing", warning=True)


def _half(half: PartialGang) -> str:
    count = f"{len(half.live)} of {half.size} members"
    return f"pod group {half.key.name} had {count} bound for {half.timeout:g}s"


def gang_scheduled(pod: Pod, gang: str, pods: int, nodes: int) -> correlator.EventReport:
    note = f"pod group {gang}: {_count(pods, 'pod')} assigned to {_count(nodes, 'node')}"
    return correlator.report(_about(pod), GANG_SCHEDULED, note, action="Binding")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _about(pod: Pod) -> correlator.Ref:
    return correlator.Ref("Pod", pod.key.name, pod.key.namespace, pod.uid)
