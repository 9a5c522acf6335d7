"""The storage resources to watch, each with its store methods."""

from cluster import resources
from scheduler.feed import Feed
from scheduler.plugins.volumes.storage_types import (
    CsiDriver,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from scheduler.plugins.volumes.store import VolumeStore


def feeds(store: VolumeStore) -> tuple[Feed, ...]:
    """All must be in sync before the scheduler plans pods with volumes."""
    return (
        Feed(
            resources.PERSISTENT_VOLUME_CLAIMS,
            PersistentVolumeClaim.read,
            store.put_pvc,
            store.drop_pvc,
        ),
        Feed(
            resources.PERSISTENT_VOLUMES, PersistentVolume.read, store.put_volume, store.drop_volume
        ),
        Feed(resources.STORAGE_CLASSES, StorageClass.read, store.put_class, store.drop_class),
        Feed(resources.CSI_NODES, CsiNode.read, store.put_csi_node, store.drop_csi_node),
        Feed(resources.CSI_DRIVERS, CsiDriver.read, store.put_driver, store.drop_driver),
        Feed(
            resources.CSI_STORAGE_CAPACITIES,
            StorageCapacity.read,
            store.put_capacity,
            store.drop_capacity,
        ),
        Feed(
            resources.VOLUME_ATTACHMENTS,
            VolumeAttachment.read,
            store.put_attachment,
            store.drop_attachment,
        ),
    )
