"""
One reservation for a tenant: its object and its state, as a value.

`tenant_active` and `tenant_upcoming` decide what is reserved for it, and when.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from policies import quantity, vocabulary
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.node import Node
from scheduler.model.placeholder import PLACEHOLDER_UID, copies
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, PodKey
from scheduler.model.resources import PODS
from scheduler.tenancy.reservation.objects import ReservationObject, amounts

Amounts = dict[str, int]
Moment = tuple[float, int]  # seconds of the epoch, and a counter of the snapshot

NEVER: Moment = (float("-inf"), -1)


@dataclass(slots=True)
class TenantReservation:
    object: ReservationObject
    key: PodKey
    active: bool = False
    places: Counter[str] = field(default_factory=Counter)  # node -> how often `amounts` is reserved
    searched: Moment = NEVER  # last search for places, and `snapshot.freed` then
    blockers: str = ""
    """Pods on its nodes that are in the way, as a text."""
    blockers_checked: Moment = NEVER  # last look at them, and `snapshot.moved` then

    @classmethod
    def of(cls, obj: ReservationObject) -> Self:
        # No pod's name has a slash.
        return cls(obj, PodKey(obj.name[0], f"{obj.name[1]}/"))

    @property
    def tenant(self) -> str:
        return self.object.spec.tenant or ""

    @property
    def whole_nodes(self) -> bool:
        """Whole nodes are reserved, and no amounts."""
        return not self.object.spec.resources

    @property
    def count(self) -> int:
        """How often `amounts` is to be reserved."""
        return self.object.spec.count or 1

    @property
    def amounts(self) -> Amounts:
        """Of one place."""
        rows = self.object.spec.resources.items()
        return {name: quantity.amount(name, text) for name, text in rows}

    @property
    def begins(self) -> float:
        stated = self.object.spec.from_
        return max(self.object.created, stated.timestamp() if stated else 0.0)

    @property
    def ends(self) -> float:
        return self.object.spec.until.timestamp()

    @property
    def incomplete(self) -> bool:
        """It is in effect, and places are missing."""
        return self.active and not self.whole_nodes and self.places.total() < self.count

    def matches(self, node: Node) -> bool:
        spec, labels = self.object.spec, dict(node.labels)
        named = not spec.nodes or node.name in spec.nodes
        return named and all(labels.get(key) == value for key, value in spec.node_selector.items())

    def differs_in_time(self, other: ReservationObject) -> bool:
        """Whether the other is the same object with another time and no other change."""
        times = {"from_": other.spec.from_, "until": other.spec.until}
        same = self.object.spec.model_copy(update=times) == other.spec
        return same and (self.object.name, self.object.uid) == (other.name, other.uid)

    def places_in_use(self, used: Mapping[str, int]) -> int:
        """Places on a node that the tenant's pods use at least in part; `used` by them there."""
        return max(math.ceil(used.get(name, 0) / count) for name, count in self.amounts.items())

    def placeholders(self, count: int) -> tuple[Pod, ...]:
        """One for each of so many places."""
        equal, name, uid = self.placeholder("", self.amounts), self.key.name, PLACEHOLDER_UID
        return copies(equal, ((f"{name}{i}", f"{uid}{self.key}{i}") for i in range(count)))

    def placeholder(self, suffix: str, requests: Amounts) -> Pod:
        """It tolerates every taint where the object names nodes: the administrator means them."""
        spec = self.object.spec
        tolerations = [{"operator": "Exists"}] if spec.nodes or spec.node_selector else []
        resources = {"requests": amounts(sorted(requests.items()))}
        return Pod.read(
            {
                "metadata": {
                    "namespace": self.key.namespace,
                    "name": f"{self.key.name}{suffix}",
                    "uid": f"{PLACEHOLDER_UID}{self.key}{suffix}",
                    "labels": {vocabulary.TENANT_LABEL: spec.tenant},
                },
                "spec": {
                    "tolerations": tolerations,
                    "containers": [{"name": "c", "resources": resources}],
                },
            }
        )

    def placement(self, node: str, reserved: Amounts) -> Placement:
        """A placeholder on the node that reserves so much there."""
        pod = self.placeholder(node, {name: n for name, n in reserved.items() if name != PODS})
        requests = tuple(sorted(reserved.items()))
        spec = replace(pod.spec, requests=requests, default_requests=(0, 0))
        return Placement(replace(pod, spec=spec), node, NO_ASSIGNMENT)


def amounts_text(totals: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {text}" for name, text in amounts(sorted(totals.items())).items())
