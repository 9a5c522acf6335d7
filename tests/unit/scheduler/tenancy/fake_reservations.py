"""ResourceReservations of an API server in memory, with faults, and a watch driven by the test."""

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from cluster import errors, resources
from cluster.informer import EventKind, WatchEvent
from scheduler.tenancy.reservation import objects
from tests.unit.scheduler.bench import Bench

Json = dict[str, Any]


class FakeReservations:
    """`faults` are raised by the next creations; a `Retry` is raised after the object was created."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.faults: deque[Exception] = deque()
        self.delete_faults: deque[Exception] = deque()
        self.status_faults: deque[Exception] = deque()
        self.on_create: Callable[[str], None] = lambda verb: None
        self.on_status: Callable[[Json], None] = lambda status: None
        self.count = 0

    async def create(
        self,
        resource: resources.Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not isinstance(fault, errors.Retry):
            raise fault
        name = obj["metadata"]["name"]
        if name in self.objects:
            raise errors.Conflict("there is one", reason="AlreadyExists")
        self.count += 1
        made = copy.deepcopy(dict(obj))
        made["metadata"]["uid"] = f"object-{self.count}"
        self.objects[name] = made
        self.on_create("created")
        if fault is not None:  # the object exists, and the response is lost
            raise fault
        return made

    async def patch(
        self,
        resource: resources.Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        self.objects[name]["spec"] = body["spec"]
        return self.objects[name]

    async def patch_status(
        self,
        resource: resources.Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        if self.status_faults:
            raise self.status_faults.popleft()
        if name not in self.objects:
            raise errors.Gone("not found")
        self.objects[name]["status"] = body["status"]
        self.on_status(body["status"])
        return self.objects[name]

    async def delete(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> None:
        if self.delete_faults:
            raise self.delete_faults.popleft()
        if name not in self.objects:
            raise errors.Gone("not found")
        del self.objects[name]

    def show(self, bench: Bench) -> None:
        """Send an event for each object to the watch of a scheduler."""
        for name, obj in self.objects.items():
            found: objects.ReservationObject | None = objects.read(obj)
            event = WatchEvent(EventKind.ADDED, ("ns", name), found, None)
            bench.scheduler.tenancy.on_reservation(event)

    def statuses(self) -> list[tuple[str, str]]:
        rows = ((row["spec"]["podGroup"]["name"], row["status"]) for row in self.objects.values())
        return sorted(
            (name, ", ".join(filter(None, (status["held"], status["message"]))))
            for name, status in rows
        )


async def follow(bench: Bench) -> None:
    """Until the objects show what is reserved."""
    await bench.settle()
    for _ in range(50):
        await asyncio.sleep(0)
    await bench.settle()
