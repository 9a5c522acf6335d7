"""
Which gangs get a ProvisioningRequest, and what to do about their requests. Pure: no clock, no I/O.

    WANTS, no request           ──▶ create the first
           request for other pods ──▶ delete it, create the first
           pending or provisioned ──▶ wait
           failed ──pause, doubled each time──▶ create the next, delete the failed one
    WAITS ──▶ wait: the gang may want a request later
    DONE  ──▶ delete: bound, deleted, over quota, or no longer complete

A failed request stays until the next one exists: the pause counts from it, also after a restart.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cluster import backoff
from scheduler.model.placeholder import is_placeholder
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, is_leader, unresolvable
from scheduler.provisioning.objects import MAX_POD_SETS, EqualMembers, Phase, ProvisioningRequest

FIRST_PAUSE: Final = 60.0
LONGEST_PAUSE: Final = 1800.0


class ProvisioningState(StrEnum):
    """Whether a gang wants a request."""

    WANTS = "wants"
    WAITS = "waits"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Step:
    """Writes for one gang, in this order."""

    delete: tuple[ProvisioningRequest, ...] = ()
    attempt: int = 0
    """Number of the request to create; 0: none."""
    delete_after: tuple[ProvisioningRequest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.attempt or self.delete_after)


def missing(unit: Unit, why: NoFit) -> tuple[Pod, ...]:
    """
    The members for which a gang requests nodes: as many as it needs to start, or none if nodes
    would not help.

    Autoscalers handle a single pod, and a member beyond the gang's size, by its condition. Members
    with reserved capacity need no nodes; members that the leader will create are placeholders.
    """
    if not unit.is_gang or unit.bound >= unit.size or unit.leader_first or unit.reserved:
        return ()
    if why.message or why.over_quota or why.forming or unresolvable(unit):
        return ()
    able = [pod for pod in unit.pods if not pod.spec.unsupported]
    chosen = sorted(able, key=lambda pod: not is_leader(pod))[: unit.need]
    if len({pod.spec for pod in chosen}) > MAX_POD_SETS:
        return ()
    return tuple(chosen)


def classes(pods: Iterable[Pod]) -> list[EqualMembers]:
    """Members with equal scheduling specs together."""
    by_spec: dict[object, list[Pod]] = {}
    for pod in pods:
        by_spec.setdefault(pod.spec, []).append(pod)
    existing = [pod for members in by_spec.values() for pod in members if not is_placeholder(pod)]
    leader = next((pod for pod in existing if is_leader(pod)), existing[0])
    equal = []
    for members in by_spec.values():
        source = next((pod for pod in members if not is_placeholder(pod)), None)
        equal.append(EqualMembers(tuple(members), source or leader, stated=source is None))
    return equal


def pause(attempt: int) -> float:
    """Seconds from a failure to the next attempt."""
    return backoff.exponential(attempt - 1, first=FIRST_PAUSE, most=LONGEST_PAUSE)


def decide(
    state: ProvisioningState,
    digest: str,
    requests: Iterable[ProvisioningRequest],
    *,
    epoch: float,
) -> Step:
    """`requests` are all of the gang; `digest` identifies what it needs now."""
    existing = sorted(requests, key=lambda request: (request.attempt, request.name))
    if state is ProvisioningState.DONE:
        return Step(delete=tuple(existing))
    if state is ProvisioningState.WAITS:
        return Step()
    same = [request for request in existing if request.digest == digest]
    others = tuple(request for request in existing if request.digest != digest)
    if not same:
        return Step(delete=others, attempt=1)
    *old, last = same
    outdated = (*others, *old)
    if last.phase is not Phase.FAILED or epoch < last.since + pause(last.attempt):
        return Step(delete=outdated)
    return Step(delete=outdated, attempt=last.attempt + 1, delete_after=(last,))
