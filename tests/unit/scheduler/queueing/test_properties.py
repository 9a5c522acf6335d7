"""For any sequence of events: no unit is lost, and none is planned twice at once."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies import vocabulary
from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of
from scheduler.plugins.protocol import QueueingHint
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import SchedulingQueue
from tests.unit.scheduler.builders import a_pod
from tests.unit.scheduler.queueing.hinted import Classes

GANGS = (None, ("g", 2), ("h", 3))
SIZES = {GangKey("ns", "g"): 2, GangKey("ns", "h"): 3}


class Waiting(RuleBasedStateMachine):
    """Compares the queue with a model that knows of each pod only whether it waits, is being bound,
    or has its node."""

    @initialize()
    def begin(self) -> None:
        self.now = 100.0
        self.waiting: dict[str, Pod] = {}
        self.binding: dict[str, Pod] = {}
        self.bound: Counter[GangKey] = Counter()
        self.suspended: set[GangKey] = set()
        self.refused: set[str] = set()
        self.numbers = 0
        self.classes = Classes()
        self.queue = SchedulingQueue(
            observer=self.classes,
            bound=lambda gang: self.bound[gang] + self.in_flight(gang),
            is_partial=lambda gang: 0 < self.bound[gang] < SIZES[gang],
        )

    def in_flight(self, gang: GangKey) -> int:
        return sum(1 for pod in self.binding.values() if pod.gang and pod.gang.key == gang)

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

    @precondition(lambda self: self.waiting or self.binding)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted({**self.waiting, **self.binding})))
        pod = self.waiting.pop(uid, None) or self.binding.pop(uid)
        self.refused.discard(uid)
        self.queue.remove(uid, self.now)
        if pod.gang:
            self.queue.members_changed(pod.gang.key, self.now)

    @rule(gang=st.sampled_from(sorted(SIZES)))
    def lose_a_bound_member(self, gang: GangKey) -> None:
        self.bound[gang] = max(0, self.bound[gang] - 1)
        self.queue.members_changed(gang, self.now)

    # --- what the scheduler does ---

    @rule(data=st.data())
    def plan(self, data: st.DataObject) -> None:
        unit = self.queue.pop(self.now)
        if unit is None:
            return
        self.check_popped(unit)
        outcome = data.draw(st.sampled_from(["placed", "unschedulable", "error"]))
        if outcome == "error":
            self.queue.quarantine(unit.key, self.now, "Bug")
            return
        if outcome == "unschedulable":
            self.queue.mark_unschedulable(unit.key, self.now)
            return
        placed = unit.pods[: data.draw(st.integers(unit.need, len(unit.pods)))]
        for pod in placed:
            self.binding[pod.uid] = self.waiting.pop(pod.uid)
        self.queue.start_binding(unit.key, [pod.uid for pod in placed], self.now)
        if len(placed) < len(unit.pods):
            self.queue.mark_unschedulable(unit.key, self.now)

    def check_popped(self, unit: Unit) -> None:
        assert unit.plannable
        assert unit.key not in self.suspended
        assert self.queue.state(unit.key) is QueueState.PLANNING
        for pod in unit.pods:
            assert self.waiting[pod.uid] == pod
            assert not pod.gates

    @precondition(lambda self: self.binding)
    @rule(data=st.data(), result=st.sampled_from(["bound", "failed", "refused"]))
    def finish_bind(self, data: st.DataObject, result: str) -> None:
        pod = self.binding.pop(data.draw(st.sampled_from(sorted(self.binding))))
        if result == "bound":
            if pod.gang:
                self.bound[pod.gang.key] += 1
            self.queue.finish_binding(pod.uid, self.now)
            return
        self.waiting[pod.uid] = pod
        requeue = self.queue.requeue if result == "failed" else self.queue.requeue_rejected
        requeue([pod], self.now)

    @rule(hint=st.sampled_from(QueueingHint))
    def move_to_active(self, hint: QueueingHint) -> None:
        self.queue.move_to_active(self.now, self.classes.hints(lambda _: hint))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        """An error about one unit, outside its plan."""
        pod = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        assert self.queue.quarantine(key_of(pod), self.now, "Bug") is not None
        assert self.queue.state(key_of(pod)) is QueueState.QUARANTINED

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
    def every_pod_is_in_exactly_one_state(self) -> None:
        assert len(self.queue) == len(self.waiting) + len(self.binding)
        counts = self.queue.counts()
        assert sum(counts.values()) == len(self.queue)
        assert counts[QueueState.PLANNING] == 0
        for uid, pod in {**self.waiting, **self.binding}.items():
            assert self.queue.key(uid) == key_of(pod)
        self.suspended = {gang for gang in self.suspended if self.queue.state(gang) is not None}

    def teardown(self) -> None:
        """In the end every unit that is plannable is tried, if time passes and an event helps."""
        if not hasattr(self, "queue"):
            return
        for gang in list(self.suspended):
            self.resume(gang)
        tried: set[str] = set()
        for _ in range(3 * len(self.waiting) + 3):
            self.now += 4000.0
            self.queue.tick(self.now)
            hints = self.classes.hints(lambda _: QueueingHint.FITS)
            self.queue.move_to_active(self.now, hints)
            while (unit := self.queue.pop(self.now)) is not None:
                self.check_popped(unit)
                tried |= {pod.uid for pod in unit.pods}
                self.binding |= {pod.uid: self.waiting.pop(pod.uid) for pod in unit.pods}
                self.queue.start_binding(unit.key, [pod.uid for pod in unit.pods], self.now)
        assert all(self.hopeless(pod) for pod in self.waiting.values()), self.waiting

    def hopeless(self, pod: Pod) -> bool:
        """Gated, or in a gang of which too few members exist without a gate."""
        if pod.gates:
            return True
        if pod.gang is None:
            return False
        key = pod.gang.key
        free = [p for p in self.waiting.values() if p.gang and p.gang.key == key and not p.gates]
        return len(free) + self.bound[key] + self.in_flight(key) < SIZES[key]


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
