"""
Random objects of every kind that the scheduler reads, with the extremes that an API server stores.

    magnitudes, lengths, counts   drawn on a log scale: every size has the same chance
    names                         few, so that objects refer to each other
    `junk`                        any JSON in any place of a kind that others define: its schema may
                                  be older or laxer than what the scheduler reads

A pod never selects the node `QUIET` and never tolerates its taint, so a test can tell whether other
pods are still placed.
"""

import copy
import json
from typing import Any

from hypothesis import strategies as st

from policies import vocabulary
from policies.pods import intent
from tests.unit.scheduler.builders import numa_labels
from tests.unit.scheduler.extreme_values import (
    AMOUNTS,
    DEEP,
    DURATION,
    JUNK,
    KEY,
    LABELS,
    NAME,
    NODE,
    NODES,
    QUANTITY,
    RESOURCE,
    SELECTOR,
    SIZE,
    STATED,
    TEXT,
    TIME,
    WHOLE,
    Draw,
    Json,
    about,
    listed,
    maybe,
)

QUIET = "quiet"

# --- pods ---

_TEXTS = {
    vocabulary.GANG_TIMEOUT_ANNOTATION: DURATION,
    vocabulary.EXPECTED_DURATION_ANNOTATION: DURATION,
    vocabulary.GANG_MEMBERS_ANNOTATION: st.one_of(*[STATED] * 4, TEXT),
    vocabulary.GANG_ROLE_LABEL: st.sampled_from(("leader",) * 4 + ("worker", "")),
    vocabulary.VRAM_ANNOTATION: QUANTITY,
    **{key.name: NAME for key in vocabulary.GANG_NAME_FAMILIES},
    **{
        key.name: st.one_of(*[SIZE.map(str)] * 4, WHOLE.map(str))
        for key in vocabulary.GANG_MIN_AVAILABLE_FAMILIES
    },
    vocabulary.NUMA_POLICY_ANNOTATION: st.sampled_from(vocabulary.NUMA_POLICIES),
}
_KEYS = {(key.place, key.name) for key in intent.KEYS if key.place in ("labels", "annotations")} | {
    ("annotations", vocabulary.NUMA_ASSIGNED_ANNOTATION),
    ("annotations", vocabulary.PROFILE_ANNOTATION),
    ("annotations", "kubernetes.io/config.mirror"),
}
_MEMBER = (
    ("labels", vocabulary.GANG_NAME_LABEL),
    ("labels", vocabulary.GANG_MIN_AVAILABLE_LABEL),
)
_LEADER = (*_MEMBER, ("labels", vocabulary.GANG_ROLE_LABEL))
_OF_MEMBERS = ("annotations", vocabulary.GANG_MEMBERS_ANNOTATION)
_TIMEOUT = ("annotations", vocabulary.GANG_TIMEOUT_ANNOTATION)
_DURATION = ("annotations", vocabulary.EXPECTED_DURATION_ANNOTATION)
_USUAL = (
    (),
    (_DURATION,),
    _MEMBER,
    (*_LEADER, _OF_MEMBERS),
    (*_LEADER, _OF_MEMBERS),
    (*_LEADER, _TIMEOUT),
    (("labels", vocabulary.GANG_ROLE_LABEL), ("labels", vocabulary.X_K8S_POD_GROUP)),
)
"""Keys that users write together."""


@st.composite
def words(draw: Draw) -> dict[str, dict[str, str]]:
    """Labels and annotations that the scheduler reads; often those of a gang with a leader."""
    odd = st.lists(st.sampled_from(sorted(_KEYS)), max_size=4, unique=True)
    keys = draw(st.one_of(odd, *[st.sampled_from(_USUAL)] * 4))
    found: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}}
    for place, name in keys:
        found[place][name] = draw(_TEXTS.get(name, TEXT))
    return found


