"""
Assumed and bound pods by node, and the snapshot that counts them.

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

A call that raises leaves the pod as it was, or out of the cache, and marks its node as broken;
`repair` rebuilds such nodes from their pods.

Not here: pods that wait for a node (`queueing`), and what is free (`snapshot`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from scheduler.cache.reserved_capacity import ReservedCapacity
from scheduler.cache.snapshot import Snapshot
from scheduler.errors import CorruptState, InvariantError
from scheduler.hostinfo.inventory import HostInventory, VramOf
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment
from scheduler.model.gang import GangKey
from scheduler.model.node import Node
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod


@dataclass(frozen=True, slots=True)
class CachedPod:
    """A pod on its node; `assumed` until the watch has shown it there."""

    placement: Placement
    assumed: bool

    @property
    def pod(self) -> Pod:
        return self.placement.pod

    @property
    def node(self) -> str:
        return self.placement.node

    @property
    def assignment(self) -> Assignment:
        return self.placement.assignment


class UsageObserver(Protocol):
    """Counts what pods on nodes use."""

    @property
    def depends_on_nodes(self) -> bool:
        """Whether what a pod counts for changes with its node."""
        ...

    def charge(self, pod: Pod, node: str) -> None: ...

    def uncharge(self, uid: str) -> None: ...

    def repair(self) -> None:
        """Count anew after a charge that broke off."""
        ...


class _NoUsage:
    depends_on_nodes = False

    def charge(self, pod: Pod, node: str) -> None:
        """Not counted."""

    def uncharge(self, uid: str) -> None:
        """Not counted."""

    def repair(self) -> None:
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
        self._objects: dict[str, Node] = {}  # node name -> its Node object, without other sources
        self._pods: dict[str, CachedPod] = {}  # pod uid -> the pod
        self._on: dict[str, set[str]] = {}  # node name -> uids of its pods, known node or not
        self._members: dict[GangKey, set[str]] = {}  # gang -> uids of members that count
        self.reserved = ReservedCapacity(self.snapshot)
        self.terminating: set[str] = set()  # uids of pods on nodes that are being deleted
        self.changes = 0  # pods that came to a node, changed there or left it
        self.preemptible = 0  # pods on nodes that are marked preemptible
        self.with_duration = 0  # pods on nodes that state how long they run
        self._priorities: dict[str, Counter[int]] = {}  # tenant -> priorities of its placed pods

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> CachedPod | None:
        return self._pods.get(uid)

    def assumed(self) -> int:
        return sum(cached.assumed for cached in self._pods.values())

    def bound(self, gang: GangKey) -> int:
        """Members with a node, neither finished nor terminating."""
        return len(self._members.get(gang, ()))

    def bound_pods(self) -> list[Placement]:
        """Every pod that the API server has on its node, by uid."""
        cached = (self._pods[uid] for uid in sorted(self._pods))
        return [pod.placement for pod in cached if not pod.assumed]

    def pods_on(self, nodes: Iterable[str] | None = None) -> list[Placement]:
        """Every pod on these nodes, or on all, by node and uid; assumed ones included."""
        return [
            pod.placement
            for node in sorted(self._on if nodes is None else nodes)
            for pod in self._pods_on(node)
        ]

    def lowest_priority(self, tenant: str) -> int | None:
        """The lowest priority among the tenant's pods that have a node."""
        return min(self._priorities.get(tenant, ()), default=None)

    def bound_members(self, gang: GangKey) -> tuple[tuple[Pod, str], ...]:
        """The members that `bound` counts, each with the name of its node, by uid."""
        cached = (self._pods[uid] for uid in sorted(self._members.get(gang, ())))
        return tuple((pod.pod, pod.node) for pod in cached)

    # --- nodes ---

    def put_node(self, node: Node) -> bool:
        """Add or change; True when something changed. A node that cannot be put is dropped: no pod
        is planned there."""
        try:
            return self._put_node(node)
        except Exception:
            self.drop_node(node.name)
            raise

    def _put_node(self, node: Node) -> bool:
        self._objects[node.name] = node
        node = self.hosts.complete(node)
        new = node.name not in self.snapshot
        pods = list(self._pods_on(node.name))
        changed = self.snapshot.put_node(node, () if new else self._charged_on(node.name, pods))
        if new:
            for cached in pods:
                self.snapshot.charge(cached.pod, cached.node, cached.assignment)
        if changed and self._usage.depends_on_nodes:
            self._recount(pods)
        return changed

    def know_models(self, vram_of: VramOf) -> None:
        """From now on a GPU whose VRAM no source gives has the VRAM of its model."""
        self.hosts.know_models(vram_of)
        self._rehost(tuple(self._objects))

    def _rehost(self, names: Iterable[str]) -> None:
        changed, failure = [], None
        for name in names:
            try:
                if name in self._objects and self.put_node(self._objects[name]):
                    changed.append(name)
            except Exception as error:
                failure = error  # of one node: the others are put
        if changed:
            self._nodes_changed(changed)
        if failure is not None:
            raise failure

    def recount_gpus(self) -> None:
        """Charge every pod with GPUs anew: quotas count other kinds of GPUs now."""
        pods = self._pods.values()
        self._recount([cached for cached in pods if cached.pod.spec.host_request.gpus])

    def _recount(self, pods: Iterable[CachedPod]) -> None:
        for cached in pods:
            self._usage.charge(cached.pod, cached.node)

    def drop_node(self, name: str) -> None:
        self._objects.pop(name, None)
        if name in self.snapshot:
            self.snapshot.drop_node(name)
            self.reserved.node_gone(name)

    def repair(self) -> None:
        """Rebuild the nodes on which a change broke off: drop each, and charge its pods anew. The
        same for usage."""
        self._usage.repair()
        snapshot = self.snapshot
        if not snapshot.broken or snapshot.in_trial:
            return
        for name in sorted(snapshot.broken & snapshot.table.nodes.keys()):
            node = snapshot.table.nodes[name]
            charged = self._charged_on(name, self._pods_on(name))
            try:
                snapshot.drop_node(name)
                snapshot.put_node(node)
                for pod, assignment in charged:
                    snapshot.charge(pod, name, assignment)
            except Exception as error:
                raise CorruptState(f"node {name} cannot be rebuilt from its pods") from error
        snapshot.freed += 1
        snapshot.broken.clear()

    # --- watch events ---

    def put_pod(self, pod: Pod) -> tuple[str, ...]:
        """The pod's newest state. One that waits for a node changes no assumption about it."""
        cached = self._pods.get(pod.uid)
        if pod.nominated or pod.uid in self.snapshot.nominees:
            # For its own preemptors this scheduler charges `reserved` instead.
            own = pod.scheduler == self._scheduler_name
            pending = not (pod.node or pod.finished or cached or own)
            self.snapshot.nominate(pod if pending else replace(pod, nominated=""))
        if pod.finished:
            return self._remove(pod.uid)
        if not pod.node:
            return ()
        known = cached if cached is not None and cached.node == pod.node else None
        assignment = pod.assignment or (known.assignment if known else NO_ASSIGNMENT)
        fresh = CachedPod(Placement(pod, pod.node, assignment), assumed=False)
        if known and _counted(known) == _counted(fresh):
            self._pods[pod.uid] = fresh
            self._count(pod)
            return ()
        freed = self._remove(pod.uid)
        try:
            self._insert(fresh)
        except Exception:
            # What is known to run there counts on, so that no other pod is planned in its place.
            if cached is not None:
                self._remember(cached)
                self.snapshot.broken.add(cached.node)
            raise
        return freed

    def drop_pod(self, uid: str) -> tuple[str, ...]:
        if uid in self.snapshot.nominees:
            self.snapshot.nominate(replace(self.snapshot.nominees[uid], nominated=""))
        return self._remove(uid)

    # --- binds of this scheduler ---

    def assume(self, placement: Placement) -> None:
        uid = placement.pod.uid
        if uid in self._pods:
            raise InvariantError(f"pod {placement.pod.key} ({uid}) is placed already")
        self.snapshot.place(placement.pod, placement.node, placement.assignment)
        try:
            self._remember(CachedPod(placement, assumed=True))
        except Exception:
            self.snapshot.broken.add(placement.node)
            raise

    def forget(self, uid: str) -> tuple[str, ...]:
        """Undo `assume`. What the watch has confirmed meanwhile stays."""
        cached = self._pods.get(uid)
        return self._remove(uid) if cached is not None and cached.assumed else ()

    def confirm(self, uid: str) -> None:
        """The API server accepted the bind; the watch will show it."""
        cached = self._pods.get(uid)
        if cached is not None and cached.assumed:
            self._pods[uid] = replace(cached, assumed=False)

    # --- state ---

    def _pods_on(self, node: str) -> Iterator[CachedPod]:
        return (self._pods[uid] for uid in sorted(self._on.get(node, ())))

    def _insert(self, cached: CachedPod) -> None:
        """Remembered first: a node on which the charge breaks off is rebuilt without the pod only
        if the pod is not in the cache."""
        self._remember(cached)
        if cached.node not in self.snapshot:
            return
        try:
            self.snapshot.charge(cached.pod, cached.node, cached.assignment)
        except Exception:
            self._forget(cached)
            raise

    def _remember(self, cached: CachedPod) -> None:
        self._usage.charge(cached.pod, cached.node)
        self._pods[cached.pod.uid] = cached
        self._on.setdefault(cached.node, set()).add(cached.pod.uid)
        self._rank(cached.pod, +1)
        self._count(cached.pod)
        self.changes += 1
        if cached.pod.terminating:
            self.terminating.add(cached.pod.uid)

    def _remove(self, uid: str) -> tuple[str, ...]:
        cached = self._pods.get(uid)
        if cached is None:
            return ()
        self._forget(cached)
        if cached.node not in self.snapshot:
            return ()
        self.snapshot.release(cached.pod, cached.node, cached.assignment)
        return (cached.node,)

    def _forget(self, cached: CachedPod) -> None:
        """Undo `_remember`. The pod is out of the cache first, so that no error keeps it there."""
        pod, node = cached.pod, cached.node
        del self._pods[pod.uid]
        here = self._on[node]
        here.discard(pod.uid)
        if not here:
            del self._on[node]
        try:
            self._rank(pod, -1)
            self._discount(pod)
            self._usage.uncharge(pod.uid)
        except Exception:
            self.snapshot.broken.add(node)
            raise

    def _charged_on(self, node: str, pods: Iterable[CachedPod]) -> list[tuple[Pod, Assignment]]:
        """The pods on the node, and the capacity reserved there."""
        placements = (*(pod.placement for pod in pods), *self.reserved.on(node))
        return [(placement.pod, placement.assignment) for placement in placements]

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


def _counted(cached: CachedPod) -> tuple[object, ...]:
    """What plugins charge for the pod."""
    pod = cached.pod
    return pod.spec, pod.labels, pod.terminating, cached.assignment, pod.gang and pod.gang.key
