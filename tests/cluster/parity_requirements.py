"""
What the pods of the parity test require: every rule of kube-scheduler's default profile.

A probe draws a few requirements; a pod that stands already carries what others must mind:
labels, ports, amounts, claims and its own (anti-)affinity. All of it passes the API server's own
validation: a pod that is refused there is a mistake of this module.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.cluster.parity_draw import Draw
from tests.cluster.parity_storage import MISSING, Storage

Object = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
KEYS: Final = (ZONE, HOSTNAME, "rack")
# label -> what nodes may have there
LABELS: Final = {
    ZONE: ("z1", "z2", "z3"),
    "rack": ("k1", "k2", "k3", "k4"),
    "disk": ("ssd", "hdd", ""),
    "size": ("0", "1", "5", "10", "large", "007"),
}
TAINTS: Final = ("dedicated", "upkeep", "example.com/gpu")
DECLARED: Final = "RestartAllContainersOnContainerExits"
UNLIKE: Final = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
POLITE: Final = "polite"  # a priority class: the pod preempts none
# Runtime classes that are there on every cluster: one costs overhead, one has nodes of its own.
RUNTIMES: Final = ("thick", "fenced")


def fixtures() -> list[Object]:
    """What pods refer to and no cluster changes."""
    about = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h"}
    overhead = {"podFixed": {"cpu": "300m", "memory": "200Mi"}}
    scheduling = {
        "nodeSelector": {"fenced": "yes"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    }
    return [
        {**about, "metadata": {"name": "thick"}, "overhead": overhead},
        {**about, "metadata": {"name": "fenced"}, "scheduling": scheduling},
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": POLITE},
            "value": 0,
            "preemptionPolicy": "Never",
        },
    ]


def standing(draw: Draw, name: str, namespace: str, storage: Storage) -> Object:
    """A pod that stands somewhere: what it holds, and whom it keeps away."""
    pod = _pod(draw, name, namespace)
    if draw.chance(0.2, "ports"):
        _ports(draw, pod)
    if draw.chance(0.25, "anti-affinity"):
        _affinity(draw, pod, "podAntiAffinity")
    if draw.chance(0.1, "affinity"):
        _affinity(draw, pod, "podAffinity")
    if draw.chance(0.3, "volumes"):
        _claims(draw, pod, storage.claims_of(namespace))
    if draw.chance(0.25, "disks"):
        _disks(draw, pod)
    return pod


def probe(
    draw: Draw, name: str, namespace: str, nodes: Sequence[str], storage: Storage, own: Storage
) -> Object:
    """The pod that both schedulers place."""
    pod = _pod(draw, name, namespace)
    pod["spec"]["priorityClassName"] = POLITE
    claims = [*storage.claims_of(namespace), MISSING] if draw.chance(0.1) else None
    requirements: dict[str, Callable[[], None]] = {
        "selector": lambda: _selector(draw, pod),
        "node affinity": lambda: _node_affinity(draw, pod, nodes),
        "ports": lambda: _ports(draw, pod),
        "spread": lambda: _spread(draw, pod),
        "affinity": lambda: _affinity(draw, pod, "podAffinity"),
        "anti-affinity": lambda: _affinity(draw, pod, "podAntiAffinity"),
        "volumes": lambda: _claims(draw, pod, claims or storage.claims_of(namespace)),
        "disks": lambda: _disks(draw, pod),
        "declared": lambda: _declared(pod),
    }
    if draw.chance(0.7, "taints"):
        _tolerations(draw, pod)
    chosen = draw.some(requirements, 1, 4)
    if draw.chance(0.3):
        chosen = list(dict.fromkeys([*chosen, "spread"]))
    for feature in chosen:
        if feature in draw.features:
            requirements[feature]()
    if draw.chance(0.01, "volumes"):
        _ephemeral(pod)
    if own.claims:
        _claims(draw, pod, own.claims_of(namespace), all_of_them=True)
    return pod


# --- containers and what they need ---


def _pod(draw: Draw, name: str, namespace: str) -> Object:
    spec: Object = {"containers": [_container(draw, "main")], "terminationGracePeriodSeconds": 600}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": _labels(draw)},
        "spec": spec,
    }
    if draw.chance(0.25, "containers"):
        _more_containers(draw, spec)
    if draw.chance(0.1, "containers"):
        spec["runtimeClassName"] = draw.one(*RUNTIMES)
    return pod


def _labels(draw: Draw) -> dict[str, str]:
    labels = {"app": draw.one("web", "web", "web", "db", "cache")} if draw.chance(0.9) else {}
    if draw.chance(0.6):
        labels["tier"] = draw.one("front", "back")
    if draw.chance(0.6):
        labels["version"] = draw.one("v1", "v2")
    return labels


def _container(draw: Draw, name: str) -> Object:
    container: Object = {"name": name, "image": f"image-{draw.upto(0, 3)}:1"}
    requests: dict[str, str] = {}
    if draw.chance(0.7, "resources"):
        requests["cpu"] = draw.one("100m", "300m", "500m", "1", "1300m", "3")
    if draw.chance(0.6, "resources"):
        requests["memory"] = draw.one("64Mi", "300M", "1Gi", "1500Mi")
    if draw.chance(0.1, "resources"):
        requests["ephemeral-storage"] = draw.one("100Mi", "2Gi")
    limits = {}
    if draw.chance(0.15, "resources"):
        requests["example.com/gpu"] = limits["example.com/gpu"] = draw.one("1", "2", "0")
    if draw.chance(0.04, "resources"):
        requests.setdefault("memory", "64Mi")
        requests["hugepages-2Mi"] = limits["hugepages-2Mi"] = draw.one("32Mi", "128Mi")
    if requests:
        container["resources"] = {"requests": requests, "limits": limits}
    return container


def _more_containers(draw: Draw, spec: Object) -> None:
    if draw.chance(0.5):
        spec["containers"].append(_container(draw, "second"))
    before = []
    for number in range(draw.upto(0, 3)):
        container = _container(draw, f"init-{number}")
        if draw.chance(0.5):
            container["restartPolicy"] = "Always"
        before.append(container)
    spec["initContainers"] = before
    if draw.chance(0.3):
        # More than any sum of the containers: less would be refused.
        spec["resources"] = {"requests": {"cpu": "30", "memory": "9Gi"}}
        if draw.chance(0.7):
            _shrink(spec)
            spec["resources"] = {"requests": {"cpu": draw.one("800m", "1200m", "2500m")}}


def _shrink(spec: Object) -> None:
    for container in [*spec["containers"], *spec["initContainers"]]:
        if "resources" in container:
            container["resources"]["requests"].pop("cpu", None)


# --- nodes ---


def _tolerations(draw: Draw, pod: Object) -> None:
    rows = []
    if draw.chance(0.4):
        rows += [{"key": key, "operator": "Exists"} for key in TAINTS]
    for _ in range(draw.upto(1, 3)):
        row = {"operator": draw.one("Exists", "Exists", "Equal")}
        if row["operator"] == "Equal" or draw.chance(0.9):
            row["key"] = draw.one(*TAINTS, *TAINTS, "node.kubernetes.io/unschedulable")
        if row["operator"] == "Equal" and draw.chance(0.8):
            row["value"] = draw.one("a", "b")
        if draw.chance(0.6):
            row["effect"] = draw.one("NoSchedule", "NoExecute", "PreferNoSchedule")
        rows.append(row)
    pod["spec"]["tolerations"] = rows


def _selector(draw: Draw, pod: Object) -> None:
    keys = draw.some(sorted(LABELS), 1, 2)
    pod["spec"]["nodeSelector"] = {key: draw.one(*LABELS[key]) for key in keys}


def _node_affinity(draw: Draw, pod: Object, nodes: Sequence[str]) -> None:
    terms = [_node_term(draw, nodes) for _ in range(draw.upto(1, 3))]
    affinity = pod["spec"].setdefault("affinity", {})
    affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    if draw.chance(0.2):
        weighted = {"weight": draw.upto(1, 100), "preference": _node_term(draw, nodes)}
        affinity["nodeAffinity"][PREFERRED] = [weighted]


def _node_term(draw: Draw, nodes: Sequence[str]) -> Object:
    term: Object = {}
    if draw.chance(0.85):
        term["matchExpressions"] = [_node_rule(draw, nodes) for _ in range(draw.upto(1, 2))]
    if draw.chance(0.25):
        operator = draw.one("In", "In", "NotIn")
        name = draw.one(*nodes, "nowhere")
        field = {"key": "metadata.name", "operator": operator, "values": [name]}
        term["matchFields"] = [field]
    return term


def _node_rule(draw: Draw, nodes: Sequence[str]) -> Object:
    key = draw.one(ZONE, "rack", "disk", "size", HOSTNAME, "nobody-has-it")
    operator = draw.one("In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist")
    if key == "size" and draw.chance(0.6):
        return {"key": key, "operator": draw.one("Gt", "Lt"), "values": [draw.one("0", "4", "7")]}
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": "Exists" if draw.chance(0.7) else operator}
    values = {**LABELS, HOSTNAME: nodes}.get(key, ("z1", "ssd", ""))
    return {"key": key, "operator": operator, "values": draw.some(values, 1, 3)}


def _declared(pod: Object) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    pod["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}


def _ports(draw: Draw, pod: Object) -> None:
    spec = pod["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    if draw.chance(0.2):
        spec["hostNetwork"] = True
    for port in draw.some((8080, 9090, 7070), 1, 2):
        row: Object = {"containerPort": port, "protocol": draw.one("TCP", "TCP", "UDP")}
        if spec.get("hostNetwork") or draw.chance(0.9):
            row["hostPort"] = port
        if draw.chance(0.4):
            row["hostIP"] = draw.one("127.0.0.1", "10.0.0.1", "0.0.0.0")
        draw.one(*containers).setdefault("ports", []).append(row)


# --- other pods ---


def _spread(draw: Draw, pod: Object) -> None:
    rows = []
    for key in draw.some((*KEYS, "disk"), 1, 2):
        row: Object = {
            "topologyKey": key,
            "maxSkew": draw.one(1, 1, 2, 3),
            "whenUnsatisfiable": "DoNotSchedule" if draw.chance(0.9) else "ScheduleAnyway",
        }
        if draw.chance(0.9):
            row["labelSelector"] = _pod_selector(draw)
            if draw.chance(0.3):
                row["matchLabelKeys"] = ["version"]
        if row["whenUnsatisfiable"] == "DoNotSchedule" and draw.chance(0.3):
            row["minDomains"] = draw.upto(1, 5)
        if draw.chance(0.4):
            row["nodeAffinityPolicy"] = draw.one("Honor", "Ignore")
        if draw.chance(0.4):
            row["nodeTaintsPolicy"] = draw.one("Honor", "Ignore")
        rows.append(row)
    pod["spec"]["topologySpreadConstraints"] = rows


def _affinity(draw: Draw, pod: Object, kind: str) -> None:
    terms = [_pod_term(draw) for _ in range(1 if draw.chance(0.7) else 2)]
    affinity = pod["spec"].setdefault("affinity", {})
    affinity[kind] = {REQUIRED: terms}
    if draw.chance(0.2):
        weighted = {"weight": draw.upto(1, 100), "podAffinityTerm": _pod_term(draw)}
        affinity[kind][PREFERRED] = [weighted]


def _pod_term(draw: Draw) -> Object:
    term: Object = {"topologyKey": draw.one(*KEYS)}
    if draw.chance(0.95):
        term["labelSelector"] = _pod_selector(draw)
        keys = draw.some(("version", "never"), 1, 2)
        if draw.chance(0.25):
            term["matchLabelKeys"] = keys[:1]
        if draw.chance(0.2):
            term["mismatchLabelKeys"] = [key for key in ("version",) if key not in keys[:1]]
    if draw.chance(0.25):
        term["namespaces"] = draw.some(("parity-a", "parity-b", "parity-c"), 1, 2)
    if draw.chance(0.35):
        term["namespaceSelector"] = draw.one(
            {},
            {"matchLabels": {"team": "red"}},
            {"matchExpressions": [{"key": "env", "operator": "Exists"}]},
            UNLIKE if "namespaces unlike" in draw.features else {},
        )
    return term


def _pod_selector(draw: Draw) -> Object:
    if draw.chance(0.08):
        return {}
    if draw.chance(0.6):
        return {"matchLabels": {"app": draw.one("web", "web", "web", "db", "cache")}}
    rule: Object = {"key": draw.one("app", "tier"), "operator": draw.one("In", "NotIn")}
    rule["values"] = draw.some(("web", "db", "front"), 1, 2)
    if draw.chance(0.4):
        rule = {"key": "tier", "operator": draw.one("Exists", "DoesNotExist")}
    return {"matchExpressions": [rule]}


# --- volumes ---


def _claims(draw: Draw, pod: Object, names: Sequence[str], *, all_of_them: bool = False) -> None:
    volumes = pod["spec"].setdefault("volumes", [])
    for name in names if all_of_them else draw.some(names, 1, 2):
        claim = {"claimName": name, "readOnly": draw.chance(0.2)}
        volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": claim})


def _ephemeral(pod: Object) -> None:
    """A claim that a controller would have to make for the pod."""
    template = {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    }
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"v{len(volumes)}", "ephemeral": {"volumeClaimTemplate": template}})


def _disks(draw: Draw, pod: Object) -> None:
    read_only = draw.chance(0.4)
    disk = draw.one("d1", "d2")
    source = draw.one(
        {"gcePersistentDisk": {"pdName": disk, "readOnly": read_only}},
        {"awsElasticBlockStore": {"volumeID": disk, "readOnly": read_only}},
        {
            "iscsi": {
                "targetPortal": "p",
                "iqn": f"iqn.2001-04.com.example:{disk}",
                "lun": 0,
                "readOnly": read_only,
            }
        },
        {"rbd": {"monitors": ["m1", draw.one("m2", "m3")], "image": disk, "readOnly": read_only}},
    )
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"v{len(volumes)}", **source})
