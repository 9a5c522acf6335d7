"""
The score of the best NUMA node of each host: `numa_score`, for all rows at once.

For a pod with a NUMA policy that one NUMA node could hold. Rows without known NUMA nodes are
neutral. Where no single NUMA node has enough capacity the pod would span several, and the score is
0. Gang members are not compared between hosts: the planner places gangs by rules of their own.
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
"""Kube-scheduler's scores have weights of 1 to 3."""


def scores(numa_table: NumaTable, host_request: HostRequest) -> Floats:
    """0 to 100 for each row."""
    holds = numa_table.inside(host_request)
    total = (
        FIT * _fit(numa_table, host_request)
        + BANDWIDTH * _bandwidth(numa_table, host_request)
        + DISTANCE * _distance(numa_table, host_request)
        + GANG * NEUTRAL
    )
    best: Floats = np.where(holds, total, 0.0).max(axis=1, initial=0.0)
    return np.where(numa_table.known, best, NEUTRAL)


def _fit(numa_table: NumaTable, host_request: HostRequest) -> Floats:
    used, weights = np.zeros(numa_table.ids.shape), 0.0
    for weight, asked, size, free in (
        (CPU, host_request.cpu, numa_table.sizes[0], numa_table.cpu),
        (MEMORY, host_request.memory, numa_table.sizes[1], numa_table.memory),
    ):
        if asked:
            used += weight * (size - free + asked) / np.maximum(size, 1)
            weights += weight
    if not weights:
        return np.full(numa_table.ids.shape, NEUTRAL)
    points = np.maximum(0.0, BEST - np.abs(np.minimum(used / weights, 1.0) * 100 - BEST_USE))
    if not host_request.prefer:
        return points
    return np.where(
        np.isin(numa_table.ids, host_request.prefer), np.minimum(BEST, points * PREFERRED), points
    )


def _bandwidth(numa_table: NumaTable, host_request: HostRequest) -> Floats:
    if not host_request.intensive:
        return np.full(numa_table.ids.shape, NEUTRAL)
    best = np.maximum(numa_table.bandwidth.max(axis=1, initial=0, keepdims=True), 1)
    part = np.maximum(0.0, BEST - 100 * host_request.memory / np.maximum(numa_table.sizes[1], 1))
    return np.where(numa_table.bandwidth > 0, part * numa_table.bandwidth / best, NEUTRAL)


def _distance(numa_table: NumaTable, host_request: HostRequest) -> Floats:
    points = BEST - (numa_table.distance - LOCAL) * 5 * host_request.distance / 50
    return np.where(np.isnan(numa_table.distance), NEUTRAL, np.clip(points, 0.0, BEST))
