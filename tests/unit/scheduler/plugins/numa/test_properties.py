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
class PodRequest:
    """What a pod requests of a host, and its gang."""

    host_request: HostRequest
    gang: str | None

    def usage(self, assignment: Assignment) -> PodUsage:
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
def pod_requests(draw: st.DrawFn) -> PodRequest:
    gang = draw(st.sampled_from([None, "g", "h"]))
    pages = draw(st.integers(0, 3))
    return PodRequest(
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


Held = list[tuple[PodRequest, Assignment]]


@MANY
@given(hosts(), st.lists(st.tuples(pod_requests(), st.booleans()), max_size=10))
def test_a_host_is_never_given_away_twice(
    host: Topology, steps: list[tuple[PodRequest, bool]]
) -> None:
    host_usage = HostUsage(host)
    held: Held = []
    for pod, ends in steps:
        before = host_usage.state()
        found = choose(host_usage, pod.host_request, gang=pod.gang)
        assert (
            host_usage.state(),
            choose(host_usage, pod.host_request, gang=pod.gang),
        ) == (
            before,
            found,
        )
        if isinstance(found, NumaMisfit):
            continue
        assert parse(found.render()) == found
        host_usage.charge(pod.usage(found))
        host_usage.uncharge(pod.usage(found))
        assert host_usage.state() == before
        host_usage.charge(pod.usage(found))
        held.append((pod, found))
        check(host, held)
        if ends:
            gone, where = held.pop(0)
            host_usage.uncharge(gone.usage(where))
    recount = HostUsage.of(host, tuple(pod.usage(where) for pod, where in reversed(held)))
    assert recount.state() == host_usage.state()


def check(host: Topology, held: Held) -> None:
    """Counted from the assignments alone."""
    sizes = {zone.id: zone for zone in host.zones}
    places = {gpu.index: gpu.zone for gpu in host.gpus}
    used: Counter[tuple[int, str]] = Counter()
    pods_on: dict[int, list[PodRequest]] = {}
    gpus = [index for _, where in held for index in where.gpus]
    assert len(gpus) == len(set(gpus))
    for pod, where in held:
        host_request = pod.host_request
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
            pods_on.setdefault(home or 0, []).append(pod)
    for (zone, name), count in used.items():
        size = sizes[zone]
        amounts = {"cpu": size.cpu, "memory": size.memory, **dict(size.hugepages)}
        assert count <= amounts.get(name, 0)
    for here in pods_on.values():
        check_neighbours(here)


def check_neighbours(here: list[PodRequest]) -> None:
    assert len(here) == 1 or not any(pod.host_request.isolated for pod in here)
    for one, other in combinations(here, 2):
        bound_members = one.gang is not None and one.gang == other.gang
        assert not (bound_members and (one.host_request.apart or other.host_request.apart))


@MANY
@given(hosts(), st.lists(pod_requests(), max_size=4), pod_requests())
def test_a_strict_pod_is_rejected_only_where_no_numa_nodes_fit(
    host: Topology, others: list[PodRequest], pod: PodRequest
) -> None:
    host_usage = HostUsage(host)
    for other in others:
        found = choose(host_usage, other.host_request, gang=other.gang)
        if isinstance(found, Assignment):
            host_usage.charge(other.usage(found))
    if pod.host_request.strict:
        found = choose(host_usage, pod.host_request, gang=pod.gang)
        assert isinstance(found, Assignment) == could(host_usage, pod)


def could(host_usage: HostUsage, pod: PodRequest) -> bool:
    """Every set of NUMA nodes tried, amount by amount."""
    host_request, zones = pod.host_request, host_usage.topology.zones
    if host_request.apart and host_usage.unlocated_members.get(pod.gang):
        return False
    groups = [
        set(group)
        for count in range(1, len(zones) + 1)
        for group in combinations(range(len(zones)), count)
    ]
    least = min((len(g) for g in groups if enough(host_usage, pod, g, empty=True)), default=None)
    width = 1 if host_request.policy == "single-numa" else least
    return any(
        len(group) == width
        and all(is_open(host_usage, pod, zone) for zone in group)
        and enough(host_usage, pod, group, empty=False)
        for group in groups
    )


def is_open(host_usage: HostUsage, pod: PodRequest, zone: int) -> bool:
    capacity, gang = host_usage.numa_nodes[zone], pod.gang
    if (
        zone in pod.host_request.avoid
        or capacity.isolated
        or (pod.host_request.isolated and capacity.pods)
    ):
        return False
    return not (capacity.apart.get(gang) or (pod.host_request.apart and capacity.members.get(gang)))


def enough(host_usage: HostUsage, pod: PodRequest, group: set[int], *, empty: bool) -> bool:
    """By amounts; what floats may sit on each of the NUMA nodes."""
    host_request = pod.host_request
    rooms = [host_usage.numa_nodes[zone] for zone in group]
    sizes = [host_usage.zones[zone] for zone in group]

    def total(free: list[int], floating: int) -> int:
        return sum(max(0, count - floating) for count in free)

    cpu = [z.cpu for z in sizes] if empty else [capacity.cpu for capacity in rooms]
    memory = [z.memory for z in sizes] if empty else [capacity.memory for capacity in rooms]
    drift = (
        (0, 0, 0)
        if empty
        else (host_usage.floating_cpu, host_usage.floating_memory, host_usage.floating_gpus)
    )
    if total(cpu, drift[0]) < host_request.cpu:
        return False
    if "memory" in host_request.aligned and total(memory, drift[1]) < host_request.memory:
        return False
    pages = dict(host_request.hugepages).get(PAGES, 0)
    if pages and PAGES in host_request.aligned and PAGES in host_usage.located_hugepages:
        rows = (
            [dict(z.hugepages)[PAGES] for z in sizes]
            if empty
            else [
                capacity.hugepages[PAGES] - host_usage.floating_hugepages.get(PAGES, 0)
                for capacity in rooms
            ]
        )
        if total(rows, 0) < pages:
            return False
    return enough_gpus(host_usage, pod, group, drift[2], empty=empty)


def enough_gpus(
    host_usage: HostUsage, pod: PodRequest, group: set[int], floating: int, *, empty: bool
) -> bool:
    host_request = pod.host_request
    if not host_request.gpus:
        return True
    if "gpu" in host_request.aligned:
        counts: Counter[int | None] = Counter(
            host_usage.gpu_zone[index]
            for index in (host_usage.gpus if empty else host_usage.free_gpus)
        )
        return sum(max(0, counts[zone] - floating) for zone in group) >= host_request.gpus
    if empty or not host_usage.gpus:
        return True
    anywhere = [
        index
        for index in host_usage.free_gpus
        if (zone := host_usage.gpu_zone[index]) is None or is_open(host_usage, pod, zone)
    ]
    return len(anywhere) - floating >= host_request.gpus