TERMS = listed(
    labelSelector=SELECTOR, topologyKey=KEY, namespaceSelector=SELECTOR, matchLabelKeys=st.just([])
)
AFFINITY = maybe(
    podAffinity=maybe(requiredDuringSchedulingIgnoredDuringExecution=TERMS),
    podAntiAffinity=maybe(
        requiredDuringSchedulingIgnoredDuringExecution=TERMS,
        preferredDuringSchedulingIgnoredDuringExecution=listed(
            weight=WHOLE, podAffinityTerm=TERMS.map(lambda terms: terms[0] if terms else {})
        ),
    ),
    nodeAffinity=maybe(
        preferredDuringSchedulingIgnoredDuringExecution=listed(
            weight=WHOLE,
            preference=listed(key=KEY, operator=st.just("Exists")).map(
                lambda rows: {"matchExpressions": rows}
            ),
        )
    ),
)
RESOURCES = maybe(requests=AMOUNTS, limits=AMOUNTS)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAME, "resources": RESOURCES},
        optional={
            "restartPolicy": st.just("Always"),
            "ports": listed(hostPort=WHOLE, containerPort=WHOLE, hostIP=TEXT),
            "image": TEXT,
        },
    ),
    min_size=1,
    max_size=2,
)
VOLUMES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": NAME, "persistentVolumeClaim": maybe(claimName=NAME)}),
        st.fixed_dictionaries({"name": NAME, "gcePersistentDisk": maybe(pdName=NAME)}),
        st.fixed_dictionaries({"name": NAME, "rbd": maybe(image=NAME, monitors=st.just([]))}),
    ),
    max_size=2,
)


@st.composite
def pods(draw: Draw, name: str = "") -> Json:
    """A pod of our scheduler that waits, or one that any scheduler has bound."""
    found = draw(words())
    spec = draw(
        st.fixed_dictionaries(
            {
                "containers": CONTAINERS,
                "schedulerName": st.sampled_from((vocabulary.SCHEDULER_NAME,) * 3 + ("other",)),
            },
            optional={
                "initContainers": CONTAINERS,
                "overhead": AMOUNTS,
                "resources": RESOURCES,
                "priority": st.integers(-(2**31), 2**31 - 1),
                "terminationGracePeriodSeconds": WHOLE,
                "activeDeadlineSeconds": WHOLE,
                "affinity": AFFINITY,
                "tolerations": listed(key=KEY, operator=TEXT, value=TEXT, effect=TEXT),
                "topologySpreadConstraints": listed(
                    topologyKey=KEY,
                    maxSkew=WHOLE.map(lambda n: min(n, 2**31 - 1) or 1),
                    minDomains=WHOLE.map(lambda n: min(n, 2**31 - 1) or 1),
                    whenUnsatisfiable=st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
                    labelSelector=SELECTOR,
                ),
                "volumes": VOLUMES,
                "resourceClaims": listed(name=NAME, resourceClaimName=NAME),
                "schedulingGroup": maybe(podGroupName=NAME),
                "hostNetwork": st.booleans(),
            },
        )
    )
    _many(draw, spec)
    bound = spec["schedulerName"] == "other" or draw(st.sampled_from((False, False, True)))
    if bound:
        spec["nodeName"] = draw(NODE)
    metadata = draw(about())
    metadata |= {
        "name": name or metadata["name"],
        "labels": {**metadata["labels"], **found["labels"]},
        "annotations": found["annotations"],
    }
    if bound and draw(st.booleans()):
        metadata["deletionTimestamp"] = draw(TIME)
    status = {"phase": "Running", "startTime": draw(TIME)} if bound else {"phase": "Pending"}
    return {"metadata": metadata, "spec": spec, "status": status}


def _many(draw: Draw, spec: Json) -> None:
    """Sometimes a list or a map of hundreds."""
    field = draw(st.sampled_from((*[""] * 12, "containers", "requests", "tolerations", "ports")))
    if not field:
        return
    count = draw(st.integers(4, 10).map(lambda bits: 2**bits))
    container = spec["containers"][0]
    match field:
        case "containers":
            spec["containers"] = [{**container, "name": f"c{i}"} for i in range(count)]
        case "requests":
            container["resources"] = {
                "requests": {f"example.com/r{i}": str(i) for i in range(count)}
            }
        case "tolerations":
            spec["tolerations"] = [{"key": f"k{i}", "operator": "Exists"} for i in range(count)]
        case "ports":
            container["ports"] = [{"hostPort": i + 1, "containerPort": i + 1} for i in range(count)]


# --- nodes and what describes them ---


def _topology(number: int, size: str, far: int) -> str:
    zone = {"id": number, "cpus": "0-3", "memory": size, "bandwidth": far, "distances": [far]}
    return json.dumps({"nodes": [zone], "gpus": [{"index": number, "numa": number, "vram": size}]})


_TOPOLOGY = st.one_of(TEXT, st.builds(_topology, WHOLE, QUANTITY, WHOLE))


