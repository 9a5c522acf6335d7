"""
Small gangs on small clusters, drawn from a seed: plain numbers that product and oracle both read.

An `Instance` says nothing about how it is solved. `nodes`, `running_pods` and `gang` turn it into what
the API server would show: hosts with their insides, pods that hold a part of them already (known
by annotation, or pods of other schedulers at unknown places), and the members that wait.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from policies import vocabulary
from policies.hosts.topology import Gpu, Topology
from policies.hosts.topology import Zone as Inside
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from tests.unit.scheduler.builders import a_node, a_pod

GIB: Final = 2**30
CLIQUE: Final = "clique"
RACK: Final = "rack"
STRICT: Final = ("single-numa", "restricted", "isolated")
_POLICIES: Final = ("none", "single-numa", "restricted", "isolated")


@dataclass(frozen=True)
class Zone:
    """One NUMA node: whole CPUs, GiB, GPUs."""

    cpu: int
    memory: int
    gpus: int = 0


@dataclass(frozen=True)
class Host:
    name: str
    zones: tuple[Zone, ...]
    clique: str = ""
    rack: str = ""
    islands: int = 0
    """How many neighbouring GPUs share an NVLink domain; 0: not reported."""

    def domain(self, level: str) -> str:
        return self.clique if level == CLIQUE else self.rack

    def gpus_of(self, zone: int) -> range:
        first = sum(one.gpus for one in self.zones[:zone])
        return range(first, first + self.zones[zone].gpus)

    @property
    def gpus(self) -> int:
        return sum(zone.gpus for zone in self.zones)


@dataclass(frozen=True)
class RunningPod:
    """A pod that is there: on the NUMA nodes of `shares`, else wherever its host has put it."""

    host: str
    cpu: int
    memory: int
    gpus: int = 0
    shares: tuple[tuple[int, int, int], ...] = ()
    """(NUMA node, CPUs, GiB)"""
    indices: tuple[int, ...] = ()
    isolated: bool = False

    @property
    def zones(self) -> frozenset[int]:
        return frozenset(zone for zone, _, _ in self.shares)

    def of(self, host: Host, zone: int) -> Zone:
        """What it may hold of one NUMA node: its share, or everything where the place is unknown."""
        known = len(set(self.indices) & set(host.gpus_of(zone)))
        if not self.shares:
            return Zone(self.cpu, self.memory, known if self.indices else self.gpus)
        cpu = sum(share for place, share, _ in self.shares if place == zone)
        memory = sum(share for place, _, share in self.shares if place == zone)
        return Zone(cpu, memory, known)


@dataclass(frozen=True)
class Member:
    name: str
    cpu: int
    memory: int
    gpus: int = 0
    policy: str = "none"
    avoid: tuple[int, ...] = ()

    @property
    def strict(self) -> bool:
        return self.policy in STRICT


@dataclass(frozen=True)
class Instance:
    hosts: tuple[Host, ...]
    running_pods: tuple[RunningPod, ...]
    members: tuple[Member, ...]
    need: int
    """How many members must be placed in one plan."""
    level: str = ""
    """The topology level that all of them must share; empty: none."""
    spread: str = "packed"


# --- drawing ---


def draw(seed: int, *, levels: bool = True, spreads: bool = True) -> Instance:
    """
    The same instance for the same seed; neither trivially empty nor far beyond capacity.

    In every other one the members are cut out of what is free, so that a tight placement exists.
    """
    rng = random.Random(seed)
    while True:
        hosts = tuple(_host(rng, index) for index in range(rng.randint(2, 5)))
        running_pods = tuple(pod for host in hosts for pod in _running(rng, host))
        level = rng.choice(("", "", CLIQUE, RACK))
        spread = rng.choice(("packed", "packed", "packed", "isolated"))
        level, spread = level if levels else "", spread if spreads else "packed"
        made = Instance(hosts, running_pods, (), 0, level, spread)
        members = _cut_out(rng, made) if seed % 2 else _members(rng, hosts)
        need = len(members) if rng.random() < 0.8 else rng.randint(1, max(1, len(members)))
        made = replace(made, members=members, need=need)
        if len(members) >= 2 and 0.35 <= load(made) <= 1.0:
            return made


def load(instance: Instance) -> float:
    """The largest part of any free resource of the cluster that the needed members request."""
    shares: list[float] = []
    for name in ("cpu", "memory", "gpus"):
        capacity = sum(getattr(zone, name) for host in instance.hosts for zone in host.zones)
        taken = sum(getattr(pod, name) for pod in instance.running_pods)
        requested = sum(sorted(getattr(one, name) for one in instance.members)[: instance.need])
        shares.append(requested / max(capacity - taken, 0.5))
    return max(shares)


def _host(rng: random.Random, index: int) -> Host:
    count = rng.randint(1, 4)
    cpu, memory = rng.choice((4, 8, 16)), rng.choice((8, 16, 32))
    gpus = _shared_out(rng, rng.choice((0, 0, 2, 4, 8)), count)
    zones = [Zone(cpu, memory, gpus[zone]) for zone in range(count)]
    if count > 1 and rng.random() < 0.25:  # NUMA nodes that are not alike, one perhaps without CPUs
        odd = rng.randrange(count)
        zones[odd] = replace(zones[odd], cpu=rng.choice((0, 2, cpu * 2)), memory=memory * 2)
    return Host(
        f"h{index}",
        tuple(zones),
        clique=rng.choice(("c0", "c0", "c1", "")),
        rack=rng.choice(("r0", "r1")),
        islands=rng.choice((0, 2, 4)),
    )


def _shared_out(rng: random.Random, gpus: int, zones: int) -> list[int]:
    if rng.random() < 0.7:
        return [gpus // zones + (zone < gpus % zones) for zone in range(zones)]
    held = [0] * zones
    for _ in range(gpus):
        held[rng.randrange(zones)] += 1
    return held


def _running(rng: random.Random, host: Host) -> Sequence[RunningPod]:
    found: list[RunningPod] = []
    if rng.random() < 0.15 and all(zone.cpu > 1 for zone in host.zones):
        found.append(RunningPod(host.name, 1, 1))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        zone = rng.randrange(len(host.zones))
        capacity, empty = free_capacity_of(host, found, zone)
        if capacity.cpu < 1 or capacity.memory < 1:
            continue
        gpus = rng.randint(0, capacity.gpus)
        cpu, memory = rng.randint(1, capacity.cpu), rng.randint(1, max(1, capacity.memory // 2))
        taken = {index for pod in found for index in pod.indices}
        free = [index for index in host.gpus_of(zone) if index not in taken]
        pod = RunningPod(
            host.name,
            cpu,
            memory,
            gpus,
            ((zone, cpu, memory),),
            tuple(free[:gpus]),
            isolated=empty and rng.random() < 0.15,
        )
        found.append(pod)
    return found


def free_capacity_of(
    host: Host, running_pods: Sequence[RunningPod], zone: int
) -> tuple[Zone, bool]:
    """What is certainly free of a NUMA node, and whether no known pod is there."""
    here = [pod for pod in running_pods if pod.host == host.name]
    if any(pod.isolated and zone in pod.zones for pod in here):
        return Zone(0, 0), False
    held = [pod.of(host, zone) for pod in here]
    whole = host.zones[zone]
    left = Zone(
        max(0, whole.cpu - sum(part.cpu for part in held)),
        max(0, whole.memory - sum(part.memory for part in held)),
        max(0, whole.gpus - sum(part.gpus for part in held)),
    )
    return left, not any(zone in pod.zones for pod in here)


def _members(rng: random.Random, hosts: Sequence[Host]) -> tuple[Member, ...]:
    most = max(zone.cpu for host in hosts for zone in host.zones)
    memory = max(zone.memory for host in hosts for zone in host.zones)
    gpus = max(host.gpus for host in hosts)
    total, classes = rng.randint(2, 6), rng.randint(1, 3)
    kinds = []
    for _ in range(classes):
        part = rng.choice((0.25, 0.5, 0.75, 1.0, 1.5))  # of a NUMA node, or more than one holds
        policy = rng.choice(_POLICIES)
        kinds.append(
            Member(
                "",
                cpu=rng.randint(1, max(1, int(most * part))),
                memory=rng.randint(1, max(1, int(memory * part))),
                gpus=rng.choice((0, 1, 1, 2, 4)) if gpus and rng.random() < 0.6 else 0,
                policy=policy,
                avoid=(rng.randrange(3),) if rng.random() < 0.15 else (),
            )
        )
    return tuple(
        replace(kinds[index % classes], name=f"m{index}-{index % classes}")
        for index in range(total)
    )


def _cut_out(rng: random.Random, instance: Instance) -> tuple[Member, ...]:
    """Members that fit together, each inside one free NUMA node of one domain."""
    domain = rng.choice(sorted({host.domain(instance.level) for host in instance.hosts}))
    rooms = [
        capacity
        for host in instance.hosts
        if not instance.level or host.domain(instance.level) == domain
        for capacity in (
            free_capacity_of(host, instance.running_pods, zone) for zone in range(len(host.zones))
        )
    ]
    members: list[Member] = []
    for kind in range(rng.randint(1, 3)):
        policy = rng.choice(_POLICIES)
        rng.shuffle(rooms)
        size = next((capacity for capacity in rooms if capacity[0].cpu), None)
        if size is None:
            break
        member = Member(
            "",
            cpu=rng.randint((size[0].cpu + 1) // 2, size[0].cpu),
            memory=rng.randint(1, max(1, size[0].memory)),
            gpus=rng.randint(0, size[0].gpus),
            policy=policy,
        )
        for _ in range(rng.randint(1, 3)):
            at = next((i for i, capacity in enumerate(rooms) if _takes(capacity, member)), None)
            if at is None or len(members) == 6:
                break
            alone = policy == "isolated" or instance.spread == "isolated"
            rooms[at] = _without(rooms[at], member, alone=alone)
            members.append(replace(member, name=f"m{len(members)}-{kind}"))
    return tuple(members)


_FreeCapacity = tuple[Zone, bool]  # free amounts, and whether no pod is there yet


def _takes(capacity: _FreeCapacity, member: Member) -> bool:
    zone, empty = capacity
    holds = zone.cpu >= member.cpu and zone.memory >= member.memory and zone.gpus >= member.gpus
    return holds and (empty or member.policy != "isolated")


def _without(capacity: _FreeCapacity, member: Member, *, alone: bool) -> _FreeCapacity:
    if alone:
        return Zone(0, 0), False
    zone = capacity[0]
    return Zone(zone.cpu - member.cpu, zone.memory - member.memory, zone.gpus - member.gpus), False


# --- as the API server shows them ---


def nodes(instance: Instance) -> list[Node]:
    return [node(host) for host in instance.hosts]


def node(host: Host) -> Node:
    labels = {}
    if host.clique:
        labels[vocabulary.GPU_CLIQUE_LABEL] = host.clique
    if host.rack:
        labels[vocabulary.RACK_LABEL] = host.rack
    plain = a_node(
        host.name,
        cpu=str(sum(zone.cpu for zone in host.zones)),
        memory=f"{sum(zone.memory for zone in host.zones)}Gi",
        gpus=host.gpus,
        labels=labels,
    )
    zones = tuple(
        Inside(index, zone.cpu * 1000, zone.memory * GIB) for index, zone in enumerate(host.zones)
    )
    gpus = tuple(
        Gpu(index, zone, island=f"i{index // host.islands}" if host.islands else "")
        for zone in range(len(host.zones))
        for index in host.gpus_of(zone)
    )
    return replace(plain, topology=Topology(zones, gpus))


def running_pods(instance: Instance) -> list[tuple[Pod, str]]:
    return [(_running_pod(index, pod), pod.host) for index, pod in enumerate(instance.running_pods)]


def _running_pod(index: int, pod: RunningPod) -> Pod:
    body: dict[str, Any] = {
        "numa": [zone for zone, _, _ in pod.shares],
        "gpus": list(pod.indices),
        "cpu": [cpu * 1000 for _, cpu, _ in pod.shares],
        "memory": [memory * GIB for _, _, memory in pod.shares],
    }
    if pod.isolated:
        body["isolated"] = True
    known = {vocabulary.NUMA_ASSIGNED_ANNOTATION: json.dumps(body)} if pod.shares else {}
    return a_pod(
        f"standing-{index}",
        cpu=str(pod.cpu),
        memory=f"{pod.memory}Gi",
        gpus=pod.gpus,
        numa="isolated" if pod.isolated else None,
        annotations=known,
        node=pod.host,
    )


def gang(instance: Instance) -> list[Pod]:
    return [
        a_pod(
            member.name,
            cpu=str(member.cpu),
            memory=f"{member.memory}Gi",
            gpus=member.gpus,
            numa=member.policy,
            gang=("g", instance.need),
            annotations=notes(instance, member),
        )
        for member in instance.members
    ]


def notes(instance: Instance, member: Member) -> dict[str, str]:
    """The annotations of a member besides its NUMA policy."""
    found = {}
    if instance.level == CLIQUE:
        found[vocabulary.REQUIRE_CLIQUE_ANNOTATION] = "true"
    elif instance.level == RACK:
        found[vocabulary.CO_LOCATE_ANNOTATION] = "strict:rack"
    if instance.spread != "packed":
        found[vocabulary.GANG_NUMA_SPREAD_ANNOTATION] = instance.spread
    if member.avoid:
        found[vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION] = ",".join(map(str, member.avoid))
    return found
