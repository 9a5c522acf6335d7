"""
Which kinds of workload an API server has: the table of `policies.workloads` held against it.

    /apis --> versions of each group, the preferred one first
    /apis/GROUP/VERSION --> its kinds; a kind is read in the first version that has it

A kind that is not installed is not there to be audited. A group that does not answer is an error:
nobody could say what it hides.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from cluster import errors
from cluster.decoding import an_object
from cluster.resources import Resource
from policies import workloads
from policies.admission import mapping


class Asks(Protocol):
    async def raw(self, method: str, path: str) -> bytes:
        """Any request."""


async def kinds(client: Asks) -> list[Resource]:
    """The kinds of the table that the server has, by group and name."""
    wanted: dict[str, set[str]] = {}  # group -> kinds
    for group, kind in workloads.KINDS:
        wanted.setdefault(group, set()).add(kind)
    versions = {"": ["v1"], **await _versions(client)}
    found: dict[tuple[str, str], Resource] = {}  # (group, kind) -> where
    for group in sorted(wanted):
        for version in versions.get(group, ()):
            for resource in await _served(client, group, version):
                if resource.kind in wanted[group]:
                    found.setdefault((group, resource.kind), resource)
    return [found[key] for key in sorted(found)]


async def _versions(client: Asks) -> dict[str, list[str]]:
    """Group -> its versions, the preferred one first."""
    body = an_object("list API groups", await client.raw("GET", "/apis"))
    found = {}
    for row in _rows(body, "groups"):
        preferred = mapping(row.get("preferredVersion")).get("version")
        names = [str(one.get("version")) for one in _rows(row, "versions")]
        found[str(row.get("name"))] = sorted(names, key=lambda name: name != preferred)
    return found


async def _served(client: Asks, group: str, version: str) -> list[Resource]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        body = an_object(f"list kinds of {path}", await client.raw("GET", path))
    except errors.Gone:
        return []  # removed between the two questions
    return [
        Resource(group, version, str(row["name"]), str(row["kind"]))
        for row in _rows(body, "resources")
        if "/" not in str(row.get("name")) and row.get("namespaced") and "list" in row["verbs"]
    ]


def _rows(body: Any, key: str) -> Iterator[Any]:
    yield from mapping(body).get(key) or ()
