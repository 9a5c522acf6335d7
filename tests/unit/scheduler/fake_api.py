"""A fake API server for pods: binds, reads, patches, evictions and deletes, with faults."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from cluster import errors, resources, verbs

Json = dict[str, Any]


class FakeApiServer:
    """Pods by name. The next binds raise `faults`, one each; a bind with `LostResponse` happens."""

    def __init__(self, *pods: Json) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        self.faults: deque[Exception | None] = deque()
        self.patches: list[tuple[str, Json]] = []
        self.patch_faults: deque[Exception] = deque()
        self.binds = 0
        self.removed_gates: list[str] = []  # names of pods
        self.gate_faults: deque[Exception] = deque()
        self.deletes: list[str] = []
        self.delete_faults: deque[Exception] = deque()
        self.evicted: list[str] = []
        self.evict_faults: dict[str, Exception] = {}  # pod name -> what answers its evictions
        self.eviction_faults: dict[str, deque[Exception]] = {}  # the same, one each, not dry runs
        self.made: list[tuple[str, str]] = []  # ("nominated" or "evicted", pod name), in order

    def nodes(self) -> dict[str, str]:
        return {name: pod["spec"].get("nodeName", "") for name, pod in self.pods.items()}

    async def bind(
        self,
        namespace: str,
        pod: str,
        node: str,
        *,
        uid: str | None = None,
        annotations: Mapping[str, str] | None = None,
        timeout: float = 0.0,
        **options: Any,
    ) -> None:
        self.binds += 1
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not isinstance(fault, LostResponse):
            raise fault
        found = self._find(pod)
        if found["metadata"]["uid"] != uid:
            raise errors.Conflict("the uid is another")
        if found["spec"].get("nodeName"):
            raise errors.Conflict("already assigned")
        if found["spec"].get("schedulingGates"):
            raise errors.Conflict("gated")
        found["spec"]["nodeName"] = node
        found["metadata"].setdefault("annotations", {}).update(annotations or {})
        if fault is not None:
            raise fault

    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        dry_run: bool = False,
        timeout: float = 0.0,
        **options: Any,
    ) -> None:
        """The pod is terminating from then on; `finish` ends it."""
        found = self._find(pod)
        if found["metadata"]["uid"] != uid:
            raise errors.Conflict("the uid is another")
        if pod in self.evict_faults:
            raise self.evict_faults[pod]
        if dry_run:
            return
        faults = self.eviction_faults.get(pod)
        fault = faults.popleft() if faults else None
        if fault is not None and not isinstance(fault, LostResponse):
            raise fault
        self.evicted.append(pod)
        self.made.append(("evicted", pod))
        found["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        if fault is not None:
            raise fault

    async def get(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        timeout: float = 0.0,
        **options: Any,
    ) -> Json:
        return self._find(name)

    async def patch(
        self,
        resource: resources.Resource,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        namespace: str | None = None,
        kind: verbs.PatchKind = verbs.PatchKind.MERGE,
        **options: Any,
    ) -> Json:
        """The three operations by which a gate is lifted, and no others."""
        if self.gate_faults:
            raise self.gate_faults.popleft()
        found = self._find(name)
        assert not isinstance(body, Mapping)
        uid, gate, remove = body
        assert kind is verbs.PatchKind.JSON
        assert (uid["op"], uid["path"]) == ("test", "/metadata/uid")
        assert (gate["op"], gate["path"]) == ("test", "/spec/schedulingGates/0/name")
        assert remove == {"op": "remove", "path": "/spec/schedulingGates/0"}
        gates = found["spec"].get("schedulingGates") or [{"name": ""}]
        if found["metadata"]["uid"] != uid["value"] or gates[0]["name"] != gate["value"]:
            raise errors.Refused("test failed", status=422)
        del gates[0]
        self.removed_gates.append(name)
        return found

    async def delete(
        self,
        resource: resources.Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        **options: Any,
    ) -> None:
        if self.delete_faults:
            raise self.delete_faults.popleft()
        if self._find(name)["metadata"]["uid"] != uid:
            raise errors.Conflict("the uid is another")
        self.deletes.append(name)
        del self.pods[name]

    async def patch_status(
        self,
        resource: resources.Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kind: verbs.PatchKind = verbs.PatchKind.MERGE,
        **options: Any,
    ) -> Json:
        if self.patch_faults:
            raise self.patch_faults.popleft()
        self.patches.append((name, dict(body)))
        found = self._find(name)
        if "nominatedNodeName" in body["status"]:
            status = found.setdefault("status", {})
            status["nominatedNodeName"] = body["status"]["nominatedNodeName"] or ""
            self.made.append(("nominated", name))
        return found

    def _find(self, name: str) -> Json:
        if name not in self.pods:
            raise errors.Gone("not found")
        return self.pods[name]


class LostResponse(errors.Retry):
    """The write happened; its response was lost."""
