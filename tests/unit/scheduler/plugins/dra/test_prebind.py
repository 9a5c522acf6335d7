"""What is written for claims before a pod is bound, and what is taken back when it is not."""

import asyncio
import copy
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import pytest

from cluster import errors, resources, verbs
from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import NoFit, Placement, PreBindResult
from scheduler.model.pod import Pod
from scheduler.plugins.dra.claim_types import FINALIZER, ResourceClaim
from scheduler.plugins.dra.plugin import UNAVAILABLE
from scheduler.plugins.dra.prebind import ClaimPreBind
from tests.unit.scheduler.builders import a_node, a_pod, placed
from tests.unit.scheduler.plugins.dra.builders import (
    DRIVER,
    a_pod_with_claims,
    a_subrequest,
    allocated,
    claim_json,
    class_json,
    devices,
    exactly,
    first_of,
    put,
    slice_json,
)

Json = dict[str, Any]
T = TypeVar("T")


class Lost(errors.Retry):
    """The write happened; its answer was lost."""


class Store:
    """Claims by name. The next patches meet the `faults`, one each."""

    def __init__(self, *claims: Json) -> None:
        self.claims = {obj["metadata"]["name"]: copy.deepcopy(obj) for obj in claims}
        self.faults: deque[errors.KubeError | None] = deque()
        self.patched: list[str] = []
        self._versions = iter(range(100, 1000))

    async def get(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        **options: Any,
    ) -> Json:
        if name not in self.claims:
            raise errors.Gone(f"{name} is not there")
        return copy.deepcopy(self.claims[name])

    async def patch(
        self,
        resource: resources.Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        kind: verbs.PatchKind = verbs.PatchKind.MERGE,
        subresource: str | None = None,
        **options: Any,
    ) -> Json:
        await asyncio.sleep(0)
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not isinstance(fault, Lost):
            raise fault
        found = await self.get(resource, name)
        if found["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise errors.Conflict("a conflicting write")
        if subresource == "status":
            self._status(found["status"], body["status"], kind)
        else:
            found["metadata"]["finalizers"] = body["metadata"]["finalizers"]
        self.write(found)
        self.patched.append(subresource or "metadata")
        if fault is not None:
            raise fault
        return copy.deepcopy(self.claims[name])

    def write(self, obj: Json) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self.claims[obj["metadata"]["name"]] = obj

    @staticmethod
    def _status(status: Json, change: Mapping[str, Any], kind: verbs.PatchKind) -> None:
        if kind is verbs.PatchKind.STRATEGIC:
            (row,) = change["reservedFor"]
            rows = [one for one in status.get("reservedFor", []) if one["uid"] != row["uid"]]
            status["reservedFor"] = rows if "$patch" in row else [*rows, row]
            return
        for field, value in change.items():
            if value is None:
                status.pop(field, None)
            else:
                status[field] = value

    def shown(self, name: str = "one") -> tuple[list[str], list[str]]:
        """The devices of a claim, and the pods that it is reserved for."""
        status = self.claims[name]["status"]
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        return (
            [f"{row['request']}={row['device']}" for row in results],
            [row["uid"] for row in status.get("reservedFor", [])],
        )


class Scene:
    """Nodes a and b with two GPUs each; pods are placed on a."""

    def __init__(self, *claims: Json, classes: Json | None = None, leads: bool = True) -> None:
        self.store = Store(*claims)
        self.snapshot = Snapshot.of([a_node("a"), a_node("b")])
        slices = (slice_json("a", devices(2)), slice_json("b", devices(2)))
        put(self.snapshot, classes or class_json(), *slices, *claims)
        self.clock, self.stirs = 0.0, 0
        self.claiming = ClaimPreBind(
            self.store,
            self.snapshot.devices,
            now=lambda: self.clock,
            sleep=self._sleep,
            random=lambda: 0.5,
            may_write=lambda: leads,
            cluster_event=self._cluster_event,
        )

    async def _sleep(self, seconds: float) -> None:
        self.clock += seconds

    def _cluster_event(self) -> None:
        self.stirs += 1

    def place(self, name: str, *claims: str) -> Placement:
        pod: Pod = a_pod_with_claims(name, *claims)
        self.snapshot.place(pod, "a")
        return placed(pod, "a")

    def prepare(self, *placements: Placement) -> PreBindResult:
        return run(self.claiming.prepare(placements, deadline=30.0))


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def failures(found: PreBindResult) -> list[str]:
    return [one.why.removeprefix("allocating devices: ") for one in found.failed]


def test_a_claim_is_protected_then_allocated_and_reserved() -> None:
    scene = Scene(claim_json("one", exactly(count=2), finalizers=["mine"]))
    found = scene.prepare(scene.place("p", "one"))
    claim = scene.store.claims["one"]
    rule = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    assert ([one.pod.key.name for one in found.ready], scene.store.patched) == (
        ["p"],
        ["metadata", "status"],
    )
    assert claim["metadata"]["finalizers"] == ["mine", FINALIZER]
    assert claim["status"] == {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "gpus", "driver": DRIVER, "pool": "a", "device": name}
                    for name in ("gpu-0", "gpu-1")
                ]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [rule]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    }


