"""
ResourceReservation objects as values: read from the API, and rendered for it.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from policies import quantity, vocabulary
from policies.documents.reservation import Place, ResourceReservation, Spec
from policies.json_fields import mapping
from policies.text import timestamp
from scheduler.errors import ModelError
from scheduler.model.fields import instant, rows
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.resources import PODS
from scheduler.tenancy.reservation.writer import Name

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReservationObject:
    """A ResourceReservation as the API holds it."""

    name: Name
    uid: str
    spec: Spec
    places: tuple[Place, ...] = ()
    """Reserved nodes, from the status or else from the spec."""
    created: float = 0.0
    """Seconds of the epoch."""
    phase: str = ""


def read(obj: Json) -> ReservationObject:
    metadata, status = mapping(obj.get("metadata")), mapping(obj.get("status"))
    name = (str(metadata.get("namespace")), str(metadata.get("name")))
    try:
        spec = ResourceReservation.model_validate({"spec": obj.get("spec")}).spec
        written = status.get("places")
        placed = None if written is None else tuple(map(Place.model_validate, rows(written)))
    except ValueError as error:
        raise ModelError(f"ResourceReservation {'/'.join(name)}: {error}") from error
    first = spec.pod_group.places if spec.pod_group is not None else ()
    return ReservationObject(
        name,
        str(metadata.get("uid")),
        spec,
        first if placed is None else placed,
        instant(metadata.get("creationTimestamp")),
        str(status.get("phase") or ""),
    )


def document(leader: Pod, placements: Sequence[Placement], until: datetime) -> Json:
    """The object for members that the leader will create."""
    assert leader.gang is not None
    spec = {
        **({"tenant": leader.attributes.tenant} if leader.attributes.tenant else {}),
        "podGroup": {
            "name": leader.gang.key.name,
            "leader": leader.uid,
            "members": len(placements),
            "resources": amounts(placements[0].pod.spec.requests),
            "places": [_place(placement) for placement in placements],
        },
        "until": timestamp(until),
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": leader.key.name, "uid": leader.uid}
    return {
        "apiVersion": vocabulary.API_VERSION,
        "kind": ResourceReservation.__name__,
        "metadata": {
            "name": name_of(leader),
            "namespace": leader.key.namespace,
            "labels": {"app.kubernetes.io/managed-by": vocabulary.SCHEDULER_NAME},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def name_of(leader: Pod) -> str:
    """Unique per leader: an object that a deleted leader left behind never counts for another."""
    assert leader.gang is not None
    plain = re.sub(r"[^a-z0-9]+", "-", leader.gang.key.name.lower()).strip("-")
    return f"{plain or 'gang'}-{hashlib.sha256(leader.uid.encode()).hexdigest()[:8]}"


def status(placements: Sequence[Placement], pending: int) -> Json:
    """Of a reservation for gang members that are not created yet: `pending` in all."""
    reserved = len(placements)
    incomplete = f"reserved capacity for {reserved} of {pending}; searching for the rest"
    return {
        "phase": "Active",
        "held": held(reserved, placements[0].pod.spec) if placements else "nothing",
        "message": incomplete if reserved < pending else "",
        "places": [_place(placement) for placement in placements],
    }


def held(count: int, spec: SchedulingSpec) -> str:
    texts = (f"{name} {text}" for name, text in amounts(spec.requests).items())
    return f"{count} x {', '.join(texts)}"


def amounts(requests: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Requests of a pod as exact quantities."""
    return {name: _exact(name, count) for name, count in requests if name != PODS and count}


def _exact(name: str, count: int) -> str:
    text = quantity.show(name, count)
    return text if quantity.amount(name, text) == count else str(count)


def _place(placement: Placement) -> Json:
    return {
        "node": placement.node,
        **({"assigned": placement.assignment.render()} if placement.assignment else {}),
    }
