"""
The collections of the API that tell the facts about devices, and what their events do.

An API server may serve none of them, or serve them later: they are watched as optional kinds. There
is one watch of ResourceSlices; whoever else reads slices hears of them by `DeviceStore.on_slice`.
"""

from typing import Final

from cluster import resources
from cluster.resources import Resource
from scheduler.feed import Feed
from scheduler.plugins.dra.claim_types import DeviceClass, ResourceClaim
from scheduler.plugins.dra.device_types import DeviceTaintRule, ResourceSlice
from scheduler.plugins.dra.store import DeviceStore

DEVICE_TAINT_RULES: Final = Resource(
    "resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False
)


def feeds(store: DeviceStore) -> tuple[Feed, ...]:
    """All that must be in sync before pods with claims are planned."""
    return (
        Feed(
            resources.RESOURCE_CLAIMS,
            ResourceClaim.read,
            store.put_claim,
            store.drop_claim,
            optional=True,
        ),
        Feed(
            resources.DEVICE_CLASSES,
            DeviceClass.read,
            store.put_class,
            store.drop_class,
            optional=True,
        ),
        Feed(
            resources.RESOURCE_SLICES,
            ResourceSlice.read,
            store.put_slice,
            store.drop_slice,
            optional=True,
        ),
        Feed(
            DEVICE_TAINT_RULES,
            DeviceTaintRule.read,
            store.put_rule,
            store.drop_rule,
            optional=True,
        ),
    )