def opaque(word: str) -> Json:
    return {"opaque": {"driver": DRIVER, "parameters": {"word": word}}}


def test_the_allocation_has_config_tolerations_and_admin_access() -> None:
    alternative = {"name": "w", **a_subrequest(tolerations=[{"key": "k", "operator": "Exists"}])}
    other = {"name": "v", **a_subrequest()}
    claim = claim_json(
        "one",
        first_of("r", alternative, other),
        exactly("watch", adminAccess=True),
        config=[
            {**opaque("all"), "requests": []},
            {**opaque("r"), "requests": ["r"]},
            {**opaque("way"), "requests": ["r/w"]},
            {**opaque("not taken"), "requests": ["r/v"]},
        ],
    )
    scene = Scene(claim, classes=class_json(config=[opaque("class")]))
    scene.prepare(scene.place("p", "one"))
    found = scene.store.claims["one"]["status"]["allocation"]["devices"]
    assert [(row["request"], row.get("adminAccess", False)) for row in found["results"]] == [
        ("r/w", False),
        ("watch", True),
    ]
    assert found["results"][0]["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert [
        (row["source"], row["opaque"]["parameters"]["word"], row.get("requests", []))
        for row in found["config"]
    ] == [
        ("FromClass", "class", []),
        ("FromClaim", "all", []),
        ("FromClaim", "r", ["r"]),
        ("FromClaim", "way", ["r/w"]),
    ]


def test_pods_that_share_a_claim_are_all_reserved() -> None:
    scene = Scene(claim_json("one"))
    found = scene.prepare(scene.place("p", "one"), scene.place("q", "one"))
    assert (len(found.ready), *scene.store.shown()) == (2, ["gpus=gpu-0"], ["uid-p", "uid-q"])


def test_an_allocated_claim_is_only_reserved() -> None:
    scene = Scene(claim_json("one", status=allocated("gpu-1", pods=("uid-x",))))
    scene.prepare(scene.place("p", "one"))
    assert (scene.store.patched, scene.store.shown()) == (
        ["status"],
        (["gpus=gpu-1"], ["uid-x", "uid-p"]),
    )


def test_writes_are_in_the_store_at_once() -> None:
    scene = Scene(claim_json("one"))
    placement = scene.place("p", "one")
    scene.prepare(placement)
    scene.snapshot.release(placement.pod, "a")
    known = scene.snapshot.devices.store.claims["ns", "one"]
    assert (known.consumers, [str(one) for one in scene.snapshot.devices.store.allocated_by]) == (
        ("uid-p",),
        [f"{DRIVER}/a/gpu-0"],
    )


@pytest.mark.parametrize(
    ("faults", "want"),
    [
        pytest.param([Lost("lost")], [], id="an answer is lost"),
        pytest.param([None, Lost("lost")], [], id="the second answer is lost"),
        pytest.param([errors.Retry("busy")] * 3, [], id="a server that is busy"),
        pytest.param([errors.Conflict("no")], [], id="a write of another client"),
        pytest.param([errors.Retry("busy")] * 100, ["busy"], id="a server that stays busy"),
        pytest.param([errors.Refused("never")], ["never"], id="a server that rejects the write"),
    ],
)
def test_faults(faults: list[errors.KubeError | None], want: list[str]) -> None:
    scene = Scene(claim_json("one"))
    scene.store.faults.extend(faults)
    found = scene.prepare(scene.place("p", "one"))
    held = ([], []) if want else (["gpus=gpu-0"], ["uid-p"])
    assert (failures(found), scene.store.shown()) == (want, held)


