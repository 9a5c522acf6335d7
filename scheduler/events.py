"""
What people read about their pods: Events, each made by a named function.

Reasons are stable words that people and programs search for; the note says what was wanted and
what was found. `cluster.correlation` bounds the notes and folds repeats into series. The state of a
pod belongs in its condition (`conditions`): an Event may be dropped.
"""

from typing import Final

from cluster import correlation

from .model import Pod
from .outcome import NoFit, Placement
from .wholeness import Half

SCHEDULED: Final = "Scheduled"
FAILED: Final = "FailedScheduling"
GANG_WAITING: Final = "GangWaiting"
GANG_SCHEDULED: Final = "GangScheduled"
GANG_TIMED_OUT: Final = "GangTimedOut"
GANG_RELEASED: Final = "GangReleased"


def scheduled(placement: Placement) -> correlation.Report:
    note = f"Successfully assigned {placement.pod.key} to {placement.node}"
    return correlation.report(_about(placement.pod), SCHEDULED, note, action="Binding")


def failed_scheduling(pod: Pod, why: NoFit) -> correlation.Report:
    return correlation.report(_about(pod), FAILED, why.text, action="Scheduling", warning=True)


def failed_binding(pod: Pod, why: str) -> correlation.Report:
    note = f"the pod was not bound and is planned again: {why}"
    return correlation.report(_about(pod), FAILED, note, action="Binding", warning=True)


def refused_binding(pod: Pod, why: str) -> correlation.Report:
    note = f"the API server refuses to bind the pod, which is left alone for minutes: {why}"
    return correlation.report(_about(pod), FAILED, note, action="Binding", warning=True)


def gate_not_lifted(pod: Pod, why: str) -> correlation.Report:
    note = f"the gang is complete and its gate was not lifted: {why}"
    return correlation.report(_about(pod), FAILED, note, action="Scheduling", warning=True)


def gang_waiting(pod: Pod, text: str) -> correlation.Report:
    return correlation.report(_about(pod), GANG_WAITING, text, action="Scheduling")


def gang_timed_out(pod: Pod, text: str) -> correlation.Report:
    return correlation.report(_about(pod), GANG_TIMED_OUT, text, action="Scheduling", warning=True)


def gang_released(pod: Pod, half: Half) -> correlation.Report:
    note = released_note(half)
    return correlation.report(_about(pod), GANG_RELEASED, note, action="Releasing", warning=True)


def released_note(half: Half) -> str:
    return f"{_half(half)}; released, so that the gang starts whole"


def gang_kept(pod: Pod, half: Half, *, bare: bool) -> correlation.Report:
    """A member that keeps its node although its gang is not whole."""
    why = "nobody would recreate it" if bare else "releasing is off"
    note = f"{_half(half)}; this pod stays because {why}: delete it to free its node"
    return correlation.report(_about(pod), GANG_TIMED_OUT, note, action="Releasing", warning=True)


def _half(half: Half) -> str:
    count = f"{len(half.live)} of {half.size} members"
    return f"pod group {half.key.name} had {count} bound for {half.timeout:g}s"


def gang_scheduled(pod: Pod, gang: str, pods: int, nodes: int) -> correlation.Report:
    note = f"pod group {gang}: {_count(pods, 'pod')} assigned to {_count(nodes, 'node')}"
    return correlation.report(_about(pod), GANG_SCHEDULED, note, action="Binding")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _about(pod: Pod) -> correlation.Ref:
    return correlation.Ref("Pod", pod.key.name, pod.key.namespace, pod.uid)
