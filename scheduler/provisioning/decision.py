"""
Who asks for nodes, and what is to be done about a gang's requests. Pure: no clock, no I/O.

    WANTS, none stands ──▶ make the first      it asks for something else ──▶ delete, make the first
           stands, no answer or provisioned ──▶ wait
           failed ──pause, doubled each time──▶ make the next, delete the failed one
    WAITS ──▶ wait: it may want a request in a moment, or wants none for the moment
    DONE  ──▶ delete: bound, gone, held back by a quota, or taken apart

A failed request stays until its successor stands: it is what the pause is counted from, and a
restarted scheduler counts the same.
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
from scheduler.provisioning.objects import MOST_KINDS, EqualMembers, Phase, ProvisioningRequest

FIRST_PAUSE: Final = 60.0
LONGEST_PAUSE: Final = 1800.0


class ProvisioningState(StrEnum):
    """How a gang stands towards asking for nodes."""

    WANTS = "wants"
    WAITS = "waits"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done, in this order."""

    drop: tuple[ProvisioningRequest, ...] = ()
    make: int = 0
    """The attempt to be made; 0: none."""
    drop_after: tuple[ProvisioningRequest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.drop or self.make or self.drop_after)


def missing(unit: Unit, why: NoFit) -> tuple[Pod, ...]:
    """
    The members for which a gang asks for nodes: as many as it needs to start. Nobody, where that
    could not help, or where others do better.

    One pod alone is seen by autoscalers, and so is a member beyond what its gang needs. Members for
    which room is kept lack none; those that a leader is going to make have stand-ins here.
    """
    if not unit.is_gang or unit.bound >= unit.size or unit.leader_first or unit.reserved:
        return ()
    if why.message or why.over_quota or why.forming or unresolvable(unit):
        return ()
    able = [pod for pod in unit.pods if not pod.spec.unsupported]
    chosen = sorted(able, key=lambda pod: not is_leader(pod))[: unit.need]
    if len({pod.spec for pod in chosen}) > MOST_KINDS:
        return ()
    return tuple(chosen)


def classes(pods: Iterable[Pod]) -> list[EqualMembers]:
    """Equal members together."""
    found: dict[object, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.spec, []).append(pod)
    real = [pod for members in found.values() for pod in members if not is_placeholder(pod)]
    leader = next((pod for pod in real if is_leader(pod)), real[0])
    made = []
    for members in found.values():
        source = next((pod for pod in members if not is_placeholder(pod)), None)
        made.append(EqualMembers(tuple(members), source or leader, stated=source is None))
    return made


def pause(attempt: int) -> float:
    """Seconds from a failure to the next attempt."""
    return backoff.exponential(attempt - 1, first=FIRST_PAUSE, most=LONGEST_PAUSE)


def decide(
    standing: ProvisioningState,
    digest: str,
    requests: Iterable[ProvisioningRequest],
    *,
    epoch: float,
) -> Step:
    """`requests` are all that stand for the gang; `digest` names what it asks for."""
    known = sorted(requests, key=lambda one: (one.attempt, one.name))
    if standing is ProvisioningState.DONE:
        return Step(drop=tuple(known))
    if standing is ProvisioningState.WAITS:
        return Step()
    same = [one for one in known if one.digest == digest]
    others = tuple(one for one in known if one.digest != digest)
    if not same:
        return Step(drop=others, make=1)
    *old, last = same
    drop = (*others, *old)
    if last.phase is not Phase.FAILED or epoch < last.since + pause(last.attempt):
        return Step(drop=drop)
    return Step(drop=drop, make=last.attempt + 1, drop_after=(last,))