@st.composite
def nodes(draw: Draw) -> Json:
    """One of the two nodes, with capacity of any size."""
    labels = draw(st.sampled_from(({}, numa_labels(4, "16Gi", 2, 2))))
    allocatable = draw(st.dictionaries(RESOURCE, QUANTITY, max_size=4))
    annotations = draw(maybe(**{vocabulary.NUMA_TOPOLOGY_ANNOTATION: _TOPOLOGY}))
    sizes = draw(maybe(**{vocabulary.GFD_MEMORY_LABEL: WHOLE.map(str)}))
    return {
        "metadata": {
            "name": draw(NODE),
            "labels": {**labels, **sizes, "zone": "a"},
            "annotations": annotations,
        },
        "spec": {"taints": draw(listed(key=KEY, value=TEXT, effect=st.just("NoSchedule")))},
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110", **allocatable},
            "images": draw(listed(names=st.lists(TEXT, max_size=2), sizeBytes=WHOLE)),
        },
    }


TOPOLOGIES = st.fixed_dictionaries(
    {
        "metadata": about(NODE),
        "zones": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(("node-0", "node-1", "node-999", "x")),
                    "type": st.just("Node"),
                    "resources": listed(name=RESOURCE, capacity=QUANTITY, allocatable=QUANTITY),
                    "costs": listed(name=st.just("node-0"), value=WHOLE),
                }
            ),
            max_size=3,
        ),
        "attributes": listed(name=st.just("topologyManagerPolicy"), value=st.just("restricted")),
    }
)
DEVICES = listed(
    name=NAME,
    attributes=st.dictionaries(
        st.sampled_from(
            ("numaNode", "index", "type", "productName", "resource.kubernetes.io/numa")
        ),
        st.one_of(maybe(int=WHOLE), maybe(string=TEXT), maybe(bool=st.booleans())),
        max_size=3,
    ),
    capacity=st.dictionaries(
        st.sampled_from(("memory", "cpu", "size")), maybe(value=QUANTITY), max_size=2
    ),
    consumesCounters=listed(
        counterSet=NAME, counters=st.dictionaries(NAME, maybe(value=QUANTITY), max_size=2)
    ),
)
SLICES = st.fixed_dictionaries(
    {
        "metadata": about(),
        "spec": st.fixed_dictionaries(
            {
                "driver": st.sampled_from(("gpu.example.com", "dra.cpu", "dra.memory")),
                "pool": maybe(name=NAME, generation=WHOLE, resourceSliceCount=st.just(1)),
                "nodeName": NODE,
                "devices": DEVICES,
                "sharedCounters": listed(
                    name=NAME, counters=st.dictionaries(NAME, maybe(value=QUANTITY), max_size=2)
                ),
            }
        ),
    }
)
CLAIMS = st.fixed_dictionaries(
    {
        "metadata": about(),
        "spec": maybe(
            devices=maybe(
                requests=listed(
                    name=NAME,
                    exactly=maybe(
                        deviceClassName=NAME,
                        count=WHOLE,
                        allocationMode=st.sampled_from(("ExactCount", "All")),
                        selectors=st.lists(
                            TEXT.map(lambda text: {"cel": {"expression": text}}), max_size=1
                        ),
                    ),
                ),
                constraints=listed(matchAttribute=TEXT, requests=st.just([])),
            )
        ),
    }
)
CLASSES = st.fixed_dictionaries({"metadata": about(), "spec": st.just({})})

# --- other kinds ---

