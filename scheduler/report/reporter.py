"""
What people are told, and where it goes: Events, PodScheduled conditions, one log line a decision.

Queued behind binds by both of them; nothing here waits. A pod behind a scheduling gate keeps the
condition that the API server gave it, and has Events alone.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.events import correlator
from scheduler.model import unit as units
from scheduler.model.gang import GangKey
from scheduler.model.over_quota import OverQuota
from scheduler.model.plan import NoFit, Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.report import conditions, events

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reporter:
    """`record` takes Events, `conditions` the state of pods."""

    record: Callable[[correlator.EventReport], None]
    conditions: conditions.ConditionWriter

    def drop(self, uid: str) -> None:
        """Nothing more is to be said about the pod."""
        self.conditions.drop(uid)

    def bound(self, unit: Unit, placements: Sequence[Placement]) -> None:
        for placement in placements:
            log("bound", placement)
            self.record(events.scheduled(placement))
        if placements and isinstance(unit.key, GangKey):
            nodes = len({placement.node for placement in placements})
            first = placements[0].pod
            self.record(events.gang_scheduled(first, unit.key.name, len(placements), nodes))

    def misfit(
        self, unit: Unit, pods: Iterable[Pod], why: NoFit, *, provisioning: bool = False
    ) -> None:
        """
        All of a gang's missing members at once, so that an autoscaler sees the whole gang.

        `provisioning`: nodes are asked for in another way, and must not come twice.
        """
        pods, hopeless = tuple(pods), units.unresolvable(unit)
        reason = conditions.PROVISIONING if provisioning else conditions.UNSCHEDULABLE
        logger.info(
            "does not fit", extra={"unit": str(unit.key), "pods": len(pods), "why": why.text}
        )
        for pod in pods:
            self.record(events.failed_scheduling(pod, why))
            refused = hopeless or pod.spec.unsupported
            self.conditions.tell(pod, conditions.INVALID if refused else reason, why.text)

    def held_back(self, unit: Unit, why: NoFit) -> None:
        """No lack of room: another node would not help."""
        logger.info("held back", extra={"unit": str(unit.key), "why": why.text})
        for pod in unit.pods:
            self.record(events.quota_exceeded(pod, why))
            self.conditions.tell(pod, conditions.QUOTA, why.text)

    def beyond_quota(self, pods: Iterable[Pod], over: OverQuota) -> None:
        """Members of a gang that does not fit, above as many as its tenant's quota allows."""
        why = NoFit(over_quota=over.text)
        for pod in pods:
            self.record(events.quota_exceeded(pod, why))
            self.conditions.tell(pod, conditions.QUOTA, why.text)

    def unreserved(self, gang: GangKey, why: str, known: Iterable[Pod]) -> bool:
        """Room is kept no longer for members to come; whether the leader is there to be told."""
        logger.info("reservation ended", extra={"unit": str(gang), "why": why})
        told = False
        for pod in known:
            if pod.gang is not None and pod.gang.key == gang and pod.gang.leader:
                self.record(events.member_reservation_ended(pod, gang.name, why))
                told = True
        return told

    def forming(self, unit: Unit, *, timed_out: bool) -> None:
        text = units.waiting_text(unit, timed_out=timed_out)
        logger.info("waiting", extra={"unit": str(unit.key), "why": text})
        event = events.gang_timed_out if timed_out else events.gang_waiting
        for pod in (*unit.pods, *unit.gated):
            self.record(event(pod, text))
            if not pod.gates:
                self.conditions.tell(pod, conditions.WAITING, text)

    def not_bound(self, pod: Pod, why: str, *, permanent: bool) -> None:
        """A refusal is no lack of room: the condition must not ask for another node."""
        if not permanent:
            self.record(events.failed_binding(pod, why))
            return
        self.record(events.refused_binding(pod, why))
        self.conditions.tell(pod, conditions.REFUSED, f"the API server refuses to bind: {why}")

    def gate_not_lifted(self, pod: Pod, why: str) -> None:
        self.record(events.gate_not_lifted(pod, why))


def log(what: str, placement: Placement, **more: str) -> None:
    fields = {"pod": str(placement.pod.key), "node": placement.node, **more}
    if placement.assignment:
        fields["assigned"] = placement.assignment.render()
    logger.info(what, extra=fields)
