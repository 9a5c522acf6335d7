"""
The spreading that pods get without asking: over hosts and zones, those that serve together.

Who serves together is told by the Services that select the pod, and by its ReplicaSet, StatefulSet
or ReplicationController. A pod of none of them is not spread.
"""

from dataclasses import dataclass
from typing import Final, Self

from policies.json_fields import Json, mapping
from scheduler.model import label_selector
from scheduler.model.label_selector import Selector
from scheduler.model.pod import Pod
from scheduler.model.pod_affinity import SpreadConstraint
from scheduler.plugins.interpod.topology_spread import HOST

SERVICE: Final = "Service"
_PLAIN: Final = frozenset({SERVICE, "ReplicationController"})  # their selector is a plain map
_ZONE: Final = "topology.kubernetes.io/zone"
_HOST_SKEW: Final = 3
_ZONE_SKEW: Final = 5
_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class WorkloadSelector:
    """A Service or a controller, and the pods that are its own."""

    kind: str
    namespace: str
    name: str
    selector: Selector = label_selector.NOTHING

    @classmethod
    def read(cls, kind: str, obj: Json) -> Self:
        """From a Service, ReplicationController, ReplicaSet or StatefulSet."""
        about, found = mapping(obj.get("metadata")), mapping(obj.get("spec")).get("selector")
        selector: Selector = label_selector.NOTHING
        if kind not in _PLAIN:
            selector = label_selector.read(found)
        elif found is not None:
            selector = label_selector.joined(label_selector.equals(found))
        return cls(kind, str(about.get("namespace") or ""), str(about.get("name")), selector)


class DefaultSpread:
    """Selectors of Services and controllers, by kind, namespace and name."""

    def __init__(self) -> None:
        self._selectors: dict[tuple[str, str], dict[str, Selector]] = {}
        self._known: dict[tuple[object, ...], tuple[SpreadConstraint, ...]] = {}

    def put(self, one: WorkloadSelector) -> bool:
        """True when something changed."""
        mine = self._selectors.setdefault((one.kind, one.namespace), {})
        if one.name in mine and mine[one.name] == one.selector:
            return False
        mine[one.name] = one.selector
        self._known.clear()
        return True

    def drop(self, one: WorkloadSelector) -> bool:
        gone = self._selectors.get((one.kind, one.namespace), {}).pop(one.name, None) is not None
        if gone:
            self._known.clear()
        return gone

    def of(self, pod: Pod) -> tuple[SpreadConstraint, ...]:
        """What holds for the pod when it asks for no spreading itself."""
        if not self._selectors:
            return ()
        key = (pod.key.namespace, pod.labels, pod.owner and (pod.owner.kind, pod.owner.name))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = self._spreads(pod)
        return found

    def _spreads(self, pod: Pod) -> tuple[SpreadConstraint, ...]:
        namespace, labels = pod.key.namespace, dict(pod.labels)
        services = self._selectors.get((SERVICE, namespace), {})
        parts = [one for one in services.values() if one is not None]
        parts = [one for one in parts if label_selector.selects(one, labels)]
        if pod.owner is not None and pod.owner.kind != SERVICE:
            owner = self._selectors.get((pod.owner.kind, namespace), {}).get(pod.owner.name)
            parts.append(owner or ())
        selector = label_selector.joined(*parts)
        if not selector:
            return ()
        return SpreadConstraint(HOST, _HOST_SKEW, selector), SpreadConstraint(
            _ZONE, _ZONE_SKEW, selector
        )
