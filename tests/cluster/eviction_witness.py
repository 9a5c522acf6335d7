"""
An independent witness of evictions: which pods were evicted, and whether a pod used the freed capacity.

The node pool is full when a round begins and every pod has the same requests. So capacity that is
free once nothing moves any more was freed without use: as many evictions were wasted.
"""

from typing import Any, Final

from tests.cluster.gang_witness import PodLedger

Json = dict[str, Any]

REASON: Final = "EvictionByEvictionAPI"
SLOT: Final = 1000  # CPU in thousandths that every pod requests


class Evictions(PodLedger):
    """Books that also count evictions. `over` is no matter of rounds: it is never forgiven."""

    def __init__(self, capacity: dict[str, int]) -> None:
        super().__init__(capacity)
        self.evicted: dict[str, str] = {}  # uid -> node
        self.ending: set[str] = set()  # uids
        self.waiting: dict[str, str] = {}  # uid -> name, of pods without a node

    def see(self, kind: str, pod: Json, now: float) -> None:
        super().see(kind, pod, now)
        about, node = pod["metadata"], pod["spec"].get("nodeName") or ""
        uid, gone = about["uid"], kind == "DELETED"
        rows = (pod.get("status") or {}).get("conditions") or ()
        if node and any(
            r["type"] == "DisruptionTarget" and r.get("reason") == REASON for r in rows
        ):
            self.evicted[uid] = node
        ends = about.get("deletionTimestamp") is not None and not gone
        (self.ending.add if ends else self.ending.discard)(uid)
        if node or gone:
            self.waiting.pop(uid, None)
        else:
            self.waiting[uid] = about["name"]

    def free(self) -> int:
        """Slots that no pod occupies."""
        return sum(capacity - self.used[node] for node, capacity in self.capacity.items()) // SLOT

    def moves(self) -> tuple[int, int, int, int]:
        """Equal as long as nothing moves."""
        return self.binds, len(self.evicted), len(self.ending), len(self.waiting)
