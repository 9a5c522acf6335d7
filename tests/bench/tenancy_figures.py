"""
A run in virtual time as the figures of one sample: as `kubenexus simulate --compare` reports it.

GPU time in use and the deviation are counted up to the last arrival: afterwards there is ever less
to choose from. See `kubenexus.simulate.virtual_time.wait_statistics` for what each figure is.
"""

from collections.abc import Sequence
from typing import Any

from kubenexus.simulate.virtual_time import wait_statistics
from kubenexus.simulate.virtual_time.timeline import EntryKind, Job, Run


def figures(jobs: Sequence[Job], run: Run, gpus: int, weights: dict[str, int]) -> dict[str, Any]:
    fair_shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    until = max(job.arrives for job in jobs)
    statistics = wait_statistics.cluster_statistics(
        jobs, run, fair_shares, capacity=gpus, until=until, measure=wait_statistics.gpus
    )
    kinds = [entry.kind for entry in run.timeline]
    return {
        "utilisation": statistics.in_use,
        "wait_p50": statistics.wait_p50,
        "wait_p95": statistics.wait_p95,
        "large_p95": statistics.large_p95,
        "large": len(wait_statistics.largest(jobs)),
        "deviation": statistics.deviation,
        "units": len(jobs),
        "never": statistics.never,
        "estimated": kinds.count(EntryKind.ESTIMATED),
        "delayed": kinds.count(EntryKind.DELAYED),
        "decisions": run.decisions,
        "cpu": run.cpu,
    }
