"""A scheduler, gangs whose leader creates the members, and their ResourceReservations."""

from collections.abc import Awaitable, Callable
from typing import Any

from cluster.informer import EventKind, WatchEvent
from scheduler.tenancy.reservation import objects
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import leader, member, settle_gang
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations, follow

TWO, ONE = [("a", "2 x cpu 1")], [("a", "1 x cpu 1")]
SHORT = [("a", "1 x cpu 1, reserved capacity for 1 of 2; searching for the rest")]


class Scene:
    """A scheduler, its ResourceReservations, and another scheduler that takes over."""

    def __init__(self) -> None:
        self.store = FakeReservations()
        self.bench = Bench(reservations=self.store)
        self.nodes: dict[str, str] = {}  # name -> CPUs
        self.node("n", "4")

    def node(self, name: str, cpu: str, **more: Any) -> None:
        self.nodes[name] = cpu
        self.bench.node(name, cpu=cpu, **more)

    def drop_node(self, name: str) -> None:
        del self.nodes[name]
        self.bench.drop_node(name)

    def take_over(self) -> None:
        """Another scheduler starts from what the API holds."""
        old = self.bench
        self.bench = Bench(old.api, reservations=self.store)
        self.bench.now = old.now
        for name, cpu in self.nodes.items():
            self.bench.node(name, cpu=cpu)
        self.bench.show_all()
        self.store.show(self.bench)

    def outcome(self) -> tuple[str, int, list[tuple[str, str]]]:
        """Pods with a node, the number of reserved places, the statuses of the objects."""
        nodes = self.bench.api.nodes().items()
        holds = self.bench.scheduler.cache.reserved
        kept = sum(len(holds.of(key)) for key in holds)
        table = self.bench.scheduler.cache.snapshot.table
        assert len(self.bench.scheduler.cache_mismatches()) == 0
        assert min(table.free_at(row, "cpu") for row in table.rows.values()) >= 0
        return " ".join(sorted(name for name, node in nodes if node)), kept, self.store.statuses()


Story = Callable[[Scene], Awaitable[None]]


async def leader_waits(scene: Scene) -> None:
    leader(scene.bench, "a", 3)
    await settle_gang(scene.bench)
    await follow(scene.bench)


async def one_member_exists(scene: Scene) -> None:
    await leader_waits(scene)
    member(scene.bench, "a", 1, 3)
    await follow(scene.bench)


async def all_members_exist(scene: Scene) -> None:
    await one_member_exists(scene)
    member(scene.bench, "a", 2, 3)
    await follow(scene.bench)


async def leader_is_deleted(scene: Scene) -> None:
    await leader_waits(scene)
    scene.bench.delete("a-driver")
    await follow(scene.bench)


async def object_is_deleted(scene: Scene) -> None:
    await leader_waits(scene)
    (name, obj) = scene.store.objects.popitem()
    gone = objects.read(obj)
    scene.bench.scheduler.tenancy.on_reservation(
        WatchEvent(EventKind.DELETED, ("ns", name), gone, gone)
    )
    await follow(scene.bench)


async def taken_over_after_the_leader_was_deleted(scene: Scene) -> None:
    await leader_waits(scene)
    del scene.bench.api.pods["a-driver"]
    scene.take_over()
    scene.bench.pod("next", cpu="4")
    await follow(scene.bench)


async def no_member_is_created(scene: Scene) -> None:
    await leader_waits(scene)
    await scene.bench.settle(601.0)
    await follow(scene.bench)
