"""
What a run in virtual time comes to: how full, who waited how long, and who got how much.

    waits         from arrival to start, and again after each preemption; a unit that never starts
                  waits for ever
    in use        time in use of all there is, over the moments at which somebody waits
    share, due    a tenant's part of the time in use; what its weight makes of it, among the
                  tenants that have work here
    deviation     over every hour in which all tenants have somebody waiting throughout: how far a
                  tenant's part of the time in use is from what is due, the farthest; in points

Time is GPU time where anybody asks for a GPU, else CPU time.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubenexus.simulate.virtual_time.timeline import ChangeKind, Job, Run, Span
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
    due: float
    preempted: int
    """Times that a unit was."""
    lost: float
    """What that cost: GPU seconds, or CPU seconds, of work that started from nought."""
    promised: int
    """Units that were told when they start."""
    moved: int
    """Those of them whose promise was moved."""


@dataclass(frozen=True, slots=True)
class ClusterStatistics:
    """One way of deciding, over all tenants."""

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


def tenants(
    jobs: Sequence[Job], run: Run, due: Mapping[str, float], *, until: float, of: Measure
) -> tuple[TenantStatistics, ...]:
    """By name, and all of them together at the end."""

    def time(name: str | None, *, lost: bool = False) -> float:
        return sum(
            of(span) * max(0.0, min(span.end, until) - span.begin)
            for span in run.used
            if name in (None, span.tenant) and (span.lost or not lost)
        )

    every = time(None)
    rows = []
    for name in sorted(due):
        mine, used = [job for job in jobs if job.tenant == name], time(name)
        share = used / every if every else 0.0
        rows.append(_tenant(name, mine, run, used, time(name, lost=True), share, due[name]))
    return (*rows, _tenant("all", jobs, run, every, time(None, lost=True), 1.0, 1.0))


def _tenant(
    name: str, jobs: Sequence[Job], run: Run, time: float, lost: float, share: float, due: float
) -> TenantStatistics:
    keys = {job.key for job in jobs}
    waits = waited(jobs, run)
    mine = [(one.what, one.key) for one in run.happened if one.key in keys]

    def units(what: ChangeKind) -> int:
        return len({key for found, key in mine if found is what})

    return TenantStatistics(
        name=name,
        units=len(jobs),
        never=sum(wait == math.inf for wait in waits),
        wait_p50=quantile(waits, 0.5),
        wait_p95=quantile(waits, 0.95),
        wait_most=max(waits, default=0.0),
        time=time,
        share=share,
        due=due,
        preempted=sum(what is ChangeKind.PREEMPTED for what, _ in mine),
        lost=lost,
        promised=units(ChangeKind.PROMISED),
        moved=units(ChangeKind.MOVED),
    )


def whole(
    jobs: Sequence[Job],
    run: Run,
    due: Mapping[str, float],
    *,
    there: int,
    until: float,
    of: Measure,
) -> ClusterStatistics:
    """`there`: how much of what is measured the cluster has."""
    waits, large = waited(jobs, run), waited(largest(jobs), run)
    return ClusterStatistics(
        in_use=utilisation(run.used, run.waits, there, until=until, of=of),
        wait_p50=quantile(waits, 0.5),
        wait_p95=quantile(waits, 0.95),
        large_p95=quantile(large, 0.95) if large else None,
        deviation=deviation(run.used, run.waits, due, until=until, of=of),
        never=sum(wait == math.inf for wait in waits),
        preempted=sum(h.what is ChangeKind.PREEMPTED for h in run.happened),
    )


def waited(jobs: Iterable[Job], run: Run) -> list[float]:
    found = dict.fromkeys((job.key for job in jobs), 0.0)
    for span in run.waits:
        if span.key in found:
            found[span.key] += span.end - span.begin
    return list(found.values())


def largest(jobs: Iterable[Job]) -> list[Job]:
    """The largest tenth of the gangs, by GPUs; of equals those that came first."""
    gangs = [job for job in jobs if len(job.pods) > 1]
    gangs.sort(key=lambda job: (-job.gpus, job.arrives, str(job.key)))
    return gangs[: max(1, len(gangs) // _TENTH)]


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that this part of all does not exceed."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def utilisation(
    used: Iterable[Span], waits: Iterable[Span], there: int, *, until: float, of: Measure = gpus
) -> float:
    changes: list[tuple[float, int, int]] = []  # time, more in use, more that wait
    for span in used:
        changes += [(span.begin, of(span), 0), (span.end, -of(span), 0)]
    for span in waits:
        changes += [(span.begin, 0, 1), (span.end, 0, -1)]
    in_use = waiting = 0
    busy = whole = last = 0.0
    for at, more, wait in sorted(changes):
        upto = min(at, until)
        if waiting > 0 and upto > last:
            busy += in_use * (upto - last)
            whole += there * (upto - last)
        last = max(last, upto)
        in_use, waiting = in_use + more, waiting + wait
    return busy / whole if whole else 1.0


def deviation(
    used: Sequence[Span],
    waits: Sequence[Span],
    due: Mapping[str, float],
    *,
    until: float,
    of: Measure = gpus,
) -> float | None:
    idle = {name: _idle([one for one in waits if one.tenant == name]) for name in due}
    worst: float | None = None
    begin = 0.0
    while begin + HOUR <= until:
        if all(_covers(idle[name], begin, begin + HOUR) for name in due):
            time = dict.fromkeys(due, 0.0)
            for one in used:
                time[one.tenant] += of(one) * max(
                    0.0, min(one.end, begin + HOUR) - max(one.begin, begin)
                )
            total = sum(time.values())
            far = max(abs(time[name] / total - due[name]) for name in due) if total else 0.0
            worst = max(worst or 0.0, 100 * far)
        begin += _STEP
    return worst


def _idle(waits: Sequence[Span]) -> list[tuple[float, float]]:
    """Spans in which nobody waits."""
    changes = sorted([(one.begin, 1) for one in waits] + [(one.end, -1) for one in waits])
    spans, waiting, since = [], 0, 0.0
    for at, more in changes:
        if waiting == 0 and at > since:
            spans.append((since, at))
        waiting += more
        since = at
    return [*spans, (since, math.inf)] if waiting == 0 else spans


def _covers(idle: Sequence[tuple[float, float]], begin: float, end: float) -> bool:
    """Whether somebody waits from begin to end."""
    return not any(start < end and stop > begin for start, stop in idle)


def due(tree: TenantTree, names: Iterable[str]) -> dict[str, float]:
    """What the weights make of the whole for each of these tenants, when all of them have work."""
    paths = {name: tree.path(name) for name in names}
    levels: dict[str | None, dict[str, TenantNode]] = {}
    for path in paths.values():
        for member in path:
            levels.setdefault(member.parent, {})[member.name] = member
    sums = {parent: sum(m.weight for m in found.values()) for parent, found in levels.items()}
    return {
        name: math.prod(member.weight / sums[member.parent] for member in path)
        for name, path in paths.items()
    }
