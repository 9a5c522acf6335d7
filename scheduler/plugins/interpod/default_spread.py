"""
Default spread constraints: the pods of one workload over hosts and zones.

The Services that select the pod define the workload, together with its ReplicaSet, StatefulSet or
ReplicationController. A pod without any of them gets no default constraint.
"""

from dataclasses import dataclass
from typing import Final, Self

from policies.json_fields import Json, mapping
from scheduler import bounded
from scheduler.model import label_selector
from scheduler.model.label_selector import Selector
from scheduler.model.pod import Pod
from scheduler.model.pod_affinity import SpreadConstraint
from scheduler.plugins.interpod.topology_spread import HOST

SERVICE: Final = "Service"
_MAP_SELECTORS: Final = frozenset({SERVICE, "ReplicationController"})  # no LabelSelector
_ZONE: Final = "topology.kubernetes.io/zone"
_HOST_SKEW: Final = 3
_ZONE_SKEW: Final = 5
_CACHE_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class WorkloadSelector:
    """A Service or a controller, and the selector of its pods."""

    kind: str
    namespace: str
    name: str
    selector: Selector = label_selector.NOTHING

    @classmethod
    def read(cls, kind: str, obj: Json) -> Self:
        """From a Service, ReplicationController, ReplicaSet or StatefulSet."""
        about = mapping(obj.get("metadata"))
        value = mapping(obj.get("spec")).get("selector")
        selector: Selector = label_selector.NOTHING
        if kind not in _MAP_SELECTORS:
            selector = label_selector.read(value)
        elif value is not None:
            selector = label_selector.joined(label_selector.equals(value))
        return cls(kind, str(about.get("namespace") or ""), str(about.get("name")), selector)


class DefaultSpread:
    """Selectors of Services and controllers, by kind, namespace and name."""

    def __init__(self) -> None:
        self._selectors: dict[tuple[str, str], dict[str, Selector]] = {}
        self._cache: dict[tuple[object, ...], tuple[SpreadConstraint, ...]] = {}

    def put(self, workload: WorkloadSelector) -> bool:
        """True when something changed."""
        selectors = self._selectors.setdefault((workload.kind, workload.namespace), {})
        if workload.name in selectors and selectors[workload.name] == workload.selector:
            return False
        selectors[workload.name] = workload.selector
        self._cache.clear()
        return True

    def drop(self, workload: WorkloadSelector) -> bool:
        selectors = self._selectors.get((workload.kind, workload.namespace), {})
        if workload.name not in selectors:
            return False
        del selectors[workload.name]
        if not selectors:
            del self._selectors[workload.kind, workload.namespace]
        self._cache.clear()
        return True

    def of(self, pod: Pod) -> tuple[SpreadConstraint, ...]:
        """The constraints of a pod that has no spread constraints of its own."""
        if not self._selectors:
            return ()
        key = (pod.key.namespace, pod.labels, pod.owner and (pod.owner.kind, pod.owner.name))
        constraints = self._cache.get(key)
        if constraints is None:
            constraints = bounded.remember(self._cache, key, self._constraints(pod), _CACHE_SIZE)
        return constraints

    def _constraints(self, pod: Pod) -> tuple[SpreadConstraint, ...]:
        namespace, labels = pod.key.namespace, dict(pod.labels)
        services = self._selectors.get((SERVICE, namespace), {})
        parts = [
            selector
            for selector in services.values()
            if selector is not None and label_selector.selects(selector, labels)
        ]
        if pod.owner is not None and pod.owner.kind != SERVICE:
            owner = self._selectors.get((pod.owner.kind, namespace), {}).get(pod.owner.name)
            parts.append(owner or ())
        selector = label_selector.joined(*parts)
        if not selector:
            return ()
        return (
            SpreadConstraint(HOST, _HOST_SKEW, selector),
            SpreadConstraint(_ZONE, _ZONE_SKEW, selector),
        )
