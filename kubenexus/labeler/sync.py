"""
Keep the Node object in step with the host: read, compare, patch what differs.

    GET node ──▶ compare ──same──▶ nothing is written
                    └──differs──▶ one merge patch: labels and annotation, stale labels removed
"""

from collections.abc import Mapping
from typing import Any

from cluster import resources
from cluster.client import Client
from cluster.verbs import PatchKind
from kubenexus.labeler import labels
from kubenexus.labeler.sysfs import Host
from policies.json_fields import Json


def patch(node: Json, host: Host) -> dict[str, Any] | None:
    """The merge patch for the Node object; None when it is up to date."""
    about = node.get("metadata") or {}
    changes = {
        "labels": _changes(about.get("labels") or {}, labels.labels(host), stale=True),
        "annotations": _changes(about.get("annotations") or {}, labels.annotations(host)),
    }
    changed = {part: rows for part, rows in changes.items() if rows}
    return {"metadata": changed} if changed else None


def _changes(
    current: Mapping[str, str], measured: Mapping[str, str], *, stale: bool = False
) -> dict[str, str | None]:
    rows: dict[str, str | None] = {
        key: value for key, value in measured.items() if current.get(key) != value
    }
    if stale:
        rows |= {key: None for key in current if labels.is_ours(key) and key not in measured}
    return rows


async def sync(client: Client, name: str, host: Host) -> bool:
    """Patch the Node object if needed; whether anything was written."""
    node = await client.get(resources.NODES, name)
    change = patch(node, host)
    if change is None:
        return False
    await client.patch(resources.NODES, name, change, kind=PatchKind.MERGE)
    return True
