"""What holds inside every host, for every sequence of pods that come and go."""

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from policies import vocabulary
from policies.hosts.topology import Gpu, Topology, Zone
from scheduler.model.assignment import Assignment, NumaMisfit, parse
from scheduler.model.numa_request import HostRequest
from scheduler.plugins.numa.allocator import choose
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage

MANY = settings(max_examples=150, deadline=None)
PAGES = "hugepages-2Mi"
POLICIES = ("none", *vocabulary.NUMA_POLICIES)


@dataclass(frozen=True)
class Guest:
    """A pod before a host: what it asks, and its gang."""

    host_request: HostRequest
    gang: str | None

    def claim(self, assignment: Assignment) -> PodUsage:
        host_request = self.host_request
        return PodUsage(
            host_request.cpu,
            host_request.memory,
            host_request.gpus,
            assignment,
            host_request.hugepages,
            self.gang,
            host_request.apart,
        )


@st.composite
def hosts(draw: st.DrawFn) -> Topology:
    paged = draw(st.booleans())
    zones = tuple(
        Zone(
            i,
            draw(st.sampled_from([0, 2000, 4000])),
            draw(st.sampled_from([10, 20])),
            ((PAGES, draw(st.integers(0, 4))),) if paged else (),
        )
        for i in range(draw(st.integers(1, 4)))
    )
    gpus = tuple(
        Gpu(
            i,
            draw(st.one_of(st.none(), st.integers(0, len(zones) - 1))),
            vram=draw(st.sampled_from([0, 40, 80])),
            switch=draw(st.sampled_from(["", "s0", "s1"])),
            island=draw(st.sampled_from(["", "i0", "i1"])),
        )
        for i in range(draw(st.integers(0, 6)))
    )
    return Topology(zones, gpus)


@st.composite
def guests(draw: st.DrawFn) -> Guest:
    gang = draw(st.sampled_from([None, "g", "h"]))
    pages = draw(st.integers(0, 3))
    return Guest(
        HostRequest(
            cpu=draw(st.sampled_from([500, 1000, 2000, 3000])),
            memory=draw(st.integers(0, 12)),
            gpus=draw(st.sampled_from([0, 0, 1, 2, 3])),
            policy=draw(st.sampled_from(POLICIES)),
            aligned=draw(
                st.sampled_from([frozenset({"cpu", "memory", "gpu", PAGES}), frozenset({"cpu"})])
            ),
            prefer=draw(st.sampled_from([(), (0,), (1, 2)])),
            avoid=draw(st.sampled_from([(), (), (0,), (1, 9)])),
            hugepages=((PAGES, pages),) if pages else (),
            spread=draw(st.sampled_from(vocabulary.GANG_NUMA_SPREADS)) if gang else "packed",
        ),
        gang,
    )


Held = list[tuple[Guest, Assignment]]


@MANY
@given(hosts(), st.lists(st.tuples(guests(), st.booleans()), max_size=10))
def test_a_host_is_never_given_away_twice(host: Topology, steps: list[tuple[Guest, bool]]) -> None:
    layout = HostUsage(host)
    held: Held = []
    for guest, goes in steps:
        before = layout.state()
        found = choose(layout, guest.host_request, gang=guest.gang)
        assert (layout.state(), choose(layout, guest.host_request, gang=guest.gang)) == (
            before,
            found,
        )
        if isinstance(found, NumaMisfit):
            continue
        assert parse(found.render()) == found
        layout.charge(guest.claim(found))
        layout.uncharge(guest.claim(found))
        assert layout.state() == before
        layout.charge(guest.claim(found))
        held.append((guest, found))
        check(host, held)
        if goes:
            gone, where = held.pop(0)
            layout.uncharge(gone.claim(where))
    recount = HostUsage.of(host, tuple(guest.claim(where) for guest, where in reversed(held)))
    assert recount.state() == layout.state()


def check(host: Topology, held: Held) -> None:
    """Counted from the assignments alone."""
    sizes = {zone.id: zone for zone in host.zones}
    places = {gpu.index: gpu.zone for gpu in host.gpus}
    used: Counter[tuple[int, str]] = Counter()
    dwellers: dict[int, list[Guest]] = {}
    gpus = [index for _, where in held for index in where.gpus]
    assert len(gpus) == len(set(gpus))
    for guest, where in held:
        host_request = guest.host_request
        assert not set(where.numa) & set(host_request.avoid)
        if host_request.strict:
            assert len(where.numa) == 1 or host_request.policy != "single-numa"
            assert len(where.gpus) == (host_request.gpus if host.gpus else 0)
            assert sum(share.cpu for share in where.shares) == host_request.cpu
            if "gpu" in host_request.aligned:
                assert {places[index] for index in where.gpus} <= set(where.numa)
        homes = {*where.numa, *(places[index] for index in where.gpus)} - {None}
        for share in where.shares:
            used[share.zone, "cpu"] += share.cpu
            used[share.zone, "memory"] += share.memory
            used.update({(share.zone, name): count for name, count in share.hugepages})
        for home in homes:
            dwellers.setdefault(home or 0, []).append(guest)
    for (zone, name), count in used.items():
        size = sizes[zone]
        amounts = {"cpu": size.cpu, "memory": size.memory, **dict(size.hugepages)}
        assert count <= amounts.get(name, 0)
    for here in dwellers.values():
        check_neighbours(here)


