"""
Built-in check of a policy or reservation being written: its faults, among the policies in force.

The same reading, compiling and comparing as when policies are loaded, for one document. Faults of
other documents do not deny it: it may be what corrects them. A reservation is checked by itself.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from policies import vocabulary
from policies.cel import engines
from policies.documents import faults as document_faults
from policies.documents.faults import Fault, Origin
from policies.documents.reservation import ResourceReservation
from policies.engine import consistency, loader, status
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from policies.text import timestamp


def is_policy(group: str) -> bool:
    return group == vocabulary.POLICY_GROUP


def faults(obj: Mapping[str, Any], policies: PolicySet) -> tuple[Fault, ...]:
    """Every fault of the document, by itself and against the policies in force."""
    reading = loader.read_objects((obj,))
    own_faults = set(reading.faults)
    compiler = Compiler(engines.engine())
    for model, origin in (*reading.entries, *reading.broken):
        result = compiler.policy(model, origin)
        own_faults |= set(result) if isinstance(result, list) else set()
    source = status.source(obj)
    others = [
        (policy.model, Origin(policy.source))
        for policy in policies.policies
        if policy.source != source
    ]
    # A contradiction stands at the later of two documents: this one comes last.
    together = consistency.contradictions([*others, *reading.entries])
    return tuple(sorted(own_faults | {fault for fault in together if fault.source == source}))


def is_reservation(group: str, kind: str) -> bool:
    return (group, kind) == (vocabulary.GROUP, ResourceReservation.__name__)


def reservation_faults(obj: Mapping[str, Any], *, now: datetime) -> tuple[Fault, ...]:
    """Every fault of a reservation that another client than the scheduler writes."""
    origin = Origin(status.source(obj))
    reservation = document_faults.read(ResourceReservation, {"spec": obj.get("spec")}, origin)
    if isinstance(reservation, list):
        return tuple(reservation)
    spec = reservation.spec
    if spec.pod_group is not None:
        message = (
            "written by the scheduler alone; reserve for a tenant: nodes, or count and resources"
        )
        return (origin.fault(("spec", "podGroup"), message),)
    if spec.until <= now:
        message = (
            f"found {timestamp(spec.until)}, which has passed; want a time after {timestamp(now)}"
        )
        return (origin.fault(("spec", "until"), message),)
    return ()
