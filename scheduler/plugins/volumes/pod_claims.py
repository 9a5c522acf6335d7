"""
A pod's PVCs by their binding, or the problem that makes the pod unschedulable on every node.

    bound      volume and PVC refer to each other: the volume's affinity filters nodes
    delayed    WaitForFirstConsumer: the chosen node decides about the volume
    problem    missing, lost, deleted, owned by another pod, or unbound with immediate binding

Texts and their order are kube-scheduler's: VolumeRestrictions before it looks at nodes, then
VolumeBinding, then VolumeZone.
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
    """A pod's PVCs; with a `problem` the rest is empty."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    problem: str = ""


def classify(store: VolumeStore, pod: Pod) -> PodVolumeClaims:
    if problem := _missing(store, pod) or _problem(store, pod):
        return PodVolumeClaims(problem=problem)
    pvcs = [store.pvcs[key] for key in pod.spec.volumes.pvc_keys()]
    unbound = [pvc for pvc in pvcs if not pvc.bound]
    if any(pvc.volume or not has_delayed_binding(store, pvc) for pvc in unbound):
        return PodVolumeClaims(problem=UNBOUND)
    if problem := _volume_missing(store, pod):
        return PodVolumeClaims(problem=problem)
    # A PVC that the pod mounts twice is bound once.
    delayed = tuple(dict.fromkeys(unbound))
    return PodVolumeClaims(tuple(pvc for pvc in pvcs if pvc.bound), delayed)


def has_delayed_binding(store: VolumeStore, pvc: PersistentVolumeClaim) -> bool:
    storage_class = store.classes.get(pvc.class_name) if pvc.class_name else None
    return storage_class is not None and storage_class.delayed_binding


def volumes_with_zones(store: VolumeStore, pod: Pod) -> Iterator[PersistentVolume]:
    """The bound volumes whose zone labels count: not those of ephemeral PVCs."""
    for pvc in _persistent(store, pod):
        if pvc is not None and pvc.volume in store.volumes:
            yield store.volumes[pvc.volume]


def _persistent(store: VolumeStore, pod: Pod) -> Iterator[PersistentVolumeClaim | None]:
    volumes = pod.spec.volumes
    for ref in volumes.pvcs:
        if not ref.ephemeral:
            yield store.pvc_of(volumes.namespace, ref)


def _missing(store: VolumeStore, pod: Pod) -> str:
    volumes = pod.spec.volumes
    for ref in volumes.pvcs:
        if not ref.ephemeral and store.pvc_of(volumes.namespace, ref) is None:
            return f'persistentvolumeclaim "{ref.name}" not found'
    return ""


def _problem(store: VolumeStore, pod: Pod) -> str:
    problems = (_pvc_problem(store, pod, ref) for ref in pod.spec.volumes.pvcs)
    return next(filter(None, problems), "")


def _pvc_problem(store: VolumeStore, pod: Pod, ref: VolumeClaimRef) -> str:
    pvc = store.pvc_of(pod.spec.volumes.namespace, ref)
    if pvc is None:
        return (
            "waiting for ephemeral volume controller to create the persistentvolumeclaim "
            f'"{ref.name}"'
        )
    if pvc.phase == "Lost":
        return (
            f'persistentvolumeclaim "{ref.name}" bound to non-existent persistentvolume '
            f'"{pvc.volume}"'
        )
    if pvc.deleting:
        return f'persistentvolumeclaim "{ref.name}" is being deleted'
    if ref.ephemeral and pvc.owner != pod.uid:
        namespace, name = pvc.key
        return f"PVC {namespace}/{name} was not created for pod {pod.key} (pod is not owner)"
    return ""


def _volume_missing(store: VolumeStore, pod: Pod) -> str:
    for pvc in _persistent(store, pod):
        if pvc is not None and pvc.volume and pvc.volume not in store.volumes:
            return f'persistentvolume "{pvc.volume}" not found'
    return ""
