"""
Watching the requests, where the API server has the kind, in the version that it prefers.
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


def kinds(client: Client, asking: ProvisioningController) -> tuple[OptionalInformer[Any], ...]:
    """None where nothing is ever asked for."""
    if asking.writer is None:
        return ()
    read = lenient(partial(objects.read, scheduler=asking.writer.scheduler))

    def make(found: resources.Resource) -> Informer[ProvisioningRequest | None]:
        asking.kind = found
        return Informer(client, found, keep=read, on_event=asking.on_event)

    kind = OptionalInformer(
        client, resources.PROVISIONING_REQUESTS, make=make, on_event=asking.on_event
    )
    kind.on_served = asking.served
    return (kind,)
