"""
What is kept for others, as sentences for people who ask why a pod waits. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from scheduler.cache.reserved_capacity import Holds
from scheduler.model.pod import GangKey, Pod
from scheduler.model.unit import UnitKey, key_of
from scheduler.tenancy.preemption.victims import Occupant
from scheduler.tenancy.reservation.objects import amounts


def kept_from(pod: Pod, holds: Holds) -> Iterator[str]:
    """Room on nodes that this pod may not use, by whom it is kept for."""
    for key in sorted(holds, key=str):
        rows = holds.of(key)
        if key != key_of(pod) and not _may_use(pod, key, rows):
            yield f"{_amount(rows)} on {_nodes(rows)} for {_whom(key, rows)}"


def _allotted(key: UnitKey) -> bool:
    return not isinstance(key, GangKey) and key.name.endswith("/")


def _may_use(pod: Pod, key: UnitKey, rows: Sequence[Occupant]) -> bool:
    return _allotted(key) and rows[0].pod.terms.tenant == pod.terms.tenant


def _amount(rows: Sequence[Occupant]) -> str:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(dict(row.pod.shape.requests))
    return ", ".join(f"{name} {text}" for name, text in amounts(sorted(total.items())).items())


def _nodes(rows: Sequence[Occupant]) -> str:
    names = sorted({row.node for row in rows})
    return f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes"


def _whom(key: UnitKey, rows: Sequence[Occupant]) -> str:
    if _allotted(key):
        return f"tenant {rows[0].pod.terms.tenant} (ResourceReservation {str(key)[:-1]})"
    return f"{'pod group' if isinstance(key, GangKey) else 'pod'} {key}"