def check_neighbours(here: list[Guest]) -> None:
    assert len(here) == 1 or not any(guest.host_request.isolated for guest in here)
    for one, other in combinations(here, 2):
        bound_members = one.gang is not None and one.gang == other.gang
        assert not (bound_members and (one.host_request.apart or other.host_request.apart))


@MANY
@given(hosts(), st.lists(guests(), max_size=4), guests())
def test_a_strict_pod_is_refused_only_where_nothing_would_do(
    host: Topology, others: list[Guest], guest: Guest
) -> None:
    layout = HostUsage(host)
    for other in others:
        found = choose(layout, other.host_request, gang=other.gang)
        if isinstance(found, Assignment):
            layout.charge(other.claim(found))
    if guest.host_request.strict:
        found = choose(layout, guest.host_request, gang=guest.gang)
        assert isinstance(found, Assignment) == could(layout, guest)


def could(layout: HostUsage, guest: Guest) -> bool:
    """Every set of NUMA nodes tried, amount by amount."""
    host_request, zones = guest.host_request, layout.topology.zones
    if host_request.apart and layout.unlocated_members.get(guest.gang):
        return False
    groups = [
        set(group)
        for count in range(1, len(zones) + 1)
        for group in combinations(range(len(zones)), count)
    ]
    least = min((len(g) for g in groups if enough(layout, guest, g, empty=True)), default=None)
    width = 1 if host_request.policy == "single-numa" else least
    return any(
        len(group) == width
        and all(is_open(layout, guest, zone) for zone in group)
        and enough(layout, guest, group, empty=False)
        for group in groups
    )


def is_open(layout: HostUsage, guest: Guest, zone: int) -> bool:
    room, gang = layout.numa_nodes[zone], guest.gang
    if (
        zone in guest.host_request.avoid
        or room.isolated
        or (guest.host_request.isolated and room.pods)
    ):
        return False
    return not (room.apart.get(gang) or (guest.host_request.apart and room.members.get(gang)))


def enough(layout: HostUsage, guest: Guest, group: set[int], *, empty: bool) -> bool:
    """By amounts; what floats may sit on each of the NUMA nodes."""
    host_request = guest.host_request
    rooms = [layout.numa_nodes[zone] for zone in group]
    sizes = [layout.zones[zone] for zone in group]

    def total(free: list[int], floating: int) -> int:
        return sum(max(0, count - floating) for count in free)

    cpu = [z.cpu for z in sizes] if empty else [room.cpu for room in rooms]
    memory = [z.memory for z in sizes] if empty else [room.memory for room in rooms]
    drift = (
        (0, 0, 0) if empty else (layout.floating_cpu, layout.floating_memory, layout.floating_gpus)
    )
    if total(cpu, drift[0]) < host_request.cpu:
        return False
    if "memory" in host_request.aligned and total(memory, drift[1]) < host_request.memory:
        return False
    pages = dict(host_request.hugepages).get(PAGES, 0)
    if pages and PAGES in host_request.aligned and PAGES in layout.located_hugepages:
        rows = (
            [dict(z.hugepages)[PAGES] for z in sizes]
            if empty
            else [room.hugepages[PAGES] - layout.floating_hugepages.get(PAGES, 0) for room in rooms]
        )
        if total(rows, 0) < pages:
            return False
    return enough_gpus(layout, guest, group, drift[2], empty=empty)


def enough_gpus(
    layout: HostUsage, guest: Guest, group: set[int], floating: int, *, empty: bool
) -> bool:
    host_request = guest.host_request
    if not host_request.gpus:
        return True
    if "gpu" in host_request.aligned:
        counts: Counter[int | None] = Counter(
            layout.gpu_zone[index] for index in (layout.gpus if empty else layout.free_gpus)
        )
        return sum(max(0, counts[zone] - floating) for zone in group) >= host_request.gpus
    if empty or not layout.gpus:
        return True
    anywhere = [
        index
        for index in layout.free_gpus
        if (zone := layout.gpu_zone[index]) is None or is_open(layout, guest, zone)
    ]
    return len(anywhere) - floating >= host_request.gpus
