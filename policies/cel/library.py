"""The functions that expressions may call beside CEL's own: Kubernetes' library and our facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from policies.cel import cost, rewrite
from policies.cel.cost import Meter
from policies.cel.functions import format, ip_cidr, lists, pod, quantity, semver, strings, url
from policies.cel.functions.overload import Function, Overload, merged


def joined(functions: Iterable[Function]) -> tuple[Function, ...]:
    """One function per name: the overloads of equal names together, in order."""
    overloads_by_name: dict[str, tuple[Overload, ...]] = {}
    for function in functions:
        overloads_by_name[function.name] = (
            overloads_by_name.get(function.name, ()) + function.overloads
        )
    return tuple(Function(name, overloads) for name, overloads in overloads_by_name.items())


KUBERNETES: Final = joined(
    [
        *quantity.FUNCTIONS,
        *ip_cidr.FUNCTIONS,
        *semver.FUNCTIONS,
        *url.FUNCTIONS,
        *format.FUNCTIONS,
        *lists.FUNCTIONS,
    ]
)

CHECKED: Final = joined([*KUBERNETES, *pod.FUNCTIONS])
"""What authors may call, with the types that the checker knows."""

OPAQUE: Final = frozenset(
    {quantity.TYPE, ip_cidr.IP, ip_cidr.CIDR, semver.TYPE, url.TYPE, format.TYPE}
)


def at_run_time(recall: pod.Recall, meter: Meter) -> list[Function]:
    """The functions as programs call them."""
    known = (*KUBERNETES, *pod.at_run_time(recall), *rewrite.FUNCTIONS)
    return merged([*(cost.charged(one, meter) for one in known), *cost.functions(meter)])


def portable(recall: pod.Recall) -> list[Function]:
    """The functions for an engine without extensions of its own, those with optionals left out."""
    known = [f for f in KUBERNETES if f.name not in format.OPTIONAL and "." not in f.name]
    return merged(joined([*known, *strings.FUNCTIONS, *pod.at_run_time(recall)]))


NAMES: Final = frozenset(function.name for function in CHECKED)
"""Every function that is Python underneath."""
