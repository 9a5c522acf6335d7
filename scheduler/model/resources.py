"""Names of resources, the cap on amounts, and what scores count for absent requests."""

from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
HUGEPAGES: Final = "hugepages-"
"""How the names of huge page resources begin."""

LARGEST: Final = 2**55
"""Amounts are capped so that the sum over any node's pods stays within an int64."""

DEFAULT_REQUESTS: Final = {CPU: 100, MEMORY: 200 * 2**20}
"""What kube-scheduler's scores count for a container without such a request."""
