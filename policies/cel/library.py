"""The functions that expressions may call beside CEL's own: Kubernetes' library and our facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from policies.cel import (
    addresses,
    facts,
    formats,
    network,
    quantities,
    rewriting,
    sequences,
    texts,
    versions,
)
from policies.cel.functions import Function, Overload, merged


def joined(functions: Iterable[Function]) -> tuple[Function, ...]:
    """One function a name: the overloads of equal names together, in order."""
    found: dict[str, tuple[Overload, ...]] = {}
    for function in functions:
        found[function.name] = found.get(function.name, ()) + function.overloads
    return tuple(Function(name, overloads) for name, overloads in found.items())


KUBERNETES: Final = joined(
    [
        *quantities.FUNCTIONS,
        *network.FUNCTIONS,
        *versions.FUNCTIONS,
        *addresses.FUNCTIONS,
        *formats.FUNCTIONS,
        *sequences.FUNCTIONS,
    ]
)

CHECKED: Final = joined([*KUBERNETES, *facts.FUNCTIONS])
"""What authors may call, with the types that the checker knows."""

OPAQUE: Final = frozenset(
    {quantities.TYPE, network.IP, network.CIDR, versions.TYPE, addresses.TYPE, formats.TYPE}
)


def at_run_time(recall: facts.Recall) -> list[Function]:
    """The functions as programs call them."""
    return merged([*KUBERNETES, *facts.at_run_time(recall), *rewriting.FUNCTIONS])


def portable(recall: facts.Recall) -> list[Function]:
    """The functions for an engine without extensions of its own, those with optionals left out."""
    known = [f for f in KUBERNETES if f.name not in formats.OPTIONAL and "." not in f.name]
    return merged(joined([*known, *texts.FUNCTIONS, *facts.at_run_time(recall)]))


NAMES: Final = frozenset(function.name for function in CHECKED)
"""Every function that is Python underneath."""
