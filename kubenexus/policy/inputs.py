"""
Policies, objects and namespaces from files, or the shipped policies.

Only this module of the package reads files. A faulty file raises `FaultyInput` with every fault;
`lint` reads files itself, because faults are its result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubenexus.policy.errors import FaultyInput, UsageError
from policies.documents import faults, yaml_reader
from policies.documents.faults import Fault, Origin
from policies.documents.policy_test import PolicyTest
from policies.documents.yaml_reader import Document, DocumentError
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from policies.json_fields import Json, mapping


@dataclass(frozen=True, slots=True)
class Loaded:
    """Policies, and where they come from in words."""

    policies: PolicySet
    origin: str


def load(paths: Sequence[Path], *, compiler: Compiler) -> Loaded:
    """The policies of files and folders, or the shipped ones where none are named."""
    must_exist(paths)
    result = loader.load_files(list(paths) or [loader.LIBRARY], compiler=compiler)
    if not result.ok:
        raise FaultyInput(result.problems)
    if not result.policies.policies:
        raise UsageError(f"no policy found in {', '.join(map(str, paths))}; name another folder")
    return Loaded(result.policies, ", ".join(map(str, paths)) or "the shipped library")


def must_exist(paths: Iterable[Path]) -> None:
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder; check the path")


def yaml_files(path: Path) -> list[Path]:
    """The file itself, or every YAML file of a folder and its folders, by name."""
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.suffix in loader.SUFFIXES and file.is_file() and not _hidden(file, path)
    )


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)


def tests(parts: Sequence[Document]) -> Iterator[tuple[Origin, PolicyTest | list[Fault]]]:
    """The PolicyTests among the documents of a file, or what is wrong with each."""
    for number, part in enumerate(parts):
        if isinstance(part.value, dict) and part.value.get("kind") == loader.POLICY_TEST:
            origin = Origin(part.source, number)
            yield origin, faults.read(PolicyTest, part.value, origin)


def objects(path: Path) -> list[Json]:
    """The Kubernetes objects of a file, a List unfolded."""
    unfolded: list[Json] = []
    for part in _documents(path):
        unfolded += _unfolded(part)
    if not unfolded:
        raise UsageError(f"{path}: holds no object; want at least one, such as a Pod")
    return unfolded


def namespace(path: Path) -> Json:
    """The Namespace in a file."""
    for part in _documents(path):
        if isinstance(part.value, Mapping) and part.value.get("kind") == "Namespace":
            return part.value
    raise UsageError(f"{path}: holds no Namespace; save one with kubectl get namespace -o yaml")


def namespace_of(obj: Json, known: Json | None, *, labels: str = "") -> Json:
    """The namespace of an object: the known one, or one with labels `key=value,key=value`."""
    own_namespace = str(mapping(obj.get("metadata")).get("namespace") or "")
    if known is None:
        return _labelled(own_namespace or "default", labels)
    name = str(mapping(known.get("metadata")).get("name") or "")
    if own_namespace and own_namespace != name:
        raise UsageError(
            f"the object is in namespace {own_namespace!r}, but the namespace given is {name!r};"
            " give its own"
        )
    return known


def _labelled(name: str, labels: str) -> Json:
    parsed: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in labels.split(","))):
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise UsageError(f"--namespace-labels: found {pair!r}, want key=value,key=value")
        parsed[key.strip()] = value.strip()
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": parsed},
    }


def _documents(path: Path) -> list[Document]:
    try:
        return yaml_reader.read(path)
    except DocumentError as exc:
        raise FaultyInput([faults.of_document(exc)]) from exc


def _unfolded(part: Document) -> list[Json]:
    value = part.value
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        error = part.error((), "this is no Kubernetes object; want a map with apiVersion and kind")
        raise FaultyInput([faults.of_document(error)])
    if value["kind"] == "List" and isinstance(value.get("items"), list):
        return [item for item in value["items"] if isinstance(item, Mapping)]
    return [value]
