"""
Reports a decision: Events, PodScheduled conditions and one log line.

The writers of both queue behind binds; nothing here waits. A pod behind a scheduling gate keeps the
condition that the API server gave it, and gets Events only.
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
    """`record` takes Events, `conditions` writes the PodScheduled condition of pods."""

    record: Callable[[correlator.EventReport], None]
    conditions: conditions.ConditionWriter

    def drop(self, uid: str) -> None:
        """Forget the pod: its condition is not written any more."""
        self.conditions.drop(uid)

    def bound(self, unit: Unit, placements: Sequence[Placement]) -> None:
        for placement in placements:
            log("bound pod", placement)
            self.record(events.scheduled(placement))
        if placements and isinstance(unit.key, GangKey):
            nodes = len({placement.node for placement in placements})
            first = placements[0].pod
            self.record(events.gang_scheduled(first, unit.key.name, len(placements), nodes))

    def unschedulable(
        self, unit: Unit, pods: Iterable[Pod], why: NoFit, *, provisioning: bool = False
    ) -> None:
        """
        All missing members of a gang at once, so that an autoscaler sees the whole gang.

        `provisioning`: a ProvisioningRequest asks for nodes, so autoscalers must not add others.
        """
        pods = tuple(pods)
        unresolvable = units.unresolvable(unit)
        reason = conditions.PROVISIONING if provisioning else conditions.UNSCHEDULABLE
        logger.info(
            "unit is unschedulable",
            extra={"unit": str(unit.key), "pods": len(pods), "why": why.text},
        )
        for pod in pods:
            self.record(events.failed_scheduling(pod, why))
            invalid = unresolvable or pod.spec.unsupported
            self.conditions.write(pod, conditions.INVALID if invalid else reason, why.text)

    def over_quota(self, unit: Unit, why: NoFit) -> None:
        """No lack of capacity: another node would not help."""
        logger.info("unit is over quota", extra={"unit": str(unit.key), "why": why.text})
        for pod in unit.pods:
            self.record(events.quota_exceeded(pod, why))
            self.conditions.write(pod, conditions.QUOTA, why.text)

    def members_over_quota(self, pods: Iterable[Pod], over: OverQuota) -> None:
        """Members of a gang that does not fit, above as many as its tenant's quota allows."""
        why = NoFit(over_quota=over.text)
        for pod in pods:
            self.record(events.quota_exceeded(pod, why))
            self.conditions.write(pod, conditions.QUOTA, why.text)

    def reservation_ended(self, gang: GangKey, why: str, known: Iterable[Pod]) -> bool:
        """Capacity is no longer reserved for members to come; returns whether the leader exists."""
        logger.info("released member reservation", extra={"unit": str(gang), "why": why})
        reported = False
        for pod in known:
            if pod.gang is not None and pod.gang.key == gang and pod.gang.leader:
                self.record(events.member_reservation_ended(pod, gang.name, why))
                reported = True
        return reported

    def forming(self, unit: Unit, *, timed_out: bool) -> None:
        text = units.waiting_text(unit, timed_out=timed_out)
        logger.info("pod group is forming", extra={"unit": str(unit.key), "why": text})
        event = events.gang_timed_out if timed_out else events.gang_waiting
        for pod in (*unit.pods, *unit.gated):
            self.record(event(pod, text))
            if not pod.gates:
                self.conditions.write(pod, conditions.WAITING, text)

    def binding_failed(self, pod: Pod, why: str) -> None:
        self.record(events.failed_binding(pod, why))

    def binding_rejected(self, pod: Pod, why: str, *, retry_after: float) -> None:
        """A rejection is no lack of capacity: the condition must not ask for another node."""
        self.record(events.rejected_binding(pod, why, retry_after=retry_after))
        self.conditions.write(pod, conditions.REFUSED, f"API server rejected the binding: {why}")

    def quarantined(self, pods: Iterable[Pod], text: str) -> None:
        """The scheduler itself failed: another node would not help."""
        for pod in pods:
            self.record(events.scheduler_error(pod, text))
            if not pod.gates:
                self.conditions.write(pod, conditions.ERROR, text)

    def gate_not_removed(self, pod: Pod, why: str) -> None:
        self.record(events.gate_not_removed(pod, why))


def log(message: str, placement: Placement, **more: str) -> None:
    fields = {"pod": str(placement.pod.key), "node": placement.node, **more}
    if placement.assignment:
        fields["assigned"] = placement.assignment.render()
    logger.info(message, extra=fields)
