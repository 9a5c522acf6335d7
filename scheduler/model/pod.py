"""
Pods and nodes as the scheduler sees them: frozen values, decoded once from raw JSON.

Only what is read is kept. A `SchedulingSpec` holds everything that decides where a pod may go, so
equal pods have equal shapes and share the results of filters. What a pod asks for in vain is listed
in `SchedulingSpec.refusals`: such a pod is refused with these sentences, never placed by half its
wishes.

Not here: who is placed where (`cache`), and what is free (`snapshot`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import orjson

from policies import quantity, vocabulary
from policies.pods import intent, requests
from scheduler.errors import ModelError
from scheduler.model import attributes as pod_attributes
from scheduler.model import fabric as fabric_wishes
from scheduler.model import host_ports as port_wishes
from scheduler.model import node_affinity as node_wishes
from scheduler.model import numa_request
from scheduler.model import pod_affinity as peer_wishes
from scheduler.model import pod_volumes as volume_wishes
from scheduler.model import resource_claims as claim_wishes
from scheduler.model.assignment import Assignment, parse
from scheduler.model.attributes import NO_TERMS, PodAttributes
from scheduler.model.fabric import NO_FABRIC, NOBODY, FabricRequirements, TierRequirement
from scheduler.model.fields import Json, instant, mapping, pairs, rows, whole, words
from scheduler.model.gang import Gang, GangKey
from scheduler.model.host_ports import HostPort
from scheduler.model.node_affinity import ANY_NODE, NodeConstraints
from scheduler.model.numa_request import NO_HOST_REQUEST, HostRequest
from scheduler.model.pod_affinity import NO_PEERS, InterPodConstraints
from scheduler.model.pod_volumes import NO_VOLUMES, PodVolumes
from scheduler.model.resource_claims import NO_CLAIMS, PodResourceClaims
from scheduler.model.taints import Toleration, read_tolerations

# Amounts are capped so that the sum over any node's pods stays within an int64.
LARGEST: Final = 2**55
PODS: Final = "pods"
# What kube-scheduler's scores count for a container that asks for none.
UNSAID: Final = {"cpu": 100, "memory": 200 * 2**20}

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class PodKey(NamedTuple):
    """Where a pod lives; a successor of the same name has the same key and another uid."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class SchedulingSpec:
    """Everything that decides where a pod may go; equal shapes fit the same nodes."""

    requests: tuple[tuple[str, int], ...] = ()
    """Sorted by resource name, without zeros; a pod always takes one of `pods`."""
    selector: tuple[tuple[str, str], ...] = ()
    unsaid: tuple[int, int] = (0, 0)
    """CPU and memory that scores count for containers which ask for none."""
    tolerations: tuple[Toleration, ...] = ()
    host_request: HostRequest = NO_HOST_REQUEST
    vram: int = 0
    """Bytes that each of the pod's GPUs must have."""
    nodes: NodeConstraints = ANY_NODE
    ports: tuple[HostPort, ...] = ()
    peers: InterPodConstraints = NO_PEERS
    volumes: PodVolumes = NO_VOLUMES
    claims: PodResourceClaims = NO_CLAIMS
    fabric: FabricRequirements = NO_FABRIC
    standing: TierRequirement = NOBODY
    refusals: tuple[str, ...] = ()
    """Sentences that say why no node will do, whatever is free."""

    def amount(self, resource: str) -> int:
        return next((count for name, count in self.requests if name == resource), 0)


@dataclass(frozen=True, slots=True)
class ScheduledCondition:
    """The pod's PodScheduled condition as it stands in the API."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller that makes the pod, and would make another one in its place."""

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
    """The node that another scheduler means to give it."""
    gang: Gang | None = None
    assignment: Assignment | None = None
    condition: ScheduledCondition | None = None
    claims: tuple[str | None, ...] = ()
    """The name of the claim for each ref of `spec.claims`; None: not made yet, "": none needed."""
    attributes: PodAttributes = NO_TERMS

    @property
    def finished(self) -> bool:
        """Holds nothing any more."""
        return self.phase in _FINISHED

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def gated(self) -> bool:
        return bool(self.gates)

    @property
    def pending(self) -> bool:
        """Waits for a node and may be given one."""
        return not (self.node or self.finished or self.terminating or self.gated)

    @classmethod
    def read(cls, obj: Json) -> Self:
        """From a v1 Pod; raises `ModelError` naming the pod and the field."""
        about, pod_spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        key = PodKey(str(about.get("namespace") or "default"), str(about.get("name") or ""))
        wishes = intent.read(obj)
        labels = pairs(about.get("labels"))
        gang, trouble = _gang(key, wishes.gang)
        problems = tuple(f"{p.message} ({p.path})" for p in wishes.problems)
        try:
            spec = _scheduling_spec(key, labels, obj, wishes, (*problems, *trouble))
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
            claims=claim_wishes.generated(spec.claims, status),
            attributes=pod_attributes.read(
                dict(labels),
                words(about.get("annotations")),
                obj,
                wishes.expected_duration,
            ),
        )


