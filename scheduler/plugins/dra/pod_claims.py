"""
A pod's claims, sorted by what is to be done about them, or the one sentence that says what is
amiss: then no node will do, whatever is free.

    allocated    has its devices: they decide about nodes
    wanting      waits for its first pod: the node decides about the devices
    amiss        not there, going, somebody else's, of no known class, or full

The texts are kube-scheduler's where it has one.
"""

from dataclasses import dataclass
from typing import Final

from scheduler.model.pod import Pod, unsupported_text
from scheduler.plugins.dra.claim_types import MOST_CONSUMERS, ClaimKey, ResourceClaim
from scheduler.plugins.dra.store import DeviceStore

IN_USE: Final = "resourceclaim in use"


@dataclass(frozen=True, slots=True)
class PodClaims:
    """What became of a pod's claims; with a `trouble` the rest is empty."""

    allocated: tuple[ResourceClaim, ...] = ()
    wanting: tuple[ResourceClaim, ...] = ()
    trouble: str = ""


def keys(pod: Pod) -> tuple[ClaimKey, ...]:
    """The claims that the pod has by name, each once."""
    return tuple(dict.fromkeys((pod.key.namespace, name) for name in pod.resource_claims if name))


def judge(facts: DeviceStore, pod: Pod) -> PodClaims:
    if trouble := _amiss(facts, pod):
        return PodClaims(trouble=trouble)
    found = [facts.claims[key] for key in keys(pod)]
    return PodClaims(
        tuple(claim for claim in found if claim.given is not None),
        tuple(claim for claim in found if claim.given is None),
    )


def _amiss(facts: DeviceStore, pod: Pod) -> str:
    for ref, name in zip(pod.spec.resource_claims.refs, pod.resource_claims, strict=True):
        if name is None:
            return f'pod "{pod.key}": ResourceClaim not created yet'
        if name:
            claim = facts.claims.get((pod.key.namespace, name))
            if claim is None:
                return f'could not find ResourceClaim "{pod.key.namespace}/{name}"'
            if trouble := _of_claim(facts, pod, claim, made=not ref.claim):
                return trouble
    return ""


def _of_claim(facts: DeviceStore, pod: Pod, claim: ResourceClaim, *, made: bool) -> str:
    name = "/".join(claim.key)
    if claim.deleting:
        return f'resourceclaim "{claim.key[1]}" is being deleted'
    if made and claim.owner != pod.uid:
        return f"ResourceClaim {name} was not created for Pod {pod.key} (Pod is not owner)"
    if claim.given is not None:
        full = len(claim.consumers) >= MOST_CONSUMERS and pod.uid not in claim.consumers
        return IN_USE if full else ""
    for request in claim.spec.requests:
        if not request.ways:
            return f"resource claim {name}, request {request.name}: unknown request type"
    for ask in claim.spec.asks():
        if ask.class_name not in facts.classes:
            return f"request {ask.name}: device class {ask.class_name} does not exist"
        if ask.odd:
            return f"request {ask.name}: {unsupported_text(ask.odd)}"
    return ""
