"""
AuditClient every object of every kind that is judged, page by page, and lays each before the judge.

    namespaces --> kinds --> pages --> objects --judge--> rows to `take`, numbers to `Sums`

One page is in memory at a time. Where a listing has to begin anew because it took longer than the
server remembers, what was judged already is passed over: pages come in the order of their keys.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from cluster import errors, resources, verbs
from cluster.events.correlator import Ref
from cluster.resources import Obj, Resource
from cluster.responses import Page
from kubenexus.audit import kinds as discovery
from kubenexus.audit import validate
from kubenexus.audit.kueue_queues import AuditQueues
from kubenexus.audit.validate import ValidatedObject, Violation
from policies.engine.policyset import PolicySet
from policies.json_fields import Json
from policies.pods import workloads
from webhook.admission import audit, decide
from webhook.review.codec import Review

PAGE: Final = 250  # objects in memory at a time
PATIENCE: Final = 30.0  # seconds that a busy server may ask to wait


class NoNamespace(Exception):
    """The one namespace to be audited does not exist."""


class AuditClient(verbs.Sends, verbs.Gets, verbs.Lists, Protocol):
    """The verbs that a scan uses."""


@dataclass(slots=True)
class Sums:
    """What a scan counted."""

    kinds: int = 0
    namespaces: set[str] = field(default_factory=set)
    objects: int = 0
    failing: int = 0
    violations: int = 0
    excepted: int = 0
    not_admitted: int = 0
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(rule, action) -> violations"""

    def add(self, namespace: str, judged: ValidatedObject) -> None:
        self.namespaces.add(namespace)
        self.objects += 1
        self.failing += bool(judged.violations)
        self.violations += len(judged.violations)
        self.excepted += judged.excepted
        self.not_admitted += judged.not_admitted
        self.rules.update((row.rule_name, row.action) for row in judged.violations)


class Scan:
    """One walk over a cluster, or over one namespace of it."""

    def __init__(
        self,
        client: AuditClient,
        policies: PolicySet,
        *,
        now: datetime,
        namespace: str | None = None,
        excluded: Collection[str] = (),
        list_not_admitted: bool = False,
    ) -> None:
        self._client, self._policies, self._now = client, policies, now
        self._only, self._excluded = namespace, frozenset(excluded)
        self._list_not_admitted = list_not_admitted
        self._namespaces: dict[str, Json] = {}
        self._owner_read: tuple[Ref, Json | None] | None = None
        self._queues = AuditQueues(controller=self._controller)

    async def run(self, take: Callable[[Violation], None]) -> Sums:
        """Judge everything; rows are taken as they are found."""
        sums = Sums()
        await self._read_namespaces()
        await self._queues.read(self._client, self._all)
        for kind in await discovery.kinds(self._client, self._policies.kinds):
            sums.kinds += 1
            async for obj in self._objects(kind):
                judged = await self._judged(obj, kind)
                if judged is not None:
                    sums.add(obj["metadata"]["namespace"], judged)
                    for row in judged.violations:
                        take(row)
        return sums

    async def _read_namespaces(self) -> None:
        if self._only is not None:
            if await self._namespace(self._only) is None:
                raise NoNamespace(f"there is no namespace {self._only!r}; check --namespace")
            return
        async for page in self._pages(resources.NAMESPACES, None):
            self._namespaces |= {obj["metadata"]["name"]: _kept(obj) for obj in page.items}

    def _pages(self, kind: Resource, namespace: str | None) -> AsyncIterator[Page]:
        return self._client.pages(kind, namespace=namespace, limit=PAGE, patience=PATIENCE)

    def _all(self, kind: Resource) -> AsyncIterator[Page]:
        return self._pages(kind, self._only if kind.namespaced else None)

    async def _objects(self, kind: Resource) -> AsyncIterator[Obj]:
        """Every object once; none of a kind that is uninstalled meanwhile."""
        reached, done = "", ""
        try:
            async for page in self._pages(kind, self._only):
                if page.first:
                    done = reached
                for obj in page.items:
                    key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                    if key > done:
                        reached = max(reached, key)
                        yield obj
        except errors.Gone:
            return

    async def _judged(self, obj: Obj, kind: Resource) -> ValidatedObject | None:
        """What is found about the object; None where admission would not be asked about it."""
        name = obj["metadata"]["namespace"]
        if name in self._excluded or validate.is_mirror(obj):
            return None
        namespace = await self._namespace(name)
        if namespace is None:
            return None
        asked = validate.review(obj, kind)
        return validate.judge(
            asked,
            namespace=namespace,
            owner=await self._owner(asked) if decide.needs_owner(asked) else None,
            queue=await self._queues.of(asked),
            policies=self._policies,
            now=self._now,
            list_not_admitted=self._list_not_admitted,
        )

    async def _namespace(self, name: str) -> Json | None:
        """None where it is gone by now, and its objects with it."""
        if name not in self._namespaces:
            try:
                found = await self._client.get(resources.NAMESPACES, name)
            except errors.Gone:
                return None
            self._namespaces[name] = _kept(found)
        return self._namespaces[name]

    async def _owner(self, asked: Review) -> Json | None:
        return await self._controller(asked.object or {}, asked.namespace)

    async def _controller(self, obj: Json, namespace: str) -> Json | None:
        """An object's controller; siblings follow each other, so one is remembered."""
        reference = audit.controller(obj, namespace)
        if reference is None:
            return None
        if self._owner_read is None or self._owner_read[0] != reference:
            self._owner_read = reference, await self._read_owner(reference)
        return self._owner_read[1]

    async def _read_owner(self, reference: Ref) -> Json | None:
        group, _, version = reference.api_version.rpartition("/")
        if (group, reference.kind) not in workloads.KINDS:
            return None
        plural = workloads.plural(reference.kind)
        resource = Resource(group, version, plural, reference.kind)
        try:
            found = await self._client.get(resource, reference.name, namespace=reference.namespace)
        except errors.Gone:
            return None
        return found if found["metadata"].get("uid") == reference.uid else None


def _kept(namespace: Json) -> Json:
    """What policies ask of a namespace: its name and labels."""
    metadata = namespace["metadata"]
    return {"metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}}}
