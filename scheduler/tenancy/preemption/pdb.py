"""
PodDisruptionBudgets, as the API server last reported them.

    allowed(groups)     the groups that the budgets allow, each by itself
    exceeding(groups)   the most expensive groups beyond a budget

The API server decides. The scheduler reads the budgets so that a search does not choose victims
that the API server would refuse, and so that no pod is evicted in vain because the next one under
the same budget must stay. The API server never evicts a pod under two budgets. Pods that are not
ready count like others: `unhealthyPodEvictionPolicy` is not read. A namespace may have thousands of
budgets: an index by label finds those that select a pod.
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
from scheduler.model.pod_affinity import NamespaceScope
from scheduler.plugins.interpod.selector_index import SelectorIndex
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
        self._indexes: dict[str, SelectorIndex[Key]] = {}  # namespace -> its budgets by label
        self.changes = 0

    def put(self, budget: DisruptionBudget) -> bool:
        """False: a budget alone makes no pending unit schedulable."""
        namespace = budget.key[0]
        budgets = self._by_namespace.setdefault(namespace, {})
        old = budgets.get(budget.key)
        # The status changes with every pod that starts or ends, the selector hardly ever.
        if old is None or old.selector != budget.selector:
            self._indexes.pop(namespace, None)
        budgets[budget.key] = budget
        self.changes += 1
        return False

    def drop(self, budget: DisruptionBudget) -> bool:
        namespace = budget.key[0]
        budgets = self._by_namespace.get(namespace, {})
        if budgets.pop(budget.key, None) is not None:
            self._indexes.pop(namespace, None)
            self.changes += 1
            if not budgets:
                del self._by_namespace[namespace]
        return False

    def feed(self) -> Feed:
        return Feed(resources.POD_DISRUPTION_BUDGETS, DisruptionBudget.read, self.put, self.drop)

    def of(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        namespace = pod.key.namespace
        budgets = self._by_namespace.get(namespace)
        if not budgets:
            return ()
        index = self._indexes.get(namespace)
        if index is None:
            index = self._indexes[namespace] = _index(namespace, budgets.values())
        labels = dict(pod.labels)
        candidates = (budgets[key] for key in index.candidates(pod.labels))
        return tuple(
            budget for budget in candidates if label_selector.selects(budget.selector, labels)
        )

    def allowed(
        self, groups: Iterable[VictimGroup], nominated: Iterable[Pod] = ()
    ) -> list[VictimGroup]:
        """The groups that can be evicted, each by itself, besides `nominated` victims, whose
        eviction the budgets do not show yet."""
        if not self._by_namespace:
            return list(groups)
        evicted = self._count(nominated)
        return [
            group
            for group in groups
            if self._more((victim.pod for victim in group.pods), evicted) is not None
        ]

    def exceeding(
        self, groups: Iterable[VictimGroup], nominated: Iterable[Pod] = ()
    ) -> list[VictimGroup]:
        """The groups beyond a budget, counted from the cheapest on."""
        if not self._by_namespace:
            return []
        evicted = self._count(nominated)
        ordered = sorted(groups, key=lambda group: group.cost)
        exceeding = []
        for group in ordered:
            more = self._more((victim.pod for victim in group.pods), evicted)
            if more is None:
                exceeding.append(group)
            else:
                evicted.update(more)
        return exceeding

    def _count(self, pods: Iterable[Pod]) -> Counter[Key]:
        return Counter(budget.key for pod in pods for budget in self.of(pod))

    def _more(self, pods: Iterable[Pod], evicted: Counter[Key]) -> Counter[Key] | None:
        """What the pods add to `evicted`; None: a budget does not allow them."""
        more: Counter[Key] = Counter()
        for pod in pods:
            budgets = self.of(pod)
            if len(budgets) > 1:
                return None
            for budget in budgets:
                more[budget.key] += 1
                if evicted[budget.key] + more[budget.key] > budget.allowed:
                    return None
        return more


def _index(namespace: str, budgets: Iterable[DisruptionBudget]) -> SelectorIndex[Key]:
    index: SelectorIndex[Key] = SelectorIndex()
    scope = NamespaceScope((namespace,))
    for budget in budgets:
        index.add(budget.key, ((scope, budget.selector),))
    return index


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
    able = drop_partial_gangs(budgets.allowed(groups, nominated), groups)
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