# --- pods ---


def _scheduling_spec(
    key: PodKey,
    labels: tuple[tuple[str, str], ...],
    obj: Json,
    wishes: intent.Intent,
    problems: tuple[str, ...],
) -> SchedulingSpec:
    pod_spec = mapping(obj.get("spec"))
    amounts = {name: min(n, LARGEST) for name, n in requests.effective(obj).items() if n > 0}
    gpus = requests.gpus(amounts)
    annotations = words(mapping(obj.get("metadata")).get("annotations"))
    refusals = (*problems, *(sentence(wish) for wish in asked_in_vain(pod_spec)))
    if wishes.vram and not gpus:
        refusals = (*refusals, f"asks for {vocabulary.VRAM_ANNOTATION} and for no GPU")
    return SchedulingSpec(
        requests=tuple(sorted({**amounts, PODS: 1}.items())),
        selector=tuple(sorted(words(pod_spec.get("nodeSelector")).items())),
        unsaid=_unsaid(obj, amounts),
        tolerations=read_tolerations(pod_spec.get("tolerations")),
        host_request=numa_request.read(
            obj,
            amounts,
            wishes.numa,
            by_default=_numa_by_default(annotations),
            member=wishes.gang is not None,
        ),
        vram=-(-wishes.vram // gpus) if wishes.vram and gpus else 0,
        nodes=node_wishes.read(pod_spec),
        ports=port_wishes.read(pod_spec),
        peers=_peers(key, labels, pod_spec, wishes),
        volumes=volume_wishes.read(key.namespace, key.name, pod_spec),
        claims=claim_wishes.read(pod_spec),
        fabric=fabric_wishes.read(wishes.fabric, dict(labels), gpus=gpus),
        standing=fabric_wishes.standing(dict(labels)),
        refusals=refusals,
    )


def _peers(
    key: PodKey, labels: tuple[tuple[str, str], ...], pod_spec: Json, wishes: intent.Intent
) -> InterPodConstraints:
    """A gang wants to be together: only pods of their own are spread over zones."""
    found = peer_wishes.read(key.namespace, labels, pod_spec)
    if wishes.fabric.spread_zones and wishes.gang is None:
        return fabric_wishes.over_zones(found, dict(labels))
    return found


def _unsaid(obj: Json, amounts: Mapping[str, int]) -> tuple[int, int]:
    pod_spec = mapping(obj.get("spec"))
    asked = [
        mapping(mapping(row.get("resources")).get("requests")).keys()
        for field in ("containers", "initContainers")
        for row in rows(pod_spec.get(field))
    ]
    if all(UNSAID.keys() <= names for names in asked):
        return 0, 0
    whole_pod = requests.effective(obj, unsaid=UNSAID)
    cpu, memory = (whole_pod.get(name, 0) - amounts.get(name, 0) for name in UNSAID)
    return max(0, cpu), max(0, memory)


def _numa_by_default(annotations: Mapping[str, str]) -> bool:
    """Whether admission, not the user, chose the NUMA policy; a pod it never saw is the user's."""
    try:
        profile = mapping(orjson.loads(annotations.get(vocabulary.PROFILE_ANNOTATION, "{}")))
    except orjson.JSONDecodeError:
        return False
    return bool(mapping(profile.get("numa")).get("by", "user") != "user")


def _gang(key: PodKey, wish: intent.Gang | None) -> tuple[Gang | None, tuple[str, ...]]:
    if wish is None:
        return None, ()
    size = wish.min_available
    trouble: tuple[str, ...] = ()
    if size is None and not wish.size_stands_elsewhere:
        if not wish.is_locality_group:
            trouble = (sentence(f"pod group {wish.name} whose size is given by nothing"),)
        size = 1
    gang = Gang(
        GangKey(key.namespace, wish.name),
        min_available=size,
        leader=wish.role == "leader",
        timeout=wish.timeout,
    )
    return gang, trouble


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


# --- nodes ---


def asked_in_vain(pod_spec: Json) -> tuple[str, ...]:
    """The names of what is asked for in vain, each once, in a fixed order."""
    return tuple(dict.fromkeys(_devices(pod_spec)))


def sentence(wish: str) -> str:
    return f"asks for {wish}, which this scheduler does not honour yet"


def _devices(pod_spec: Json) -> Iterator[str]:
    for row in rows(pod_spec.get("resourceClaims")):
        if not (row.get("resourceClaimName") or row.get("resourceClaimTemplateName")):
            yield "a resource claim by neither name nor template"


def held_by_our_gate_only(pod: Pod) -> bool:
    """Nothing but the gang gate keeps the pod back."""
    return pod.gates == (vocabulary.GANG_GATE,)


def is_schedulable(pod: Pod) -> bool:
    """Wants a node, now or as soon as its gang is complete."""
    free = not pod.gates or held_by_our_gate_only(pod)
    return free and not (pod.node or pod.finished or pod.terminating)
