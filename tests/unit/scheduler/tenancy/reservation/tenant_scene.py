"""A scheduler and ResourceReservations for tenants, with an API server in memory."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cluster.informer import EventKind, WatchEvent
from policies.text import timestamp
from scheduler.tenancy.reservation import objects
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations


def at(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))


class TenantReservationScene:
    """Two nodes of four CPUs, a scheduler, and reservations by name."""

    def __init__(self, bench: Bench | None = None, *, make: Callable[..., Bench] = Bench) -> None:
        self.store = FakeReservations()
        self._start(bench or make(reservations=self.store))

    def _start(self, bench: Bench) -> None:
        self.bench = bench
        self.bench.node("m", cpu="4", labels={"disk": "fast"})
        self.bench.node("n", cpu="4")

    def reserve(self, name: str = "r", **spec: Any) -> None:
        body = {"tenant": "t", "until": at(1000.0), **spec}
        self.store.objects[name] = self.store.objects.get(name, {}) | {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "creationTimestamp": at(50.0),
            },
            "spec": body,
        }
        self.store.show(self.bench)

    def delete(self, name: str = "r") -> None:
        deleted: objects.ReservationObject | None = objects.read(self.store.objects.pop(name))
        event = WatchEvent(EventKind.DELETED, ("ns", name), deleted, deleted)
        self.bench.scheduler.tenancy.on_reservation(event)

    def pod(self, name: str, cpu: str, *, tenant: str = "other", **more: Any) -> None:
        self.bench.pod(name, cpu=cpu, labels={"tenant.kubenexus.io/name": tenant}, **more)

    def take_over(self) -> None:
        old = self.bench
        self._start(Bench(old.api, reservations=self.store))
        self.bench.now = old.now
        self.bench.show_all()
        self.store.show(self.bench)

    def outcome(self) -> tuple[str, list[str]]:
        """Pods that have a node, and the statuses of the objects."""
        assert len(self.bench.scheduler.cache_mismatches()) == 0
        nodes = self.bench.api.nodes().items()
        statuses = []
        for row in self.store.objects.values():
            status = row["status"]
            statuses.append(
                " ".join(filter(None, (status["phase"], status["held"], status["message"])))
            )
        return " ".join(sorted(name for name, node in nodes if node)), statuses
