"""
The collections of the API that tell the facts about devices, and what their events do.

An API server may serve none of them, or serve them later: they are watched as optional kinds. There
is one watch of ResourceSlices; whoever else reads slices hears of them by `DeviceFacts.on_slice`.
"""

from typing import Final

from cluster import resources
from cluster.resources import Resource
from scheduler.feed import Feed
from scheduler.plugins.dra.claim_types import Claim, DeviceClass
from scheduler.plugins.dra.device_types import Rule, Slice
from scheduler.plugins.dra.store import DeviceFacts

DEVICE_TAINT_RULES: Final = Resource(
    "resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False
)


def feeds(facts: DeviceFacts) -> tuple[Feed, ...]:
    """All that must be in sync before pods with claims are planned."""
    return (
        Feed(resources.RESOURCE_CLAIMS, Claim.read, facts.put_claim, facts.drop_claim),
        Feed(resources.DEVICE_CLASSES, DeviceClass.read, facts.put_class, facts.drop_class),
        Feed(resources.RESOURCE_SLICES, Slice.read, facts.put_slice, facts.drop_slice),
        Feed(DEVICE_TAINT_RULES, Rule.read, facts.put_rule, facts.drop_rule),
    )
