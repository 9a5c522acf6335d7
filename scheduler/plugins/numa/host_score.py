"""
How well the best NUMA node of each host suits a pod: the score of `scoring`, for all rows at once.

For a pod with a NUMA policy that one NUMA node could hold. Rows that know no NUMA nodes are
neutral; where no single NUMA node has room the pod would lie across some, and the score is 0. What
members of a gang are beside is not compared between hosts: a gang is placed by its own rules.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.model.numa_request import HostRequest
from scheduler.plugins.numa.numa_score import (
    BANDWIDTH,
    BEST,
    BEST_USE,
    DISTANCE,
    FIT,
    GANG,
    LOCAL,
    NEUTRAL,
    PREFERRED,
)
from scheduler.plugins.numa.numa_score import CPU_WEIGHT as CPU
from scheduler.plugins.numa.numa_score import MEMORY_WEIGHT as MEMORY
from scheduler.plugins.numa.numa_table import NumaTable

Floats = NDArray[np.float64]

WEIGHT: Final = 10
"""Beside kube-scheduler's scores, which count 1 to 3."""


def scores(grid: NumaTable, host_request: HostRequest) -> Floats:
    """0 to 100 for each row."""
    inside = grid.inside(host_request)
    total = (
        FIT * _fit(grid, host_request)
        + BANDWIDTH * _bandwidth(grid, host_request)
        + DISTANCE * _distance(grid, host_request)
        + GANG * NEUTRAL
    )
    best: Floats = np.where(inside, total, 0.0).max(axis=1, initial=0.0)
    return np.where(grid.known, best, NEUTRAL)


def _fit(grid: NumaTable, host_request: HostRequest) -> Floats:
    used, weights = np.zeros(grid.ids.shape), 0.0
    for weight, asked, size, free in (
        (CPU, host_request.cpu, grid.sizes[0], grid.cpu),
        (MEMORY, host_request.memory, grid.sizes[1], grid.memory),
    ):
        if asked:
            used += weight * (size - free + asked) / np.maximum(size, 1)
            weights += weight
    if not weights:
        return np.full(grid.ids.shape, NEUTRAL)
    found = np.maximum(0.0, BEST - np.abs(np.minimum(used / weights, 1.0) * 100 - BEST_USE))
    if not host_request.prefer:
        return found
    return np.where(
        np.isin(grid.ids, host_request.prefer), np.minimum(BEST, found * PREFERRED), found
    )


def _bandwidth(grid: NumaTable, host_request: HostRequest) -> Floats:
    if not host_request.intensive:
        return np.full(grid.ids.shape, NEUTRAL)
    best = np.maximum(grid.bandwidth.max(axis=1, initial=0, keepdims=True), 1)
    part = np.maximum(0.0, BEST - 100 * host_request.memory / np.maximum(grid.sizes[1], 1))
    return np.where(grid.bandwidth > 0, part * grid.bandwidth / best, NEUTRAL)


def _distance(grid: NumaTable, host_request: HostRequest) -> Floats:
    found = BEST - (grid.far - LOCAL) * 5 * host_request.distance / 50
    return np.where(np.isnan(grid.far), NEUTRAL, np.clip(found, 0.0, BEST))
