"""
What must be so, found out without the code that decides: by trying every choice on small clusters.

    Picture   nodes, and whoever counts on them, at one moment; plans are made on copies of it
    needless  victims without whom the plan would hold all the same
    possible  whether some choice of those who may go lets a unit be placed

Who may go is read from what the documentation says, and amounts from what the API server holds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Self

from scheduler.cache.snapshot import Snapshot
from scheduler.model.gang import GangKey
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.plan import planner
from scheduler.report import events
from tests.unit.scheduler.tenancy.histories import Story
from tests.unit.scheduler.tenancy.random_clusters import Wish, unit_of

Bundle = tuple[Pod, ...]
_MOST = 9
"""Bundles of which every choice is tried."""


@dataclass(frozen=True, slots=True)
class Picture:
    nodes: tuple[Node, ...]
    pods: tuple[tuple[Pod, str], ...]
    kept: tuple[tuple[UnitKey, Pod, str], ...]
    """Room that is kept for units, by whom it is kept for."""
    promised: tuple[StartReservation, ...] = ()
    asked: frozenset[str] = frozenset()
    """Pods that were asked to go for anybody, by uid: the room of which somebody keeps already."""

    @classmethod
    def of(cls, story: Story) -> Self:
        cache = story.bench.scheduler.cache
        kept = (
            (key, one.pod, one.node) for key in cache.reserved for one in cache.reserved.of(key)
        )
        return cls(
            tuple(cache.snapshot.table.nodes.values()),
            tuple((one.pod, one.node) for one in cache.on()),
            tuple(kept),
            tuple(story.bench.scheduler.tenancy.backfill.start_reservations()),
            frozenset(story.bench.scheduler.tenancy.preempting.nominated_victims()),
        )

    def fits(self, unit: Unit, gone: Iterable[str] = (), *, heeds: bool = False) -> bool:
        """Whether all that the unit needs is placed where these pods are gone; `heeds`: away from
        nodes on which a start was promised to somebody of at least its priority."""
        away = frozenset(gone)
        there = [row for row in self.pods if row[0].uid not in away]
        there += [(pod, node) for key, pod, node in self.kept if key != unit.key]
        bound_members = tuple(
            (pod, node)
            for pod, node in self.pods
            if pod.gang is not None and pod.gang.key == unit.key and pod.uid not in away
        )
        others = (p for p in self.promised if p.key != unit.key and p.priority >= unit.priority)
        shut = frozenset(node for one in others for node in one.nodes) if heeds else frozenset()
        found = planner.plan(
            unit, Snapshot.of(self.nodes, there), bound_members=bound_members, closed=shut
        )
        return isinstance(found, Placed) and len(found.placements) >= unit.need


def bundles(pods: Iterable[Pod], *, there: Iterable[Pod]) -> list[Bundle]:
    """These pods as they go: a gang that would fall short goes whole, and its surplus first."""
    mine = list(pods)
    found: list[Bundle] = [(pod,) for pod in mine if pod.gang is None]
    gangs = sorted({pod.gang.key for pod in mine if pod.gang is not None})
    for gang in gangs:
        alive = [pod for pod in there if _in(pod, gang) and not pod.terminating]
        going = [pod for pod in mine if _in(pod, gang)]
        size = max(pod.gang.min_available or 1 for pod in alive if pod.gang is not None)
        going.sort(key=lambda pod: (pod.created, pod.uid), reverse=True)
        above = max(0, len(alive) - size)
        found += [(pod,) for pod in going[:above]]
        if len(going) > above:
            found.append(tuple(going[above:]))
    return found


def needless(picture: Picture, unit: Unit, victims: Iterable[str]) -> list[str]:
    """Names of victims whose going the plan did not need, beside those who were asked to go for
    others; `?` where it fails in any case."""
    uids = frozenset(victims)
    if not picture.fits(unit, uids | picture.asked):
        return ["?"]
    pods = [pod for pod, _ in picture.pods]
    found = []
    for bundle in bundles((pod for pod in pods if pod.uid in uids), there=pods):
        if _follows(bundle, uids, pods):
            continue
        gone = (uids - {pod.uid for pod in bundle}) | picture.asked
        if picture.fits(unit, gone, heeds=True):
            found.append(bundle[0].key.name)
    return found


def _follows(bundle: Bundle, going: frozenset[str], pods: Sequence[Pod]) -> bool:
    """Goes because the rest of its gang does."""
    gang = bundle[0].gang
    bound_members = [pod for pod in pods if gang is not None and _in(pod, gang.key)]
    alive = [pod for pod in bound_members if not pod.terminating and pod not in bundle]
    return bool(alive) and all(pod.uid in going for pod in alive) and len(bundle) == 1


def _in(pod: Pod, gang: GangKey) -> bool:
    return pod.gang is not None and pod.gang.key == gang


def possible(story: Story, name: str, unit: Unit) -> bool:
    """Whether the unit, within its tenant's promise, fits with or without somebody going."""
    picture, wish = Picture.of(story), story.wishes[name]
    if picture.fits(unit):
        return True
    pods = [pod for pod, _ in picture.pods]
    able = bundles((pod for pod in pods if _may_go(story, pod, wish)), there=pods)
    able = [b for b in able if not _breaks_up(b, pods, story, wish)]
    if len(able) > _MOST:
        able = able[:_MOST]
    if not picture.fits(unit, (pod.uid for bundle in able for pod in bundle)):
        return False
    return any(
        _spared(story, wish, choice) and picture.fits(unit, (p.uid for b in choice for p in b))
        for choice in _choices(able)
    )


