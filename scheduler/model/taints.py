"""
Taints of nodes and tolerations of pods.

`NoSchedule` and `NoExecute` filter the node out; `PreferNoSchedule` only lowers its score. A
toleration names a taint by key and effect (none: all of them) and then by its value:

    Equal, or nothing     the same value
    Exists                any value
    Gt, Lt                a whole number; the taint's is above, or below, the toleration's

An API server takes `Gt` and `Lt` only where the feature gate TaintTolerationComparisonOperators is
on, so the scheduler compares them without a gate of its own.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.model.fields import rows

CORDON: Final = "node.kubernetes.io/unschedulable"

_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_SOFT_EFFECT: Final = "PreferNoSchedule"
# No leading zeros, which could be taken for an octal number.
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]*")
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
            case "Gt" | "Lt":
                return _compares(self.operator, taint.value, self.value)
            case _:
                return False


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)


def read_tolerations(value: object) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=str(row.get("key") or ""),
            operator=str(row.get("operator") or "Equal"),
            value=str(row.get("value") or ""),
            effect=str(row.get("effect") or ""),
        )
        for row in rows(value)
    )


def read_taints(value: object) -> tuple[tuple[Taint, ...], tuple[Taint, ...]]:
    """Hard taints and soft ones (`PreferNoSchedule`), in their order on the node."""
    taints = [
        Taint(*(str(row.get(field) or "") for field in ("key", "value", "effect")))
        for row in rows(value)
    ]
    return (
        tuple(taint for taint in taints if taint.effect in _HARD_EFFECTS),
        tuple(taint for taint in taints if taint.effect == _SOFT_EFFECT),
    )


def _compares(operator: str, taint_value: str, bound: str) -> bool:
    number, limit = _number(taint_value), _number(bound)
    if number is None or limit is None:
        return False
    return number > limit if operator == "Gt" else number < limit


def _number(text: str) -> int | None:
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text) if len(text) <= 20 else 2**63
    return number if number in _INT64 else None
