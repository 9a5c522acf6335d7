"""
Whether a gang can be placed at all: decided by an exact solver.

The rules, once more and independently of the scheduler:

    none          the host has the amounts; the pod may lie over any of its NUMA nodes
    single-numa   CPU, memory and GPUs of exactly one NUMA node
    restricted    of as few NUMA nodes as the empty host would need
    isolated      as restricted, on NUMA nodes without other pods before or after
    strangers     pods whose place is unknown count against every NUMA node of their host
    spread        isolated: no two members on one NUMA node
    level         all members on hosts that name the same domain; a host that names none is out

`exists` searches any placement with CP-SAT. `invariants` checks one plan.
"""

from collections.abc import Mapping

from ortools.sat.python import cp_model

from tests.unit.scheduler.plugins.numa.instances import Host, Instance, Member, free_capacity_of
from tests.unit.scheduler.plugins.numa.invariants import AMOUNTS, width


def exists(instance: Instance) -> bool:
    """Whether at least `need` members can be placed together under the rules."""
    model = cp_model.CpModel()
    on = {
        (member.name, host.name): model.new_bool_var(f"{member.name} on {host.name}")
        for member in instance.members
        for host in instance.hosts
    }
    for member in instance.members:
        model.add(sum(on[member.name, host.name] for host in instance.hosts) <= 1)
    model.add(sum(on.values()) >= instance.need)
    _one_domain(model, instance, on)
    for host in instance.hosts:
        _Inside(model, instance, host, on).constrain()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = 60.0
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE), status
    return bool(status != cp_model.INFEASIBLE)


On = Mapping[tuple[str, str], cp_model.IntVar]


def _one_domain(model: cp_model.CpModel, instance: Instance, on: On) -> None:
    if not instance.level:
        return
    names = sorted({host.domain(instance.level) for host in instance.hosts} - {""})
    chosen = {name: model.new_bool_var(f"within {name}") for name in names}
    model.add(sum(chosen.values()) <= 1)
    for (_, place), here in on.items():
        host = next(one for one in instance.hosts if one.name == place)
        model.add(here <= chosen.get(host.domain(instance.level), 0))


class _Inside:
    """The variables and rules of one host."""

    def __init__(self, model: cp_model.CpModel, instance: Instance, host: Host, on: On) -> None:
        self.model, self.instance, self.host = model, instance, host
        self.here = [pod for pod in instance.running_pods if pod.host == host.name]
        self.on = {member: on[member.name, host.name] for member in instance.members}
        self.adrift = {member: model.new_bool_var("adrift") for member in instance.members}
        self.uses = {
            (member, zone): model.new_bool_var("uses")
            for member in instance.members
            for zone in range(len(host.zones))
        }
        self.shares = {
            (member, zone, name): model.new_int_var(0, getattr(member, name), "share")
            for member in instance.members
            for zone in range(len(host.zones))
            for name in AMOUNTS
        }

    def constrain(self) -> None:
        self._amounts()
        for member in self.instance.members:
            self._member(member)
        self._zones()
        self._isolation()

    def _amounts(self) -> None:
        for name in AMOUNTS:
            capacity = sum(getattr(zone, name) for zone in self.host.zones)
            capacity -= sum(getattr(pod, name) for pod in self.here)
            requested = sum(getattr(member, name) * here for member, here in self.on.items())
            self.model.add(requested <= capacity)

    def _member(self, member: Member) -> None:
        zones = range(len(self.host.zones))
        here, adrift = self.on[member], self.adrift[member]
        self.model.add(adrift <= here)
        if not set(member.avoid).isdisjoint(zones):
            self.model.add(adrift == 0)
        for zone in zones:
            self.model.add(self.uses[member, zone] <= here)
            for name in AMOUNTS:
                share = self.shares[member, zone, name]
                self.model.add(share <= getattr(member, name) * self.uses[member, zone])
        for name in AMOUNTS:
            settled = sum(self.shares[member, zone, name] for zone in zones)
            self.model.add(settled == getattr(member, name) * (here - adrift))
        if not member.strict:
            return
        self.model.add(adrift == 0)
        count = width(self.host, member)
        if count is None or (member.policy == "single-numa" and count > 1):
            self.model.add(here == 0)
        else:
            self.model.add(sum(self.uses[member, zone] for zone in zones) == count * here)

    def _zones(self) -> None:
        for zone in range(len(self.host.zones)):
            capacity, _ = free_capacity_of(self.host, self.here, zone)
            for name in AMOUNTS:
                held = sum(self.shares[member, zone, name] for member in self.instance.members)
                self.model.add(held <= getattr(capacity, name))
            if self.instance.spread == "isolated":
                self.model.add_at_most_one(
                    self.uses[member, zone] for member in self.instance.members
                )

    def _isolation(self) -> None:
        closed = {zone for pod in self.here if pod.isolated for zone in pod.zones}
        shared = {zone for pod in self.here for zone in pod.zones}
        for (member, zone), uses in self.uses.items():
            if zone in member.avoid or zone in closed:
                self.model.add(uses == 0)
            if member.policy == "isolated" and zone in shared:
                self.model.add(uses == 0)
            if member.policy != "isolated":
                continue
            for other in self.instance.members:
                if other is not member:
                    self.model.add(uses + self.uses[other, zone] <= 1)
                    self.model.add(uses + self.adrift[other] <= 1)
        if closed or self.instance.spread == "isolated":
            for adrift in self.adrift.values():
                self.model.add(adrift == 0)