RESERVATIONS = st.fixed_dictionaries(
    {
        "metadata": about(),
        "spec": st.one_of(
            st.fixed_dictionaries(
                {
                    "tenant": NAME,
                    "count": WHOLE,
                    "resources": st.dictionaries(RESOURCE, QUANTITY, min_size=1, max_size=2),
                    "until": TIME,
                },
                optional={"from": TIME},
            ),
            st.fixed_dictionaries(
                {"tenant": NAME, "nodes": st.lists(NODE, max_size=2), "until": TIME},
                optional={"from": TIME},
            ),
            st.fixed_dictionaries(
                {
                    "podGroup": st.fixed_dictionaries(
                        {
                            "name": NAME,
                            "leader": st.sampled_from(("uid-a", "uid-b")),
                            "members": WHOLE,
                            "resources": AMOUNTS,
                            "places": listed(node=NODE, assigned=TEXT),
                        }
                    ),
                    "until": TIME,
                }
            ),
        ),
        "status": maybe(phase=st.just("Active"), places=listed(node=NODE, assigned=TEXT)),
    }
)
PVCS = st.fixed_dictionaries(
    {
        "metadata": about(annotations=maybe(**{"volume.kubernetes.io/selected-node": TEXT})),
        "spec": maybe(
            volumeName=NAME,
            storageClassName=NAME,
            accessModes=st.lists(TEXT, max_size=2),
            resources=maybe(requests=maybe(storage=QUANTITY)),
            selector=SELECTOR,
        ),
    }
)
PVS = st.fixed_dictionaries(
    {
        "metadata": about(),
        "spec": maybe(
            storageClassName=NAME,
            capacity=maybe(storage=QUANTITY),
            csi=maybe(driver=NAME, volumeHandle=TEXT),
            claimRef=maybe(namespace=st.just("ns"), name=NAME),
        ),
        "status": maybe(phase=st.sampled_from(("Available", "Bound"))),
    }
)

KINDS: dict[str, st.SearchStrategy[Json]] = {
    "Pod": pods(),
    "Node": nodes(),
    "PodGroup": st.fixed_dictionaries(
        {
            "metadata": about(),
            "spec": maybe(schedulingPolicy=maybe(gang=maybe(minCount=WHOLE), basic=st.just({}))),
        }
    ),
    "PodGroup of scheduler-plugins": st.fixed_dictionaries(
        {"metadata": about(), "spec": maybe(minMember=WHOLE, scheduleTimeoutSeconds=WHOLE)}
    ),
    "ResourceReservation": RESERVATIONS,
    "NodeResourceTopology": TOPOLOGIES,
    "ResourceSlice": SLICES,
    "ResourceClaim": CLAIMS,
    "DeviceClass": CLASSES,
    "PersistentVolumeClaim": PVCS,
    "PersistentVolume": PVS,
    "StorageClass": st.fixed_dictionaries(
        {"metadata": about(), "provisioner": TEXT},
        optional={"volumeBindingMode": st.just("WaitForFirstConsumer")},
    ),
    "CSINode": st.fixed_dictionaries(
        {
            "metadata": about(NODE),
            "spec": maybe(drivers=listed(name=NAME, allocatable=maybe(count=WHOLE))),
        }
    ),
    "CSIStorageCapacity": st.fixed_dictionaries(
        {"metadata": about(), "storageClassName": NAME},
        optional={
            "capacity": QUANTITY,
            "maximumVolumeSize": QUANTITY,
            "nodeTopology": SELECTOR,
        },
    ),
    "PodDisruptionBudget": st.fixed_dictionaries(
        {
            "metadata": about(generation=WHOLE),
            "spec": maybe(selector=SELECTOR),
            "status": maybe(disruptionsAllowed=WHOLE, observedGeneration=WHOLE),
        }
    ),
    "Namespace": st.fixed_dictionaries({"metadata": about(st.just("ns"))}),
    "Service": st.fixed_dictionaries({"metadata": about(), "spec": maybe(selector=LABELS)}),
    "ReplicaSet": st.fixed_dictionaries({"metadata": about(), "spec": maybe(selector=SELECTOR)}),
}
"""Kind -> its objects."""


@st.composite
def objects(draw: Draw) -> tuple[str, Json]:
    """(kind, object); pods more often than other kinds."""
    kind = draw(st.sampled_from((*KINDS, *["Pod"] * 16, "Node", "Node")))
    return kind, draw(KINDS[kind])


Objects = list[tuple[str, Json]]


