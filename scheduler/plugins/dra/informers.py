"""
The DRA resources to watch, each with its store methods.

An API server may not serve them, or serve them later, so the scheduler watches them with optional
informers. There is one watch of ResourceSlices: other readers listen to `DeviceStore.on_slice`.
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
    """All must be in sync before the scheduler plans pods with claims."""
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
