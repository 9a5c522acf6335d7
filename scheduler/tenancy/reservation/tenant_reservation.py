"""
One reservation for a tenant, as its object says it and as it stands. Values and their wording.

What is kept for it, and when, is decided by `allotments` and `coming`.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies import quantity, vocabulary
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.node import Node
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod, PodKey
from scheduler.model.resources import PODS
from scheduler.tenancy.reservation.objects import Reservation, amounts

Amounts = dict[str, int]


@dataclass(slots=True)
class TenantReservation:
    one: Reservation
    key: PodKey
    active: bool = False
    base: Counter[str] = field(default_factory=Counter)  # node -> places there, of an amount
    tried: tuple[float, int] = (float("-inf"), -1)  # when places were last looked for, and on what
    said: str = ""
    """Who is in the way."""
    said_at: tuple[float, int] = (float("-inf"), -1)  # when that was last asked, and of what

    @classmethod
    def of(cls, one: Reservation) -> "TenantReservation":
        # No pod's name has a slash.
        return cls(one, PodKey(one.name[0], f"{one.name[1]}/"))

    @property
    def tenant(self) -> str:
        return self.one.spec.tenant or ""

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

    @property
    def short(self) -> bool:
        """Places are missing."""
        return self.active and not self.whole and self.base.total() < self.count

    def takes(self, node: Node) -> bool:
        spec, labels = self.one.spec, dict(node.labels)
        named = not spec.nodes or node.name in spec.nodes
        return named and all(labels.get(key) == value for key, value in spec.node_selector.items())

    def differs_in_time(self, other: Reservation) -> bool:
        """Whether the other is the same object, for another time alone."""
        times = {"from_": other.spec.from_, "until": other.spec.until}
        same = self.one.spec.model_copy(update=times) == other.spec
        return same and (self.one.name, self.one.uid) == (other.name, other.uid)

    def in_use(self, used: Mapping[str, int]) -> int:
        """Places of which the tenant's pods, that use so much of a node, have something."""
        return max(math.ceil(used.get(name, 0) / count) for name, count in self.each.items())

    def placeholders(self, count: int) -> tuple[Pod, ...]:
        """For so many of its places."""
        return tuple(self.stand_in(str(number), self.each) for number in range(count))

    def stand_in(self, mark: str, asked: Amounts) -> Pod:
        """Whoever names nodes means them, whatever keeps others out."""
        spec = self.one.spec
        requests = amounts(sorted(asked.items()))
        tolerations = [{"operator": "Exists"}] if spec.nodes or spec.node_selector else []
        return Pod.read(
            {
                "metadata": {
                    "namespace": self.key.namespace,
                    "name": f"{self.key.name}{mark}",
                    "uid": f"stand-in/{self.key}{mark}",
                    "labels": {vocabulary.TENANT_LABEL: spec.tenant},
                },
                "spec": {
                    "tolerations": tolerations,
                    "containers": [{"name": "c", "resources": {"requests": requests}}],
                },
            }
        )

    def occupant(self, node: str, left: Amounts) -> Placement:
        """So much, kept on the node."""
        pod = self.stand_in(node, {name: n for name, n in left.items() if name != PODS})
        spec = replace(pod.spec, requests=tuple(sorted(left.items())), default_requests=(0, 0))
        return Placement(replace(pod, spec=spec), node, NO_ASSIGNMENT)


def text(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {text}" for name, text in amounts(sorted(found.items())).items())
