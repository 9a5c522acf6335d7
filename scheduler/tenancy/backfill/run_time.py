"""
Expected duration of pods, and when running pods are expected to end.

    duration of the pod ──else──▶ duration of its workload type in the policies ──else──▶ unknown

Mirror pods and pods of a DaemonSet are recreated when they end, so their capacity never becomes
free: their duration is unknown. So is a duration or an end that is ten years away: no end is in
sight. A pod that overran ends at the time given to `extend`. Times are seconds of the epoch.
"""

from collections.abc import Iterable

from policies import duration
from policies.documents.tenancy import Backfill
from scheduler.cache.snapshot import Snapshot
from scheduler.model.fields import LONGEST, lasting
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, from_daemon_set
from scheduler.model.unit import Unit
from scheduler.tenancy.backfill.start_time import ExpectedEnd


class RunTimes:
    """Reads the policies in force from the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._extended: dict[str, float] = {}  # uid of a pod that overran -> its new end
        self._parsed: tuple[Backfill | None, dict[str, float]] = (None, {})

    @property
    def policy(self) -> Backfill:
        return self._snapshot.tables.policy.backfill

    @property
    def durations(self) -> dict[str, float]:
        """Seconds by workload type, from the policies."""
        if self._parsed[0] is not self.policy:
            rows = self.policy.durations
            parsed = {str(row.type): lasting(duration.parse(row.duration)) for row in rows}
            self._parsed = self.policy, parsed
        return self._parsed[1]

    def of(self, pod: Pod) -> float | None:
        """Seconds; None: unknown."""
        if pod.attributes.mirror or from_daemon_set(pod):
            return None
        seconds = (
            self.durations.get(pod.attributes.workload_type)
            if pod.attributes.duration is None
            else pod.attributes.duration
        )
        return None if seconds is None or seconds >= LONGEST else seconds

    def of_unit(self, unit: Unit) -> float:
        """Seconds until the last pod ends; infinite if the duration of one is unknown."""
        durations = [self.of(pod) for pod in unit.pods]
        return max(
            (float("inf") if duration is None else duration for duration in durations), default=0.0
        )

    def end(self, pod: Pod, epoch: float) -> float | None:
        """Of a pod that has a node; None: unknown."""
        seconds = pod.attributes.grace_period if pod.terminating else self.of(pod)
        if seconds is None:
            return None
        if pod.terminating:
            at = epoch + seconds
        else:
            at = (pod.attributes.started_at or epoch) + seconds
            at = max(at, self._extended.get(pod.uid, at))
        return None if at >= epoch + LONGEST else at

    def ends(self, placements: Iterable[Placement], epoch: float) -> list[ExpectedEnd]:
        """Known ends in the order of time; an end in the past counts as now."""
        known = [
            ExpectedEnd(max(at, epoch), placement)
            for placement in placements
            if (at := self.end(placement.pod, epoch)) is not None
        ]
        return sorted(known, key=lambda end: (end.at, end.placement.pod.uid))

    def overrun(self, pod: Pod, epoch: float) -> float:
        """Seconds for which the pod has run beyond its expected duration."""
        return epoch - (pod.attributes.started_at or epoch) - (self.of(pod) or 0.0)

    def extend(self, uid: str, until: float) -> None:
        self._extended[uid] = until

    def forget(self, uid: str) -> None:
        self._extended.pop(uid, None)
