"""Whatever happens to units in whatever order: none is lost, none is tried twice at once."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies import vocabulary
from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.queueing.unschedulable import QueueingHint
from tests.unit.scheduler.builders import a_pod

GANGS = (None, ("g", 2), ("h", 3))
SIZES = {GangKey("ns", "g"): 2, GangKey("ns", "h"): 3}


class Waiting(RuleBasedStateMachine):
    """Beside the queue stands a model that knows of each pod only whether it waits, flies or has
    its node."""

    @initialize()
    def begin(self) -> None:
        self.now = 100.0
        self.waiting: dict[str, Pod] = {}
        self.flying: dict[str, Pod] = {}
        self.bound: Counter[GangKey] = Counter()
        self.suspended: set[GangKey] = set()
        self.refused: set[str] = set()
        self.numbers = 0
        self.queue = SchedulingQueue(
            bound=lambda gang: self.bound[gang] + self.aloft(gang),
            half_bound=lambda gang: 0 < self.bound[gang] < SIZES[gang],
        )

    def aloft(self, gang: GangKey) -> int:
        return sum(1 for pod in self.flying.values() if pod.gang and pod.gang.key == gang)

    # --- what happens to pods ---

    @rule(
        gang=st.sampled_from(GANGS),
        cpu=st.sampled_from(["1", "2"]),
        priority=st.integers(0, 1),
        gated=st.booleans(),
    )
    def arrive(self, gang: tuple[str, int] | None, cpu: str, priority: int, gated: bool) -> None:
        self.numbers += 1
        gates = [{"name": vocabulary.GANG_GATE}] if gated and gang else []
        pod = a_pod(
            f"p{self.numbers:03}", gang=gang, cpu=cpu, priority=priority, schedulingGates=gates
        )
        self.waiting[pod.uid] = pod
        self.queue.put(pod, self.now)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), cpu=st.sampled_from(["1", "2", "3"]))
    def change(self, data: st.DataObject, cpu: str) -> None:
        """Changed, and without a gate if it had one."""
        old = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        gang = (old.gang.key.name, SIZES[old.gang.key]) if old.gang else None
        pod = a_pod(old.key.name, gang=gang, cpu=cpu, priority=old.priority)
        self.waiting[pod.uid] = pod
        self.queue.put(pod, self.now)

    @precondition(lambda self: self.waiting or self.flying)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted({**self.waiting, **self.flying})))
        pod = self.waiting.pop(uid, None) or self.flying.pop(uid)
        self.refused.discard(uid)
        self.queue.remove(uid, self.now)
        if pod.gang:
            self.queue.reconsider(pod.gang.key, self.now)

    @rule(gang=st.sampled_from(sorted(SIZES)))
    def lose_a_bound_member(self, gang: GangKey) -> None:
        self.bound[gang] = max(0, self.bound[gang] - 1)
        self.queue.reconsider(gang, self.now)

    # --- what the scheduler does ---

    @rule(data=st.data())
    def plan(self, data: st.DataObject) -> None:
        unit = self.queue.pop(self.now)
        if unit is None:
            return
        self.check_popped(unit)
        if not data.draw(st.booleans()):
            self.queue.park(unit.key, self.now)
            return
        placed = unit.pods[: data.draw(st.integers(unit.need, len(unit.pods)))]
        for pod in placed:
            self.flying[pod.uid] = self.waiting.pop(pod.uid)
        self.queue.take(unit.key, [pod.uid for pod in placed], self.now)
        if len(placed) < len(unit.pods):
            self.queue.park(unit.key, self.now)

    def check_popped(self, unit: Unit) -> None:
        assert unit.plannable
        assert unit.key not in self.suspended
        assert self.queue.state(unit.key) is QueueState.PLANNING
        for pod in unit.pods:
            assert self.waiting[pod.uid] == pod
            assert not pod.gates

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), result=st.sampled_from(["bound", "failed", "refused"]))
    def answer(self, data: st.DataObject, result: str) -> None:
        pod = self.flying.pop(data.draw(st.sampled_from(sorted(self.flying))))
        if result == "bound":
            if pod.gang:
                self.bound[pod.gang.key] += 1
            self.queue.finish(pod.uid, self.now)
            return
        self.waiting[pod.uid] = pod
        put_back = self.queue.put_back if result == "failed" else self.queue.put_back_refused
        put_back([pod], self.now)

    @rule(help=st.sampled_from(QueueingHint))
    def wake(self, help: QueueingHint) -> None:
        self.queue.wake(self.now, lambda _: help)

    @rule(seconds=st.sampled_from([0.1, 1.0, 15.0, 400.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        self.queue.tick(self.now)

    @rule(gang=st.sampled_from(sorted(SIZES)))
    def suspend(self, gang: GangKey) -> None:
        if self.queue.state(gang) is not None:
            self.suspended.add(gang)
            self.queue.suspend(gang, self.now)

    @rule(gang=st.sampled_from(sorted(SIZES)))
    def resume(self, gang: GangKey) -> None:
        self.suspended.discard(gang)
        self.queue.resume(gang, self.now)

    # --- what holds ---

    @invariant()
    def everybody_is_in_exactly_one_place(self) -> None:
        assert len(self.queue) == len(self.waiting) + len(self.flying)
        counts = self.queue.counts()
        assert sum(counts.values()) == len(self.queue)
        assert counts[QueueState.PLANNING] == 0
        for uid, pod in {**self.waiting, **self.flying}.items():
            assert self.queue.key(uid) == key_of(pod)
        self.suspended = {gang for gang in self.suspended if self.queue.state(gang) is not None}

    def teardown(self) -> None:
        """In the end whoever can be tried is tried, if time passes and something helps."""
        if not hasattr(self, "queue"):
            return
        for gang in list(self.suspended):
            self.resume(gang)
        tried: set[str] = set()
        for _ in range(3 * len(self.waiting) + 3):
            self.now += 4000.0
            self.queue.tick(self.now)
            self.queue.wake(self.now, lambda _: QueueingHint.FITS)
            while (unit := self.queue.pop(self.now)) is not None:
                self.check_popped(unit)
                tried |= {pod.uid for pod in unit.pods}
                self.flying |= {pod.uid: self.waiting.pop(pod.uid) for pod in unit.pods}
                self.queue.take(unit.key, [pod.uid for pod in unit.pods], self.now)
        assert all(self.hopeless(pod) for pod in self.waiting.values()), self.waiting

    def hopeless(self, pod: Pod) -> bool:
        """Gated, or in a gang of which too few are there and without a gate."""
        if pod.gates:
            return True
        if pod.gang is None:
            return False
        key = pod.gang.key
        free = [p for p in self.waiting.values() if p.gang and p.gang.key == key and not p.gates]
        return len(free) + self.bound[key] + self.aloft(key) < SIZES[key]


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
