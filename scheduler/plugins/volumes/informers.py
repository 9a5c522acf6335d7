"""The collections of the API that tell the facts about storage, and what their events do."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cluster import resources
from cluster.client import Client
from cluster.informer import Informer, WatchEvent
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


def informers(
    client: Client, facts: VolumeStore, on_event: Callable[[Feed, WatchEvent[Any]], None]
) -> list[Informer[Any]]:
    """A watch for each; `on_event` hands what it is told to the feed's `take`."""
    return [
        Informer(client, feed.resource, keep=feed.read, on_event=partial(on_event, feed))
        for feed in feeds(facts)
    ]


def feeds(facts: VolumeStore) -> tuple[Feed, ...]:
    """All that must be in sync before pods with volumes are planned."""
    return (
        Feed(
            resources.PERSISTENT_VOLUME_CLAIMS,
            PersistentVolumeClaim.read,
            facts.put_claim,
            facts.drop_claim,
        ),
        Feed(
            resources.PERSISTENT_VOLUMES, PersistentVolume.read, facts.put_volume, facts.drop_volume
        ),
        Feed(resources.STORAGE_CLASSES, StorageClass.read, facts.put_class, facts.drop_class),
        Feed(resources.CSI_NODES, CsiNode.read, facts.put_csi_node, facts.drop_csi_node),
        Feed(resources.CSI_DRIVERS, CsiDriver.read, facts.put_driver, facts.drop_driver),
        Feed(
            resources.CSI_STORAGE_CAPACITIES,
            StorageCapacity.read,
            facts.put_capacity,
            facts.drop_capacity,
        ),
        Feed(
            resources.VOLUME_ATTACHMENTS,
            VolumeAttachment.read,
            facts.put_attachment,
            facts.drop_attachment,
        ),
    )
