"""
Creates and deletes ProvisioningRequests and PodTemplates through the API server.

    draft    reads one pod of each class of equal members
    create   templates first: an autoscaler gives up on a request without them
    delete   the request first, for the same reason

Each method tries once and raises `WriteFailed`; the caller retries. An object that exists counts as
created, because its name is derived from its content. The writer keeps no state.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cluster import errors, resources, verbs
from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod
from scheduler.provisioning import objects
from scheduler.provisioning.objects import EqualMembers, ProvisioningRequest, RequestDraft


class RequestClient(verbs.Gets, verbs.Creates, verbs.Deletes, Protocol):
    """The verbs that requests are written with."""


class WriteFailed(Exception):
    """Why an object was not read, created or deleted."""


class RequestWriter:
    """`may_write` is called before each write; `scheduler` labels the objects of this scheduler."""

    def __init__(
        self,
        api: RequestClient,
        *,
        class_name: str,
        scheduler: str,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.class_name = objects.check_class(class_name)
        self.scheduler = scheduler
        self._api, self._may_write = api, may_write

    async def draft(self, gang: GangKey, classes: Sequence[EqualMembers]) -> RequestDraft:
        """The request for these members; raises `WriteFailed`."""
        templates = []
        for members in classes:
            template = objects.template(await self._read(members.source), members)
            templates.append((template, len(members.pods)))
        return objects.draft(gang, self.class_name, templates)

    async def _read(self, pod: Pod) -> dict[str, Any]:
        try:
            current = await self._api.get(resources.PODS, pod.key.name, namespace=pod.key.namespace)
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error
        if current["metadata"].get("uid") != pod.uid:
            raise WriteFailed(f"pod {pod.key} was replaced by another pod")
        return current

    async def create(
        self, draft: RequestDraft, attempt: int, kind: resources.Resource
    ) -> ProvisioningRequest:
        """The request as the API server has it; raises `WriteFailed`."""
        for template in objects.pod_templates(draft, attempt, scheduler=self.scheduler):
            await self._create(resources.POD_TEMPLATES, template)
        body = objects.document(
            draft,
            attempt,
            scheduler=self.scheduler,
            class_name=self.class_name,
            api_version=kind.api_version,
        )
        created = objects.read(await self._create(kind, body), scheduler=self.scheduler)
        if created is None:
            name = body["metadata"]["name"]
            raise WriteFailed(f"ProvisioningRequest {name} exists and belongs to another owner")
        return created

    async def _create(self, kind: resources.Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        metadata = body["metadata"]
        if not self._may_write():
            raise WriteFailed("another scheduler leads")
        try:
            return await self._api.create(kind, body, namespace=metadata["namespace"])
        except errors.Conflict as error:
            if not error.exists:
                raise WriteFailed(str(error)) from error
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error
        try:
            return await self._api.get(kind, metadata["name"], namespace=metadata["namespace"])
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error

    async def delete(self, request: ProvisioningRequest, kind: resources.Resource) -> None:
        """Delete the request and its templates; raises `WriteFailed`."""
        namespace, name = request.name
        await self._delete(kind, namespace, name, request.uid)
        for template in request.templates:
            await self._delete(resources.POD_TEMPLATES, namespace, template, None)

    async def _delete(
        self, kind: resources.Resource, namespace: str, name: str, uid: str | None
    ) -> None:
        if not self._may_write():
            raise WriteFailed("another scheduler leads")
        try:
            await self._api.delete(kind, name, namespace=namespace, uid=uid)
        except (errors.Gone, errors.Conflict):
            return  # it does not exist, or another object has its name
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error
