"""
Pods as the scheduler sees them: frozen values, decoded once from raw JSON.

A `Pod` keeps only the fields that the scheduler reads. Its `SchedulingSpec` holds everything that
decides which nodes fit, so equal pods have equal specs and share the results of filters. Requests
that the scheduler does not support are listed in `SchedulingSpec.unsupported`: the scheduler
rejects such a pod with these messages instead of ignoring a part of its constraints.

Not here: which pod is on which node (`cache.cache`), and what is free (`cache.snapshot`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import orjson

from policies import quantity, vocabulary
from policies.json_fields import Json, mapping
from policies.pods import intent, requests
from scheduler.errors import ModelError
from scheduler.model import attributes as pod_attributes
from scheduler.model import fabric as fabric_requirements
from scheduler.model import (
    node_affinity,
    numa_request,
    pod_affinity,
    pod_volumes,
    resource_claims,
)
from scheduler.model.assignment import Assignment, parse
from scheduler.model.attributes import NO_ATTRIBUTES, PodAttributes
from scheduler.model.fabric import NO_FABRIC, NO_TIERS, FabricRequirements, PodTiers
from scheduler.model.fields import instant, lasting, pairs, rows, whole, words
from scheduler.model.gang import Gang, GangKey
from scheduler.model.node_affinity import ANY_NODE, NodeConstraints
from scheduler.model.numa_request import NO_HOST_REQUEST, HostRequest
from scheduler.model.pod_affinity import NO_INTER_POD, InterPodConstraints
from scheduler.model.pod_volumes import NO_VOLUMES, PodVolumes
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS, PodResourceClaims
from scheduler.model.resources import DEFAULT_REQUESTS, PODS, capped
from scheduler.model.taints import Toleration, read_tolerations

ALL_ADDRESSES: Final = "0.0.0.0"

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class PodKey(NamedTuple):
    """Namespace and name; a successor of the same name has the same key and another uid."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class HostPort(NamedTuple):
    protocol: str
    address: str
    number: int


@dataclass(frozen=True, slots=True)
class SchedulingSpec:
    """Everything that decides which nodes fit; pods with equal specs fit the same nodes."""

    requests: tuple[tuple[str, int], ...] = ()
    """Sorted by resource name, without zeros; a pod always takes one of `pods`."""
    selector: tuple[tuple[str, str], ...] = ()
    default_requests: tuple[int, int] = (0, 0)
    """CPU and memory that scores count for containers without such requests."""
    tolerations: tuple[Toleration, ...] = ()
    host_request: HostRequest = NO_HOST_REQUEST
    vram: int = 0
    """Bytes that each of the pod's GPUs must have."""
    node_constraints: NodeConstraints = ANY_NODE
    ports: tuple[HostPort, ...] = ()
    inter_pod: InterPodConstraints = NO_INTER_POD
    volumes: PodVolumes = NO_VOLUMES
    resource_claims: PodResourceClaims = NO_RESOURCE_CLAIMS
    fabric: FabricRequirements = NO_FABRIC
    tiers: PodTiers = NO_TIERS
    unsupported: tuple[str, ...] = ()
    """Messages about requests that no node can satisfy."""

    def amount(self, resource: str) -> int:
        return next((count for name, count in self.requests if name == resource), 0)


