"""
The random source of the parity test's generator, and the features that can be switched off in it.

A feature that is off is never drawn. What is drawn after it then differs: a seed means the same
cluster only under the same features.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

FEATURES: Final = frozenset(
    {
        "resources",
        "containers",  # init containers, sidecars, pod-level resources, overhead
        "resize",
        "taints",
        "selector",
        "node affinity",
        "ports",
        "spread",
        "affinity",
        "anti-affinity",
        "namespaces unlike",
        "volumes",
        "late volumes",
        "disks",
        "declared",  # what a kubelet must say that it can do
    }
)


@dataclass(frozen=True, slots=True)
class Draw:
    rng: random.Random
    features: frozenset[str]

    def chance(self, share: float, feature: str = "") -> bool:
        """True for this share of calls, and never for a feature that is switched off."""
        hit = self.rng.random() < share
        return hit and (not feature or feature in self.features)

    def one(self, *items: Any) -> Any:
        return self.rng.choice(items)

    def some(self, items: Iterable[Any], least: int, most: int) -> list[Any]:
        found = list(items)
        return self.rng.sample(found, min(len(found), self.rng.randint(least, most)))

    def upto(self, least: int, most: int) -> int:
        return self.rng.randint(least, most)
