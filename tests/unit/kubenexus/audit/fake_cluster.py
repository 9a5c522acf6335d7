"""An API server of a few kinds that pages its lists, for audits without a cluster."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from cluster.errors import Gone, KubeError
from cluster.resources import Resource
from cluster.responses import Page

Json = dict[str, Any]

# (group, version, plural, kind); JobSet has a version that is preferred and lacks the kind.
SERVED = (
    ("", "v1", "pods", "Pod"),
    ("", "v1", "namespaces", "Namespace"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("batch", "v1", "jobs", "Job"),
    ("batch", "v1", "cronjobs", "CronJob"),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    ("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue"),
    ("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue"),
)
UNNAMESPACED = ("Namespace", "ClusterQueue")
GROUPS = {"batch": ["v1"], "jobset.x-k8s.io": ["v1alpha2", "v1beta1"], "example.io": ["v1"]}


def described(group: str, version: str) -> list[Json]:
    rows: list[Json] = []
    for known, at, plural, kind in SERVED:
        if (known, at) == (group, version):
            row = {"kind": kind, "namespaced": kind not in UNNAMESPACED, "verbs": ["get", "list"]}
            rows += [{**row, "name": f"{plural}/status"}, {**row, "name": plural}]
    return rows


@dataclass
class FakeCluster:
    """`objects` by plural; `restarts` are plurals whose listing begins anew after one page.

    A namespace in `late` came after the namespaces were listed.
    """

    objects: dict[str, list[Json]]
    page: int = 2
    restarts: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    broken: dict[str, KubeError] = field(default_factory=dict)  # plural or path -> what is raised
    requests: list[str] = field(default_factory=list)
    kueue: bool = False
    """Whether Kueue is installed."""

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        self._note(path)
        if path == "/apis":
            installed = GROUPS | ({"kueue.x-k8s.io": ["v1beta1"]} if self.kueue else {})
            groups = [
                {
                    "name": group,
                    "versions": [{"version": version} for version in versions],
                    "preferredVersion": {"version": versions[-1]},
                }
                for group, versions in installed.items()
            ]
            return orjson.dumps({"groups": groups})
        *_, group, version = ["", *path.split("/")[2:]]
        return orjson.dumps({"resources": described(group, version)})

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, **options: Any
    ) -> Json:
        self._note(f"get {resource.plural} {name}")
        for obj in self.objects.get(resource.plural, ()):
            if obj["metadata"]["name"] == name:
                return obj
        raise Gone(f"{resource} {name!r} is not there")

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        limit: int = 500,
        **options: Any,
    ) -> AsyncIterator[Page]:
        self._note(resource.plural)
        found = [
            obj
            for obj in self.objects.get(resource.plural, ())
            if namespace in (None, obj["metadata"].get("namespace"))
            and (resource.plural != "namespaces" or obj["metadata"]["name"] not in self.late)
        ]
        found.sort(key=lambda o: f"{o['metadata'].get('namespace')}/{o['metadata']['name']}")
        pages = [found[at : at + self.page] for at in range(0, len(found), self.page)]
        if resource.plural in self.restarts:
            yield Page(pages[0], "1", first=True)
            pages = [found]
        for number, items in enumerate(pages):
            yield Page(items, "1", first=number == 0)

    def _note(self, what: str) -> None:
        self.requests.append(what)
        if what in self.broken:
            raise self.broken[what]
