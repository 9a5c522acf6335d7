"""
The resources and subresources that an API server serves, with their kinds.

    /apis ──▶ versions of each group, the preferred one first
    /apis/GROUP/VERSION ──▶ its resources; each is taken from the first version that has it

A group that does not answer is an error, because its resources are unknown; a caller that passes
`on_unavailable` continues without such groups.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from cluster import verbs
from cluster.errors import Gone, KubeError
from cluster.resources import Resource
from cluster.responses import an_object


@dataclass(frozen=True, slots=True, order=True)
class Served:
    """One row of discovery; the name of a subresource is `pods/exec`."""

    group: str
    name: str
    kind: str
    kind_group: str
    """Group of the kind: a subresource may have a kind of another group, such as Scale."""
    version: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()

    @property
    def is_subresource(self) -> bool:
        return "/" in self.name

    @property
    def resource(self) -> Resource:
        return Resource(self.group, self.version, self.name, self.kind, self.namespaced)


async def served(
    client: verbs.Sends,
    *,
    groups: Collection[str] | None = None,
    on_unavailable: Callable[[KubeError], None] | None = None,
) -> list[Served]:
    """
    All resources of the server, or those of some groups, by group and name.

    `on_unavailable` takes the error of a group that does not answer; without it, that is raised.
    """
    versions = {"": ["v1"], **await _versions(client)}
    resources: dict[tuple[str, str], Served] = {}
    for group in sorted(versions if groups is None else set(versions) & set(groups)):
        try:
            for version in versions[group]:
                for row in await _resources_of(client, group, version):
                    resources.setdefault((group, row.name), row)
        except KubeError as exc:
            if on_unavailable is None:
                raise
            on_unavailable(exc)
    return [resources[key] for key in sorted(resources)]


async def _versions(client: verbs.Sends) -> dict[str, list[str]]:
    """Group -> its versions, the preferred one first."""
    body = an_object("list API groups", await client.raw("GET", "/apis"))
    versions = {}
    for row in _rows(body, "groups"):
        preferred = (row.get("preferredVersion") or {}).get("version")
        names = [str(entry.get("version")) for entry in _rows(row, "versions")]
        versions[str(row.get("name"))] = sorted(names, key=lambda name: name != preferred)
    return versions


async def _resources_of(client: verbs.Sends, group: str, version: str) -> list[Served]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        body = an_object(f"list kinds of {path}", await client.raw("GET", path))
    except Gone:
        return []  # removed between the two requests
    return [
        Served(
            group=group,
            name=str(row["name"]),
            kind=str(row["kind"]),
            kind_group=str(row.get("group") or group),
            version=version,
            namespaced=row.get("namespaced") is True,
            verbs=frozenset(row.get("verbs") or ()),
        )
        for row in _rows(body, "resources")
    ]


def _rows(body: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    yield from body.get(key) or ()
