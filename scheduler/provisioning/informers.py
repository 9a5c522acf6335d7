"""
Watches ProvisioningRequests, if the API server serves the kind, in the version that it prefers.
"""

from functools import partial
from typing import Any

from cluster import resources
from cluster.client import Client
from cluster.informer import Informer
from cluster.optional_informer import OptionalInformer
from scheduler.model.fields import lenient
from scheduler.provisioning import objects
from scheduler.provisioning.controller import ProvisioningController
from scheduler.provisioning.objects import ProvisioningRequest


def kinds(client: Client, controller: ProvisioningController) -> tuple[OptionalInformer[Any], ...]:
    """None if the controller has no writer."""
    if controller.writer is None:
        return ()
    read = lenient(partial(objects.read, scheduler=controller.writer.scheduler))

    def make(resource: resources.Resource) -> Informer[ProvisioningRequest | None]:
        controller.use(resource)
        return Informer(client, resource, keep=read, on_event=controller.on_event)

    return (
        OptionalInformer(
            client,
            resources.PROVISIONING_REQUESTS,
            make=make,
            on_event=controller.on_event,
            on_served=controller.served,
        ),
    )