def test_the_first_allocation_wins() -> None:
    scene = Scene(claim_json("one"))
    placement = scene.place("p", "one")
    scene.store.write(claim_json("one", status=allocated("gpu-1", pods=("uid-x",))))
    found = scene.prepare(placement)
    assert (failures(found), scene.store.shown()) == (
        ["claim ns/one got allocated elsewhere in the meantime"],
        (["gpus=gpu-1"], ["uid-x"]),
    )


def test_a_deleted_claim_fails_its_pod() -> None:
    scene = Scene(claim_json("one"))
    placement = scene.place("p", "one")
    scene.snapshot.devices.store.drop_claim(ResourceClaim.read(claim_json("one")))
    assert failures(scene.prepare(placement)) == ["claim ns/one was deleted"]


def test_a_process_that_does_not_lead_writes_nothing() -> None:
    scene = Scene(claim_json("one"), leads=False)
    found = scene.prepare(scene.place("p", "one"))
    assert (failures(found), scene.store.patched) == (
        ["this process is no longer the leader"],
        [],
    )


def test_when_the_second_claim_fails_the_first_is_released() -> None:
    scene = Scene(claim_json("one"), claim_json("two"))
    placement = scene.place("p", "one", "two")
    scene.store.faults.extend([None, None, errors.Refused("never")])
    found = scene.prepare(placement)
    assert (failures(found), scene.store.shown("one"), scene.store.shown("two")) == (
        ["never"],
        ([], []),
        ([], []),
    )


@pytest.mark.parametrize(
    ("status", "others", "want"),
    [
        pytest.param({}, [], ([], []), id="ours alone: devices and all"),
        pytest.param({}, ["q"], (["gpus=gpu-0"], []), id="another pod is about to use it"),
        pytest.param(
            allocated("gpu-1", pods=("uid-x",)), [], (["gpus=gpu-1"], ["uid-x"]), id="another pod's"
        ),
        pytest.param(allocated("gpu-1"), [], (["gpus=gpu-1"], []), id="allocated before this pod"),
    ],
)
def test_undo(status: Json, others: list[str], want: tuple[list[str], list[str]]) -> None:
    scene = Scene(claim_json("one", status=status))
    placement = scene.place("p", "one")
    scene.prepare(placement)
    for name in others:
        scene.place(name, "one")
    run(scene.claiming.undo([placement]))
    assert scene.store.shown() == want
    assert scene.stirs == (1 if want == ([], []) else 0)


async def freed(scene: Scene, pod: Pod, why: NoFit) -> tuple[list[str], list[str]]:
    scene.claiming.free([pod], why)
    scene.claiming.free([pod], why)
    for _ in range(20):
        await asyncio.sleep(0)
    return scene.store.shown()


NO_ASSIGNMENT = NoFit(2, ((UNAVAILABLE, 2),))


@pytest.mark.parametrize(
    ("status", "why", "want"),
    [
        pytest.param(allocated("gpu-0"), NO_ASSIGNMENT, ([], []), id="not reserved"),
        pytest.param(
            allocated("gpu-0", pods=("uid-p",)), NO_ASSIGNMENT, ([], []), id="for this pod alone"
        ),
        pytest.param(
            allocated("gpu-0", pods=("uid-x",)),
            NO_ASSIGNMENT,
            (["gpus=gpu-0"], ["uid-x"]),
            id="in use by another pod",
        ),
        pytest.param(
            allocated("gpu-0"),
            NoFit(2, (("Insufficient cpu", 2),)),
            (["gpus=gpu-0"], []),
            id="not what keeps the pod waiting",
        ),
    ],
)
def test_freeing_an_allocation_that_excludes_other_nodes(
    status: Json, why: NoFit, want: tuple[list[str], list[str]]
) -> None:
    scene = Scene(claim_json("one", status=status))
    assert run(freed(scene, a_pod_with_claims("p", "one"), why)) == want
    assert len(scene.store.patched) == (1 if want == ([], []) else 0)


def test_freeing_for_a_gang_whose_first_member_has_no_claims() -> None:
    async def story(scene: Scene) -> tuple[list[str], list[str]]:
        scene.claiming.free([a_pod("leader"), a_pod_with_claims("p", "one")], NO_ASSIGNMENT)
        for _ in range(20):
            await asyncio.sleep(0)
        return scene.store.shown()

    assert run(story(Scene(claim_json("one", status=allocated("gpu-0"))))) == ([], [])