def _choices(able: Sequence[Bundle]) -> Iterator[tuple[Bundle, ...]]:
    return chain.from_iterable(combinations(able, n) for n in range(1, len(able) + 1))


def _may_go(story: Story, pod: Pod, wish: Wish) -> bool:
    if pod.terminating:
        return False
    other = story.wishes[unit_of(pod.key.name)]
    return other.tenant != wish.tenant or other.priority < wish.priority


def _breaks_up(bundle: Bundle, pods: Sequence[Pod], story: Story, wish: Wish) -> bool:
    """Would leave its gang with too few, while others of it may not go."""
    gang = bundle[0].gang
    if gang is None:
        return False
    bound_members = [pod for pod in pods if _in(pod, gang.key) and not pod.terminating]
    short = len(bound_members) - len(bundle) < (gang.min_available or 1)
    return short and not all(_may_go(story, pod, wish) for pod in bound_members)


def _spared(story: Story, wish: Wish, choice: Sequence[Bundle]) -> bool:
    """Whether nobody else falls below a promise, and surplus goes before its gang."""
    gone = [pod for bundle in choice for pod in bundle]
    for member in {m for pod in gone for m in story.world.path(pod.attributes.tenant)}:
        if member == wish.tenant:
            continue
        mine = [pod for pod in gone if pod.attributes.tenant in story.world.whose(member)]
        foreign = [pod for pod in mine if pod.attributes.tenant != wish.tenant]
        if not foreign:
            continue
        left = story.api.used(member, going=False) - sum(pod.spec.host_request.gpus for pod in mine)
        if wish.tenant in story.world.whose(member):
            left += wish.least
        if left < story.world.promised(member):
            return False
    return _surplus_first(story, gone)


def _surplus_first(story: Story, gone: Sequence[Pod]) -> bool:
    uids = {pod.uid for pod in gone}
    cache = story.bench.scheduler.cache
    for gang in {pod.gang.key for pod in gone if pod.gang is not None}:
        bound_members = [pod for pod, _ in cache.bound_members(gang)]
        left = [pod for pod in bound_members if pod.uid not in uids]
        size = max(pod.gang.min_available or 1 for pod in bound_members if pod.gang is not None)
        if left and len(left) < size:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Begun:
    """A preemption: for whom, how things stood, and who had been evicted by then."""

    unit: Unit
    picture: Picture
    before: int
    victims: tuple[str, ...] = ()
    """uids"""


def record(story: Story) -> list[Begun]:
    """Every preemption of this scheduler that begins from now on."""
    begun: list[Begun] = []
    preempting = story.bench.scheduler.tenancy.preempting
    consider: Callable[[Unit], bool] = preempting.preempt

    def looked(unit: Unit) -> bool:
        known, picture = preempting.in_progress(unit.key), Picture.of(story)
        found = consider(unit)
        if found and not known:
            begun.append(Begun(unit, picture, len(story.told(events.PREEMPTED))))
        return found

    preempting.preempt = looked  # type: ignore[method-assign]  # looks over its shoulder
    return begun


def robbed(story: Story, one: Begun) -> list[str]:
    """Tenants and groups that were left with less than their promise, for somebody else's sake."""
    world, mine = story.world, one.unit.tenant
    asked = one.picture.asked
    stay = [pod for pod, _ in one.picture.pods if not (pod.terminating or pod.uid in asked)]
    gone = [pod for pod in stay if pod.uid in one.victims and pod.attributes.tenant != mine]
    found = []
    for member in sorted({m for pod in gone for m in world.path(pod.attributes.tenant)}):
        left = [
            pod for pod in stay if pod.attributes.tenant in world.whose(member) and pod not in gone
        ]
        amount = sum(pod.spec.host_request.gpus for pod in left)
        if mine in world.whose(member):
            amount += sum(pod.spec.host_request.gpus for pod in one.unit.pods[: one.unit.need])
        found += [member] if amount < world.promised(member) else []
    return found


def victims(story: Story, begun: Sequence[Begun]) -> list[Begun]:
    """Each with those who went for it, as they were told."""
    told = story.told(events.PREEMPTED)
    found = []
    for number, one in enumerate(begun):
        later = [two.before for two in begun[number + 1 :] if two.unit.key == one.unit.key]
        rows = told[one.before : min(later, default=len(told))]
        mine = tuple(f"uid-{name}" for name, note in rows if f" {one.unit.key} " in f"{note} ")
        found.append(replace(one, victims=mine))
    return found
