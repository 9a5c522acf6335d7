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

Not here: pods that wait for a node (`queueing`), and what is free (`snapshot`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .errors import InvariantError
from .hardware.assignment import NOWHERE, Assignment
from .model import GangKey, Node, Pod
from .outcome import Placement
from .snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Held:
    """A pod with its node; `assumed` until the watch has shown it there."""

    pod: Pod
    node: str
    assignment: Assignment
    assumed: bool


class Cache:
    """One writer, the event loop. Calls that free something return the nodes they freed it on."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._held: dict[str, Held] = {}  # pod uid -> where it is
        self._on: dict[str, set[str]] = {}  # node name -> uids of its pods, known node or not
        self._members: dict[GangKey, set[str]] = {}  # gang -> uids of members that count

    def __len__(self) -> int:
        return len(self._held)

    def held(self, uid: str) -> Held | None:
        return self._held.get(uid)

    def assumed(self) -> int:
        return sum(held.assumed for held in self._held.values())

    def bound(self, gang: GangKey) -> int:
        """Members with a node, neither finished nor terminating."""
        return len(self._members.get(gang, ()))

    # --- nodes ---

    def put_node(self, node: Node) -> bool:
        """Add or change; True when something changed."""
        new = node.name not in self.snapshot
        mine = list(self._pods_on(node.name))
        changed = self.snapshot.put_node(
            node, () if new else [(held.pod, held.assignment) for held in mine]
        )
        if new:
            for held in mine:
                self.snapshot.charge(held.pod, held.node, held.assignment)
        return changed

    def drop_node(self, name: str) -> None:
        if name in self.snapshot:
            self.snapshot.drop_node(name)

    # --- what the watch says ---

    def put_pod(self, pod: Pod) -> tuple[str, ...]:
        """The pod's newest state. One that waits for a node changes no assumption about it."""
        held = self._held.get(pod.uid)
        if pod.nominated or pod.uid in self.snapshot.nominees:
            waits = not (pod.node or pod.finished or held)
            self.snapshot.nominate(pod if waits else replace(pod, nominated=""))
        if pod.finished:
            return self._remove(pod.uid)
        if not pod.node:
            return ()
        same_node = held is not None and held.node == pod.node
        assignment = pod.assignment or (held.assignment if held and same_node else NOWHERE)
        fresh = Held(pod, pod.node, assignment, assumed=False)
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
        held = Held(placement.pod, placement.node, placement.assignment, assumed=True)
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

    def _pods_on(self, node: str) -> Iterator[Held]:
        return (self._held[uid] for uid in sorted(self._on.get(node, ())))

    def _insert(self, held: Held) -> None:
        if held.node in self.snapshot:
            self.snapshot.charge(held.pod, held.node, held.assignment)
        self._remember(held)

    def _remember(self, held: Held) -> None:
        self._held[held.pod.uid] = held
        self._on.setdefault(held.node, set()).add(held.pod.uid)
        self._count(held.pod)

    def _remove(self, uid: str) -> tuple[str, ...]:
        held = self._held.pop(uid, None)
        if held is None:
            return ()
        here = self._on[held.node]
        here.discard(uid)
        if not here:
            del self._on[held.node]
        self._discount(held.pod)
        if held.node not in self.snapshot:
            return ()
        self.snapshot.release(held.pod, held.node, held.assignment)
        return (held.node,)

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


def _counted(held: Held) -> tuple[object, ...]:
    """Whatever the snapshot's books were told of the pod."""
    pod = held.pod
    return pod.shape, pod.labels, pod.terminating, held.assignment, pod.gang and pod.gang.key
