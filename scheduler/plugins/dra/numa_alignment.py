"""
A pod's NUMA nodes and its devices, chosen so that they agree.

Where the pod's policy is strict and its devices are to sit with the rest of it, the NUMA nodes are
first chosen as if there were no devices. If the devices cannot be had there, other NUMA nodes, as
many of them, are tried in the order of their ids. Devices that tell no NUMA node agree with all.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Final

from scheduler.model.assignment import Assignment, NumaMisfit
from scheduler.model.numa_request import HostRequest

APART: Final = "node(s) could not give the pod its devices on its NUMA nodes"
_MOST_TRIED: Final = 200


def binds(ask: HostRequest) -> bool:
    """Whether devices must come from the pod's own NUMA nodes."""
    return ask.strict and "gpu" in ask.aligned


def choose(
    ask: HostRequest,
    zones: Sequence[int],
    decide: Callable[[HostRequest], Assignment | NumaMisfit],
    gives: Callable[[frozenset[int]], bool],
) -> Assignment | NumaMisfit:
    """`decide` chooses for the pod alone; `gives`: whether these NUMA nodes have its devices."""
    first = decide(ask)
    if isinstance(first, NumaMisfit) or not first.numa or not binds(ask):
        return first
    if gives(frozenset(first.numa)):
        return first
    for group in islice(combinations(sorted(zones), len(first.numa)), _MOST_TRIED):
        here = frozenset(group)
        if here == set(first.numa) or here & set(ask.avoid) or not gives(here):
            continue
        others = tuple(zone for zone in zones if zone not in here)
        found = decide(replace(ask, avoid=(*ask.avoid, *others)))
        if not isinstance(found, NumaMisfit) and here >= set(found.numa):
            return found
    return NumaMisfit(APART)
