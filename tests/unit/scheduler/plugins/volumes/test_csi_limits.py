"""What other pods of a node hold: claims for one pod, disks, and volumes up to a limit."""

from typing import Any

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.model.pod import Pod
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.plugins.volumes import csi_limits
from scheduler.plugins.volumes import plugin as rules
from tests.unit.scheduler.builders import a_node, a_pod, pod_json
from tests.unit.scheduler.plugins.volumes.builders import (
    DRIVER,
    MADE,
    a_claim,
    a_csi_node,
    a_csi_volume,
    a_driver,
    a_snapshot,
    a_volume,
    an_attachment,
    drop,
    filter_result,
    mounting,
    put,
)

Json = dict[str, Any]

# --- what other pods hold ---


def test_a_read_write_once_pod_claim_in_use() -> None:
    held = a_pod("other", node="a", volumes=mounting("data"))
    snapshot = a_snapshot(a_claim(volume="pv", modes=("ReadWriteOncePod",)), a_volume())
    assert filter_result(snapshot, volumes=mounting("data")) == ({"a", "b"}, {})
    snapshot.charge(held, "a")
    assert filter_result(snapshot, volumes=mounting("data")) == (
        set(),
        {rules.IN_USE_BY_OTHER_POD: 2},
    )
    snapshot.release(held, "a")
    assert filter_result(snapshot, volumes=mounting("data")) == ({"a", "b"}, {})


def test_ephemeral_volumes_do_not_count_as_use_of_a_claim() -> None:
    own = a_claim("p-x", volume="pv", owner="uid-p", modes=("ReadWriteOncePod",))
    snapshot = a_snapshot(own, a_volume())
    snapshot.charge(a_pod("other", node="a", volumes=mounting("p-x")), "a")
    volumes = [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]
    assert filter_result(snapshot, volumes=volumes) == ({"a", "b"}, {})
    assert filter_result(snapshot, volumes=mounting("p-x")) == (
        set(),
        {rules.IN_USE_BY_OTHER_POD: 2},
    )


def test_a_deleted_node_frees_the_claims_of_its_pods() -> None:
    snapshot = a_snapshot(a_claim(volume="pv", modes=("ReadWriteOncePod",)), a_volume())
    snapshot.charge(a_pod("other", node="a", volumes=mounting("data")), "a")
    snapshot.drop_node("a")
    assert filter_result(snapshot, volumes=mounting("data")) == ({"b"}, {})


def gce(name: str, *, read_only: bool = False) -> Json:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(name: str, *, read_only: bool = False) -> Json:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(name: str, *, read_only: bool = False) -> Json:
    return {"iscsi": {"iqn": name, "targetPortal": "t", "lun": 0, "readOnly": read_only}}


def rbd(name: str, *monitors: str, pool: str = "rbd", read_only: bool = False) -> Json:
    return {"rbd": {"image": name, "pool": pool, "monitors": list(monitors), "readOnly": read_only}}


@pytest.mark.parametrize(
    ("held", "wanted", "conflicts"),
    [
        pytest.param(gce("d"), gce("d"), True, id="the same GCE disk"),
        pytest.param(gce("d"), gce("e"), False, id="another GCE disk"),
        pytest.param(gce("d"), ebs("d"), False, id="another kind of disk"),
        pytest.param(
            gce("d", read_only=True), gce("d", read_only=True), False, id="both only read"
        ),
        pytest.param(gce("d", read_only=True), gce("d"), True, id="one of them writes"),
        pytest.param(
            ebs("d", read_only=True), ebs("d", read_only=True), True, id="EBS is never shared"
        ),
        pytest.param(iscsi("q"), iscsi("q"), True, id="the same iSCSI target"),
        pytest.param(
            iscsi("q", read_only=True), iscsi("q", read_only=True), False, id="iSCSI, only read"
        ),
        pytest.param(rbd("i", "m1", "m2"), rbd("i", "m2", "m3"), True, id="one Ceph cluster"),
        pytest.param(rbd("i", "m1"), rbd("i", "m2"), False, id="another Ceph cluster"),
        pytest.param(rbd("i", "m1"), rbd("i", "m1", pool="p"), False, id="another pool"),
    ],
)
def test_disks_that_two_pods_of_a_node_may_not_share(
    held: Json, wanted: Json, conflicts: bool
) -> None:
    snapshot = a_snapshot()
    snapshot.charge(a_pod("other", node="a", volumes=[{"name": "v", **held}]), "a")
    want = ({"b"}, {rules.DISK_CONFLICT: 1}) if conflicts else ({"a", "b"}, {})
    assert filter_result(snapshot, volumes=[{"name": "v", **wanted}]) == want


