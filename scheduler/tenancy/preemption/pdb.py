"""
How many pods may be evicted at once: the PodDisruptionBudgets, as the API server last told them.

    allows(pods)      whether these may go together
    beyond(bundles)   the dearest of them that must stay, so that the rest may go together

The API server decides; this is read so that a search does not choose whom it would refuse, and so
that no pod goes for nothing because the next one under the same budget must stay. A pod under two
budgets is never evicted by the API server. What its budget says of pods that are not ready is not
looked at: they count like others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from cluster import resources
from policies.json_fields import Json, mapping
from scheduler.feed import Feed
from scheduler.model import label_selector
from scheduler.model.fields import whole
from scheduler.model.pod import Pod
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimGroup, VictimSearch

_ROUNDS: Final = 4  # searches until one keeps within the budgets

Key = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    key: Key
    selector: label_selector.Selector
    allowed: int
    """Pods that may be evicted now."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        key = (str(about.get("namespace") or "default"), str(about.get("name") or ""))
        allowed = whole(status.get("disruptionsAllowed"))
        # A budget that was changed and not looked at since allows nothing, as in the API server.
        if whole(status.get("observedGeneration")) < whole(about.get("generation")):
            allowed = 0
        return cls(key, label_selector.read(spec.get("selector")), allowed)


class DisruptionBudgets:
    """Every budget of the cluster, by namespace."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Key, DisruptionBudget]] = {}

    def put(self, budget: DisruptionBudget) -> bool:
        """False: no unit that waits for a node is helped by it alone."""
        self._known.setdefault(budget.key[0], {})[budget.key] = budget
        return False

    def drop(self, budget: DisruptionBudget) -> bool:
        self._known.get(budget.key[0], {}).pop(budget.key, None)
        return False

    def feed(self) -> Feed:
        return Feed(resources.POD_DISRUPTION_BUDGETS, DisruptionBudget.read, self.put, self.drop)

    def of(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        known = self._known.get(pod.key.namespace)
        if not known:
            return ()
        labels = dict(pod.labels)
        return tuple(one for one in known.values() if label_selector.selects(one.selector, labels))

    def allows(self, pods: Iterable[Pod], asked: Iterable[Pod] = ()) -> bool:
        """Beside those who were `asked` to go, of whom the budgets do not know yet."""
        return not self._known or self._fit(pods, self._count(asked))

    def beyond(
        self, bundles: Iterable[VictimGroup], asked: Iterable[Pod] = ()
    ) -> list[VictimGroup]:
        """The dearest that go beyond a budget, counted from the cheapest on."""
        if not self._known:
            return []
        going = self._count(asked)
        ordered = sorted(bundles, key=lambda one: one.cost)
        return [b for b in ordered if not self._fit((one.pod for one in b.pods), going)]

    def _count(self, pods: Iterable[Pod]) -> Counter[Key]:
        return Counter(budget.key for pod in pods for budget in self.of(pod))

    def _fit(self, pods: Iterable[Pod], going: Counter[Key]) -> bool:
        """Counts them in `going`, if they fit."""
        more: Counter[Key] = Counter()
        for pod in pods:
            found = self.of(pod)
            if len(found) > 1:
                return False
            for budget in found:
                more[budget.key] += 1
                if going[budget.key] + more[budget.key] > budget.allowed:
                    return False
        going.update(more)
        return True


def within(
    budgets: DisruptionBudgets,
    bundles: Sequence[VictimGroup],
    search: Callable[[], VictimSearch],
    *,
    asked: Sequence[Pod] = (),
) -> PreemptionPlan | None:
    """
    Who goes, within the budgets.

    Looked for without them first: a budget of one for many pods lets any of them go, and only the
    search knows which one helps. Where it takes too many, the dearest of these stay the next time.
    Those who were `asked` to go and of whom the budgets do not know yet are counted.
    """
    able = [b for b in bundles if budgets.allows((one.pod for one in b.pods), asked)]
    able = _whole(able, bundles)
    for left in reversed(range(_ROUNDS)):
        if not left:
            able = _without(able, budgets.beyond(able, asked))
        found = search().run(able)
        if found is None or not found.bundles:
            return None  # also where nobody is in the way, but something else is
        staying = budgets.beyond(found.bundles, asked)
        if not staying:
            return found
        able = _without(able, staying)
    return None


def _without(bundles: Sequence[VictimGroup], staying: Sequence[VictimGroup]) -> list[VictimGroup]:
    kept = {bundle.key for bundle in staying}
    return _whole([b for b in bundles if b.key not in kept], bundles)


def _whole(able: Sequence[VictimGroup], all_of_them: Sequence[VictimGroup]) -> list[VictimGroup]:
    """A gang whose surplus must stay cannot go as a whole."""
    keys = {bundle.key for bundle in able}
    short = {b.gang for b in all_of_them if b.gang is not None and b.key not in keys}
    return [b for b in able if not (b.core and b.gang in short)]