@st.composite
def devices(draw: Draw) -> Objects:
    """A device class, devices of a node, a claim for them, and the pod that uses the claim."""
    claim, slice_, pod = draw(CLAIMS), draw(SLICES), draw(pods())
    for obj in (claim, slice_):
        obj["metadata"]["name"] = "a"
    for device, number in zip(slice_["spec"]["devices"], "01", strict=False):
        device["name"] = f"d{number}"
    exactly = draw(maybe(count=WHOLE, allocationMode=st.sampled_from(("ExactCount", "All"))))
    requests = [{"name": "r", "exactly": {"deviceClassName": "a", **exactly}}]
    claim["spec"] = {"devices": {**claim["spec"].get("devices", {}), "requests": requests}}
    pod["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "a"}]
    device_class = {"metadata": {"name": "a"}, "spec": {}}
    return [
        ("DeviceClass", device_class),
        ("ResourceSlice", slice_),
        ("ResourceClaim", claim),
        ("Pod", pod),
    ]


@st.composite
def volumes(draw: Draw) -> Objects:
    """A storage class, a claim, a volume, limits of the node, and the pod that mounts the claim."""
    kinds = ("StorageClass", "PersistentVolumeClaim", "PersistentVolume", "CSIStorageCapacity")
    found = [(kind, draw(KINDS[kind])) for kind in kinds]
    for _, obj in found:
        obj["metadata"]["name"] = "a"
    pod = draw(pods())
    pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]
    return [("CSINode", draw(KINDS["CSINode"])), *found, ("Pod", pod)]


@st.composite
def crowded(draw: Draw) -> Objects:
    """Both nodes are full of pods that end at some time, and a gang waits for them."""
    found: Objects = []
    for number, node in enumerate(NODES):
        pod = draw(pods(f"full-{number}"))
        requests = {"cpu": "3500m", **draw(st.dictionaries(RESOURCE, QUANTITY, max_size=1))}
        pod["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
        pod["spec"]["nodeName"] = node
        pod["metadata"]["annotations"][vocabulary.EXPECTED_DURATION_ANNOTATION] = draw(DURATION)
        pod["status"] = {"phase": "Running", "startTime": draw(TIME)}
        found.append(("Pod", pod))
    labels = {vocabulary.GANG_NAME_LABEL: "wait", vocabulary.GANG_MIN_AVAILABLE_LABEL: "2"}
    for number in range(2):
        pod = draw(pods(f"wait-{number}"))
        pod["spec"] = {
            "schedulerName": vocabulary.SCHEDULER_NAME,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
        }
        pod["metadata"] |= {"labels": labels, "annotations": {}}
        pod["metadata"].pop("deletionTimestamp", None)
        pod["status"] = {"phase": "Pending"}
        found.append(("Pod", pod))
    return found


def clusters() -> st.SearchStrategy[Objects]:
    """Objects that arrive one after the other: unrelated ones, or some that need each other."""
    several = st.lists(objects(), min_size=1, max_size=5)
    return st.one_of(several, several, several, devices(), volumes(), crowded())


SHARES = listed(name=NAME, share=st.one_of(TEXT, WHOLE.map(str)), at=st.one_of(TIME, TEXT))
CUSTOM: dict[str, st.SearchStrategy[Json]] = {
    "PodGroup of scheduler-plugins": KINDS["PodGroup of scheduler-plugins"],
    "NodeResourceTopology": TOPOLOGIES,
    "ResourceReservation": RESERVATIONS,
    "ProvisioningRequest": st.fixed_dictionaries(
        {
            "metadata": about(
                st.sampled_from(("a-0123456789-1", "a-0-99999999999999999999", "a", "a-b-c")),
                labels=st.just(
                    {
                        "app.kubernetes.io/managed-by": vocabulary.SCHEDULER_NAME,
                        vocabulary.GANG_NAME_LABEL: "a",
                    }
                ),
            ),
            "spec": maybe(podSets=listed(podTemplateRef=maybe(name=NAME), count=WHOLE)),
            "status": maybe(
                conditions=listed(
                    type=st.sampled_from(("Failed", "Provisioned")),
                    status=st.just("True"),
                    lastTransitionTime=TIME,
                    message=TEXT,
                )
            ),
        }
    ),
    "TenantPolicy": st.fixed_dictionaries(
        {
            "metadata": about(),
            "spec": maybe(tenant=maybe(name=NAME)),
            "status": maybe(shares=SHARES, usage=SHARES.map(lambda rows: rows[0] if rows else {})),
        }
    ),
}
"""Kinds that are not part of Kubernetes itself."""


@st.composite
def junk(draw: Draw) -> tuple[str, Json]:
    """(kind, object) with any JSON in a few places."""
    kind = draw(st.sampled_from(sorted(CUSTOM)))
    obj = copy.deepcopy(draw(CUSTOM[kind]))
    for _ in range(draw(st.integers(0, 3))):
        parent: Any = obj
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(parent[key], dict | list) and parent[key] and draw(st.booleans()):
                parent = parent[key]
                continue
            parent[key] = draw(st.one_of(JUNK, DEEP))
            break
    return kind, obj
