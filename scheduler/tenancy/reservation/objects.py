"""
ResourceReservation objects, read and written out. Values only: nothing here talks to the API.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from policies import quantity, vocabulary
from policies.documents.reservation import Place, ResourceReservation, Spec, shown
from scheduler.errors import ModelError
from scheduler.model.fields import instant
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.resources import PODS
from scheduler.tenancy.reservation.writer import Name

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reservation:
    """An object as the API holds it."""

    name: Name
    uid: str
    spec: Spec
    places: tuple[Place, ...] = ()
    """Where room was kept when somebody last wrote it."""
    created: float = 0.0
    """Seconds of the epoch."""
    phase: str = ""
    """As somebody last wrote it."""


def read(obj: Json) -> Reservation:
    about = obj.get("metadata") or {}
    name = (str(about.get("namespace")), str(about.get("name")))
    try:
        spec = ResourceReservation.model_validate({"spec": obj.get("spec")}).spec
        status = obj.get("status") or {}
        rows = status.get("places")
        told = None if rows is None else tuple(Place.model_validate(row) for row in rows)
    except ValueError as error:
        raise ModelError(f"ResourceReservation {'/'.join(name)}: {error}") from error
    first = spec.pod_group.places if spec.pod_group is not None else ()
    return Reservation(
        name,
        str(about.get("uid")),
        spec,
        first if told is None else told,
        instant(about.get("creationTimestamp")),
        str(status.get("phase") or ""),
    )


def document(leader: Pod, kept: Sequence[Placement], until: datetime) -> Json:
    """The object for members that the leader is going to make."""
    assert leader.gang is not None
    spec = {
        **({"tenant": leader.attributes.tenant} if leader.attributes.tenant else {}),
        "podGroup": {
            "name": leader.gang.key.name,
            "leader": leader.uid,
            "members": len(kept),
            "resources": amounts(kept[0].pod.spec.requests),
            "places": [_place(one) for one in kept],
        },
        "until": shown(until),
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
    """One for each leader: what one that is gone has left behind is never taken for another's."""
    assert leader.gang is not None
    plain = re.sub(r"[^a-z0-9]+", "-", leader.gang.key.name.lower()).strip("-")
    return f"{plain or 'gang'}-{hashlib.sha256(leader.uid.encode()).hexdigest()[:8]}"


def status(kept: Sequence[Placement], wanted: int) -> Json:
    """Of one for members to come, of whom so many should have a place."""
    short = f"reserved capacity for {len(kept)} of {wanted}; searching for the rest"
    return {
        "phase": "Active",
        "held": held(len(kept), kept[0].pod.spec) if kept else "nothing",
        "message": short if len(kept) < wanted else "",
        "places": [_place(one) for one in kept],
    }


def held(count: int, spec: SchedulingSpec) -> str:
    rows = (f"{name} {text}" for name, text in amounts(spec.requests).items())
    return f"{count} x {', '.join(rows)}"


def amounts(asked: Iterable[tuple[str, int]]) -> dict[str, str]:
    """What a pod asks for, exactly."""
    return {name: _exact(name, count) for name, count in asked if name != PODS and count}


def _exact(name: str, count: int) -> str:
    text = quantity.show(name, count)
    return text if quantity.amount(name, text) == count else str(count)


def _place(one: Placement) -> Json:
    return {
        "node": one.node,
        **({"assigned": one.assignment.render()} if one.assignment else {}),
    }
