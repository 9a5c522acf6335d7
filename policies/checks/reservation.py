"""
What is worth knowing about a reservation for a tenant, among the nodes and reservations there are.

    nobody is of that tenant · a node is not there · no node has the labels
    fewer of its places than `count` on the nodes that are meant, were they empty
    more than the cluster has, together with others for the same time

Warnings alone: nodes and namespaces come and go, and a reservation may be written before them. What
is wrong with the document itself is told by `proposal`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from policies import quantity
from policies.documents.reservation import ResourceReservation, Spec, shown
from policies.json_fields import Json, mapping

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """A node, as far as it matters here."""

    name: str
    labels: Mapping[str, str]
    has: Mapping[str, int]
    """Resource -> what pods can have of it."""

    @classmethod
    def read(cls, node: Json) -> "HostCapacity":
        about, status = mapping(node.get("metadata")), mapping(node.get("status"))
        labels = {str(key): str(value) for key, value in mapping(about.get("labels")).items()}
        return cls(str(about.get("name")), labels, dict(_amounts(status.get("allocatable"))))


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """What is there."""

    hosts: tuple[HostCapacity, ...] = ()
    others: tuple[Spec, ...] = ()
    """The other reservations for tenants."""
    tenants: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, nodes: Iterable[Json], reservations: Iterable[Json], tenants: Iterable[str], but: str
    ) -> "ReservationFacts":
        """`but` is the uid or the namespace and name of the one that is judged."""
        others = (one for one in reservations if but not in _names(one))
        specs = (spec for one in others if (spec := _spec(one)) is not None)
        return cls(tuple(map(HostCapacity.read, nodes)), tuple(specs), frozenset(tenants))


def warnings(obj: Json, ground: ReservationFacts, *, now: datetime) -> list[str]:
    """Of a reservation that has no fault; none of one that has."""
    spec = _spec(obj)
    return [] if spec is None else list(_warnings(spec, ground, now))


def _warnings(spec: Spec, ground: ReservationFacts, now: datetime) -> Iterator[str]:
    if spec.tenant not in ground.tenants:
        yield f"no namespace or policy names tenant {spec.tenant!r}: the room is kept for nobody"
    known = {host.name for host in ground.hosts}
    if missing := sorted(set(spec.nodes) - known):
        yield f"there is no node {_listed(missing)}"
    meant = [host for host in ground.hosts if _means(spec, host)]
    if spec.node_selector and not meant:
        wanted = _listed([f"{key}={value}" for key, value in sorted(spec.node_selector.items())])
        yield f"no node that is meant has the labels {wanted}"
    if spec.resources and meant:
        places = sum(_fits(spec, host) for host in meant)
        if places < (count := spec.count or 1):
            hosts = f"{len(meant)} node{'s' * (len(meant) > 1)}"
            yield f"{hosts} would have room for {places} of {count} if nothing ran there"
    yield from _together(spec, ground, now)


def _together(spec: Spec, ground: ReservationFacts, now: datetime) -> Iterator[str]:
    """More of something than there is, at some time while this one lasts."""
    has: Counter[str] = Counter()
    for host in ground.hosts:
        has.update(host.has)
    begins = spec.from_ or now
    starts = {begins} | {
        one.from_ for one in ground.others if one.from_ and begins < one.from_ < spec.until
    }
    for start in sorted(starts):
        same = [one for one in ground.others if (one.from_ or now) <= start < one.until]
        asked: Counter[str] = Counter()
        for one in (spec, *same):
            asked.update(_asked(one, ground.hosts))
        over = sorted(name for name, count in asked.items() if same and count > has[name])
        if over:
            name, others = over[0], f"{len(same)} other{'s' * (len(same) > 1)}"
            kept, there = (quantity.show(name, count[name]) for count in (asked, has))
            yield (
                f"together with {others} it keeps {kept} of {name} from {shown(start)} on,"
                f" and the cluster has {there}"
            )
            return


def _asked(spec: Spec, hosts: Sequence[HostCapacity]) -> Counter[str]:
    total: Counter[str] = Counter()
    if spec.resources:
        each = dict(_amounts(spec.resources))
        total.update({name: amount * (spec.count or 1) for name, amount in each.items()})
        return total
    for host in hosts:
        if _means(spec, host):
            total.update(host.has)
    return total


def _means(spec: Spec, host: HostCapacity) -> bool:
    named = not spec.nodes or host.name in spec.nodes
    wanted = spec.node_selector.items()
    return named and all(host.labels.get(key) == value for key, value in wanted)


def _fits(spec: Spec, host: HostCapacity) -> int:
    each = dict(_amounts(spec.resources))
    return min(host.has.get(name, 0) // amount for name, amount in each.items() if amount)


def _spec(obj: Json) -> Spec | None:
    """Of one for a tenant, if it can be read."""
    try:
        spec = ResourceReservation.model_validate({"spec": obj.get("spec")}).spec
    except ValueError:
        return None
    return spec if spec.pod_group is None else None


def _names(obj: Json) -> tuple[str, str]:
    about = mapping(obj.get("metadata"))
    return str(about.get("uid")), f"{about.get('namespace')}/{about.get('name')}"


def _amounts(said: object) -> Iterator[tuple[str, int]]:
    for name, text in mapping(said).items():
        try:
            yield str(name), quantity.amount(str(name), text)
        except quantity.QuantityError:
            continue


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
