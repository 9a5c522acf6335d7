"""
A pod's claims, sorted by what is to be done about them, or the one sentence that says what is
amiss: then no node will do, whatever is free.

    bound    volume and claim name each other: the volume decides about nodes
    late     waits for its first pod: the node decides about the volume
    amiss    not there, lost, going, somebody else's, or due to be bound by now

Texts and their order are kube-scheduler's: first what VolumeRestrictions finds before it looks at
nodes, then VolumeBinding, then VolumeZone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from scheduler.model.pod import Pod
from scheduler.model.pod_volumes import VolumeClaimRef
from scheduler.plugins.volumes.storage_types import PersistentVolume, PersistentVolumeClaim
from scheduler.plugins.volumes.store import VolumeStore

UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """What became of a pod's claims; with a `trouble` the rest is empty."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    late: tuple[PersistentVolumeClaim, ...] = ()
    trouble: str = ""


def judge(facts: VolumeStore, pod: Pod) -> PodVolumeClaims:
    wish = pod.spec.volumes
    for found in (_missing(facts, pod), _amiss(facts, pod)):
        if found:
            return PodVolumeClaims(trouble=found)
    claims = [facts.claims[key] for key in wish.claim_keys()]
    unbound = [claim for claim in claims if not claim.bound]
    if any(claim.volume or not is_late(facts, claim) for claim in unbound):
        return PodVolumeClaims(trouble=UNBOUND)
    if lost := _volume_missing(facts, pod):
        return PodVolumeClaims(trouble=lost)
    # A claim that the pod mounts twice is bound once.
    late = tuple(dict.fromkeys(unbound))
    return PodVolumeClaims(tuple(claim for claim in claims if claim.bound), late)


def is_late(facts: VolumeStore, claim: PersistentVolumeClaim) -> bool:
    found = facts.classes.get(claim.class_name) if claim.class_name else None
    return found is not None and found.late


def zoned(facts: VolumeStore, pod: Pod) -> Iterator[PersistentVolume]:
    """The bound volumes whose zone labels count; those of ephemeral claims never do."""
    for claim in _own(facts, pod):
        if claim is not None and claim.volume in facts.volumes:
            yield facts.volumes[claim.volume]


def _own(facts: VolumeStore, pod: Pod) -> Iterator[PersistentVolumeClaim | None]:
    wish = pod.spec.volumes
    for ref in wish.claims:
        if not ref.ephemeral:
            yield facts.claim_of(wish.namespace, ref)


def _missing(facts: VolumeStore, pod: Pod) -> str:
    wish = pod.spec.volumes
    for ref in wish.claims:
        if not ref.ephemeral and facts.claim_of(wish.namespace, ref) is None:
            return f'persistentvolumeclaim "{ref.name}" not found'
    return ""


def _amiss(facts: VolumeStore, pod: Pod) -> str:
    return next((found for ref in pod.spec.volumes.claims if (found := _one(facts, pod, ref))), "")


def _one(facts: VolumeStore, pod: Pod, ref: VolumeClaimRef) -> str:
    claim = facts.claim_of(pod.spec.volumes.namespace, ref)
    if claim is None:
        return (
            "waiting for ephemeral volume controller to create the persistentvolumeclaim "
            f'"{ref.name}"'
        )
    if claim.phase == "Lost":
        return (
            f'persistentvolumeclaim "{ref.name}" bound to non-existent persistentvolume '
            f'"{claim.volume}"'
        )
    if claim.deleting:
        return f'persistentvolumeclaim "{ref.name}" is being deleted'
    if ref.ephemeral and claim.owner != pod.uid:
        namespace, name = claim.key
        return f"PVC {namespace}/{name} was not created for pod {pod.key} (pod is not owner)"
    return ""


def _volume_missing(facts: VolumeStore, pod: Pod) -> str:
    for claim in _own(facts, pod):
        if claim is not None and claim.volume and claim.volume not in facts.volumes:
            return f'persistentvolume "{claim.volume}" not found'
    return ""
