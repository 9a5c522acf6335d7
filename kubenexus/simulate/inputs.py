"""
Files -> a cluster and its manifests, or a `yaml_reader.DocumentError` that points at the mistake.

    folder   cluster.yaml describes the cluster; every other *.yaml holds manifests, in name order,
             or policies
    file     one manifest; the cluster comes from `--cluster`
    jobs     a list of jobs (`virtual_time.jobs_csv`), for simulations in virtual time

An object that an API server could not decode is an input error: its kind is checked here, the rest
by `validate`. An object that admission denies is a result, not an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubenexus.clusterfile import load
from kubenexus.simulate import validate
from kubenexus.simulate.virtual_time import jobs_csv
from policies import quantity, vocabulary
from policies.documents import yaml_reader
from policies.documents.yaml_reader import Document, DocumentError
from policies.pods import workloads

NAMESPACE: Final = ("", "Namespace")
NODE: Final = ("", "Node")
PRIORITY_CLASS: Final = ("scheduling.k8s.io", "PriorityClass")
_MANIFESTS: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class InputManifest:
    """One object of a manifest, with the document that can point into it."""

    document: Document
    obj: dict[str, Any]

    @property
    def type(self) -> tuple[str, str]:
        """API group and kind."""
        return str(self.obj["apiVersion"]).rpartition("/")[0], str(self.obj["kind"])


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a simulation."""

    cluster: load.Cluster
    manifests: tuple[InputManifest, ...]
    policies: tuple[Path, ...] = ()
    """Files that hold policies."""


def read(path: Path, *, cluster: Path | None = None, jobs: Path | None = None) -> Inputs:
    """The inputs at `path`; `cluster` overrules the folder's own description."""
    parts = {file: yaml_reader.read(file) for file in _files(path)}
    policies = tuple(file for file, documents in parts.items() if _holds_policies(documents))
    manifests = tuple(
        _manifest(document)
        for file, documents in parts.items()
        for document in documents
        if file not in policies
    )
    if not manifests and jobs is None:
        raise DocumentError(str(path), 0, 0, "holds no manifest; write at least one object")
    described = _described(path, cluster)
    if jobs is not None:
        known = [manifest.obj for manifest in manifests if manifest.type == NAMESPACE]
        listed = jobs_csv.read(jobs, (*described.namespaces, *known))
        manifests += tuple(_manifest(document) for document in listed)
    return Inputs(_with_nodes(described, manifests), manifests, policies)


def _described(path: Path, cluster: Path | None) -> load.Cluster:
    own = path / load.FILE_NAME
    if cluster is None and not own.is_file():
        raise DocumentError(
            str(path),
            0,
            0,
            f"no cluster is described; add {load.FILE_NAME} to the folder, or pass --cluster FILE",
        )
    return load.load(cluster or own)


def _holds_policies(documents: Sequence[Document]) -> bool:
    """A file holds policies or manifests, so that every fault of a policy has a line."""
    kinds = [
        isinstance(document.value, dict) and _is_policy(document.value) for document in documents
    ]
    if any(kinds) and not all(kinds):
        odd = documents[kinds.index(False)]
        raise odd.error((), "a file holds policies or manifests; put this into one of its own")
    return any(kinds)


def _is_policy(obj: Mapping[str, Any]) -> bool:
    return obj.get("apiVersion") == vocabulary.POLICY_API_VERSION


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        files = sorted(path.iterdir())
    except OSError as exc:
        raise DocumentError(str(path), 0, 0, f"cannot be listed: {exc.strerror}") from exc
    return [file for file in files if file.suffix in _MANIFESTS and file.name != load.FILE_NAME]


# --- One object. ---


def _manifest(document: Document) -> InputManifest:
    obj = document.value
    if not isinstance(obj, dict):
        raise document.error((), "found no object; want a map with apiVersion, kind and metadata")
    for key in ("apiVersion", "kind"):
        if not isinstance(obj.get(key), str) or not obj[key]:
            raise document.error((key,), f"{key} is missing or no text; write what the object is")
    manifest = InputManifest(document, obj)
    _check_kind(manifest)
    validate.check_metadata(document, obj)
    name = (obj.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not name:
        raise document.error(("metadata",), "metadata.name is missing; give the object a name")
    if manifest.type in workloads.KINDS:
        validate.check_workload(document, obj)
        # As on create: a status that was written down, or exported with the object, is dropped.
        return InputManifest(document, {key: part for key, part in obj.items() if key != "status"})
    if manifest.type == PRIORITY_CLASS and type(obj.get("value")) is not int:
        raise document.error(("value",), "value is missing or no whole number; write a priority")
    return manifest


def _check_kind(manifest: InputManifest) -> None:
    if manifest.type in workloads.KINDS or manifest.type in (NAMESPACE, NODE, PRIORITY_CLASS):
        return
    if manifest.obj["apiVersion"] == vocabulary.CLUSTER_FILE_API_VERSION:
        message = (
            f"this describes a cluster; call the file {load.FILE_NAME}, or pass it with --cluster"
        )
    else:
        known = sorted({kind for _, kind in (*workloads.KINDS, NAMESPACE, NODE, PRIORITY_CLASS)})
        message = (
            f"kind {manifest.obj['kind']!r} of {manifest.obj['apiVersion']!r} is not simulated; "
            f"take it out of the file, or use one of {', '.join(known)}"
        )
    raise manifest.document.error(("kind",), message)


# --- Nodes written as v1 objects, next to those of the cluster file. ---


def _with_nodes(cluster: load.Cluster, manifests: Iterable[InputManifest]) -> load.Cluster:
    nodes = {node["metadata"]["name"]: node for node in cluster.nodes}
    for manifest in manifests:
        if manifest.type != NODE:
            continue
        name = manifest.obj["metadata"]["name"]
        if name in nodes:
            raise manifest.document.error(
                ("metadata", "name"), f"a node called {name!r} exists already; rename one"
            )
        nodes[name] = _node(manifest)
    return load.Cluster(tuple(nodes.values()), cluster.namespaces)


def _node(manifest: InputManifest) -> dict[str, Any]:
    """The node with its allocatable filled in from its capacity, as a kubelet would report it."""
    status = manifest.obj.get("status")
    if not isinstance(status, Mapping) or not status.get("capacity"):
        raise manifest.document.error(
            ("status",), "the node has no status.capacity; write what it holds"
        )
    amounts: dict[str, dict[str, Any]] = {}
    for place in ("capacity", "allocatable"):
        amounts[place] = dict(_amounts(manifest, place, status.get(place) or status["capacity"]))
    return {**manifest.obj, "status": {**status, **amounts}}


def _amounts(manifest: InputManifest, place: str, amounts: object) -> Iterator[tuple[str, Any]]:
    if not isinstance(amounts, Mapping):
        raise manifest.document.error(
            ("status", place), f"status.{place}: found {amounts!r}, want a map of quantities"
        )
    for name, value in amounts.items():
        try:
            negative = quantity.parse(value) < 0
        except quantity.QuantityError as exc:
            raise manifest.document.error(
                ("status", place, name), f"status.{place}.{name}: {exc}"
            ) from exc
        if negative:
            raise manifest.document.error(
                ("status", place, name),
                f"status.{place}.{name}: found {value!r}, want zero or more",
            )
        yield name, str(value)
