"""
How long work runs, as far as anybody says, and when what runs is expected to end.

    what the pod says itself ──else──▶ what policies say of its type ──else──▶ nobody knows

Mirrors and pods of a DaemonSet come back as often as they end: nobody waits for their room. Work
that overran is expected to end when `overran` said. Times are seconds of the epoch.
"""

from collections.abc import Iterable

from policies import duration
from policies.documents.tenancy import Backfill
from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, from_daemon_set
from scheduler.model.unit import Unit
from scheduler.tenancy.backfill.start_time import ExpectedEnd


class RunTimes:
    """Reads the policies in force from the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._longer: dict[str, float] = {}  # uid of work that overran -> its new end
        self._known: tuple[Backfill | None, dict[str, float]] = (None, {})

    @property
    def policy(self) -> Backfill:
        return self._snapshot.tables.policy.backfill

    @property
    def usual(self) -> dict[str, float]:
        """Seconds by workload type, where policies say so."""
        if self._known[0] is not self.policy:
            rows = self.policy.durations
            self._known = self.policy, {str(r.type): duration.parse(r.duration) for r in rows}
        return self._known[1]

    def of(self, pod: Pod) -> float | None:
        """Seconds; None: nobody knows."""
        if pod.attributes.mirror or from_daemon_set(pod):
            return None
        return (
            self.usual.get(pod.attributes.workload_type)
            if pod.attributes.duration is None
            else pod.attributes.duration
        )

    def of_unit(self, unit: Unit) -> float:
        """Until the last of its pods ends; for ever where nobody knows of one."""
        known = [self.of(pod) for pod in unit.pods]
        return max((float("inf") if one is None else one for one in known), default=0.0)

    def end(self, pod: Pod, epoch: float) -> float | None:
        """Of a pod that has a node; None: nobody knows."""
        if pod.terminating:
            return epoch + pod.attributes.grace_period
        lasts = self.of(pod)
        if lasts is None:
            return None
        at = (pod.attributes.started_at or epoch) + lasts
        return max(at, self._longer.get(pod.uid, at))

    def endings(self, pods: Iterable[Placement], epoch: float) -> list[ExpectedEnd]:
        """Of those that are known to end, in the order of time; nobody has ended before now."""
        found = [
            ExpectedEnd(max(at, epoch), one)
            for one in pods
            if (at := self.end(one.pod, epoch)) is not None
        ]
        return sorted(found, key=lambda one: (one.at, one.occupant.pod.uid))

    def over(self, pod: Pod, epoch: float) -> float:
        """Seconds for which the pod has run beyond what was expected of it at first."""
        return epoch - (pod.attributes.started_at or epoch) - (self.of(pod) or 0.0)

    def overran(self, uid: str, until: float) -> None:
        self._longer[uid] = until

    def forget(self, uid: str) -> None:
        self._longer.pop(uid, None)
