"""
Room that an administrator keeps for a tenant, from a time until a time.

    Pending ──its time comes──▶ Active ──its time ends──▶ Expired        deleted: open at once
                                  │
              an amount    so many places are planned once, and again where some are missing; on
                           each node the tenant's pods that start there use of it, and leave it
              whole nodes  whatever is free there

What is kept counts on its nodes (`holds`), and a unit of that tenant is planned as if it did not.
How much is kept follows at every tick from who is there, so that nothing needs to be remembered but
the places, which stand in the object's status. Nobody is evicted for it, and no quota counts it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from policies import quantity, vocabulary

from .. import planner
from ..cache import Cache
from ..hardware.assignment import NOWHERE
from ..model import PODS, Node, Pod, PodKey
from ..outcome import Placed
from ..units import Unit, UnitKey
from .reserved import Reserved, amounts
from .victims import Occupant

Json = dict[str, Any]
Amounts = dict[str, int]

AGAIN: Final = 5.0  # seconds between two searches for places that are missing


@dataclass(slots=True)
class _Allotment:
    one: Reserved
    key: PodKey
    active: bool = False
    base: Counter[str] = field(default_factory=Counter)  # node -> places there, of an amount
    tried: tuple[float, int] = (float("-inf"), -1)  # when places were last looked for, and on what

    @property
    def whole(self) -> bool:
        return not self.one.spec.resources

    @property
    def count(self) -> int:
        return self.one.spec.count or 1

    @property
    def each(self) -> Amounts:
        rows = self.one.spec.resources.items()
        return {name: quantity.amount(name, text) for name, text in rows}

    @property
    def begins(self) -> float:
        said = self.one.spec.from_
        return max(self.one.created, said.timestamp() if said else 0.0)

    @property
    def ends(self) -> float:
        return self.one.spec.until.timestamp()

    def takes(self, node: Node) -> bool:
        spec, labels = self.one.spec, dict(node.labels)
        named = not spec.nodes or node.name in spec.nodes
        return named and all(labels.get(key) == value for key, value in spec.node_selector.items())


class Allotments:
    """`epoch` is the time of day; `publish` takes an object's new status, `say` tells people that
    something began or ended, `freed` hears of nodes on which less is kept."""

    def __init__(
        self,
        cache: Cache,
        *,
        epoch: Callable[[], float],
        publish: Callable[[Reserved, Json], None],
        say: Callable[[Reserved, bool, str], None],
        freed: Callable[[Iterable[str]], None],
    ) -> None:
        self._cache, self._snapshot, self._holds = cache, cache.snapshot, cache.holds
        self._epoch, self._publish, self._say, self._freed = epoch, publish, say, freed
        self._known: dict[tuple[str, str], _Allotment] = {}
        self._moved = -1

    def __len__(self) -> int:
        return len(self._known)

    def put(self, one: Reserved) -> None:
        """An object that came or changed; one that says something else begins anew."""
        known = self._known.get(one.name)
        if known is not None and (known.one.uid, known.one.spec) == (one.uid, one.spec):
            return
        self.drop(one.name)
        # No pod's name has a slash.
        made = _Allotment(one, PodKey(one.name[0], f"{one.name[1]}/"))
        if known is None and one.spec.resources:
            made.base = Counter(place.node for place in one.places)
        self._known[one.name] = made
        self._moved = -1

    def drop(self, name: tuple[str, str]) -> None:
        gone = self._known.pop(name, None)
        if gone is not None and gone.active:
            self._freed(self._holds.end(gone.key))
            self._say(gone.one, False, "the object was deleted or changed")

    def of(self, tenant: str) -> list[UnitKey]:
        """Under which keys room is kept that this tenant may use."""
        rows = self._known.values()
        return [one.key for one in rows if one.active and one.one.spec.tenant == tenant]

    def lend(self, tenant: str) -> None:
        """Pods of the tenant are given nodes; what is left is kept again at the next tick."""
        for key in self.of(tenant):
            self._holds.end(key)

    def next_at(self) -> float | None:
        """Seconds of the epoch, when the next begins, ends or is looked at again."""
        now = self._epoch()
        due = [at for one in self._known.values() for at in (one.begins, one.ends) if at > now]
        due += [one.tried[0] + AGAIN for one in self._known.values() if self._short(one)]
        return min(due, default=None)

    def tick(self) -> None:
        """Before every plan: what is kept is what should be."""
        if not self._known:
            return
        now, active = self._epoch(), []
        for name in sorted(self._known):
            one = self._known[name]
            if one.begins <= now < one.ends:
                active.append(one)
            else:
                self._rest(one, "Pending" if now < one.begins else "Expired")
        if self._moved == self._snapshot.moved and not any(self._due(one, now) for one in active):
            return
        used: dict[tuple[str, str], Amounts] = {}
        for one in active:
            self._keep(one, used, now)
        self._moved = self._snapshot.moved

    # --- one of them ---

    def _rest(self, one: _Allotment, phase: str) -> None:
        if one.active:
            one.active = False
            self._freed(self._holds.end(one.key))
            self._say(one.one, False, "its time has ended")
        self._publish(one.one, {"phase": phase, "held": "", "message": "", "places": []})

    def _keep(self, one: _Allotment, used: dict[tuple[str, str], Amounts], now: float) -> None:
        begun = not one.active
        one.active = True
        if self._short(one):
            self._search(one, now)
        wanted = dict(self._whole(one) if one.whole else self._amount(one, used))
        kept = {row.node: dict(row.pod.shape.requests) for row in self._holds.of(one.key)}
        if wanted != kept:
            self._holds.put(one.key, [_occupant(one, *row) for row in sorted(wanted.items())])
            self._freed(node for node in kept if _less(wanted.get(node, {}), kept[node]))
        if begun:
            self._say(one.one, True, self._held(one))
        self._publish(one.one, self._status(one))

    def _due(self, one: _Allotment, now: float) -> bool:
        return not one.active or (self._short(one) and now >= one.tried[0] + AGAIN)

    def _short(self, one: _Allotment) -> bool:
        return one.active and not one.whole and one.base.total() < one.count

    def _search(self, one: _Allotment, now: float) -> None:
        """Places for what is missing, as far as there are any."""
        nodes = self._snapshot.columns.nodes
        for name in [name for name in one.base if name not in nodes]:
            del one.base[name]
        if one.tried[1] == self._snapshot.freed and one.base:
            one.tried = (now, self._snapshot.freed)
            return
        missing = max(0, one.count - one.base.total())
        pods = tuple(_stand_in(one, str(number), one.each) for number in range(missing))
        closed = frozenset(name for name, node in nodes.items() if not one.takes(node))
        if pods and len(closed) < len(nodes):
            found = planner.plan(Unit(one.key, pods), self._snapshot, closed=closed)
            if isinstance(found, Placed):
                one.base.update(row.node for row in found.placements)
        one.tried = (now, self._snapshot.freed)

    def _amount(
        self, one: _Allotment, used: dict[tuple[str, str], Amounts]
    ) -> Iterator[tuple[str, Amounts]]:
        """What is left of the places on each node; `used` is what others of the tenant have not
        been charged with yet."""
        tenant = one.one.spec.tenant or ""
        for node, places in sorted(one.base.items()):
            if node not in self._snapshot:
                continue
            spent = used.setdefault((tenant, node), self._used(tenant, node, one.begins))
            left = {}
            for name, each in {**one.each, PODS: 1}.items():
                taken = min(each * places, spent.get(name, 0))
                spent[name] = spent.get(name, 0) - taken
                left[name] = each * places - taken
            if any(count for name, count in left.items() if name != PODS):
                yield node, {name: count for name, count in left.items() if count}

    def _used(self, tenant: str, node: str, begins: float) -> Amounts:
        total: Counter[str] = Counter()
        for held in self._cache.on((node,)):
            terms = held.pod.terms
            if terms.tenant == tenant and not 0 < terms.started < begins:
                total.update(dict(held.pod.shape.requests))
        return dict(total)

    def _whole(self, one: _Allotment) -> Iterator[tuple[str, Amounts]]:
        columns = self._snapshot.columns
        mine = {row.node: dict(row.pod.shape.requests) for row in self._holds.of(one.key)}
        for name, node in sorted(columns.nodes.items()):
            if one.takes(node):
                kept = mine.get(name, {})
                row = columns.rows[name]
                free = {
                    resource: columns.free_at(row, resource) + kept.get(resource, 0)
                    for resource, _ in node.allocatable
                }
                if left := {resource: count for resource, count in free.items() if count > 0}:
                    yield name, left

    # --- what is said ---

    def _held(self, one: _Allotment) -> str:
        if one.whole:
            count = len(self._holds.of(one.key))
            return "1 node" if count == 1 else f"{count} nodes"
        return f"{one.base.total()} x {_text(one.each)}"

    def _status(self, one: _Allotment) -> Json:
        nodes = [row.node for row in self._holds.of(one.key)] if one.whole else []
        places = nodes or sorted(one.base.elements())
        short = "no node matches" if one.whole else f"room for {one.base.total()} of {one.count}"
        lacks = not nodes if one.whole else self._short(one)
        kept: Counter[str] = Counter()
        for row in self._holds.of(one.key):
            kept.update(dict(row.pod.shape.requests))
        free = f" ({_text(kept) or 'nothing'} free)" if places else ""
        return {
            "phase": "Active",
            "held": f"{self._held(one)}{free}",
            "message": short if lacks else "",
            "places": [{"node": name} for name in places],
        }


def _text(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {text}" for name, text in amounts(sorted(found.items())).items())


def _less(new: Amounts, old: Amounts) -> bool:
    return any(new.get(name, 0) < count for name, count in old.items())


def _occupant(one: _Allotment, node: str, left: Amounts) -> Occupant:
    pod = _stand_in(one, node, {name: n for name, n in left.items() if name != PODS})
    shape = replace(pod.shape, requests=tuple(sorted(left.items())), unsaid=(0, 0))
    return Occupant(replace(pod, shape=shape), node, NOWHERE)


def _stand_in(one: _Allotment, mark: str, asked: Amounts) -> Pod:
    """Whoever names nodes means them, whatever keeps others out."""
    spec = one.one.spec
    requests = amounts(sorted(asked.items()))
    tolerations = [{"operator": "Exists"}] if spec.nodes or spec.node_selector else []
    return Pod.read(
        {
            "metadata": {
                "namespace": one.key.namespace,
                "name": f"{one.key.name}{mark}",
                "uid": f"stand-in/{one.key}{mark}",
                "labels": {vocabulary.TENANT_LABEL: spec.tenant},
            },
            "spec": {
                "tolerations": tolerations,
                "containers": [{"name": "c", "resources": {"requests": requests}}],
            },
        }
    )
