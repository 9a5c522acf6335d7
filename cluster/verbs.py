"""
The verbs of a client, one protocol each, so that a component names the calls it makes.

A component that uses several verbs declares one class that combines them:

    class BindClient(verbs.Binds, verbs.Gets, Protocol): ...

`cluster.client.Client` has every verb; a fake in a test has those of its component.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypedDict, Unpack

from cluster.resources import Obj, Resource
from cluster.responses import Page


class PatchKind(StrEnum):
    """The content types of PATCH."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Options(TypedDict, total=False):
    """Arguments that every call accepts."""

    timeout: float
    """Seconds for the whole call; 30 when absent."""
    patience: float
    """The client waits once for a Retry-After of at most so many seconds; 0 when absent."""


class Sends(Protocol):
    """Any request, as bytes."""

    async def raw(self, method: str, path: str, **options: Unpack[Options]) -> bytes: ...


class Gets(Protocol):
    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        **options: Unpack[Options],
    ) -> Obj: ...


class Lists(Protocol):
    """A collection page by page."""

    def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        limit: int = ...,
        **options: Unpack[Options],
    ) -> AsyncIterator[Page]: ...


class Creates(Protocol):
    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str | None = None,
        **options: Unpack[Options],
    ) -> Obj: ...


class Updates(Protocol):
    """Replaces an object; the resourceVersion in it makes an outdated write a `Conflict`."""

    async def update(
        self, resource: Resource, obj: Mapping[str, Any], **options: Unpack[Options]
    ) -> Obj: ...


class Patches(Protocol):
    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        namespace: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str | None = None,
        **options: Unpack[Options],
    ) -> Obj: ...


class PatchesStatus(Protocol):
    async def patch_status(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        **options: Unpack[Options],
    ) -> Obj: ...


class Deletes(Protocol):
    """With a `uid`, the server deletes that object alone, never one that took its name."""

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        **options: Unpack[Options],
    ) -> None: ...


class Binds(Protocol):
    async def bind(
        self,
        namespace: str,
        pod: str,
        node: str,
        *,
        uid: str | None = None,
        annotations: Mapping[str, str] | None = None,
        **options: Unpack[Options],
    ) -> None: ...


class Evicts(Protocol):
    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        dry_run: bool = False,
        **options: Unpack[Options],
    ) -> None: ...
