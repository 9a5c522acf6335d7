"""PodTemplates and ProvisioningRequests of an API server in memory, with a watch driven by the test."""

import asyncio
import copy
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cluster import errors, resources
from cluster.informer import EventKind, WatchEvent
from policies.documents.tenancy import Quota, Sharing
from policies.engine.policyset import PolicyTables as PolicyTables
from scheduler.model.policy import PlacementTables
from scheduler.provisioning import objects
from scheduler.provisioning.writer import RequestWriter
from tests.unit.scheduler.bench import NAME, Bench
from tests.unit.scheduler.fake_api import FakeApiServer

Json = dict[str, Any]
TENANT = {"tenant.kubenexus.io/name": "a"}
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


class FakeRequests:
    """`faults` are raised by the next creations; a `Retry` is raised after the object was created."""

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.templates: dict[str, Json] = {}
        self.requests: dict[str, Json] = {}
        self.faults: deque[Exception] = deque()
        self.delete_faults: deque[Exception] = deque()
        self.count = 0

    def _of(self, resource: resources.Resource) -> dict[str, Json]:
        return {
            resources.PODS: self.pods,
            resources.POD_TEMPLATES: self.templates,
            resources.PROVISIONING_REQUESTS: self.requests,
        }[resource]

    async def get(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        await asyncio.sleep(0)
        if name not in self._of(resource):
            raise errors.Gone("not found")
        return copy.deepcopy(self._of(resource)[name])

    async def create(
        self,
        resource: resources.Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        await asyncio.sleep(0)
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not isinstance(fault, errors.Retry):
            raise fault
        kept, name = self._of(resource), obj["metadata"]["name"]
        if name in kept:
            raise errors.Conflict("there is one", reason="AlreadyExists")
        self.count += 1
        kept[name] = copy.deepcopy(dict(obj))
        kept[name]["metadata"]["uid"] = f"object-{self.count}"
        if fault is not None:
            raise fault
        return copy.deepcopy(kept[name])

    async def delete(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        **options: Any,
    ) -> None:
        await asyncio.sleep(0)
        if self.delete_faults:
            raise self.delete_faults.popleft()
        kept = self._of(resource)
        if name not in kept:
            raise errors.Gone("not found")
        if uid is not None and kept[name]["metadata"]["uid"] != uid:
            raise errors.Conflict("the uid is another")
        del kept[name]


class Scene:
    """A scheduler that requests nodes, and an autoscaler driven by the test."""

    def __init__(
        self,
        store: FakeRequests | None = None,
        *,
        served: bool = True,
        api: FakeApiServer | None = None,
    ) -> None:
        self.bench = Bench(api)
        self.store = store or FakeRequests()
        self.store.pods = self.bench.api.pods
        self.controller = self.bench.scheduler.provisioning
        self.controller.writer = RequestWriter(
            self.store, class_name=CLASS, scheduler=NAME, may_write=lambda: self.bench.leading
        )
        self._shown: dict[str, objects.ProvisioningRequest] = {}
        if served:
            self.controller.served(True)
            self.controller.use(resources.PROVISIONING_REQUESTS)

    def gang(self, count: int = 2, *, size: int | None = None, **more: Any) -> None:
        for number in range(count):
            self.bench.pod(f"g-{number}", gang=("g", size or count), **more)

    def show(self) -> None:
        """The watch shows all requests as the API server has them."""
        for name, obj in self.store.requests.items():
            one = objects.read(obj, scheduler=NAME)
            assert one is not None
            old = self._shown.get(name)
            kind = EventKind.ADDED if old is None else EventKind.MODIFIED
            self._shown[name] = one
            self.controller.on_event(WatchEvent(kind, ("ns", name), one, old))
        for name in [name for name in self._shown if name not in self.store.requests]:
            gone = self._shown.pop(name)
            self.controller.on_event(WatchEvent(EventKind.DELETED, ("ns", name), gone, gone))

    def answer(self, kind: str, message: str, *, status: str = "True") -> None:
        """The autoscaler sets a condition on the only request now."""
        (obj,) = self.store.requests.values()
        at = datetime.fromtimestamp(self.bench.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        row = {"type": kind, "status": status, "message": message, "lastTransitionTime": at}
        obj.setdefault("status", {}).setdefault("conditions", []).append(row)
        self.show()

    async def passes(self, seconds: float) -> None:
        """Time, a second at a time, with all that is written shown."""
        for _ in range(int(seconds)):
            await self.bench.settle(1.0)
            while self.controller.writing:
                await asyncio.sleep(0)
            self.show()

    def requested(self) -> list[tuple[str, list[int]]]:
        """(the end of the name, how many pods of each kind) of every request."""
        return [
            (name.rsplit("-", 1)[1], [row["count"] for row in obj["spec"]["podSets"]])
            for name, obj in sorted(self.store.requests.items())
        ]

    def requests_in_full(self) -> list[tuple[int, Json]]:
        """(how many, what each requests) of the only ProvisioningRequest, fewest first."""
        (request,) = self.store.requests.values()
        found = []
        for row in request["spec"]["podSets"]:
            template = self.store.templates[row["podTemplateRef"]["name"]]["template"]
            found.append((row["count"], template["spec"]["containers"][0]["resources"]))
        return sorted(found, key=lambda one: one[0])

    def event_notes(self, reason: str) -> list[str]:
        return [note for _, note in self.bench.events(reason)]

    async def reasons(self) -> dict[str, str]:
        """Pod -> the reason of its condition, the last that was written."""
        return {name: reason for name, reason, _ in await self.bench.write_conditions()}


def all_of(count: int, reason: str) -> dict[str, str]:
    return {f"g-{number}": reason for number in range(count)}


def quota(**most: str) -> PlacementTables:
    limits = {"a": Quota.model_validate({"max": most})}
    policy = PolicyTables({}, {}, {}, (), sharing=Sharing.model_validate({}), quotas=limits)
    return PlacementTables(policy=policy)
