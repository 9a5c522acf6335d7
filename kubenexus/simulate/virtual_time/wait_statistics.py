"""
Statistics of a run in virtual time: utilisation, waiting times, and the shares of the tenants.

    waits         from arrival to start, and again after each preemption; endless for a unit that
                  never starts
    in use        time in use, of the whole capacity, over the moments at which a unit waits
    share         a tenant's part of the time in use
    fair share    the part that its weight entitles it to, among the tenants that have jobs here
    deviation     the largest distance between the two, in points, over every hour in which each
                  tenant has a unit waiting throughout

Time is GPU time where any job requests a GPU, else CPU time.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubenexus.simulate.virtual_time.timeline import EntryKind, Job, Run, Span
from scheduler.tenancy.quota.tree import TenantNode, TenantTree

HOUR: Final = 3600.0
_STEP: Final = 600.0  # between the beginnings of two hours
_TENTH: Final = 10

Measure = Callable[[Span], int]


@dataclass(frozen=True, slots=True)
class TenantStatistics:
    """One tenant, or all of them; times in seconds."""

    name: str
    units: int
    never: int
    wait_p50: float
    wait_p95: float
    wait_most: float
    time: float
    """GPU seconds, or CPU seconds."""
    share: float
    fair_share: float
    preempted: int
    """How often a unit was preempted."""
    lost: float
    """GPU seconds, or CPU seconds, of work that preemption lost."""
    estimated: int
    """Units with an estimated start."""
    delayed: int
    """Those of them whose start was delayed."""


@dataclass(frozen=True, slots=True)
class ClusterStatistics:
    """One strategy, over all tenants."""

    in_use: float
    wait_p50: float
    wait_p95: float
    large_p95: float | None
    """Of the largest tenth of the gangs; None: there is no gang."""
    deviation: float | None
    """None: there is no such hour."""
    never: int
    preempted: int


def gpus(span: Span) -> int:
    return span.gpus


def cpu(span: Span) -> int:
    return span.cpu


def tenant_statistics(
    jobs: Sequence[Job],
    run: Run,
    fair_shares: Mapping[str, float],
    *,
    until: float,
    measure: Measure,
) -> tuple[TenantStatistics, ...]:
    """By name, and all of them together at the end."""

    def time(name: str | None, *, lost: bool = False) -> float:
        return sum(
            measure(span) * max(0.0, min(span.end, until) - span.begin)
            for span in run.used
            if name in (None, span.tenant) and (span.lost or not lost)
        )

    total = time(None)
    rows = []
    for name in sorted(fair_shares):
        own_jobs = [job for job in jobs if job.tenant == name]
        used, lost = time(name), time(name, lost=True)
        share = used / total if total else 0.0
        rows.append(_tenant(name, own_jobs, run, used, lost, share, fair_shares[name]))
    return (*rows, _tenant("all", jobs, run, total, time(None, lost=True), 1.0, 1.0))


def _tenant(
    name: str,
    jobs: Sequence[Job],
    run: Run,
    time: float,
    lost: float,
    share: float,
    fair_share: float,
) -> TenantStatistics:
    keys = {job.key for job in jobs}
    waits = waited(jobs, run)
    entries = [(entry.kind, entry.key) for entry in run.timeline if entry.key in keys]

    def units(kind: EntryKind) -> int:
        return len({key for entry_kind, key in entries if entry_kind is kind})

    return TenantStatistics(
        name=name,
        units=len(jobs),
        never=sum(wait == math.inf for wait in waits),
        wait_p50=quantile(waits, 0.5),
        wait_p95=quantile(waits, 0.95),
        wait_most=max(waits, default=0.0),
        time=time,
        share=share,
        fair_share=fair_share,
        preempted=sum(kind is EntryKind.PREEMPTED for kind, _ in entries),
        lost=lost,
        estimated=units(EntryKind.ESTIMATED),
        delayed=units(EntryKind.DELAYED),
    )


def cluster_statistics(
    jobs: Sequence[Job],
    run: Run,
    fair_shares: Mapping[str, float],
    *,
    capacity: int,
    until: float,
    measure: Measure,
) -> ClusterStatistics:
    """`capacity`: of the nodes, in what is measured."""
    waits, large = waited(jobs, run), waited(largest(jobs), run)
    return ClusterStatistics(
        in_use=utilisation(run.used, run.waits, capacity, until=until, measure=measure),
        wait_p50=quantile(waits, 0.5),
        wait_p95=quantile(waits, 0.95),
        large_p95=quantile(large, 0.95) if large else None,
        deviation=deviation(run.used, run.waits, fair_shares, until=until, measure=measure),
        never=sum(wait == math.inf for wait in waits),
        preempted=sum(entry.kind is EntryKind.PREEMPTED for entry in run.timeline),
    )


def waited(jobs: Iterable[Job], run: Run) -> list[float]:
    waits = dict.fromkeys((job.key for job in jobs), 0.0)
    for span in run.waits:
        if span.key in waits:
            waits[span.key] += span.end - span.begin
    return list(waits.values())


def largest(jobs: Iterable[Job]) -> list[Job]:
    """The largest tenth of the gangs, by GPUs; of equals those that arrived first."""
    gangs = [job for job in jobs if len(job.pods) > 1]
    gangs.sort(key=lambda job: (-job.gpus, job.arrives, str(job.key)))
    return gangs[: max(1, len(gangs) // _TENTH)]


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that at least this part of all values does not exceed."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def utilisation(
    used: Iterable[Span],
    waits: Iterable[Span],
    capacity: int,
    *,
    until: float,
    measure: Measure = gpus,
) -> float:
    changes: list[tuple[float, int, int]] = []  # time, more in use, more that wait
    for span in used:
        changes += [(span.begin, measure(span), 0), (span.end, -measure(span), 0)]
    for span in waits:
        changes += [(span.begin, 0, 1), (span.end, 0, -1)]
    in_use = waiting = 0
    busy = available = last = 0.0
    for at, more, wait in sorted(changes):
        upto = min(at, until)
        if waiting > 0 and upto > last:
            busy += in_use * (upto - last)
            available += capacity * (upto - last)
        last = max(last, upto)
        in_use, waiting = in_use + more, waiting + wait
    return busy / available if available else 1.0


def deviation(
    used: Sequence[Span],
    waits: Sequence[Span],
    fair_shares: Mapping[str, float],
    *,
    until: float,
    measure: Measure = gpus,
) -> float | None:
    idle = {name: _idle([span for span in waits if span.tenant == name]) for name in fair_shares}
    worst: float | None = None
    begin = 0.0
    while begin + HOUR <= until:
        if all(_covers(idle[name], begin, begin + HOUR) for name in fair_shares):
            time = dict.fromkeys(fair_shares, 0.0)
            for span in used:
                time[span.tenant] += measure(span) * max(
                    0.0, min(span.end, begin + HOUR) - max(span.begin, begin)
                )
            total = sum(time.values())
            far = (
                max(abs(time[name] / total - fair_shares[name]) for name in fair_shares)
                if total
                else 0.0
            )
            worst = max(worst or 0.0, 100 * far)
        begin += _STEP
    return worst


def _idle(waits: Sequence[Span]) -> list[tuple[float, float]]:
    """Spans in which no unit waits."""
    changes = sorted([(span.begin, 1) for span in waits] + [(span.end, -1) for span in waits])
    spans, waiting, since = [], 0, 0.0
    for at, more in changes:
        if waiting == 0 and at > since:
            spans.append((since, at))
        waiting += more
        since = at
    return [*spans, (since, math.inf)] if waiting == 0 else spans


def _covers(idle: Sequence[tuple[float, float]], begin: float, end: float) -> bool:
    """Whether a unit waits at every moment from begin to end."""
    return not any(start < end and stop > begin for start, stop in idle)


def fair_shares(tree: TenantTree, names: Iterable[str]) -> dict[str, float]:
    """The part of the cluster that each tenant's weight entitles it to, when all have jobs."""
    paths = {name: tree.path(name) for name in names}
    levels: dict[str | None, dict[str, TenantNode]] = {}
    for path in paths.values():
        for member in path:
            levels.setdefault(member.parent, {})[member.name] = member
    sums = {parent: sum(m.weight for m in members.values()) for parent, members in levels.items()}
    return {
        name: math.prod(member.weight / sums[member.parent] for member in path)
        for name, path in paths.items()
    }
