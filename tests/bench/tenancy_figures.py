"""
A run in virtual time as the figures of one sample: what `kubenexus simulate --compare` tells of it.

GPU time in use and the deviation are counted up to the last arrival: afterwards there is ever less
to choose from. See `kubenexus.simulate.virtual_time.wait_statistics` for what each figure is.
"""

from collections.abc import Sequence
from typing import Any

from kubenexus.simulate.virtual_time import wait_statistics
from kubenexus.simulate.virtual_time.timeline import ChangeKind, Job, Run


def figures(jobs: Sequence[Job], run: Run, gpus: int, weights: dict[str, int]) -> dict[str, Any]:
    due = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    until = max(job.arrives for job in jobs)
    found = wait_statistics.whole(jobs, run, due, there=gpus, until=until, of=wait_statistics.gpus)
    told = [one.what for one in run.happened]
    return {
        "utilisation": found.in_use,
        "wait_p50": found.wait_p50,
        "wait_p95": found.wait_p95,
        "large_p95": found.large_p95,
        "large": len(wait_statistics.largest(jobs)),
        "deviation": found.deviation,
        "units": len(jobs),
        "never": found.never,
        "promised": told.count(ChangeKind.PROMISED),
        "moved": told.count(ChangeKind.MOVED),
        "decisions": run.decisions,
        "cpu": run.cpu,
    }
