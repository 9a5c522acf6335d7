"""The collections of the API that tell the facts about storage, and what their events do."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cluster import resources
from cluster.client import Client
from cluster.informer import Event, Informer
from scheduler.feed import Feed
from scheduler.plugins.volumes.storage_types import (
    Attachment,
    Capacity,
    Claim,
    CsiDriver,
    CsiNode,
    StorageClass,
    Volume,
)
from scheduler.plugins.volumes.store import VolumeFacts


def informers(
    client: Client, facts: VolumeFacts, on_event: Callable[[Feed, Event[Any]], None]
) -> list[Informer[Any]]:
    """A watch for each; `on_event` hands what it is told to the feed's `take`."""
    return [
        Informer(client, feed.resource, keep=feed.read, on_event=partial(on_event, feed))
        for feed in feeds(facts)
    ]


def feeds(facts: VolumeFacts) -> tuple[Feed, ...]:
    """All that must be in sync before pods with volumes are planned."""
    return (
        Feed(resources.PERSISTENT_VOLUME_CLAIMS, Claim.read, facts.put_claim, facts.drop_claim),
        Feed(resources.PERSISTENT_VOLUMES, Volume.read, facts.put_volume, facts.drop_volume),
        Feed(resources.STORAGE_CLASSES, StorageClass.read, facts.put_class, facts.drop_class),
        Feed(resources.CSI_NODES, CsiNode.read, facts.put_csi_node, facts.drop_csi_node),
        Feed(resources.CSI_DRIVERS, CsiDriver.read, facts.put_driver, facts.drop_driver),
        Feed(
            resources.CSI_STORAGE_CAPACITIES,
            Capacity.read,
            facts.put_capacity,
            facts.drop_capacity,
        ),
        Feed(
            resources.VOLUME_ATTACHMENTS,
            Attachment.read,
            facts.put_attachment,
            facts.drop_attachment,
        ),
    )
