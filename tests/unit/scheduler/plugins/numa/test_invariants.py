"""
Random histories with restarts: nothing inside a host is assigned twice, and a restart rebuilds all.

    arrive ──▶ plan, checked by hand ──▶ assumed ──▶ finished or deleted
                                            │
    strangers are bound beside them         └── restart: read anew from what the API server keeps

The state that is checked is made from the pods' annotations alone (`invariants`); after each
step the state that a new process would build from the same objects is compared with the present.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from policies import vocabulary
from scheduler.cache.cache import Cache
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import units
from scheduler.plan import planner
from tests.unit.scheduler.builders import pod_json
from tests.unit.scheduler.plugins.numa import instances
from tests.unit.scheduler.plugins.numa.instances import (
    CLIQUE,
    GIB,
    RACK,
    STRICT,
    Host,
    Instance,
    Member,
    RunningPod,
    Zone,
)
from tests.unit.scheduler.plugins.numa.invariants import faults

Json = dict[str, Any]

ASSIGNED = vocabulary.NUMA_ASSIGNED_ANNOTATION


@st.composite
def clusters(draw: st.DrawFn) -> list[Host]:
    hosts = []
    for index in range(draw(st.integers(2, 4))):
        gpus = draw(st.sampled_from([0, 1, 2]))
        zone = Zone(draw(st.sampled_from([2, 4])), draw(st.sampled_from([4, 8])), gpus)
        hosts.append(
            Host(
                f"h{index}",
                (zone,) * draw(st.integers(1, 3)),
                clique=draw(st.sampled_from(["c0", "c1", ""])),
                rack=draw(st.sampled_from(["r0", "r1"])),
                islands=draw(st.sampled_from([0, 2])),
            )
        )
    return hosts


KINDS = st.builds(
    Member,
    st.just(""),
    cpu=st.integers(1, 5),
    memory=st.integers(1, 5),
    gpus=st.sampled_from([0, 0, 1, 2, 3]),
    policy=st.sampled_from(["none", "best-effort", *STRICT]),
    avoid=st.sampled_from([(), (), (0,), (1, 7)]),
)

GANGS = st.builds(
    lambda level, spread: Instance((), (), (), 0, level, spread),
    st.sampled_from(["", "", CLIQUE, RACK]),
    st.sampled_from(["packed", "balanced", "isolated"]),
)


@dataclass(frozen=True)
class Live:
    """A pod with a node: what it requests, and its object as the API server keeps it."""

    member: Member
    gang: str
    obj: Json

    @property
    def host(self) -> str:
        return str(self.obj["spec"]["nodeName"])

    @property
    def text(self) -> str:
        return str(self.obj["metadata"]["annotations"].get(ASSIGNED, ""))

    def running_pods(self) -> RunningPod:
        body = json.loads(self.text or "{}")
        table = (body.get("numa", []), body.get("cpu", []), body.get("memory", []))
        return RunningPod(
            self.host,
            self.member.cpu,
            self.member.memory,
            self.member.gpus,
            tuple((zone, cpu // 1000, size // GIB) for zone, cpu, size in zip(*table, strict=True)),
            tuple(body.get("gpus", [])),
            isolated=body.get("isolated", False),
        )


class Hosts(RuleBasedStateMachine):
    """One scheduler's state of a few hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[Host] = []
        self.live: dict[str, Live] = {}
        self.gangs: dict[str, Instance] = {}
        self.cache, self.memo = Cache(), planner.Memo()
        self.number = 0

    @initialize(hosts=clusters())
    def stand(self, hosts: list[Host]) -> None:
        self.hosts = hosts
        for host in hosts:
            self.cache.put_node(instances.node(host))

    # --- what happens ---

    @rule(
        kinds=st.lists(KINDS, min_size=1, max_size=2),
        count=st.integers(1, 4),
        constraints=GANGS,
        all_needed=st.booleans(),
    )
    def a_gang_comes(
        self, kinds: list[Member], count: int, constraints: Instance, all_needed: bool
    ) -> None:
        self.number += 1
        name = f"g{self.number}"
        members = [
            replace(kinds[index % len(kinds)], name=f"{name}-{index}") for index in range(count)
        ]
        need = count if all_needed else 1
        self.gangs[name] = replace(constraints, need=need)
        self._place(name, members)

    @rule(kind=KINDS)
    def a_pod_comes(self, kind: Member) -> None:
        self.number += 1
        self._place("", [replace(kind, name=f"p{self.number}")])

    @precondition(lambda self: any(one.gang for one in self.live.values()))
    @rule(data=st.data())
    def a_member_is_replaced(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, one in self.live.items() if one.gang)))
        lost = self._gone(name)
        self.number += 1
        self._place(lost.gang, [replace(lost.member, name=f"{lost.gang}-r{self.number}")])

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data(), finished=st.booleans())
    def a_pod_ends(self, data: st.DataObject, finished: bool) -> None:
        self._gone(data.draw(st.sampled_from(sorted(self.live))), finished=finished)

    @rule(data=st.data(), cpu=st.integers(1, 2), gpus=st.integers(0, 1))
    def a_pod_of_another_scheduler_is_bound(self, data: st.DataObject, cpu: int, gpus: int) -> None:
        """By another scheduler, which keeps to the host's amounts and knows no NUMA nodes."""
        host = data.draw(st.sampled_from(self.hosts))
        here = [one.member for one in self.live.values() if one.host == host.name]
        capacity = {
            name: sum(getattr(zone, name) for zone in host.zones)
            - sum(getattr(member, name) for member in here)
            for name in ("cpu", "memory", "gpus")
        }
        if capacity["cpu"] < cpu or capacity["memory"] < 1 or capacity["gpus"] < gpus:
            return
        self.number += 1
        member = Member(f"s{self.number}", cpu, 1, gpus)
        obj = self._object(member, "")
        obj["spec"] |= {"schedulerName": "another", "nodeName": host.name}
        self.cache.put_pod(Pod.read(obj))
        self.live[member.name] = Live(member, "", obj)

    @rule(data=st.data())
    def a_node_leaves_the_list_and_returns(self, data: st.DataObject) -> None:
        host = data.draw(st.sampled_from(self.hosts))
        self.cache.drop_node(host.name)
        self.cache.put_node(instances.node(host))

    @rule(pods_first=st.booleans())
    def the_scheduler_restarts(self, pods_first: bool) -> None:
        self.cache, self.memo = self._reborn(pods_first=pods_first), planner.Memo()

    # --- what always holds ---

    @invariant()
    def a_new_process_would_build_the_same_state(self) -> None:
        reborn = self._reborn()
        assert reborn.snapshot.state() == self.cache.snapshot.state()
        for name in self.gangs:
            key = GangKey("ns", name)
            assert reborn.bound(key) == self.cache.bound(key)

    @invariant()
    def gangs_are_as_they_requested(self) -> None:
        for name, gang in self.gangs.items():
            mine = [one for one in self.live.values() if one.gang == name]
            rows = [(one.member.name, one.host, one.text) for one in mine]
            members = tuple(one.member for one in mine)
            whole = replace(gang, hosts=tuple(self.hosts), members=members, need=0)
            assert faults(whole, rows) == []

    # --- how ---

    def _place(self, gang: str, members: Sequence[Member]) -> None:
        objects = {member.name: self._object(member, gang) for member in members}
        pods = [Pod.read(obj) for obj in objects.values()]
        (unit,) = units(pods, bound=self.cache.bound)
        bound_members = self.cache.bound_members(GangKey("ns", gang)) if gang else ()
        plan = planner.plan(unit, self.cache.snapshot, memo=self.memo, bound_members=bound_members)
        fresh = planner.plan(unit, self.cache.snapshot, bound_members=bound_members)
        if not isinstance(plan, Placed):
            # A memoised result may report older reasons, never another answer.
            assert not isinstance(fresh, Placed)
            return
        assert fresh == plan
        constraints = self.gangs[gang] if gang else Instance((), (), (), 0)
        instance = replace(
            constraints,
            hosts=tuple(self.hosts),
            running_pods=tuple(one.running_pods() for one in self.live.values()),
            members=tuple(members),
            need=unit.need,
        )
        rows = [
            (one.pod.key.name, one.node, one.assignment.render() if one.assignment else "")
            for one in plan.placements
        ]
        assert faults(instance, rows) == []
        by_name = {member.name: member for member in members}
        for one, (name, host, text) in zip(plan.placements, rows, strict=True):
            self.cache.assume(one)
            obj = objects[name]
            obj["spec"]["nodeName"] = host
            if text:
                obj["metadata"]["annotations"][ASSIGNED] = text
            self.live[name] = Live(by_name[name], gang, obj)

    def _object(self, member: Member, gang: str) -> Json:
        constraints = self.gangs[gang] if gang else Instance((), (), (), 0)
        return pod_json(
            member.name,
            cpu=str(member.cpu),
            memory=f"{member.memory}Gi",
            gpus=member.gpus,
            numa=member.policy,
            gang=(gang, constraints.need) if gang else None,
            annotations=instances.notes(constraints, member),
        )

    def _gone(self, name: str, *, finished: bool = False) -> Live:
        one = self.live.pop(name)
        if finished:
            self.cache.put_pod(Pod.read({**one.obj, "status": {"phase": "Succeeded"}}))
        self.cache.drop_pod(f"uid-{name}")
        return one

    def _reborn(self, *, pods_first: bool = False) -> Cache:
        cache, pods = Cache(), [Pod.read(one.obj) for one in self.live.values()]
        for pod in pods if pods_first else ():
            cache.put_pod(pod)
        for host in self.hosts:
            cache.put_node(instances.node(host))
        for pod in () if pods_first else pods:
            cache.put_pod(pod)
        return cache


TestHosts = Hosts.TestCase
TestHosts.settings = settings(
    settings.get_profile("default"), max_examples=60, stateful_step_count=25, deadline=None
)
