"""
Warnings about a tenant's reservation, from the nodes and reservations of the cluster.

    no namespace has that tenant · a node does not exist · no node has the labels
    the selected nodes could not hold `count` of it even if they were empty
    together with others for the same time, more than the cluster has

Warnings only: nodes and namespaces come and go, and a reservation may be written before them.
`policy_object` reports faults of the document itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from policies import quantity
from policies.documents.reservation import ResourceReservation, Spec
from policies.json_fields import Json, mapping
from policies.text import listed, timestamp

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """The capacity of a node."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]

    @classmethod
    def read(cls, node: Json) -> "HostCapacity":
        metadata, status = mapping(node.get("metadata")), mapping(node.get("status"))
        labels = {str(key): str(value) for key, value in mapping(metadata.get("labels")).items()}
        return cls(str(metadata.get("name")), labels, dict(_amounts(status.get("allocatable"))))


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """The nodes, the other reservations and the tenants of the cluster."""

    hosts: tuple[HostCapacity, ...] = ()
    others: tuple[Spec, ...] = ()
    """The other reservations for tenants."""
    tenants: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        nodes: Iterable[Json],
        reservations: Iterable[Json],
        tenants: Iterable[str],
        exclude: str,
    ) -> "ReservationFacts":
        """`exclude` is the uid, or namespace and name, of the reservation being checked."""
        others = (other for other in reservations if exclude not in _names(other))
        specs = (spec for other in others if (spec := _spec(other)) is not None)
        return cls(tuple(map(HostCapacity.read, nodes)), tuple(specs), frozenset(tenants))


def warnings(obj: Json, facts: ReservationFacts, *, now: datetime) -> list[str]:
    """The warnings for a reservation without faults; none for one with faults."""
    spec = _spec(obj)
    return [] if spec is None else list(_warnings(spec, facts, now))


def _warnings(spec: Spec, facts: ReservationFacts, now: datetime) -> Iterator[str]:
    if spec.tenant not in facts.tenants:
        why = "no pod can use the reserved capacity"
        yield f"no namespace or policy names tenant {spec.tenant!r}: {why}"
    known = {host.name for host in facts.hosts}
    if missing := sorted(set(spec.nodes) - known):
        yield f"there is no node {listed(missing, most=_NAMED)}"
    selected = [host for host in facts.hosts if _selects(spec, host)]
    if spec.node_selector and not selected:
        labels = [f"{key}={value}" for key, value in sorted(spec.node_selector.items())]
        label_text = listed(labels, most=_NAMED)
        yield f"no selected node has the labels {label_text}"
    if spec.resources and selected:
        places = sum(_fits(spec, host) for host in selected)
        if places < (count := spec.count or 1):
            hosts = f"{len(selected)} node{'s' * (len(selected) > 1)}"
            yield f"{hosts} could hold {places} of {count} if nothing ran there"
    yield from _overcommitted(spec, facts, now)


def _overcommitted(spec: Spec, facts: ReservationFacts, now: datetime) -> Iterator[str]:
    """A resource of which all reservations together exceed the cluster, while this one lasts."""
    capacity: Counter[str] = Counter()
    for host in facts.hosts:
        capacity.update(host.allocatable)
    begins = spec.from_ or now
    starts = {begins} | {
        other.from_ for other in facts.others if other.from_ and begins < other.from_ < spec.until
    }
    for start in sorted(starts):
        same = [other for other in facts.others if (other.from_ or now) <= start < other.until]
        reserved: Counter[str] = Counter()
        for other in (spec, *same):
            reserved.update(_reserved(other, facts.hosts))
        over = sorted(name for name, count in reserved.items() if same and count > capacity[name])
        if over:
            name, others = over[0], f"{len(same)} other{'s' * (len(same) > 1)}"
            amount, available = (quantity.show(name, n[name]) for n in (reserved, capacity))
            yield (
                f"together with {others} it reserves {amount} of {name} from {timestamp(start)} on,"
                f" the cluster has {available}"
            )
            return


def _reserved(spec: Spec, hosts: Sequence[HostCapacity]) -> Counter[str]:
    total: Counter[str] = Counter()
    if spec.resources:
        each = dict(_amounts(spec.resources))
        total.update({name: amount * (spec.count or 1) for name, amount in each.items()})
        return total
    for host in hosts:
        if _selects(spec, host):
            total.update(host.allocatable)
    return total


def _selects(spec: Spec, host: HostCapacity) -> bool:
    named = not spec.nodes or host.name in spec.nodes
    selector = spec.node_selector.items()
    return named and all(host.labels.get(key) == value for key, value in selector)


def _fits(spec: Spec, host: HostCapacity) -> int:
    each = dict(_amounts(spec.resources))
    return min(host.allocatable.get(name, 0) // amount for name, amount in each.items() if amount)


def _spec(obj: Json) -> Spec | None:
    """The spec of a tenant's reservation, if it can be read."""
    try:
        spec = ResourceReservation.model_validate({"spec": obj.get("spec")}).spec
    except ValueError:
        return None
    return spec if spec.pod_group is None else None


def _names(obj: Json) -> tuple[str, str]:
    metadata = mapping(obj.get("metadata"))
    return str(metadata.get("uid")), f"{metadata.get('namespace')}/{metadata.get('name')}"


def _amounts(resources: object) -> Iterator[tuple[str, int]]:
    for name, text in mapping(resources).items():
        try:
            yield str(name), quantity.amount(str(name), text)
        except quantity.QuantityError:
            continue
