"""
Templates and requests, made and deleted through the API server.

    draft    reads one pod of each class of equal members
    make     templates first: an autoscaler that meets a request without them gives up on it
    drop     the request first, for the same reason

Everything is tried once and says why it was not done; whoever calls tries again. What stands
already is taken as made: its name says what is in it. Nothing is decided and nothing is remembered.
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
    """Why something was not done."""


class RequestWriter:
    """`may_write` is asked before each write; `scheduler` marks what belongs to this one."""

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
        """What these members ask for; raises `WriteFailed`."""
        made = []
        for one in classes:
            made.append((objects.template(await self._read(one.source), one), len(one.pods)))
        return objects.draft(gang, self.class_name, made)

    async def _read(self, pod: Pod) -> dict[str, Any]:
        try:
            found = await self._api.get(resources.PODS, pod.key.name, namespace=pod.key.namespace)
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error
        if found["metadata"].get("uid") != pod.uid:
            raise WriteFailed(f"pod {pod.key} is another one by now")
        return found

    async def make(
        self, one: RequestDraft, attempt: int, kind: resources.Resource
    ) -> ProvisioningRequest:
        """The request that stands now; raises `WriteFailed`."""
        for template in objects.pod_templates(one, attempt, scheduler=self.scheduler):
            await self._create(resources.POD_TEMPLATES, template)
        body = objects.document(
            one,
            attempt,
            scheduler=self.scheduler,
            class_name=self.class_name,
            api_version=kind.api_version,
        )
        made = objects.read(await self._create(kind, body), scheduler=self.scheduler)
        if made is None:
            name = body["metadata"]["name"]
            raise WriteFailed(f"somebody else has a ProvisioningRequest named {name}")
        return made

    async def _create(self, kind: resources.Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        about = body["metadata"]
        if not self._may_write():
            raise WriteFailed("another scheduler leads")
        try:
            return await self._api.create(kind, body, namespace=about["namespace"])
        except errors.Conflict as error:
            if not error.exists:
                raise WriteFailed(str(error)) from error
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error
        try:
            return await self._api.get(kind, about["name"], namespace=about["namespace"])
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error

    async def drop(self, one: ProvisioningRequest, kind: resources.Resource) -> None:
        """The request and its templates are gone, or going; raises `WriteFailed`."""
        await self._delete(kind, one.name[0], one.name[1], one.uid)
        for name in one.templates:
            await self._delete(resources.POD_TEMPLATES, one.name[0], name, None)

    async def _delete(
        self, kind: resources.Resource, namespace: str, name: str, uid: str | None
    ) -> None:
        if not self._may_write():
            raise WriteFailed("another scheduler leads")
        try:
            await self._api.delete(kind, name, namespace=namespace, uid=uid)
        except (errors.Gone, errors.Conflict):
            return  # gone already, or a namesake has taken its place
        except errors.KubeError as error:
            raise WriteFailed(str(error)) from error
