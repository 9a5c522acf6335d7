"""
Watches ProvisioningRequests, if the API server serves the kind, in the version that it prefers.
"""

from functools import partial
from typing import Any

from cluster import resources
from cluster.client import Client
from cluster.informer import Informer
from cluster.optional_informer import OptionalInformer
from scheduler.failed_events import FailedEvents
from scheduler.isolation import Isolation
from scheduler.provisioning import objects
from scheduler.provisioning.controller import ProvisioningController
from scheduler.provisioning.objects import ProvisioningRequest


def kinds(
    client: Client,
    controller: ProvisioningController,
    isolation: Isolation,
    failed: FailedEvents,
) -> tuple[OptionalInformer[Any], ...]:
    """None if the controller has no writer."""
    if controller.writer is None:
        return ()
    read = isolation.reader(partial(objects.read, scheduler=controller.writer.scheduler))
    on_event = failed.guard(resources.PROVISIONING_REQUESTS.kind, controller.on_event)

    def make(resource: resources.Resource) -> Informer[ProvisioningRequest | None]:
        controller.use(resource)
        return Informer(client, resource, keep=read, on_event=on_event)

    return (
        OptionalInformer(
            client,
            resources.PROVISIONING_REQUESTS,
            make=make,
            on_event=on_event,
            on_served=controller.served,
        ),
    )
