"""
The `status` of a policy object: whether its expressions compile, and whether it is in force.

    Compiled   True: no faults of its own             False: the faults
    Ready      True: in force as written              False: its own faults, or faults of others in
                                                      the set

Pure; the time is passed in and used only where a condition's status changes, so that replicas
that agree write the same and write once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from policies.documents.faults import Fault
from policies.json_fields import Json, mapping
from policies.text import timestamp

_LONGEST_MESSAGE: Final = 4096  # characters; the API server takes up to 32768


@dataclass(frozen=True, slots=True)
class Loaded:
    """How the loading of a set ended: whether it is in force, and every fault."""

    in_force: bool
    faults: tuple[Fault, ...] = ()

    def of(self, source: str) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if fault.source == source)


def source(obj: Json) -> str:
    """The name under which the faults of a policy object are reported."""
    return f"{obj.get('kind')}/{mapping(obj.get('metadata')).get('name')}"


def status(obj: Json, loaded: Loaded, *, now: datetime) -> dict[str, Any] | None:
    """The status that the object should have; None where it has it already."""
    generation = mapping(obj.get("metadata")).get("generation")
    generation = generation if isinstance(generation, int) else 0
    own_faults = loaded.of(source(obj))
    states = [_compiled(own_faults), _ready(own_faults, loaded)]
    before = mapping(obj.get("status"))
    conditions = []
    changed = before.get("observedGeneration") != generation
    for kind, is_true, reason, message in states:
        old = _condition(before, kind)
        condition = {
            "type": kind,
            "status": "True" if is_true else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
        }
        changed |= any(old.get(key) != value for key, value in condition.items())
        same = old.get("status") == condition["status"]
        since = old.get("lastTransitionTime") if same else None
        conditions.append({**condition, "lastTransitionTime": since or timestamp(now)})
    return {"observedGeneration": generation, "conditions": conditions} if changed else None


def _compiled(own_faults: Sequence[Fault]) -> tuple[str, bool, str, str]:
    if own_faults:
        return "Compiled", False, "Invalid", _lines(own_faults)
    return "Compiled", True, "Valid", "every expression compiles"


def _ready(own_faults: Sequence[Fault], loaded: Loaded) -> tuple[str, bool, str, str]:
    if loaded.in_force:
        return "Ready", True, "InForce", "in force"
    if own_faults:
        return "Ready", False, "Invalid", "not in force: it has faults of its own"
    others = sorted({fault.source for fault in loaded.faults})
    return (
        "Ready",
        False,
        "PolicySetRejected",
        f"the last good set stays in force until these are corrected: {', '.join(others)}"[
            :_LONGEST_MESSAGE
        ],
    )


def _lines(faults: Sequence[Fault]) -> str:
    return "\n".join(str(fault) for fault in faults)[:_LONGEST_MESSAGE]


def _condition(before: Json, kind: str) -> Json:
    for row in before.get("conditions") or ():
        if mapping(row).get("type") == kind:
            return mapping(row)
    return {}
