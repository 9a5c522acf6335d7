"""
What a run in virtual time comes to: how full, who waited how long, and who got how much.

    utilisation   GPU time in use of all there is, over the moments at which somebody waits
    waits         from arrival to start: all units, and the largest tenth of the gangs by GPUs
    deviation     over every hour in which all tenants have somebody waiting throughout: how far a
                  tenant's part of the GPU time in use is from its weight, the farthest; in points
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubenexus.simulate.virtual import Job, Run
from tests.bench.hardware_trace import GPU

HOUR: Final = 3600.0
_STEP: Final = 600.0  # between the beginnings of two hours


@dataclass(frozen=True, slots=True)
class Stay:
    """One unit from its arrival to its end."""

    tenant: str
    gpus: int
    pods: int
    arrives: float
    starts: float
    ends: float

    @property
    def waited(self) -> float:
        return self.starts - self.arrives


def stays(jobs: Sequence[Job], run: Run) -> list[Stay]:
    found = []
    for job in jobs:
        starts = run.starts.get(job.key, math.inf)
        gpus = sum(pod.shape.amount(GPU) for pod in job.pods)
        tenant = job.pods[0].terms.tenant
        found.append(Stay(tenant, gpus, len(job.pods), job.arrives, starts, starts + job.lasts))
    return found


def figures(jobs: Sequence[Job], run: Run, gpus: int, weights: dict[str, int]) -> dict[str, Any]:
    all_of_them = stays(jobs, run)
    large = largest(all_of_them)
    until = max(one.arrives for one in all_of_them)
    return {
        "utilisation": utilisation(all_of_them, gpus, until),
        "wait_p50": quantile([one.waited for one in all_of_them], 0.5),
        "wait_p95": quantile([one.waited for one in all_of_them], 0.95),
        "large_p95": quantile([one.waited for one in large], 0.95),
        "large": len(large),
        "deviation": deviation(all_of_them, weights, until),
        "units": len(all_of_them),
        "never": sum(one.starts == math.inf for one in all_of_them),
        "decisions": run.decisions,
        "cpu": run.cpu,
    }


def largest(found: Sequence[Stay]) -> list[Stay]:
    """The largest tenth of the gangs, by GPUs; of equals those that came first."""
    gangs = sorted((one for one in found if one.pods > 1), key=lambda o: (-o.gpus, o.arrives))
    return gangs[: max(1, len(gangs) // 10)]


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that this part of all does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def utilisation(found: Sequence[Stay], gpus: int, until: float) -> float:
    """Up to the last arrival: afterwards there is ever less to choose from."""
    changes: list[tuple[float, int, int]] = []  # time, GPUs in use, units that wait
    for one in found:
        changes += [(one.arrives, 0, 1), (one.starts, one.gpus, -1), (one.ends, -one.gpus, 0)]
    used = waiting = 0
    busy = there = last = 0.0
    for at, more, wait in sorted(changes):
        upto = min(at, until)
        if waiting > 0 and upto > last:
            busy += used * (upto - last)
            there += gpus * (upto - last)
        last = max(last, upto)
        used, waiting = used + more, waiting + wait
    return busy / there if there else 1.0


def deviation(found: Sequence[Stay], weights: dict[str, int], until: float) -> float | None:
    """None: there is no such hour."""
    idle = {name: _idle([one for one in found if one.tenant == name], until) for name in weights}
    whole = sum(weights.values())
    worst: float | None = None
    begin = 0.0
    while begin + HOUR <= until:
        if all(_covers(idle[name], begin, begin + HOUR) for name in weights):
            used = dict.fromkeys(weights, 0.0)
            for one in found:
                used[one.tenant] += one.gpus * max(
                    0.0, min(one.ends, begin + HOUR) - max(one.starts, begin)
                )
            total = sum(used.values())
            far = max(abs(used[name] / total - weights[name] / whole) for name in weights)
            worst = max(worst or 0.0, 100 * far)
        begin += _STEP
    return worst


def _idle(mine: Sequence[Stay], until: float) -> list[tuple[float, float]]:
    """Spans in which nobody waits."""
    changes = sorted([(o.arrives, 1) for o in mine] + [(o.starts, -1) for o in mine])
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
