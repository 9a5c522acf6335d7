"""An API server's answers about pods, in memory: binds, reads and status patches, with faults."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from cluster import client, errors, resources

Json = dict[str, Any]


class FarSide:
    """Pods by name. `faults` are raised by the next binds, one each; a `Lost` bind happens."""

    def __init__(self, *pods: Json) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        self.faults: deque[Exception | None] = deque()
        self.patches: list[tuple[str, Json]] = []
        self.patch_faults: deque[Exception] = deque()
        self.binds = 0

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
    ) -> None:
        self.binds += 1
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not isinstance(fault, Lost):
            raise fault
        found = self._find(pod)
        if found["metadata"]["uid"] != uid:
            raise errors.Conflict("the uid is another")
        if found["spec"].get("nodeName"):
            raise errors.Conflict("already assigned")
        found["spec"]["nodeName"] = node
        found["metadata"].setdefault("annotations", {}).update(annotations or {})
        if fault is not None:
            raise fault

    async def get(
        self, resource: resources.Resource, name: str, *, namespace: str | None = None
    ) -> Json:
        return self._find(name)

    async def patch_status(
        self,
        resource: resources.Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kind: client.PatchKind = client.PatchKind.MERGE,
    ) -> Json:
        if self.patch_faults:
            raise self.patch_faults.popleft()
        self.patches.append((name, dict(body)))
        return self._find(name)

    def _find(self, name: str) -> Json:
        if name not in self.pods:
            raise errors.Gone("not found")
        return self.pods[name]


class Lost(errors.Retry):
    """The write happened; its answer was lost."""
