"""
Pods whose generated ResourceClaims do not exist yet: they are not queued (PreEnqueue).

    pod seen ──a generated claim is missing in the store──▶ unready ──it appears──▶ queue

The watch of pods may name a claim before the watch of claims has it. As in kube-scheduler such a
pod gets no condition: kube-controller-manager reports why it cannot create a claim. A pod whose
claim the user names is queued, and its condition names the missing claim.
"""

from collections.abc import Callable

from scheduler.model.pod import Pod
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.plugins.dra.claim_types import ClaimKey
from scheduler.plugins.dra.store import DeviceStore


class UnreadyPods:
    """Calls `requeue` with a pod when all its claims exist."""

    def __init__(self, store: DeviceStore, requeue: Callable[[Pod], None]) -> None:
        self._store = store
        self._requeue = requeue
        store.on_claim.append(self._claim_changed)
        self._pods: dict[str, Pod] = {}  # uid -> pod, newest state
        self._by_claim: dict[ClaimKey, set[str]] = {}  # claim -> uids of the pods that wait for it

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def hold_unready(self, pod: Pod) -> bool:
        """True when the pod is unready and stays here; a ready pod is removed."""
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return False
        self.drop(pod.uid)
        missing = [
            name
            for ref, name in zip(pod.spec.resource_claims.refs, pod.resource_claims, strict=True)
            if ref.template and (name is None or (name and not self._exists(pod, name)))
        ]
        if not missing:
            return False
        self._pods[pod.uid] = pod
        for name in filter(None, missing):
            self._by_claim.setdefault((pod.key.namespace, name), set()).add(pod.uid)
        return True

    def _exists(self, pod: Pod, name: str) -> bool:
        return (pod.key.namespace, name) in self._store.claims

    def _claim_changed(self, key: ClaimKey) -> None:
        for pod in [self._pods[uid] for uid in sorted(self._by_claim.get(key, ()))]:
            if not self.hold_unready(pod):
                self._requeue(pod)

    def drop(self, uid: str) -> None:
        """The pod has a node, or does not need one any more."""
        pod = self._pods.pop(uid, None)
        for name in pod.resource_claims if pod is not None else ():
            if pod is not None and name:
                key = (pod.key.namespace, name)
                uids = self._by_claim.get(key, set())
                uids.discard(uid)
                if not uids:
                    self._by_claim.pop(key, None)
