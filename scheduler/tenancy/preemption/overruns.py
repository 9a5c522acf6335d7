"""
Work that outlived its expected duration and yields: what may be ended of it, as it would go.

Marked as backfill or preemptible, and nothing that a node itself runs. A gang goes as a whole. Who
of it has to go for a unit is found by the search that every preemption makes: see `victims`.
"""

from collections.abc import Sequence

from scheduler.cache.cache import Cache
from scheduler.model.pod import GangKey, Pod
from scheduler.tenancy.preemption.victims import Bundle, Occupant


def bundles(cache: Cache, overdue: Sequence[Occupant]) -> list[Bundle]:
    yielding = [one for one in overdue if _yields(one.pod)]
    gangs = {one.pod.gang.key for one in yielding if one.pod.gang is not None}
    found = [Bundle(o.pod.uid, (o,)) for o in yielding if o.pod.gang is None]
    for gang in sorted(gangs):
        found.append(Bundle(str(gang), _members(cache, gang), gang=gang, core=True))
    return found


def _members(cache: Cache, gang: GangKey) -> tuple[Occupant, ...]:
    nodes = {node for _, node in cache.mates(gang)}
    return tuple(o for o in cache.on(nodes) if o.pod.gang and o.pod.gang.key == gang)


def _yields(pod: Pod) -> bool:
    return (pod.terms.backfill or pod.terms.preemptible) and not pod.terms.fixed
