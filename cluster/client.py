"""
The verbs of the Kubernetes API on raw objects: get, list, create, update, patch, delete, bind.

A `Client` turns a `Resource`, a name and a dictionary into one request, and the response back into
a dictionary. It does not retry: the caller knows what a second attempt means, and `errors` says
when one is safe. No models: a field that this program does not know survives.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Final, Self, Unpack
from urllib.parse import urlencode

import orjson

from cluster.connection.connection import Connection
from cluster.errors import Expired, Refused
from cluster.net.transport import CONNECTIONS, JSON, Now, Request, Sleep, Transport
from cluster.resources import PODS, Obj, Resource
from cluster.responses import Listing, Page, a_page, an_object
from cluster.verbs import Options, PatchKind

PAGE: Final = 1000  # objects per page: bounds the memory of a list without many requests


class Client:
    """The API server for one component. Use as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        component: str = "client",
        qps: float | None = None,
        connections: int = CONNECTIONS,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.connection = connection
        self._transport = Transport(
            connection,
            user_agent=f"kubenexus/{_version()} ({component})",
            qps=qps,
            connections=connections,
            now=now,
            sleep=sleep,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.__aexit__(kind, exc, trace)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        action: str | None = None,
        **options: Unpack[Options],
    ) -> bytes:
        """Any request, as bytes: for health checks and for calls that the verbs do not cover."""
        target = f"{path}?{urlencode(query)}" if query else path
        request = Request(action or f"{method} {path}", method, target, body, content_type)
        return await self._transport.call(request, **options)

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        **options: Unpack[Options],
    ) -> Obj:
        action = _action("get", resource, namespace, name)
        path = resource.path(namespace, name)
        return an_object(action, await self.raw("GET", path, action=action, **options))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str | None = None,
        match: str | None = None,
        limit: int = PAGE,
        **options: Unpack[Options],
    ) -> Listing:
        """All objects of a collection. Without a `resource_version`: the newest state."""
        items: list[Obj] = []
        version = ""
        async for page in self.pages(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            match=match,
            limit=limit,
            **options,
        ):
            if page.first:
                items.clear()
            items += page.items
            version = page.resource_version
        return Listing(items, version)

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str | None = None,
        match: str | None = None,
        limit: int = PAGE,
        **options: Unpack[Options],
    ) -> AsyncIterator[Page]:
        """A collection page by page; if the history expires halfway, it starts again, unpaged."""
        action = _action("list", resource, namespace, None)
        path = resource.path(namespace)
        selectors = _query(labelSelector=label_selector, fieldSelector=field_selector)
        start = _query(resourceVersion=resource_version, resourceVersionMatch=match)
        token: str | None = None
        while True:
            # The server forbids a resourceVersion beside a continue token.
            query = {**selectors, **({"continue": token} if token else start)}
            if limit:
                query["limit"] = str(limit)
            try:
                response = await self.raw("GET", path, query=query, action=action, **options)
            except Expired:
                if token is None:
                    raise
                token = None
                limit = 0
                continue
            page, token = a_page(action, response, first=token is None)
            yield page
            if not token:
                return

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
        **options: Unpack[Options],
    ) -> Obj:
        namespace = namespace or _namespace_of(obj)
        if resource.namespaced and namespace is None:
            raise Refused(f"create {resource}: the object names no namespace and none was given")
        action = _action("create", resource, namespace, _name_of(obj))
        answer = await self.raw(
            "POST",
            resource.path(namespace),
            body=orjson.dumps(obj),
            query=_query(fieldManager=field_manager),
            action=action,
            **options,
        )
        return an_object(action, answer)

    async def update(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[Options],
    ) -> Obj:
        """Replace the object; a resourceVersion in it makes an outdated write a `Conflict`."""
        namespace, name = namespace or _namespace_of(obj), _name_of(obj)
        action = _action("update", resource, namespace, name)
        path = resource.path(namespace, name, subresource)
        return an_object(
            action,
            await self.raw("PUT", path, body=orjson.dumps(obj), action=action, **options),
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        namespace: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        **options: Unpack[Options],
    ) -> Obj:
        """`force` takes fields over from other managers, and belongs to APPLY alone."""
        action = _action("patch", resource, namespace, name)
        manager = field_manager or ("kubenexus" if kind is PatchKind.APPLY else None)
        answer = await self.raw(
            "PATCH",
            resource.path(namespace, name, subresource),
            body=orjson.dumps(body),
            query=_query(fieldManager=manager, force="true" if force else None),
            content_type=kind.value,
            action=action,
            **options,
        )
        return an_object(action, answer)

    async def patch_status(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        **options: Unpack[Options],
    ) -> Obj:
        return await self.patch(
            resource, name, body, namespace=namespace, kind=kind, subresource="status", **options
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """With a `uid`, only that object: one that took its name answers `Conflict`."""
        delete_options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            delete_options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            delete_options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            delete_options["propagationPolicy"] = propagation
        action = _action("delete", resource, namespace, name)
        path = resource.path(namespace, name)
        await self.raw("DELETE", path, body=orjson.dumps(delete_options), action=action, **options)

    async def bind(
        self,
        namespace: str,
        pod: str,
        node: str,
        *,
        uid: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Bind the pod to the node; the same write sets labels and annotations on the pod.

        With a `uid`, a later pod of the same name answers `Conflict`.
        """
        metadata: Obj = {"name": pod, "namespace": namespace}
        metadata |= {"uid": uid} if uid else {}
        metadata |= {"labels": labels} if labels else {}
        metadata |= {"annotations": annotations} if annotations else {}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.raw(
            "POST",
            PODS.path(namespace, pod, "binding"),
            body=orjson.dumps(binding),
            action=f"bind pod {namespace}/{pod} to {node}",
            **options,
        )

    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        dry_run: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Evict the pod; a disruption budget that forbids it answers `Retry`."""
        delete_options: Obj = {"preconditions": {"uid": uid}} if uid else {}
        if dry_run:
            delete_options["dryRun"] = ["All"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": delete_options,
        }
        await self.raw(
            "POST",
            PODS.path(namespace, pod, "eviction"),
            body=orjson.dumps(eviction),
            query=_query(dryRun="All" if dry_run else None),
            action=f"evict pod {namespace}/{pod}",
            **options,
        )

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        lifetime: int = 300,
        stall: float = 120.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[bytes]]]:
        """The raw stream of changes; `informer.Informer` keeps a complete store from it."""
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=str(lifetime),
        )
        target = f"{resource.path(namespace)}?{urlencode(query)}"
        request = Request(_action("watch", resource, namespace, None), "GET", target)
        return self._transport.lines(request, stall=stall)


def _version() -> str:
    try:
        return version("kubenexus")
    except PackageNotFoundError:
        return "0"  # run from a source tree that is not installed


def _query(**fields: str | None) -> dict[str, str]:
    return {key: value for key, value in fields.items() if value is not None}


def _action(verb: str, resource: Resource, namespace: str | None, name: str | None) -> str:
    target = "/".join(part for part in (namespace, name) if part)
    return f"{verb} {resource} {target}".rstrip()


def _name_of(obj: Mapping[str, Any]) -> str | None:
    name = obj.get("metadata", {}).get("name")
    return name if isinstance(name, str) else None


def _namespace_of(obj: Mapping[str, Any]) -> str | None:
    namespace = obj.get("metadata", {}).get("namespace")
    return namespace if isinstance(namespace, str) else None