# --- limits of CSI drivers ---


FULL = csi_limits.EXCEEDED


def a_snapshot_with_limits(*objects: Json) -> Snapshot:
    """Node a takes one volume of the driver, node b any number; p1 and p2 are bound."""
    return a_snapshot(
        a_csi_node("a", csi=1),
        a_csi_node("b", csi=None),
        a_claim("c1", volume="p1"),
        a_csi_volume("p1"),
        a_claim("c2", volume="p2"),
        a_csi_volume("p2"),
        *objects,
    )


def test_a_node_takes_as_many_volumes_as_its_driver_allows() -> None:
    snapshot = a_snapshot_with_limits()
    first = a_pod("first", node="a", volumes=mounting("c1"))
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})
    assert filter_result(snapshot, volumes=mounting("c1", "c2")) == ({"b"}, {FULL: 1})
    snapshot.charge(first, "a")
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"b"}, {FULL: 1})
    assert filter_result(snapshot, volumes=mounting("c1")) == ({"a", "b"}, {})
    snapshot.release(first, "a")
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})


def test_a_volume_that_two_pods_share_counts_once() -> None:
    snapshot = a_snapshot_with_limits(a_csi_node("a", csi=2))
    for name in ("one", "two"):
        snapshot.charge(a_pod(name, node="a", volumes=mounting("c1")), "a")
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})


def test_volumes_to_provision_count() -> None:
    snapshot = a_snapshot_with_limits(
        a_claim("m1", class_name=MADE), a_claim("m2", class_name=MADE), a_csi_node("a", csi=1)
    )
    assert filter_result(snapshot, volumes=mounting("m1", "m2")) == ({"b"}, {FULL: 1})
    snapshot.charge(a_pod("other", node="a", volumes=mounting("m1")), "a")
    assert filter_result(snapshot, volumes=mounting("m2")) == ({"b"}, {FULL: 1})


def test_a_pvc_counts_as_its_provisioned_volume() -> None:
    """Counts follow a claim whose volume turns out to be another driver's."""
    snapshot = a_snapshot_with_limits(a_claim("m1", class_name=MADE))
    snapshot.charge(a_pod("other", node="a", volumes=mounting("m1")), "a")
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"b"}, {FULL: 1})
    put(snapshot, a_csi_volume("p3", "another.example.com"), a_claim("m1", volume="p3"))
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})


def test_a_volume_that_appears_after_its_pvc_counts() -> None:
    """Watches keep no order among each other."""
    snapshot = a_snapshot_with_limits(a_claim("c3", volume="p3"))
    snapshot.charge(a_pod("other", node="a", volumes=mounting("c3")), "a")
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})
    put(snapshot, a_csi_volume("p3"))
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"b"}, {FULL: 1})


def test_a_node_above_its_limit_accepts_volumes_that_it_has() -> None:
    snapshot = a_snapshot_with_limits(a_csi_node("a", csi=0))
    snapshot.charge(a_pod("other", node="a", volumes=mounting("c1")), "a")
    assert filter_result(snapshot, volumes=mounting("c1")) == ({"a", "b"}, {})


@pytest.mark.parametrize(
    ("attachment", "want"),
    [
        pytest.param(an_attachment("va", "a", "p1"), ({"b"}, {FULL: 1}), id="no pod mounts it"),
        pytest.param(an_attachment("va", "b", "p1"), ({"a", "b"}, {}), id="at another node"),
        pytest.param(an_attachment("va", "a", "gone"), ({"a", "b"}, {}), id="its volume is gone"),
        pytest.param(
            an_attachment("va", "a", "p1", "another.example.com"),
            ({"a", "b"}, {}),
            id="by another driver",
        ),
    ],
)
def test_attachments_without_a_pod(attachment: Json, want: object) -> None:
    snapshot = a_snapshot_with_limits(attachment)
    assert filter_result(snapshot, volumes=mounting("c2")) == want
    drop(snapshot, attachment)
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})


def test_an_attachment_of_a_volume_that_a_pod_mounts_counts_once() -> None:
    snapshot = a_snapshot_with_limits(a_csi_node("a", csi=2), an_attachment("va", "a", "p1"))
    snapshot.charge(a_pod("other", node="a", volumes=mounting("c1")), "a")
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})


def test_a_node_that_appears_brings_its_attachments() -> None:
    snapshot = a_snapshot_with_limits(a_csi_node("new", csi=1), an_attachment("va", "new", "p1"))
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {})
    snapshot.put_node(a_node("new"))
    assert filter_result(snapshot, volumes=mounting("c2")) == ({"a", "b"}, {FULL: 1})


