"""
NUMA nodes and devices of a pod that match each other.

For a strict NUMA policy that aligns devices, the plugin first chooses NUMA nodes without regard to
devices. If the devices are not available there, it tries other sets of as many NUMA nodes in the
order of their ids. A device of unknown NUMA node matches all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Final

from scheduler.model.assignment import Assignment, NumaMisfit
from scheduler.model.numa_request import HostRequest

MISALIGNED: Final = "node(s) could not give the pod its devices on its NUMA nodes"
_MAX_ATTEMPTS: Final = 200


def must_align(request: HostRequest) -> bool:
    """Whether devices must come from the pod's own NUMA nodes."""
    return request.strict and "gpu" in request.aligned


def choose(
    request: HostRequest,
    zones: Sequence[int],
    decide: Callable[[HostRequest], Assignment | NumaMisfit],
    has_devices: Callable[[frozenset[int]], bool],
) -> Assignment | NumaMisfit:
    """`decide` chooses without devices; `has_devices` checks a set of NUMA nodes."""
    first = decide(request)
    if isinstance(first, NumaMisfit) or not first.numa or not must_align(request):
        return first
    if has_devices(frozenset(first.numa)):
        return first
    for group in islice(combinations(sorted(zones), len(first.numa)), _MAX_ATTEMPTS):
        candidate = frozenset(group)
        if candidate == set(first.numa) or candidate & set(request.avoid):
            continue
        if not has_devices(candidate):
            continue
        others = tuple(zone for zone in zones if zone not in candidate)
        assignment = decide(replace(request, avoid=(*request.avoid, *others)))
        if not isinstance(assignment, NumaMisfit) and candidate >= set(assignment.numa):
            return assignment
    return NumaMisfit(MISALIGNED)
