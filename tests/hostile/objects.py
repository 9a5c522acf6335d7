"""Objects of a hostile user besides pods and workloads: what the scheduler reads of a namespace."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from policies import vocabulary
from tests.hostile import pods
from tests.hostile.values import KEYS, Draw, key_value

Json = dict[str, Any]

DEVICE_CLASS: Final = "open"
DRIVER: Final = "gpu.example.com"


def _native_group(draw: Draw) -> Json:
    if draw.chance(0.1):
        return {"spec": {"schedulingPolicy": {"basic": {}}}}
    return {"spec": {"schedulingPolicy": {"gang": {"minCount": draw.int32()}}}}


def _x_group(draw: Draw) -> Json:
    """The kind's schema is open here, as some versions of it are: any value is stored."""
    return {
        "spec": {
            "minMember": draw.pick((draw.int64(), draw.number(), draw.nested())),
            "scheduleTimeoutSeconds": draw.pick((draw.int64(), draw.number())),
            "minResources": {draw.resource(): draw.quantity() for _ in range(draw.count(20))},
        }
    }


def _reservation(draw: Draw) -> Json:
    spec: Json = {
        "tenant": draw.pick(("hostile", pods.NEIGHBOUR)),
        "nodes": [draw.pick(pods.NODES) for _ in range(1 + draw.count(20))],
        "from": draw.time(),
        "until": draw.time(),
    }
    if draw.chance(0.6):
        spec |= {"count": draw.int32(), "resources": {draw.resource(): draw.quantity()}}
    if draw.chance(0.3):
        spec |= {"podGroup": {"name": draw.name(), "members": draw.int32(), "leader": draw.name()}}
    return {"spec": spec}


def _device_claim(draw: Draw) -> Json:
    def expression() -> str:
        word = draw.text(2000).replace("\\", "").replace('"', "").strip()
        if draw.odd(0.3):
            return word
        return draw.pick(
            (
                f'device.driver == "{draw.name()}"',
                f'device.driver.contains("{word}")',
                f'device.attributes["{DRIVER}"].x == {draw.whole()}',
                "[1, 2, 3].all(x, [1, 2, 3].all(y, [1, 2, 3].all(z, x + y + z > 0)))",
            )
        )

    def request(number: int) -> Json:
        wanted: Json = {"deviceClassName": draw.pick((DEVICE_CLASS, draw.name()))}
        wanted["selectors"] = [{"cel": {"expression": expression()}} for _ in range(draw.count(10))]
        mode = draw.pick(("ExactCount", "All"))
        wanted |= {"allocationMode": mode} | ({"count": draw.int64()} if mode != "All" else {})
        return {"name": f"r{number}", "exactly": wanted}

    return {"spec": {"devices": {"requests": [request(i) for i in range(1 + draw.count(31))]}}}


def _service(draw: Draw) -> Json:
    numbers = {1 + draw.whole(65_535) for _ in range(1 + draw.count(50))}
    ports = [{"name": f"p{number}", "port": number} for number in sorted(numbers)]
    selector = {f"k{i}": value for i, value in enumerate(draw.label_values())}
    return {"spec": {"ports": ports, "selector": selector}}


def _budget(draw: Draw) -> Json:
    amount: Any = draw.pick((draw.int32(), f"{draw.count(100)}%"))
    if draw.odd(0.3):
        amount = draw.number()[:100]
    rows = [
        {"key": f"k{i}", "operator": draw.pick(("Exists", "DoesNotExist"))}
        for i in range(draw.count(20))
    ]
    bound = draw.pick(("minAvailable", "maxUnavailable"))
    return {"spec": {bound: amount, "selector": {"matchExpressions": rows}}}


def _config_map(draw: Draw) -> Json:
    return {"data": {f"k{i}": draw.text() for i in range(draw.count(5))}}


Body = Callable[[Draw], Json]

# apiVersion, kind -> its parts beside metadata.
KINDS: Final[Mapping[tuple[str, str], Body]] = {
    ("scheduling.k8s.io/v1beta1", "PodGroup"): _native_group,
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"): _x_group,
    (vocabulary.API_VERSION, "ResourceReservation"): _reservation,
    ("resource.k8s.io/v1", "ResourceClaim"): _device_claim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): lambda draw: {"spec": _device_claim(draw)},
    ("v1", "PersistentVolumeClaim"): lambda draw: {"spec": pods.claim_spec(draw)},
    ("v1", "Service"): _service,
    ("v1", "ConfigMap"): _config_map,
    ("policy/v1", "PodDisruptionBudget"): _budget,
}
# Pods name these objects, so that some references meet an object: PodGroups by number.
NUMBERED: Final[Mapping[str, str]] = {"PodGroup": "pg"}


def thing(draw: Draw, name: str, namespace: str) -> Json:
    """One object of these kinds; its metadata carries one of our keys now and then."""
    api_version, kind = draw.pick(tuple(KINDS))
    if kind in NUMBERED and draw.chance(0.5):
        name = f"{NUMBERED[kind]}{draw.whole(100)}"
    metadata: Json = {"name": name, "namespace": namespace}
    if draw.chance(0.2):
        key = draw.pick(KEYS)
        metadata[key.place] = {key.name: key_value(draw, key)}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        **KINDS[api_version, kind](draw),
    }