def test_a_required_driver() -> None:
    snapshot = a_snapshot_with_limits(a_driver(required=True))
    snapshot.put_node(a_node("bare"))
    missing = csi_limits.NOT_INSTALLED % DRIVER
    assert filter_result(snapshot, volumes=mounting("c1")) == ({"a", "b"}, {missing: 1})


def test_in_tree_disks_count_for_the_driver_that_they_migrated_to() -> None:
    nodes = {"kind": "CSINode", "metadata": {"name": "a"}, "spec": {"drivers": [
        {"name": "ebs.csi.aws.com", "allocatable": {"count": 1}}]}}  # fmt: skip
    old = a_volume("old", awsElasticBlockStore={"volumeID": "aws://z1/vol-1"})
    snapshot = a_snapshot(nodes, a_claim(volume="old"), old)
    snapshot.charge(a_pod("o", node="a", volumes=[{"name": "v", **ebs("vol-2")}]), "a")
    assert filter_result(snapshot, volumes=mounting("data")) == ({"b"}, {FULL: 1})
    same = a_pod("same", volumes=mounting("data"))
    put(snapshot, a_volume("old", awsElasticBlockStore={"volumeID": "aws://z1/vol-2"}))
    assert filters.feasible(snapshot, same, Memo()).sum() == 2


# --- the order of the filters ---


def test_the_first_filter_gives_the_reason() -> None:
    """A claim for one pod, in use, out of reach and over the limit: the first filter gives the reason."""
    snapshot = a_snapshot_with_limits(
        a_claim(volume="pv", modes=("ReadWriteOncePod",)),
        a_csi_volume("pv", on="nowhere"),
        a_csi_node("b", csi=0),
    )
    assert filter_result(snapshot, volumes=mounting("data")) == (
        set(),
        {FULL: 1, rules.AFFINITY_MISMATCH: 1},
    )
    snapshot.charge(a_pod("other", node="a", volumes=mounting("data")), "a")
    assert filter_result(snapshot, volumes=mounting("data")) == (
        set(),
        {rules.IN_USE_BY_OTHER_POD: 2},
    )


def test_equal_names_in_two_namespaces_are_two_pvcs() -> None:
    """Equal shapes share what was found out; these must not."""
    here, there = pod_json(volumes=mounting("data")), pod_json(volumes=mounting("data"))
    there["metadata"]["namespace"] = "elsewhere"
    assert Pod.read(here).spec != Pod.read(there).spec
    assert Pod.read(there).spec.volumes.pvc_keys() == (("elsewhere", "data"),)


@pytest.mark.parametrize("deleted", ["0", "zz"])
def test_the_csi_node_of_a_deleted_node_hides_no_other(deleted: str) -> None:
    """The object of a deleted node may stay for a while, before or after others."""
    snapshot = a_snapshot(a_claim("c1", volume="p1"), a_csi_volume("p1"))
    put(snapshot, a_csi_node(deleted, csi=9), a_csi_node("a", csi=0), a_csi_node("b", csi=1))
    assert filter_result(snapshot, volumes=mounting("c1")) == ({"b"}, {FULL: 1})


def test_two_attachments_of_one_volume_beside_another_volume() -> None:
    """The second attachment of p1 stays when the first is gone, and follows its volume."""
    first, second = an_attachment("v1", "a", "p1"), an_attachment("v2", "a", "p1")
    snapshot = a_snapshot_with_limits(
        a_csi_node("a", csi=2),
        a_claim("c3", volume="p3"),
        a_csi_volume("p3"),
        first,
        second,
        an_attachment("v3", "a", "p2"),
    )
    found = [filter_result(snapshot, volumes=mounting("c3"))]
    for gone in (first, a_csi_volume("p1")):
        drop(snapshot, gone)
        found.append(filter_result(snapshot, volumes=mounting("c3")))
    assert found == [({"b"}, {FULL: 1}), ({"b"}, {FULL: 1}), ({"a", "b"}, {})]


def test_counts_stay_when_many_nodes_are_added() -> None:
    snapshot = a_snapshot_with_limits()
    snapshot.charge(a_pod("other", node="a", volumes=mounting("c1")), "a")
    before = filter_result(snapshot, volumes=mounting("c2"))
    added = {f"new-{number:03}" for number in range(200)}
    for name in sorted(added):
        snapshot.put_node(a_node(name))
        put(snapshot, a_csi_node(name, csi=0))
    after = filter_result(snapshot, volumes=mounting("c2"))
    assert (before, after) == (({"b"}, {FULL: 1}), ({"b"}, {FULL: 1 + len(added)}))
