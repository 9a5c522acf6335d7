"""
Who is placed where, as far as this scheduler knows; it feeds the snapshot.

                assume                    confirm (watch)
    unplaced ───────────▶ ASSUMED ───────────────────────▶ BOUND
        ▲                    │                                │
        └────── forget ──────┘           finished or deleted  ▼
                                                             gone

A pod counts on its node from `assume` on, so that planning goes on while its bind is in flight. An
assumption never expires: the binder ends it with `forget`, the watch with `put_pod` or `drop_pod`.
Counted like kube-scheduler does: pods of every scheduler, and terminating ones until they are gone;
Succeeded and Failed ones hold nothing. A pod on a node that is not known yet is remembered and
counted when the node appears; a node that goes leaves its pods remembered in the same way.

The `usage` observer hears of each pod that counts on a node and of each that no longer does; quotas
are counted there.

Nodes go into the snapshot as all sources together tell them: `hosts` knows more of some than their
objects do, and a node is put anew when that changes.

Not here: pods that wait for a node (`queueing`), and what is free (`snapshot`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from scheduler.cache.reserved_capacity import ReservedCapacity
from scheduler.cache.snapshot import Snapshot
from scheduler.errors import InvariantError
from scheduler.hostinfo.inventory import HostInventory, VramOf
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment
from scheduler.model.gang import GangKey
from scheduler.model.node import Node
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod


@dataclass(frozen=True, slots=True)
class CachedPod:
    """A pod with its node; `assumed` until the watch has shown it there."""

    pod: Pod
    node: str
    assignment: Assignment
    assumed: bool


class UsageObserver(Protocol):
    """Counts what pods on nodes use."""

    @property
    def depends_on_nodes(self) -> bool:
        """Whether what a pod counts for changes with its node."""
        ...

    def charge(self, pod: Pod, node: str) -> None: ...

    def uncharge(self, uid: str) -> None: ...


class _NoUsage:
    depends_on_nodes = False

    def charge(self, pod: Pod, node: str) -> None:
        """Not counted."""

    def uncharge(self, uid: str) -> None:
        """Not counted."""


class Cache:
    """One writer, the event loop. Calls that free capacity return the nodes on which they free it.

    `nodes_changed` hears of nodes that changed without their objects."""

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        usage: UsageObserver | None = None,
        scheduler_name: str = "",
        nodes_changed: Callable[[Iterable[str]], None] = lambda nodes: None,
    ) -> None:
        self.snapshot = Snapshot() if snapshot is None else snapshot
        self._usage: UsageObserver = usage or _NoUsage()
        self._scheduler_name = scheduler_name
        self._nodes_changed = nodes_changed
        self.hosts = HostInventory(self.snapshot.devices.store, changed=self._rehost)
        self._objects: dict[str, Node] = {}  # node name -> the node as its object tells it
        self._held: dict[str, CachedPod] = {}  # pod uid -> where it is
        self._on: dict[str, set[str]] = {}  # node name -> uids of its pods, known node or not
        self._members: dict[GangKey, set[str]] = {}  # gang -> uids of members that count
        self.reserved = ReservedCapacity(self.snapshot)
        self.preemptible = 0  # pods on nodes that are marked preemptible
        self.with_duration = 0  # pods on nodes that state how long they run
        self._priorities: dict[str, Counter[int]] = {}  # tenant -> priorities of its placed pods

    def __len__(self) -> int:
        return len(self._held)

    def held(self, uid: str) -> CachedPod | None:
        return self._held.get(uid)

    def assumed(self) -> int:
        return sum(held.assumed for held in self._held.values())

    def bound(self, gang: GangKey) -> int:
        """Members with a node, neither finished nor terminating."""
        return len(self._members.get(gang, ()))

    def occupants(self) -> list[Placement]:
        """Every pod that has its node for certain, with its place there, by uid."""
        found = (self._held[uid] for uid in sorted(self._held))
        return [Placement(one.pod, one.node, one.assignment) for one in found if not one.assumed]

    def on(self, nodes: Iterable[str] | None = None) -> list[Placement]:
        """Every pod that counts on these nodes, or on all, by node and uid."""
        return [
            Placement(one.pod, one.node, one.assignment)
            for node in sorted(self._on if nodes is None else nodes)
            for one in self._pods_on(node)
        ]

    def lowest(self, tenant: str) -> int | None:
        """The lowest priority among the tenant's pods that have a node."""
        return min(self._priorities.get(tenant, ()), default=None)

    def bound_members(self, gang: GangKey) -> tuple[tuple[Pod, str], ...]:
        """The same members, each with its node's name, by uid."""
        found = (self._held[uid] for uid in sorted(self._members.get(gang, ())))
        return tuple((held.pod, held.node) for held in found)

    # --- nodes ---

    def put_node(self, node: Node) -> bool:
        """Add or change; True when something changed."""
        self._objects[node.name] = node
        node = self.hosts.complete(node)
        new = node.name not in self.snapshot
        mine = list(self._pods_on(node.name))
        changed = self.snapshot.put_node(node, () if new else self._claims(node.name, mine))
        if new:
            for held in mine:
                self.snapshot.charge(held.pod, held.node, held.assignment)
        if changed and self._usage.depends_on_nodes:
            self.recount(mine)
        return changed

    def know_models(self, vram_of: VramOf) -> None:
        """From now on GPUs of which only the model is known have its VRAM."""
        self.hosts.know_models(vram_of)
        self._rehost(tuple(self._objects))

    def _rehost(self, names: Iterable[str]) -> None:
        known = (name for name in names if name in self._objects)
        if changed := [name for name in known if self.put_node(self._objects[name])]:
            self._nodes_changed(changed)

    def recount(self, held: Iterable[CachedPod] | None = None) -> None:
        """What these hold, or all, counts for their tenants by what their nodes are now."""
        for one in tuple(self._held.values()) if held is None else held:
            self._usage.charge(one.pod, one.node)

    def drop_node(self, name: str) -> None:
        self._objects.pop(name, None)
        if name in self.snapshot:
            self.snapshot.drop_node(name)
            self.reserved.node_gone(name)

    # --- what the watch says ---

    def put_pod(self, pod: Pod) -> tuple[str, ...]:
        """The pod's newest state. One that waits for a node changes no assumption about it."""
        held = self._held.get(pod.uid)
        if pod.nominated or pod.uid in self.snapshot.nominees:
            # What this scheduler promised itself is kept by `holds`.
            waits = not (pod.node or pod.finished or held or pod.scheduler == self._scheduler_name)
            self.snapshot.nominate(pod if waits else replace(pod, nominated=""))
        if pod.finished:
            return self._remove(pod.uid)
        if not pod.node:
            return ()
        same_node = held is not None and held.node == pod.node
        assignment = pod.assignment or (held.assignment if held and same_node else NO_ASSIGNMENT)
        fresh = CachedPod(pod, pod.node, assignment, assumed=False)
        if held and same_node and _counted(held) == _counted(fresh):
            self._held[pod.uid] = fresh
            self._count(pod)
            return ()
        freed = self._remove(pod.uid)
        self._insert(fresh)
        return freed

    def drop_pod(self, uid: str) -> tuple[str, ...]:
        if uid in self.snapshot.nominees:
            self.snapshot.nominate(replace(self.snapshot.nominees[uid], nominated=""))
        return self._remove(uid)

    # --- what this scheduler does ---

    def assume(self, placement: Placement) -> None:
        uid = placement.pod.uid
        if uid in self._held:
            raise InvariantError(f"pod {placement.pod.key} ({uid}) is placed already")
        self.snapshot.place(placement.pod, placement.node, placement.assignment)
        held = CachedPod(placement.pod, placement.node, placement.assignment, assumed=True)
        self._remember(held)

    def forget(self, uid: str) -> tuple[str, ...]:
        """Undo `assume`. What the watch has confirmed meanwhile stays."""
        held = self._held.get(uid)
        return self._remove(uid) if held is not None and held.assumed else ()

    def confirm(self, uid: str) -> None:
        """The API server took the bind; the watch will say the same."""
        held = self._held.get(uid)
        if held is not None and held.assumed:
            self._held[uid] = replace(held, assumed=False)

    # --- books ---

    def _pods_on(self, node: str) -> Iterator[CachedPod]:
        return (self._held[uid] for uid in sorted(self._on.get(node, ())))

    def _insert(self, held: CachedPod) -> None:
        if held.node in self.snapshot:
            self.snapshot.charge(held.pod, held.node, held.assignment)
        self._remember(held)

    def _remember(self, held: CachedPod) -> None:
        self._held[held.pod.uid] = held
        self._on.setdefault(held.node, set()).add(held.pod.uid)
        self._usage.charge(held.pod, held.node)
        self._rank(held.pod, +1)
        self._count(held.pod)

    def _remove(self, uid: str) -> tuple[str, ...]:
        held = self._held.pop(uid, None)
        if held is None:
            return ()
        self._usage.uncharge(uid)
        self._rank(held.pod, -1)
        here = self._on[held.node]
        here.discard(uid)
        if not here:
            del self._on[held.node]
        self._discount(held.pod)
        if held.node not in self.snapshot:
            return ()
        self.snapshot.release(held.pod, held.node, held.assignment)
        return (held.node,)

    def _claims(self, node: str, held: Iterable[CachedPod]) -> list[tuple[Pod, Assignment]]:
        """Whatever counts on the node: its pods, and what is kept there."""
        kept = [(one.pod, one.assignment) for one in self.reserved.on(node)]
        return [*((one.pod, one.assignment) for one in held), *kept]

    def _rank(self, pod: Pod, sign: int) -> None:
        self.preemptible += sign if pod.attributes.preemptible else 0
        self.with_duration += sign if pod.attributes.duration is not None else 0
        counts = self._priorities.get(pod.attributes.tenant)
        if counts is None:
            counts = self._priorities[pod.attributes.tenant] = Counter()
        counts[pod.priority] += sign
        if not counts[pod.priority]:
            del counts[pod.priority]
            if not counts:
                del self._priorities[pod.attributes.tenant]

    def _count(self, pod: Pod) -> None:
        if pod.gang is None:
            return
        if pod.terminating:
            self._discount(pod)
        else:
            self._members.setdefault(pod.gang.key, set()).add(pod.uid)

    def _discount(self, pod: Pod) -> None:
        if pod.gang is None:
            return
        members = self._members.get(pod.gang.key, set())
        members.discard(pod.uid)
        if not members:
            self._members.pop(pod.gang.key, None)


def _counted(held: CachedPod) -> tuple[object, ...]:
    """Whatever the snapshot's books were told of the pod."""
    pod = held.pod
    return pod.spec, pod.labels, pod.terminating, held.assignment, pod.gang and pod.gang.key
