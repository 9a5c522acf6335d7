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
from scheduler.tenancy.reservation.objects import Reservation
from scheduler.tenancy.reservation.writer import Name

SCHEDULED: Final = "Scheduled"
FAILED: Final = "FailedScheduling"
GANG_WAITING: Final = "GangWaiting"
GANG_SCHEDULED: Final = "GangScheduled"
GANG_TIMED_OUT: Final = "GangTimedOut"
GANG_RELEASED: Final = "GangReleased"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
PREEMPTED: Final = "Preempted"
PREEMPTING: Final = "Preempting"
START_PROMISED: Final = "StartPromised"
PROMISE_MOVED: Final = "PromiseMoved"
RESERVATION_ENDED: Final = "ReservationEnded"
RESERVATION_STARTED: Final = "ReservationStarted"
RESERVATION_MOVED: Final = "ReservationMoved"
RESERVATION_SHORT: Final = "ReservationShort"
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


def start_promised(unit: Unit, start: float, waits_for: Sequence[str]) -> correlator.EventReport:
    """On the first pod; `start` in seconds of the epoch."""
    named = f", when {', '.join(waits_for)} have ended" if waits_for else ""
    note = f"{_unit(unit)} is expected to start by {instant_text(start)}{named}"
    return correlator.report(_about(unit.pods[0]), START_PROMISED, note, action="Scheduling")


def promise_moved(unit: Unit, start: float | None, why: str) -> correlator.EventReport:
    """None: there is no time to be named for now."""
    when = "at a time not known yet" if start is None else f"by {instant_text(start)}"
    note = f"{_unit(unit)} is expected to start {when}: {why}"
    about = _about(unit.pods[0])
    return correlator.report(about, PROMISE_MOVED, note, action="Scheduling", warning=True)


def instant_text(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def reservation_ended(pod: Pod, gang: str, why: str) -> correlator.EventReport:
    note = f"room is kept no longer for members of pod group {gang} that are missing: {why}"
    return correlator.report(_about(pod), RESERVATION_ENDED, note, action="Reserving")


def reservation_moved(
    pod: Pod, gang: str, nodes: Sequence[str], why: str
) -> correlator.EventReport:
    """On the leader; the nodes are those on which room is kept now."""
    named = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
    note = f"room for members of pod group {gang} that are missing is kept on {named} now: {why}"
    return correlator.report(_about(pod), RESERVATION_MOVED, note, action="Reserving")


def reservation_short(
    pod: Pod, gang: str, counts: tuple[int, int], why: str
) -> correlator.EventReport:
    """On the leader; the counts are of places that are kept, and that should be."""
    note = (
        f"room is kept for {counts[0]} of {counts[1]} members of pod group {gang} that are"
        f" missing, and looked for the others: {why}"
    )
    about = _about(pod)
    return correlator.report(about, RESERVATION_SHORT, note, action="Reserving", warning=True)


def reservation_dropped(name: Name, uid: str, gang: str, why: str) -> correlator.EventReport:
    """On the object, whose leader is not there to be told."""
    note = f"room is kept no longer for members of pod group {gang} that are missing: {why}"
    return correlator.report(_object(name, uid), RESERVATION_ENDED, note, action="Reserving")


def allotted(one: Reservation, what: str, *, begins: bool) -> correlator.EventReport:
    """About a reservation for a tenant, that begins or ends."""
    about = _object(one.name, one.uid)
    said = "is kept from now on" if begins else "is kept no longer"
    note = f"room {said} for tenant {one.spec.tenant}: {what}"
    reason = RESERVATION_STARTED if begins else RESERVATION_ENDED
    return correlator.report(about, reason, note, action="Reserving")


def allotment_short(one: Reservation, why: str) -> correlator.EventReport:
    """About a reservation for a tenant, some of whose places were lost."""
    note = f"other room is looked for, for tenant {one.spec.tenant}: {why}"
    about = _object(one.name, one.uid)
    return correlator.report(about, RESERVATION_SHORT, note, action="Reserving", warning=True)


def _object(name: Name, uid: str) -> correlator.Ref:
    kind = ResourceReservation.__name__
    return correlator.Ref(kind, name[1], name[0], uid, vocabulary.API_VERSION)


def provisioning_requested(unit: Unit, name: str, pods: int, kind: str) -> correlator.EventReport:
    """On the first pod, as all about the requests of a gang."""
    note = f"ProvisioningRequest {name} asks for nodes for {_count(pods, 'pod')}, class {kind}"
    return _provisioning(unit, PROVISIONING_REQUESTED, note)


def provisioned(unit: Unit, name: str, said: str) -> correlator.EventReport:
    note = f"ProvisioningRequest {name} is answered: {said}; the pod group is tried again"
    return _provisioning(unit, PROVISIONED, note)


def not_provisioned(unit: Unit, name: str, said: str, again: float) -> correlator.EventReport:
    """`again` in seconds of the epoch."""
    when = f"another one follows at {instant_text(again)}"
    note = f"ProvisioningRequest {name} brings no nodes: {said}; {when}"
    return _provisioning(unit, PROVISIONING_FAILED, note, warning=True)


def request_refused(unit: Unit, why: str) -> correlator.EventReport:
    note = f"no ProvisioningRequest could be made, which is tried again: {why}"
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
