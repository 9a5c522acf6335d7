"""
List every object of every audited kind, page by page, and validate each.

    namespaces --> kinds --> pages --> objects --validate--> `take`, `Totals`

One page is in memory at a time. When a list starts over because its continue token expired, objects
that were validated already are skipped: pages come in the order of their keys.
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
PATIENCE: Final = 30.0  # seconds that a busy API server may delay a page


class NoNamespace(Exception):
    """The one namespace to be audited does not exist."""


class AuditClient(verbs.Sends, verbs.Gets, verbs.Lists, Protocol):
    """The verbs that a scan uses."""


@dataclass(slots=True)
class Totals:
    """The counts of a scan."""

    kinds: int = 0
    namespaces: set[str] = field(default_factory=set)
    objects: int = 0
    failing: int = 0
    violations: int = 0
    excepted: int = 0
    not_admitted: int = 0
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(rule, action) -> violations"""

    def add(self, namespace: str, validated: ValidatedObject) -> None:
        self.namespaces.add(namespace)
        self.objects += 1
        self.failing += bool(validated.violations)
        self.violations += len(validated.violations)
        self.excepted += validated.excepted
        self.not_admitted += validated.not_admitted
        self.rules.update((row.rule_name, row.action) for row in validated.violations)


class Scan:
    """One scan of a cluster, or of one namespace."""

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
        self._client = client
        self._policies = policies
        self._now = now
        self._only = namespace
        self._excluded = frozenset(excluded)
        self._list_not_admitted = list_not_admitted
        self._namespaces: dict[str, Json] = {}
        self._owner_read: tuple[Ref, Json | None] | None = None
        self._queues = AuditQueues(controller=self._controller)

    async def run(self, take: Callable[[Violation], None]) -> Totals:
        """Validate every object; `take` gets violations as they are found."""
        totals = Totals()
        await self._read_namespaces()
        await self._queues.read(self._client, self._all)
        for kind in await discovery.kinds(self._client, self._policies.kinds):
            totals.kinds += 1
            async for obj in self._objects(kind):
                validated = await self._validate(obj, kind)
                if validated is not None:
                    totals.add(obj["metadata"]["namespace"], validated)
                    for row in validated.violations:
                        take(row)
        return totals

    async def _read_namespaces(self) -> None:
        if self._only is not None:
            if await self._namespace(self._only) is None:
                raise NoNamespace(f"there is no namespace {self._only!r}; check --namespace")
            return
        async for page in self._pages(resources.NAMESPACES, None):
            self._namespaces |= {obj["metadata"]["name"]: _needed(obj) for obj in page.items}

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

    async def _validate(self, obj: Obj, kind: Resource) -> ValidatedObject | None:
        """The violations of the object; None where admission does not apply to it."""
        name = obj["metadata"]["namespace"]
        if name in self._excluded or validate.is_mirror(obj):
            return None
        namespace = await self._namespace(name)
        if namespace is None:
            return None
        review = validate.review(obj, kind)
        return validate.validate(
            review,
            namespace=namespace,
            owner=await self._owner(review) if decide.needs_owner(review) else None,
            queue=await self._queues.of(review),
            policies=self._policies,
            now=self._now,
            list_not_admitted=self._list_not_admitted,
        )

    async def _namespace(self, name: str) -> Json | None:
        """None where it was deleted meanwhile, and its objects with it."""
        if name not in self._namespaces:
            try:
                namespace = await self._client.get(resources.NAMESPACES, name)
            except errors.Gone:
                return None
            self._namespaces[name] = _needed(namespace)
        return self._namespaces[name]

    async def _owner(self, review: Review) -> Json | None:
        return await self._controller(review.object or {}, review.namespace)

    async def _controller(self, obj: Json, namespace: str) -> Json | None:
        """An object's controller; siblings follow each other, so the last one is cached."""
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
            owner = await self._client.get(resource, reference.name, namespace=reference.namespace)
        except errors.Gone:
            return None
        return owner if owner["metadata"].get("uid") == reference.uid else None


def _needed(namespace: Json) -> Json:
    """The fields that policies read: name and labels."""
    metadata = namespace["metadata"]
    return {"metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}}}
