"""
Policies from files or from the API server, through the same models and the same compiler.

    folder --list--> files --documents--> values --model--> entries --compile--> PolicySet
                                                               ^
    API objects -----------------------------------------------+

The loader raises nothing for what an author wrote: a `LoadResult` carries every fault of every
document, and the set of the policies without faults. The `store` takes a result only when it has no
faults. A folder may be a mounted ConfigMap: names that begin with a dot are its own bookkeeping.
PolicyTest documents may stand beside policies; the loader skips them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policies import vocabulary
from policies.documents import faults, yaml_reader
from policies.documents.faults import Fault, Origin
from policies.documents.policy import PlatformPolicy, Policy, TenantPolicy
from policies.documents.yaml_reader import DocumentError
from policies.engine import consistency
from policies.engine.compiler import Compiler
from policies.engine.consistency import Entry
from policies.engine.policyset import PolicySet

LIBRARY: Final = Path(__file__).parents[1] / "library"
"""The policies that ship with the product."""

SUFFIXES: Final = (".yaml", ".yml")
POLICY_TEST: Final = "PolicyTest"
_RENAMED_KIND: Final = "ClusterPolicy"
_KINDS: Final[Mapping[str, type[PlatformPolicy] | type[TenantPolicy]]] = {
    "PlatformPolicy": PlatformPolicy,
    "TenantPolicy": TenantPolicy,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The documents, each by itself, and the faults of each."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[Fault, ...] = ()
    broken: tuple[Entry, ...] = ()
    """What is left of faulty documents: never served, compiled for the faults of expressions."""

    def __add__(self, other: "Reading") -> "Reading":
        return Reading(
            self.entries + other.entries, self.faults + other.faults, self.broken + other.broken
        )


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The sound policies, and every fault; fit to be served only where there are no faults."""

    policies: PolicySet
    problems: tuple[Fault, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def load_files(paths: Path | Iterable[Path], *, compiler: Compiler) -> LoadResult:
    """The policies of a folder, or of files and folders."""
    return compile_all(read_files(paths), compiler=compiler)


def compile_all(reading: Reading, *, compiler: Compiler) -> LoadResult:
    """One set of everything that was read, from files and objects alike."""
    problems = [*reading.faults, *consistency.contradictions(reading.entries)]
    sound = []
    for model, origin in reading.entries:
        made = compiler.policy(model, origin)
        if isinstance(made, list):
            problems += made
        else:
            sound.append(made)
    for model, origin in reading.broken:
        made = compiler.policy(model, origin)
        problems += made if isinstance(made, list) else []
    return LoadResult(PolicySet.of(sound), tuple(sorted(set(problems))))


def read_files(paths: Path | Iterable[Path]) -> Reading:
    entries: list[Entry] = []
    broken: list[Entry] = []
    problems: list[Fault] = []
    for path in [paths] if isinstance(paths, Path) else list(paths):
        for file in files_of(path):
            try:
                parts = yaml_reader.read(file)
            except DocumentError as exc:
                problems.append(faults.of_document(exc))
                continue
            for number, part in enumerate(parts):
                _read(part.value, Origin(str(file), number), entries, broken, problems)
    return Reading(tuple(entries), tuple(problems), tuple(broken))


def read_objects(objects: Iterable[Mapping[str, Any]]) -> Reading:
    """Objects of the API server; the server writes their status, which is left out."""
    entries: list[Entry] = []
    broken: list[Entry] = []
    problems: list[Fault] = []
    for value in objects:
        metadata = value.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        document = {key: part for key, part in value.items() if key != "status"}
        _read(document, Origin(f"{value.get('kind')}/{name}"), entries, broken, problems)
    return Reading(tuple(entries), tuple(problems), tuple(broken))


def files_of(path: Path) -> list[Path]:
    """The YAML files of a folder by name, or the file itself."""
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.iterdir()
        if not file.name.startswith(".") and file.suffix in SUFFIXES and not file.is_dir()
    )


def _read(
    value: object,
    origin: Origin,
    entries: list[Entry],
    broken: list[Entry],
    problems: list[Fault],
) -> None:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind == POLICY_TEST:
        return
    model = _KINDS.get(str(kind))
    if model is None:
        problems.append(_unknown_kind(value, kind, origin))
        return
    made: Policy | list[Fault] = faults.read(model, value, origin)
    if isinstance(made, list):
        problems += made
        rest: Policy | None = faults.salvage(model, value)
        if rest is not None:
            broken.append((rest, origin))
    else:
        entries.append((made, origin))


def _unknown_kind(value: object, kind: object, origin: Origin) -> Fault:
    accepted = f"PlatformPolicy, TenantPolicy or PolicyTest of {vocabulary.POLICY_API_VERSION}"
    if not isinstance(value, Mapping):
        return origin.fault((), f"found {type(value).__name__}, want a map: a {accepted}")
    if kind is None:
        return origin.fault((), f"no kind is given, want {accepted}")
    if kind == _RENAMED_KIND:
        return origin.fault(
            ("kind",),
            f"found kind {kind!r}, renamed to PlatformPolicy: write that kind",
        )
    return origin.fault(("kind",), f"found kind {kind!r}, want {accepted}")
