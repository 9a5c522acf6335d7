"""
Pods that nobody plans yet, because the claims that are to be made for them are not known.

    pod seen ──a claim of it is not made, or not shown yet──▶ aside ──shown──▶ back to the queue

The watch of pods may tell of a claim before the watch of claims does. Such a pod is told nothing,
as in kube-scheduler, which does not queue it either: kube-controller-manager reports where a claim
cannot be made. A claim that the user named is another matter: its pod is planned, and told that
the claim is missing.
"""

from collections.abc import Callable

from scheduler.model.pod import Pod
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.plugins.dra.claim_types import ClaimKey
from scheduler.plugins.dra.store import DeviceStore


class UnreadyPods:
    """`back` takes a pod whose claims have all been shown."""

    def __init__(self, store: DeviceStore, back: Callable[[Pod], None]) -> None:
        self._store, self._back = store, back
        store.on_claim.append(self._shown)
        self._pods: dict[str, Pod] = {}  # uid -> pod, newest state
        self._for: dict[ClaimKey, set[str]] = {}  # claim -> uids of pods that wait for it

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def keep(self, pod: Pod) -> bool:
        """Whether the pod must wait here; one that was here before is forgotten otherwise."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return False
        self.drop(pod.uid)
        missing = [
            name
            for ref, name in zip(pod.spec.resource_claims.refs, pod.resource_claims, strict=True)
            if ref.template and (name is None or (name and not self._known(pod, name)))
        ]
        if not missing:
            return False
        self._pods[pod.uid] = pod
        for name in filter(None, missing):
            self._for.setdefault((pod.key.namespace, name), set()).add(pod.uid)
        return True

    def _known(self, pod: Pod, name: str) -> bool:
        return (pod.key.namespace, name) in self._store.claims

    def _shown(self, key: ClaimKey) -> None:
        for pod in [self._pods[uid] for uid in sorted(self._for.get(key, ()))]:
            if not self.keep(pod):
                self._back(pod)

    def drop(self, uid: str) -> None:
        """The pod has a node, or wants none any more."""
        pod = self._pods.pop(uid, None)
        for name in pod.resource_claims if pod is not None else ():
            if pod is not None and name:
                key = (pod.key.namespace, name)
                here = self._for.get(key, set())
                here.discard(uid)
                if not here:
                    self._for.pop(key, None)
