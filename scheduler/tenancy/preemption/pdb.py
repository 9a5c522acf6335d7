"""
PodDisruptionBudgets, as the API server last reported them.

    allows(pods)        whether these pods can be evicted together
    exceeding(groups)   the most expensive groups beyond a budget

The API server decides. The scheduler reads the budgets so that a search does not choose victims
that the API server would refuse, and so that no pod is evicted in vain because the next one under
the same budget must stay. The API server never evicts a pod under two budgets. Pods that are not
ready count like others: `unhealthyPodEvictionPolicy` is not read.
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
from scheduler.tenancy.preemption.victims import (
    PreemptionPlan,
    VictimGroup,
    VictimSearch,
    drop_partial_gangs,
)

_MAX_SEARCHES: Final = 4  # until one stays within the budgets

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
        # A status older than the spec allows nothing, as in the API server.
        if whole(status.get("observedGeneration")) < whole(about.get("generation")):
            allowed = 0
        return cls(key, label_selector.read(spec.get("selector")), allowed)


class DisruptionBudgets:
    """Every budget of the cluster, by namespace."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[Key, DisruptionBudget]] = {}

    def put(self, budget: DisruptionBudget) -> bool:
        """False: a budget alone makes no pending unit schedulable."""
        self._by_namespace.setdefault(budget.key[0], {})[budget.key] = budget
        return False

    def drop(self, budget: DisruptionBudget) -> bool:
        self._by_namespace.get(budget.key[0], {}).pop(budget.key, None)
        return False

    def feed(self) -> Feed:
        return Feed(resources.POD_DISRUPTION_BUDGETS, DisruptionBudget.read, self.put, self.drop)

    def of(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        budgets = self._by_namespace.get(pod.key.namespace)
        if not budgets:
            return ()
        labels = dict(pod.labels)
        return tuple(
            budget for budget in budgets.values() if label_selector.selects(budget.selector, labels)
        )

    def allows(self, pods: Iterable[Pod], nominated: Iterable[Pod] = ()) -> bool:
        """Besides `nominated` victims, whose eviction the budgets do not show yet."""
        return not self._by_namespace or self._fit(pods, self._count(nominated))

    def exceeding(
        self, groups: Iterable[VictimGroup], nominated: Iterable[Pod] = ()
    ) -> list[VictimGroup]:
        """The groups beyond a budget, counted from the cheapest on."""
        if not self._by_namespace:
            return []
        evicted = self._count(nominated)
        ordered = sorted(groups, key=lambda group: group.cost)
        return [
            group
            for group in ordered
            if not self._fit((victim.pod for victim in group.pods), evicted)
        ]

    def _count(self, pods: Iterable[Pod]) -> Counter[Key]:
        return Counter(budget.key for pod in pods for budget in self.of(pod))

    def _fit(self, pods: Iterable[Pod], evicted: Counter[Key]) -> bool:
        """Adds the pods to `evicted`, if the budgets allow them."""
        more: Counter[Key] = Counter()
        for pod in pods:
            budgets = self.of(pod)
            if len(budgets) > 1:
                return False
            for budget in budgets:
                more[budget.key] += 1
                if evicted[budget.key] + more[budget.key] > budget.allowed:
                    return False
        evicted.update(more)
        return True


def choose_within_budgets(
    budgets: DisruptionBudgets,
    groups: Sequence[VictimGroup],
    search: Callable[[], VictimSearch],
    *,
    nominated: Sequence[Pod] = (),
) -> PreemptionPlan | None:
    """
    The victims, within the budgets.

    The first search ignores shared budgets: a budget of one for many pods allows any of them, and
    only the search knows which one helps. If the victims exceed a budget, the next search excludes
    the most expensive of them. `nominated` victims, whose eviction the budgets do not show yet,
    are counted.
    """
    able = [g for g in groups if budgets.allows((victim.pod for victim in g.pods), nominated)]
    able = drop_partial_gangs(able, groups)
    for left in reversed(range(_MAX_SEARCHES)):
        if not left:
            able = _without(able, budgets.exceeding(able, nominated))
        plan = search().run(able)
        if plan is None or not plan.groups:
            return None  # also where no pod is in the way, but something else is
        exceeding = budgets.exceeding(plan.groups, nominated)
        if not exceeding:
            return plan
        able = _without(able, exceeding)
    return None


def _without(groups: Sequence[VictimGroup], excluded: Sequence[VictimGroup]) -> list[VictimGroup]:
    keys = {group.key for group in excluded}
    return drop_partial_gangs([group for group in groups if group.key not in keys], groups)
