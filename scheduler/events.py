"""
What people read about their pods: Events, each made by a named function.

Reasons are stable words that people and programs search for; the note says what was wanted and
what was found. `cluster.correlation` bounds the notes and folds repeats into series. The state of a
pod belongs in its condition (`conditions`): an Event may be dropped.
"""

from typing import Final

from cluster import correlation

from .model import Pod
from .outcome import GangCount, NoFit, Placement

SCHEDULED: Final = "Scheduled"
FAILED: Final = "FailedScheduling"
GANG_WAITING: Final = "GangWaiting"
GANG_SCHEDULED: Final = "GangScheduled"


def scheduled(placement: Placement) -> correlation.Report:
    note = f"Successfully assigned {placement.pod.key} to {placement.node}"
    return correlation.report(_about(placement.pod), SCHEDULED, note, action="Binding")


def failed_scheduling(pod: Pod, why: NoFit) -> correlation.Report:
    return correlation.report(_about(pod), FAILED, why.text, action="Scheduling", warning=True)


def failed_binding(pod: Pod, why: str) -> correlation.Report:
    note = f"the pod was not bound and is planned again: {why}"
    return correlation.report(_about(pod), FAILED, note, action="Binding", warning=True)


def gang_waiting(pod: Pod, count: GangCount) -> correlation.Report:
    return correlation.report(_about(pod), GANG_WAITING, count.text, action="Scheduling")


def gang_scheduled(pod: Pod, gang: str, pods: int, nodes: int) -> correlation.Report:
    note = f"pod group {gang}: {_count(pods, 'pod')} assigned to {_count(nodes, 'node')}"
    return correlation.report(_about(pod), GANG_SCHEDULED, note, action="Binding")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _about(pod: Pod) -> correlation.Ref:
    return correlation.Ref("Pod", pod.key.name, pod.key.namespace, pod.uid)