@dataclass(frozen=True, slots=True)
class ScheduledCondition:
    """The pod's PodScheduled condition in the API."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller that creates the pod and replaces it when it is deleted."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Pod:
    key: PodKey
    uid: str
    spec: SchedulingSpec = SchedulingSpec()
    labels: tuple[tuple[str, str], ...] = ()
    priority: int = 0
    created: float = 0.0
    scheduler: str = vocabulary.SCHEDULER_NAME
    node: str = ""
    phase: str = "Pending"
    terminating: bool = False
    gates: tuple[str, ...] = ()
    owner: OwnerRef | None = None
    nominated: str = ""
    """The node that another scheduler has nominated for the pod."""
    gang: Gang | None = None
    assignment: Assignment | None = None
    condition: ScheduledCondition | None = None
    resource_claims: tuple[str | None, ...] = ()
    """
    The name of the ResourceClaim for each ref of `spec.resource_claims`; None: not created yet,
    "": not needed.
    """
    attributes: PodAttributes = NO_ATTRIBUTES

    @property
    def finished(self) -> bool:
        """Uses no resources any more."""
        return self.phase in _FINISHED

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def gated(self) -> bool:
        return bool(self.gates)

    @property
    def pending(self) -> bool:
        """Waits for a node and may be scheduled."""
        return not (self.node or self.finished or self.terminating or self.gated)

    @classmethod
    def read(cls, obj: Json) -> Self:
        """From a v1 Pod; raises `ModelError` naming the pod and the field."""
        about, pod_spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        key = PodKey(str(about.get("namespace") or "default"), str(about.get("name") or ""))
        pod_intent = intent.read(obj)
        labels = pairs(about.get("labels"))
        gang, gang_problems = _gang(key, pod_intent.gang)
        # A value above its bound counts as the bound.
        problems = tuple(f"{p.message} ({p.path})" for p in pod_intent.problems if not p.saturates)
        try:
            spec = _scheduling_spec(key, labels, obj, pod_intent, (*problems, *gang_problems))
        except (requests.RequestError, quantity.QuantityError) as exc:
            raise ModelError(f"pod {key}: {exc}") from exc
        return cls(
            key=key,
            uid=str(about.get("uid") or key),
            spec=spec,
            labels=labels,
            priority=whole(pod_spec.get("priority")),
            created=instant(about.get("creationTimestamp")),
            scheduler=str(pod_spec.get("schedulerName") or ""),
            node=str(pod_spec.get("nodeName") or ""),
            phase=str(status.get("phase") or "Pending"),
            terminating=about.get("deletionTimestamp") is not None,
            gates=tuple(
                str(row.get("name") or "") for row in rows(pod_spec.get("schedulingGates"))
            ),
            owner=_owner(about),
            nominated=str(status.get("nominatedNodeName") or ""),
            gang=gang,
            assignment=parse(
                mapping(about.get("annotations")).get(vocabulary.NUMA_ASSIGNED_ANNOTATION)
            ),
            condition=_condition(status),
            resource_claims=resource_claims.generated(spec.resource_claims, status),
            attributes=pod_attributes.read(
                dict(labels),
                words(about.get("annotations")),
                obj,
                pod_intent.expected_duration,
            ),
        )


# --- pods ---


def _scheduling_spec(
    key: PodKey,
    labels: tuple[tuple[str, str], ...],
    obj: Json,
    pod_intent: intent.Intent,
    problems: tuple[str, ...],
) -> SchedulingSpec:
    pod_spec = mapping(obj.get("spec"))
    amounts = {name: capped(n) for name, n in requests.effective(obj).items() if n > 0}
    gpus = requests.gpus(amounts)
    annotations = words(mapping(obj.get("metadata")).get("annotations"))
    unsupported = (*problems, *map(unsupported_text, unsupported_claims(pod_spec)))
    if pod_intent.vram and not gpus:
        unsupported = (*unsupported, f"requests {vocabulary.VRAM_ANNOTATION} without a GPU")
    return SchedulingSpec(
        requests=tuple(sorted({**amounts, PODS: 1}.items())),
        selector=tuple(sorted(words(pod_spec.get("nodeSelector")).items())),
        default_requests=_default_requests(obj, amounts),
        tolerations=read_tolerations(pod_spec.get("tolerations")),
        host_request=numa_request.read(
            obj,
            amounts,
            pod_intent.numa,
            by_default=_numa_by_default(annotations),
            member=pod_intent.gang is not None,
        ),
        vram=capped(-(-pod_intent.vram // gpus)) if pod_intent.vram and gpus else 0,
        node_constraints=node_affinity.read(pod_spec),
        ports=_host_ports(pod_spec),
        inter_pod=_inter_pod(key, labels, pod_spec, pod_intent),
        volumes=pod_volumes.read(key.namespace, key.name, pod_spec),
        resource_claims=resource_claims.read(pod_spec),
        fabric=fabric_requirements.read(pod_intent.fabric, dict(labels), gpus=gpus),
        tiers=fabric_requirements.read_tiers(dict(labels)),
        unsupported=unsupported,
    )


def _inter_pod(
    key: PodKey, labels: tuple[tuple[str, str], ...], pod_spec: Json, pod_intent: intent.Intent
) -> InterPodConstraints:
    """Only pods without a gang are spread over zones: a gang is co-located."""
    constraints = pod_affinity.read(key.namespace, labels, pod_spec)
    if pod_intent.fabric.spread_zones and pod_intent.gang is None:
        return fabric_requirements.spread_over_zones(constraints, dict(labels))
    return constraints


def _default_requests(obj: Json, amounts: Mapping[str, int]) -> tuple[int, int]:
    pod_spec = mapping(obj.get("spec"))
    requested = [
        mapping(mapping(row.get("resources")).get("requests")).keys()
        for field in ("containers", "initContainers")
        for row in rows(pod_spec.get(field))
    ]
    if all(DEFAULT_REQUESTS.keys() <= names for names in requested):
        return 0, 0
    whole_pod = requests.effective(obj, defaults=DEFAULT_REQUESTS)
    cpu, memory = (
        capped(capped(whole_pod.get(name, 0)) - amounts.get(name, 0)) for name in DEFAULT_REQUESTS
    )
    return cpu, memory


def _numa_by_default(annotations: Mapping[str, str]) -> bool:
    """Whether admission chose the NUMA policy; without an admission profile the user did."""
    try:
        profile = mapping(orjson.loads(annotations.get(vocabulary.PROFILE_ANNOTATION, "{}")))
    except orjson.JSONDecodeError:
        return False
    return bool(mapping(profile.get("numa")).get("by", "user") != "user")


def _gang(key: PodKey, requested: intent.Gang | None) -> tuple[Gang | None, tuple[str, ...]]:
    if requested is None:
        return None, ()
    size = requested.min_available
    problems: tuple[str, ...] = ()
    if size is None and not requested.size_in_pod_group:
        if not requested.is_locality_group:
            problems = (
                unsupported_text(f"pod group {requested.name} whose size is given by nothing"),
            )
        size = 1
    gang = Gang(
        GangKey(key.namespace, requested.name),
        min_available=size,
        leader=requested.role == "leader",
        timeout=None if requested.timeout is None else lasting(requested.timeout),
    )
    return gang, problems


def _host_ports(pod_spec: Json) -> tuple[HostPort, ...]:
    """Sorted, each once; a plain init container holds no port while the pod runs."""
    containers = [
        *rows(pod_spec.get("containers")),
        *(
            container
            for container in rows(pod_spec.get("initContainers"))
            if container.get("restartPolicy") == "Always"
        ),
    ]
    host_network = pod_spec.get("hostNetwork") is True
    ports = (row for container in containers for row in rows(container.get("ports")))
    return tuple(sorted({port for row in ports for port in _host_port(row, host_network)}))


def _host_port(row: Json, host_network: bool) -> Iterator[HostPort]:
    number = whole(row.get("hostPort"))
    # The API server fills this in; in a manifest that it has not stored it is still missing.
    if not number and host_network:
        number = whole(row.get("containerPort"))
    if number > 0:
        address = str(row.get("hostIP") or ALL_ADDRESSES)
        yield HostPort(str(row.get("protocol") or "TCP"), address, number)


def _owner(about: Json) -> OwnerRef | None:
    for row in rows(about.get("ownerReferences")):
        if row.get("controller") is True:
            return OwnerRef(*(str(row.get(field) or "") for field in ("kind", "name", "uid")))
    return None


def _condition(status: Json) -> ScheduledCondition | None:
    for row in rows(status.get("conditions")):
        if row.get("type") == "PodScheduled":
            return ScheduledCondition(
                str(row.get("status") or ""),
                str(row.get("reason") or ""),
                str(row.get("message") or ""),
            )
    return None


def unsupported_claims(pod_spec: Json) -> tuple[str, ...]:
    """What is wrong with the pod's `resourceClaims`, each problem once."""
    for row in rows(pod_spec.get("resourceClaims")):
        if not (row.get("resourceClaimName") or row.get("resourceClaimTemplateName")):
            return ("a resource claim by neither name nor template",)
    return ()


def unsupported_text(request: str) -> str:
    return f"requests {request}, which this scheduler does not support"


def gated_by_gang_only(pod: Pod) -> bool:
    """The gang gate is the pod's only scheduling gate."""
    return pod.gates == (vocabulary.GANG_GATE,)


def is_schedulable(pod: Pod) -> bool:
    """Needs a node, now or as soon as its gang is complete."""
    open_gates = not pod.gates or gated_by_gang_only(pod)
    return open_gates and not (pod.node or pod.finished or pod.terminating)


def from_daemon_set(pod: Pod) -> bool:
    """A DaemonSet's pod belongs to its node: the controller recreates it there."""
    return pod.owner is not None and pod.owner.kind == "DaemonSet"
