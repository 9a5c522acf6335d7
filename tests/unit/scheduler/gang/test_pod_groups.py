"""Sizes that stand in PodGroup objects of either kind."""

from typing import Any

import pytest

from cluster.informer import EventKind, WatchEvent
from scheduler.errors import ModelError
from scheduler.gang.pod_groups import PodGroups
from scheduler.model.gang import GangKey, PodGroup, read_native_pod_group, read_x_k8s_pod_group
from scheduler.model.unit import Unit, waiting_text
from tests.unit.scheduler.builders import a_pod

G = GangKey("ns", "g")


def native(policy: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"schedulingPolicy": policy}}


def x_group(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g", "namespace": "ns"}, "spec": spec}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(
            read_native_pod_group(native({"gang": {"minCount": 4}})), PodGroup(4), id="native gang"
        ),
        pytest.param(
            read_native_pod_group(native({"basic": {}})), PodGroup(1), id="basic has no minimum"
        ),
        pytest.param(
            read_x_k8s_pod_group(x_group(minMember=3)), PodGroup(3), id="scheduler-plugins"
        ),
        pytest.param(
            read_x_k8s_pod_group(x_group(minMember=3, scheduleTimeoutSeconds=90)),
            PodGroup(3, 90.0),
            id="with a timeout",
        ),
    ],
)
def test_objects_are_read(found: PodGroup, want: PodGroup) -> None:
    assert found == want


@pytest.mark.parametrize(
    ("read", "obj", "text"),
    [
        pytest.param(
            read_native_pod_group,
            native({"gang": {}}),
            "PodGroup ns/g: spec.schedulingPolicy.gang.minCount is None, "
            "want a whole number of at least 1",
            id="no count",
        ),
        pytest.param(
            read_x_k8s_pod_group,
            x_group(minMember="3"),
            "PodGroup ns/g: spec.minMember is '3', want a whole number of at least 1",
            id="a word",
        ),
        pytest.param(
            read_x_k8s_pod_group,
            x_group(minMember=0),
            "PodGroup ns/g: spec.minMember is 0, want a whole number of at least 1",
            id="no members",
        ),
        pytest.param(
            read_x_k8s_pod_group,
            x_group(minMember="7" * 200_000),
            f"PodGroup ns/g: spec.minMember is '{'7' * 40}'..., want a whole number of at least 1",
            id="a text of any length is cut, so that no tenant fills the log",
        ),
        pytest.param(
            read_x_k8s_pod_group,
            x_group(minMember=[["3"]]),
            "PodGroup ns/g: spec.minMember is a list, want a whole number of at least 1",
            id="a list of any depth",
        ),
    ],
)
def test_invalid_fields_are_named(read: Any, obj: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(obj)
    assert str(caught.value) == text


def put(kind: EventKind, group: PodGroup | None) -> WatchEvent[PodGroup | None]:
    return WatchEvent(kind, ("ns", "g"), group, None)


def test_each_change_is_reported_once_and_the_larger_size_counts() -> None:
    heard: list[GangKey] = []
    groups = PodGroups(heard.append)
    found = [groups.find(G)]
    groups.on_native(put(EventKind.ADDED, PodGroup(4)))
    groups.on_native(put(EventKind.MODIFIED, PodGroup(4)))
    found.append(groups.find(G))
    groups.on_x(put(EventKind.ADDED, PodGroup(6, 30.0)))
    found.append(groups.find(G))
    groups.on_native(put(EventKind.DELETED, PodGroup(4)))
    groups.on_x(put(EventKind.MODIFIED, None))
    found.append(groups.find(G))
    assert (heard, found) == ([G] * 4, [None, PodGroup(4), PodGroup(6, 30.0), None])


def a_unit(*, group: PodGroup | None, sizes: tuple[int | None, ...], **more: Any) -> Unit:
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    pods = tuple(
        a_pod(f"g-{i}", **({"labels": labels} if size is None else {"gang": ("g", size)}))
        for i, size in enumerate(sizes)
    )
    return Unit(G, pods, group=group, **more)


@pytest.mark.parametrize(
    ("unit", "want"),
    [
        pytest.param(
            a_unit(group=None, sizes=(None, None)),
            (True, "waiting for pod group g: its PodGroup object does not exist"),
            id="the object is missing",
        ),
        pytest.param(
            a_unit(group=PodGroup(3), sizes=(None, None)),
            (True, "waiting for pod group g: 2/3 pods exist"),
            id="the object requires more members",
        ),
        pytest.param(
            a_unit(group=PodGroup(2), sizes=(None, None)),
            (False, "waiting for pod group g: 2/2 pods exist"),
            id="complete",
        ),
        pytest.param(
            a_unit(group=PodGroup(2), sizes=(None, 3)),
            (True, "waiting for pod group g: 2/3 pods exist"),
            id="a member that names a larger minimum counts",
        ),
        pytest.param(
            a_unit(group=None, sizes=(3, 3), bind_rejected=1),
            (True, "waiting for pod group g: 2/3 pods exist, 1 more rejected by the API server"),
            id="a refused member does not count",
        ),
    ],
)
def test_forming(unit: Unit, want: tuple[bool, str]) -> None:
    assert (unit.forming, waiting_text(unit)) == want


def test_the_timeout_of_the_object_yields_to_that_of_the_pods() -> None:
    annotations = {"pod-group.scheduling.kubenexus.io/timeout": "7s"}
    plain = a_unit(group=PodGroup(2, 90.0), sizes=(None, None))
    pods = (*plain.pods, a_pod("g-9", gang=("g", 2), annotations=annotations))
    assert (plain.timeout, Unit(G, pods, group=PodGroup(2, 90.0)).timeout) == (90.0, 7.0)
