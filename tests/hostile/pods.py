"""
Pods of a hostile user: a small good pod, a few of whose parts are replaced by drawn ones.

A pod without any drawn part would be stored and bound. Each part is present with a small share of
its own, so that most pods carry few and the API server stores a good share of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from policies import vocabulary
from tests.hostile.values import KEYS, Draw, a_key, key_value

Json = dict[str, Any]

# Nodes that the hostile tenant knows by name; the neighbour's nodes have others.
NODES: Final = ("open-0", "open-1")
NEIGHBOUR: Final = "neighbour"
TOPOLOGY_KEYS: Final = (vocabulary.HOSTNAME_LABEL, vocabulary.ZONE_LABEL, vocabulary.RACK_LABEL)
GANG_NAME: Final = vocabulary.label(vocabulary.GANG_NAME_LABEL)
GANG_SIZE: Final = vocabulary.label(vocabulary.GANG_MIN_AVAILABLE_LABEL)
MOST_CONTAINERS: Final = 200


def pod(draw: Draw, name: str, namespace: str, *, group: str = "g") -> Json:
    """A Pod; `group` is the gang that its neighbours in the sequence join too."""
    metadata: Json = {"name": name, "namespace": namespace, **_metadata(draw, group)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec(draw)}


def template(draw: Draw, group: str, labels: Json, **more: Any) -> Json:
    """A pod template of a workload that selects its pods by `labels`."""
    metadata = _metadata(draw, group)
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    return {"metadata": metadata, "spec": {**spec(draw), **more}}


# --- metadata ---


def _metadata(draw: Draw, group: str) -> Json:
    metadata: Json = {"labels": {}, "annotations": {}}
    if draw.on("gang"):
        _join_gang(draw, metadata, group)
    elif draw.chance(0.3):
        metadata["labels"] |= {GANG_NAME.name: group, GANG_SIZE.name: str(1 + draw.count(4))}
    for _ in range((1 + draw.count(12 if draw.wild else 2)) if draw.on("key") else 0):
        key = a_key(draw)
        metadata[key.place][key.name] = key_value(draw, key)
    if draw.odd(0.2):
        for number in range(draw.count()):
            place = draw.pick(("labels", "annotations"))
            metadata[place][f"x{number}.example.com/k"] = draw.label_value(draw.text(60))
    if draw.odd(0.15):
        metadata["ownerReferences"] = [_owner(draw) for _ in range(1 + draw.count(50))]
    if draw.odd(0.1):
        metadata["finalizers"] = [f"example.com/f{i}" for i in range(1 + draw.count(20))]
    return {key: value for key, value in metadata.items() if value}


def _join_gang(draw: Draw, metadata: Json, group: str) -> None:
    """Name, size and role by the usual keys, or by one of the other families."""
    name, size = GANG_NAME, GANG_SIZE
    if draw.odd(0.5):
        name = draw.pick(vocabulary.GANG_NAME_FAMILIES)
        size = draw.pick(vocabulary.GANG_MIN_AVAILABLE_FAMILIES)
    metadata[name.place][name.name] = draw.label_value(draw.text(63)) if draw.odd(0.2) else group
    text = draw.label_value(draw.number()) if draw.odd(0.3) else str(1 + draw.whole())
    metadata[size.place][size.name] = str(1 + draw.count(8)) if draw.chance(0.5) else text
    # A leader's values say what is to come; a worker's only repeat them.
    if draw.chance(0.6):
        metadata["labels"][vocabulary.GANG_ROLE_LABEL] = (
            draw.pick(vocabulary.GANG_ROLES) if draw.odd(0.3) else "leader"
        )
    for key, plain in (
        (vocabulary.GANG_TIMEOUT_ANNOTATION, "10m"),
        (vocabulary.GANG_MEMBERS_ANNOTATION, "cpu=1m"),
    ):
        if draw.chance(0.5):
            value = key_value(draw, vocabulary.annotation(key))
            metadata["annotations"][key] = plain if draw.chance(0.5) else value


def _owner(draw: Draw) -> Json:
    return {
        "apiVersion": draw.pick(("v1", "apps/v1", "batch/v1", "none.example/v1", draw.text(50))),
        "kind": draw.pick(("DaemonSet", "ReplicaSet", "Job", "Node", "Pod", draw.text(50))),
        "name": draw.pick((f"{NEIGHBOUR}-{draw.whole(1000)}", draw.name())),
        "uid": draw.pick(("11111111-1111-1111-1111-111111111111", draw.text(50))),
        "controller": draw.chance(0.5),
    }


# --- spec ---


def spec(draw: Draw) -> Json:
    """A small container, a scheduler, and a few drawn parts."""
    found: Json = {"containers": [container(draw, "c")]}
    # A node that is preset needs a scheduler that accepts it.
    preset = draw.on("requests") and draw.chance(0.3)
    scheduler = draw.random.random()
    if scheduler < 0.65 and (draw.wild or not preset):
        found["schedulerName"] = vocabulary.SCHEDULER_NAME
    elif scheduler < 0.85:
        found["schedulerName"] = draw.text(300) if draw.odd(0.5) else "x"
    if preset:
        found["nodeName"] = draw.name() if draw.odd(0.3) else draw.pick(NODES)
    for part, share in PARTS:
        if draw.on("part") and draw.chance(share):
            part(draw, found)
    return found


def container(draw: Draw, name: str) -> Json:
    return {"name": name, "image": "registry.local/app:1", "resources": resources(draw)}


def resources(draw: Draw) -> Json:
    """Small, so that pods run, or of any magnitude."""
    if not draw.on("requests") or draw.chance(0.3):
        return {"requests": {"cpu": f"{1 + draw.count(200)}m"}}
    found: Json = {"requests": {}, "limits": {}}
    for name in {draw.resource(): None for _ in range(1 + draw.count(5 if draw.wild else 1))}:
        # The API server stores these only as whole numbers with a limit of the same amount.
        whole = ("/" in name or name.startswith("hugepages")) and not draw.odd(0.3)
        amount = str(draw.whole(2**63 - 1)) if whole else draw.quantity()
        found["requests"][name] = amount
        if whole or draw.odd(0.3):
            found["limits"][name] = amount
    return found


def _containers(draw: Draw, found: Json) -> None:
    found["containers"] = [container(draw, f"c{i}") for i in range(1 + draw.count(MOST_CONTAINERS))]


def _init_containers(draw: Draw, found: Json) -> None:
    found["initContainers"] = [
        container(draw, f"i{i}") | ({"restartPolicy": "Always"} if draw.chance(0.5) else {})
        for i in range(1 + draw.count(50))
    ]


def _ports(draw: Draw, found: Json) -> None:
    found["containers"][0]["ports"] = [
        {"containerPort": port, "hostPort": port, "hostIP": ip}
        for ip in ("0.0.0.0", "127.0.0.1", "::")[: 1 + draw.count(2)]
        for port in {1 + draw.whole(65_535) for _ in range(1 + draw.count(100))}
    ]


def _environment(draw: Draw, found: Json) -> None:
    found["containers"][0]["env"] = [
        {"name": f"E{i}", "value": draw.text(2000)} for i in range(1 + draw.count())
    ]


def _node_selector(draw: Draw, found: Json) -> None:
    found["nodeSelector"] = {
        draw.pick((draw.pick(KEYS).name, f"k{i}")): value
        for i, value in enumerate(draw.label_values(100))
    }


def _tolerations(draw: Draw, found: Json) -> None:
    found["tolerations"] = [{"operator": "Exists"}] + [
        {"key": f"t{i}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for i, seconds in enumerate(draw.int64() for _ in range(draw.count()))
    ]


def _node_affinity(draw: Draw, found: Json) -> None:
    def expression() -> Json:
        operator = draw.pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        key = draw.pick((draw.pick(KEYS).name, vocabulary.HOSTNAME_LABEL, draw.name()))
        row: Json = {"key": key, "operator": operator}
        if operator in ("Gt", "Lt"):
            row["values"] = [draw.number()[:500] if draw.odd(0.5) else str(draw.whole())]
        elif operator.endswith("In"):
            row["values"] = [draw.pick((*NODES, draw.name())) for _ in range(1 + draw.count())]
        return row

    terms = [
        {"matchExpressions": [expression() for _ in range(1 + draw.count(10))]}
        for _ in range(1 + draw.count(30))
    ]
    rule: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if draw.chance(0.5):
        preference = {"weight": 1 + draw.whole(99), "preference": terms[0]}
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}
    found.setdefault("affinity", {})["nodeAffinity"] = rule


def _pod_affinity(draw: Draw, found: Json) -> None:
    kind = draw.pick(("podAffinity", "podAntiAffinity"))
    terms = [_affinity_term(draw) for _ in range(1 + draw.count(30))]
    if draw.chance(0.5):
        weighted = [{"weight": 1 + draw.whole(99), "podAffinityTerm": term} for term in terms]
        rule: Json = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
    else:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    found.setdefault("affinity", {})[kind] = rule


def _affinity_term(draw: Draw) -> Json:
    term: Json = {
        "topologyKey": draw.pick((*TOPOLOGY_KEYS, draw.name())),
        "labelSelector": _selector(draw),
    }
    if draw.chance(0.2):
        term["namespaceSelector"] = {}
    if draw.chance(0.2):
        term["namespaces"] = [NEIGHBOUR, *(draw.name() for _ in range(draw.count(50)))]
    return term


def _selector(draw: Draw) -> Json:
    if draw.chance(0.3):
        return {}
    rows = [
        {
            "key": draw.pick((draw.pick(KEYS).name, "app", draw.name())),
            "operator": "In",
            "values": draw.label_values(),
        }
        for _ in range(1 + draw.count(20))
    ]
    return {"matchExpressions": rows}


def _spread(draw: Draw, found: Json) -> None:
    found["topologySpreadConstraints"] = [
        {
            "maxSkew": draw.int32(),
            "topologyKey": (*TOPOLOGY_KEYS, *(f"k{number}" for number in range(10)))[i],
            "whenUnsatisfiable": draw.pick(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": _selector(draw),
            **({"minDomains": draw.int32()} if draw.chance(0.3) else {}),
        }
        for i in range(1 + draw.count(10))
    ]


def _gates(draw: Draw, found: Json) -> None:
    names = [vocabulary.GANG_GATE] if draw.chance(0.6) else []
    names += [f"example.com/g{i}" for i in range(draw.count(20))]
    found["schedulingGates"] = [{"name": name} for name in names]


def _priority(draw: Draw, found: Json) -> None:
    classes = ("system-node-critical", "system-cluster-critical", "low", draw.name())
    found["priorityClassName"] = draw.pick(classes) if draw.wild else "low"
    if draw.odd(0.3):
        found["priority"] = draw.int32()
    if draw.chance(0.3):
        found["preemptionPolicy"] = draw.pick(("Never", "PreemptLowerPriority"))


def _times(draw: Draw, found: Json) -> None:
    found["terminationGracePeriodSeconds"] = draw.int64()
    if draw.chance(0.3):
        found["activeDeadlineSeconds"] = draw.int32()


def _volumes(draw: Draw, found: Json) -> None:
    sources: Sequence[Json] = (
        {"persistentVolumeClaim": {"claimName": draw.name()}},
        {"emptyDir": {"sizeLimit": draw.quantity()}},
        {"configMap": {"name": draw.name()}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": claim_spec(draw)}}},
        {"hostPath": {"path": "/" + draw.text(100)}},
    )
    found["volumes"] = [{"name": f"v{i}", **draw.pick(sources)} for i in range(1 + draw.count(50))]


def claim_spec(draw: Draw) -> Json:
    found: Json = {
        "accessModes": [draw.pick(("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))],
        "resources": {"requests": {"storage": draw.quantity()}},
    }
    if draw.chance(0.6):
        found["storageClassName"] = draw.pick(("", "none", "late", draw.name()))
    if draw.chance(0.1):
        found["volumeName"] = draw.name()
    return found


def _device_claims(draw: Draw, found: Json) -> None:
    found["resourceClaims"] = [
        {"name": f"d{i}", draw.pick(("resourceClaimName", "resourceClaimTemplateName")): name}
        for i, name in enumerate(draw.name() for _ in range(1 + draw.count(30)))
    ]


def _native_group(draw: Draw, found: Json) -> None:
    found["schedulingGroup"] = {"podGroupName": f"pg{draw.whole(100)}"}


def _pod_resources(draw: Draw, found: Json) -> None:
    found["resources"] = {"requests": {"cpu": draw.quantity(), "memory": draw.quantity()}}


def _unknown(draw: Draw, found: Json) -> None:
    """Fields that no version knows; the API server prunes them after admission saw them."""
    found[draw.name()[:60] or "x"] = draw.nested()


Part = Callable[[Draw, Json], None]
# Parts with their shares of the pods whose spec is extreme.
PARTS: Final[Sequence[tuple[Part, float]]] = (
    (_containers, 0.08),
    (_init_containers, 0.08),
    (_ports, 0.10),
    (_environment, 0.04),
    (_node_selector, 0.12),
    (_tolerations, 0.16),
    (_node_affinity, 0.12),
    (_pod_affinity, 0.14),
    (_spread, 0.14),
    (_gates, 0.12),
    (_priority, 0.10),
    (_times, 0.14),
    (_volumes, 0.10),
    (_device_claims, 0.08),
    (_native_group, 0.08),
    (_pod_resources, 0.08),
    (_unknown, 0.04),
)
