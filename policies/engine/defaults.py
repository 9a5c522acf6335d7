"""
Defaults: the fields that policies write to an object, and the object with them.

    value       written where the field is unset, or in any case with `override`
    item        added to a list that lacks it; lists are never replaced
    resource    written to every container, init containers too, that lacks it

Unset means: absent, null or empty; for schedulerName also `default-scheduler`, which the API server
writes before it calls a webhook; for a key with several spellings, none of them present. A request
counts as set where its limit is, as the API server copies it. Limits below the request are left
out, as the API server would reject the pod. A draft changes copies, never the given object.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from policies import quantity, vocabulary
from policies.documents.yaml_reader import Step
from policies.engine.result import MOST_CONFLICTS, Conflict, Injection, where
from policies.json_fields import Json, mapping
from policies.vocabulary import Key

Path = tuple[Step, ...]

_FAMILIES: Final[Mapping[Key, Sequence[Key]]] = {
    key: family
    for family in (
        vocabulary.GANG_NAME_FAMILIES,
        vocabulary.GANG_MIN_AVAILABLE_FAMILIES,
        vocabulary.NUMA_POLICY_FAMILIES,
        vocabulary.VRAM_FAMILIES,
    )
    for key in family
}
_SCHEDULER: Final = ("spec", "schedulerName")
_UNSET_SCHEDULER: Final = "default-scheduler"


class Draft:
    """An object with the writes collected so far; the first policy to write a field keeps it."""

    def __init__(self, obj: Json) -> None:
        self.object: Json = obj
        self.injections: list[Injection] = []
        self.conflicts: list[Conflict] = []
        self._written: dict[Path, Injection] = {}
        # id -> container that is a copy; the reference keeps its id from being reused
        self._owned: dict[int, Any] = {}

    def value(self, base: Path, path: tuple[str, ...], write: Injection) -> None:
        """Set one field of the pod at `base`; `write` carries value, policy and rule."""
        for target in self._targets(base, path, write.override):
            self._set(base, target, write)

    def item(self, base: Path, path: tuple[str, ...], write: Injection) -> None:
        """Add to a list of the pod at `base`."""
        value = at(self.object, (*base, *path))
        if isinstance(value, list) and write.value in value:
            return
        self._write(_with(write, (*base, *path, "-"), write.value))

    def resource(self, base: Path, path: tuple[str, ...], write: Injection) -> None:
        """Set a request or limit of every container of the pod at `base`."""
        section, name = path
        for field in ("containers", "initContainers"):
            value = at(self.object, (*base, "spec", field))
            for index, container in enumerate(value if isinstance(value, list) else ()):
                if _may_set(mapping(container), section, name, write):
                    place = ("spec", field, index, "resources", section, name)
                    self._set(base, place, write)

    def _targets(self, base: Path, path: tuple[str, ...], override: bool) -> list[Path]:
        """The field, or the spellings of it that the object has."""
        family: Sequence[Key] = ()
        if path[0] == "metadata":
            family = _FAMILIES.get(Key(path[1], path[2]), ())
        present: list[Path] = []
        for key in family:
            place: Path = ("metadata", *key)
            if _is_set(at(self.object, (*base, *place))) and (*base, *place) not in self._written:
                present.append(place)
        if not present:
            return [path]
        return present if override else []

    def _set(self, base: Path, path: Path, write: Injection) -> None:
        full = (*base, *path)
        before = self._written.get(full)
        if before is not None:
            if before.value != write.value and before.policy != write.policy:
                self._conflict(before, write)
            return
        value = at(self.object, full)
        unset = not _is_set(value) or (path == _SCHEDULER and value == _UNSET_SCHEDULER)
        if value == write.value:
            # As if this rule had written it in an earlier pass: it still comes first.
            self._written[full] = _with(write, full, write.value)
            return
        if not (unset or write.override):
            return
        self._write(_with(write, full, write.value))

    def _write(self, injection: Injection) -> None:
        self._written[injection.path] = injection
        self.injections.append(injection)
        self.object = self._put(self.object, injection.path, injection.value)

    def _put(self, value: Any, path: Path, new: Any) -> Any:
        """The value with `new` at `path`, in containers that are copied once for all writes."""
        if not path:
            return new
        step, rest = path[0], path[1:]
        own = self._own(value, step)
        if step == "-":
            own.append(new)
        elif isinstance(step, int):
            own[step] = self._put(own[step], rest, new)
        else:
            own[step] = self._put(own.get(step), rest, new)
        return own

    def _own(self, value: Any, step: Step) -> Any:
        """The list or map as a copy that later writes change."""
        is_list = step == "-" or isinstance(step, int)
        if id(value) in self._owned and isinstance(value, list) == is_list:
            return value
        own: Any = dict(mapping(value))
        if is_list:
            own = list(value) if isinstance(value, list) else []
        self._owned[id(own)] = own
        return own

    def _conflict(self, before: Injection, write: Injection) -> None:
        conflict = Conflict(
            where(before.path),
            before.value,
            f"{before.policy}/{before.rule}",
            write.value,
            f"{write.policy}/{write.rule}",
        )
        if len(self.conflicts) < MOST_CONFLICTS and conflict not in self.conflicts:
            self.conflicts.append(conflict)


def _with(write: Injection, path: Path, value: Any) -> Injection:
    return Injection(path, value, write.policy, write.rule, write.override)


def _is_set(value: object) -> bool:
    return value is not None and value != "" and value != {} and value != []


def _may_set(container: Json, section: str, name: str, write: Injection) -> bool:
    resources = mapping(container.get("resources"))
    limits, requested = mapping(resources.get("limits")), mapping(resources.get("requests"))
    if section == "requests":
        if name in limits and name not in requested:
            return False
        return name not in limits or not _above(write.value, limits[name])
    return name not in requested or not _above(requested[name], write.value)


def _above(a: object, b: object) -> bool:
    try:
        return quantity.parse(a) > quantity.parse(b)
    except quantity.QuantityError:
        return True  # an amount that cannot be read is left alone


def at(value: Any, path: Iterable[Step]) -> Any:
    """The value at `path`, or None."""
    for step in path:
        if isinstance(value, Mapping) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def steps(path: str) -> Path:
    """`spec.replicatedJobs[0].template` as steps."""
    return tuple(_steps(path))


def _steps(path: str) -> Iterator[Step]:
    for word in path.split(".") if path else ():
        name, *indexes = word.split("[")
        yield name
        for index in indexes:
            yield int(index.rstrip("]"))
