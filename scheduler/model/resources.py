"""Names of resources, the cap on amounts, and what scores count for absent requests."""

from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
HUGEPAGES: Final = "hugepages-"
"""How the names of huge page resources begin."""

LARGEST: Final = 2**55
"""
The cap on every amount: of a pod, of a node, and of what a row of the node table has left. A node
has less, so a pod that requests so much fits nowhere.
"""

DEFAULT_REQUESTS: Final = {CPU: 100, MEMORY: 200 * 2**20}
"""What kube-scheduler's scores count for a container without such a request."""


def capped(amount: int) -> int:
    """An amount as the scheduler counts it, of any size in an object."""
    return min(max(amount, 0), LARGEST)
