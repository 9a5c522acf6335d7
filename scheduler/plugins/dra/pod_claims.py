"""
A pod's ResourceClaims by their allocation, or the problem that makes it unschedulable everywhere.

    allocated      has devices: these filter the nodes
    unallocated    waits for its first pod: the chosen node decides about the devices
    problem        missing, deleted, owned by another pod, of an unknown class, or full

The texts are kube-scheduler's where it has one.
"""

from dataclasses import dataclass
from typing import Final

from scheduler.model.pod import Pod, unsupported_text
from scheduler.plugins.dra.claim_types import MAX_CONSUMERS, ClaimKey, ResourceClaim
from scheduler.plugins.dra.store import DeviceStore

IN_USE: Final = "resourceclaim in use"


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod's claims; with a `problem` the rest is empty."""

    allocated: tuple[ResourceClaim, ...] = ()
    unallocated: tuple[ResourceClaim, ...] = ()
    problem: str = ""


def keys(pod: Pod) -> tuple[ClaimKey, ...]:
    """The keys of the pod's existing claims, each once."""
    return tuple(dict.fromkeys((pod.key.namespace, name) for name in pod.resource_claims if name))


def classify(store: DeviceStore, pod: Pod) -> PodClaims:
    if problem := _problem(store, pod):
        return PodClaims(problem=problem)
    claims = [store.claims[key] for key in keys(pod)]
    return PodClaims(
        tuple(claim for claim in claims if claim.allocation is not None),
        tuple(claim for claim in claims if claim.allocation is None),
    )


def _problem(store: DeviceStore, pod: Pod) -> str:
    for ref, name in zip(pod.spec.resource_claims.refs, pod.resource_claims, strict=True):
        if name is None:
            return f'pod "{pod.key}": ResourceClaim not created yet'
        if name:
            claim = store.claims.get((pod.key.namespace, name))
            if claim is None:
                return f'could not find ResourceClaim "{pod.key.namespace}/{name}"'
            if problem := _claim_problem(store, pod, claim, generated=not ref.claim):
                return problem
    return ""


def _claim_problem(store: DeviceStore, pod: Pod, claim: ResourceClaim, *, generated: bool) -> str:
    name = "/".join(claim.key)
    if claim.deleting:
        return f'resourceclaim "{claim.key[1]}" is being deleted'
    if generated and claim.owner != pod.uid:
        return f"ResourceClaim {name} was not created for Pod {pod.key} (Pod is not owner)"
    if claim.allocation is not None:
        full = len(claim.consumers) >= MAX_CONSUMERS and pod.uid not in claim.consumers
        return IN_USE if full else ""
    for request in claim.spec.requests:
        if not request.alternatives:
            return f"resource claim {name}, request {request.name}: unknown request type"
    for subrequest in claim.spec.subrequests():
        if subrequest.class_name not in store.classes:
            return f"request {subrequest.name}: device class {subrequest.class_name} does not exist"
        if subrequest.unsupported:
            return f"request {subrequest.name}: {unsupported_text(subrequest.unsupported)}"
    return ""
