"""What is written for late claims before a pod is bound, what is waited for, and what undoes it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster import errors, resources
from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placement, PreBindResult
from scheduler.model.pod import Pod
from scheduler.plugins.volumes.prebind import VolumePreBind
from tests.unit.scheduler.builders import a_node, a_pod, placed
from tests.unit.scheduler.plugins.volumes.builders import (
    CLASSES,
    MADE,
    WAIT_FOR_FIRST_CONSUMER,
    a_claim,
    a_csi_volume,
    a_volume,
    drop,
    mounting,
    put,
)

Json = dict[str, Any]

SELECTED = vocabulary.SELECTED_NODE_ANNOTATION


class Store:
    """Claims and volumes by kind and name. The next patches meet the `faults`, one each."""

    def __init__(self, *objects: Json) -> None:
        self.objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
        self.faults: deque[errors.KubeError | None] = deque()
        self.patched: list[str] = []
        self.then: Callable[[Json], None] = lambda obj: None
        self._versions = iter(range(100, 1000))

    async def get(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        found = self.objects.get((resource.kind, name))
        if found is None:
            raise errors.Gone(f"{name} is not there")
        return found

    async def patch(
        self,
        resource: resources.Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not isinstance(fault, Lost):
            raise fault
        found = await self.get(resource, name, namespace=namespace)
        about = found["metadata"]
        if about["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise errors.Conflict("a conflicting write")
        about["resourceVersion"] = str(next(self._versions))
        about.setdefault("annotations", {}).update(body["metadata"]["annotations"])
        found["spec"].update(body.get("spec", {}))
        self.patched.append(name)
        self.then(found)
        if fault is not None:
            raise fault
        return found


async def soon(prepared: Awaitable[PreBindResult]) -> PreBindResult:
    async with asyncio.timeout(20):
        return await prepared


class Lost(errors.Retry):
    """The write happened; its answer was lost."""


class Scene:
    """One pod with one late claim, assumed on node a of two."""

    def __init__(self, claim: Json, *objects: Json, gone: bool = False, leads: bool = True) -> None:
        self.claim, self.store = claim, Store(claim, *objects)
        hosts = [a_node(n, labels={vocabulary.HOSTNAME_LABEL: n}) for n in ("a", "b")]
        self.snapshot = Snapshot.of(hosts)
        put(self.snapshot, *CLASSES, claim, *objects)
        self.clock = 0.0
        self.preparing = VolumePreBind(
            self.store,
            self.snapshot.volumes,
            now=lambda: self.clock,
            sleep=self._sleep,
            random=lambda: 0.5,
            gone=lambda pod: gone,
            may_write=lambda: leads,
            pod_check_seconds=600.0,  # a missed notification fails the test
        )
        self.placement = self.place("p", claim["metadata"]["name"])

    def place(self, name: str, claim: str) -> Placement:
        pod: Pod = a_pod(name, volumes=mounting(claim))
        self.snapshot.place(pod, "a")
        return placed(pod, "a")

    async def _sleep(self, seconds: float) -> None:
        self.clock += seconds

    def put(self, *objects: Json) -> None:
        put(self.snapshot, *objects)

    def prepared(self) -> PreBindResult:
        return asyncio.run(soon(self.preparing.prepare([self.placement], deadline=600.0)))

    def why(self) -> str:
        (failure,) = self.prepared().failed
        assert failure.placement == self.placement
        return failure.why

    def binds_at_once(self, volume: str) -> None:
        """The watch shows the write; the controllers answer it in the next moment."""

        def controllers(obj: Json) -> None:
            self.put(obj)
            name = self.claim["metadata"]["name"]
            done = a_claim(name, volume=volume, selected=_selected(obj), version="2000")
            asyncio.get_running_loop().call_soon(self.put, done)

        self.store.then = controllers


def _selected(obj: Json) -> str | None:
    found = obj["metadata"]["annotations"].get(SELECTED)
    return str(found) if found else None


def a_scene_of_a_disk() -> Scene:
    return Scene(a_claim(), a_volume(on="a"))


def a_scene_of_a_driver() -> Scene:
    return Scene(a_claim(class_name=MADE), a_csi_volume("made-pv", class_name=MADE, claim="x"))


# --- what is written ---


def test_a_static_binding_writes_the_claim_ref() -> None:
    scene = a_scene_of_a_disk()
    scene.binds_at_once("pv")
    assert scene.prepared() == PreBindResult((scene.placement,))
    volume = scene.store.objects[("PersistentVolume", "pv")]
    assert volume["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "ns",
        "name": "data",
        "uid": "uid-data",
        "resourceVersion": "1",
    }
    assert volume["metadata"]["annotations"] == {vocabulary.BOUND_BY_CONTROLLER_ANNOTATION: "yes"}


def test_a_volume_that_the_user_reserved_stays_reserved() -> None:
    scene = Scene(a_claim(), a_volume(on="a", claim="data"))
    scene.binds_at_once("pv")
    assert scene.prepared() == PreBindResult((scene.placement,))
    volume = scene.store.objects[("PersistentVolume", "pv")]
    assert (volume["spec"]["claimRef"]["uid"], volume["metadata"]["annotations"]) == (
        "uid-data",
        {},
    )


def test_provisioning_writes_the_selected_node() -> None:
    scene = a_scene_of_a_driver()
    scene.binds_at_once("made-pv")
    assert scene.prepared() == PreBindResult((scene.placement,))
    claim = scene.store.objects[("PersistentVolumeClaim", "data")]
    assert claim["metadata"]["annotations"] == {SELECTED: "a"}


def test_a_pvc_with_the_selected_node_is_only_waited_for() -> None:
    """As after a restart between the write and the bind."""
    scene = Scene(a_claim(class_name=MADE, selected="a"))

    async def run() -> PreBindResult:
        waiting = asyncio.create_task(scene.preparing.prepare([scene.placement], deadline=600.0))
        while not scene.preparing.waiting:
            await asyncio.sleep(0)
        scene.put(a_csi_volume("new"), a_claim(class_name=MADE, selected="a", volume="new"))
        return await soon(waiting)

    assert asyncio.run(run()) == PreBindResult((scene.placement,))
    assert (scene.store.patched, scene.preparing.waiting) == ([], 0)


def test_pods_without_delayed_binding_do_not_wait() -> None:
    scene = a_scene_of_a_disk()
    plain = placed(a_pod("plain"), "b")
    assert scene.preparing.needed([plain]) is False
    assert scene.preparing.needed([plain, scene.placement]) is True
    found = asyncio.run(scene.preparing.prepare([plain], deadline=600.0))
    assert found == PreBindResult((plain,))


def test_each_pod_has_its_own_result() -> None:
    """One gets its volume, the write of the other is rejected."""
    scene = Scene(a_claim(), a_volume("p1", on="a"), a_volume("p2", on="a", size="20Gi"))
    other = a_claim("other", size="15Gi")
    scene.put(other)
    second = scene.place("q", "other")
    scene.binds_at_once("p1")
    scene.store.faults.extend([None, errors.Refused("forbidden")])
    found = asyncio.run(scene.preparing.prepare([scene.placement, second], deadline=600.0))
    assert found.ready == (scene.placement,)
    assert [(one.placement, one.why) for one in found.failed] == [
        (second, "binding volumes: forbidden")
    ]


# --- what the API answers ---


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(errors.Retry("unavailable"), id="nothing happened"),
        pytest.param(Lost("no answer"), id="it happened and the answer was lost"),
    ],
)
@pytest.mark.parametrize("class_name", [WAIT_FOR_FIRST_CONSUMER, MADE])
def test_a_write_is_retried(fault: errors.KubeError, class_name: str) -> None:
    scene = a_scene_of_a_disk() if class_name == WAIT_FOR_FIRST_CONSUMER else a_scene_of_a_driver()
    scene.binds_at_once("pv" if class_name == WAIT_FOR_FIRST_CONSUMER else "made-pv")
    scene.store.faults.append(fault)
    assert scene.prepared() == PreBindResult((scene.placement,))
    assert len(scene.store.patched) == 1


def test_a_write_by_another_client_wins() -> None:
    scene = a_scene_of_a_disk()
    scene.store.objects[("PersistentVolume", "pv")]["metadata"]["resourceVersion"] = "77"
    assert scene.why() == "binding volumes: a conflicting write"


def test_a_write_that_never_succeeds_ends_at_the_deadline() -> None:
    scene = a_scene_of_a_disk()
    scene.store.faults.extend(errors.Retry("unavailable") for _ in range(1000))
    assert scene.why() == "binding volumes: unavailable"
    assert 598.0 < scene.clock < 600.0


# --- what undoes a choice ---


def failure_after(scene: Scene, *objects: Json, without: tuple[Json, ...] = ()) -> str:
    """The write is seen; a moment later the watches show this."""

    def controllers(obj: Json) -> None:
        scene.put(obj)
        loop = asyncio.get_running_loop()
        loop.call_soon(scene.put, *objects)
        loop.call_soon(drop, scene.snapshot, *without)

    scene.store.then = controllers
    return scene.why()


def test_a_provisioner_that_fails_removes_the_selected_node() -> None:
    scene = a_scene_of_a_driver()
    want = "binding volumes: no volume could be made for claim data on node a"
    assert failure_after(scene, a_claim(class_name=MADE, version="500")) == want


def test_a_claim_ref_that_was_removed() -> None:
    scene = a_scene_of_a_disk()
    want = "binding volumes: volume pv was taken from claim data again"
    assert failure_after(scene, a_volume(on="a", version="500")) == want


def test_a_pvc_that_got_another_volume() -> None:
    scene = a_scene_of_a_disk()
    want = "binding volumes: claim data got volume px in place of pv"
    assert failure_after(scene, a_claim(volume="px", version="500")) == want


def test_a_provisioned_volume_with_other_node_affinity() -> None:
    scene = a_scene_of_a_driver()
    made = a_csi_volume("far", class_name=MADE, on="b", claim="data")
    claim = a_claim(class_name=MADE, selected="a", volume="far", version="500")
    want = "binding volumes: volume far is out of reach of node a"
    assert failure_after(scene, made, claim) == want


def test_a_pvc_that_is_deleted() -> None:
    scene = a_scene_of_a_driver()
    assert failure_after(scene, without=(scene.claim,)) == "binding volumes: claim data was deleted"


def test_states_older_than_the_write_are_ignored() -> None:
    """The watch may still show the claim as it was: that is no failure of the provisioner."""
    scene = a_scene_of_a_driver()
    late: list[Callable[[], None]] = []

    def controllers(obj: Json) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(scene.put, a_claim(class_name=MADE, version="3", size="2Gi"))
        late.append(
            lambda: scene.put(
                obj, a_claim(class_name=MADE, selected="a", volume="made-pv", version="900")
            )
        )
        loop.call_soon(lambda: loop.call_soon(late[0]))

    scene.store.then = controllers
    assert scene.prepared() == PreBindResult((scene.placement,))


def test_a_pod_that_no_longer_waits() -> None:
    scene = Scene(a_claim(), a_volume(on="a"), gone=True)
    assert scene.why() == "binding volumes: the pod no longer waits for a node"


def test_volumes_that_are_not_bound_in_time() -> None:
    scene = a_scene_of_a_disk()

    def never(obj: Json) -> None:
        scene.clock = 700.0

    scene.store.then = never
    assert scene.why() == "binding volumes: the volumes were not bound in time"


def test_an_invalid_decision_is_not_written() -> None:
    scene = Scene(a_claim(), a_volume(on="b"))
    assert scene.why() == "binding volumes: no volume for claim data is left on node a"
    assert scene.store.patched == []


def test_a_process_that_does_not_lead_writes_nothing() -> None:
    scene = Scene(a_claim(), a_volume(on="a"), leads=False)
    assert scene.why() == "binding volumes: this process is no longer the leader"
    assert scene.store.patched == []
