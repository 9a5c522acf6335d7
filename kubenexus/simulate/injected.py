"""
The fields that admission wrote: `label x`, `annotation y`, `spec.schedulerName`.

They are read from the JSON Patch itself, so that none is missing.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from kubenexus.simulate.result import Injected
from policies.json_fields import Json


def injected(by_pod: Iterable[tuple[str, Iterable[Json]]]) -> tuple[Injected, ...]:
    """Each (field, value) once, with the pods that got it, in the order of the patches."""
    pods_of: dict[tuple[str, str], list[str]] = {}
    for pod, operations in by_pod:
        for operation in operations:
            for field, value in _fields_of(operation):
                pods_of.setdefault((field, value), []).append(pod)
    return tuple(Injected(field, value, tuple(pods)) for (field, value), pods in pods_of.items())


def _fields_of(operation: Json) -> Iterator[tuple[str, str]]:
    path = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
    yield from _fields(path, operation.get("value"))


def _fields(path: list[str], value: object) -> Iterator[tuple[str, str]]:
    """A map is listed key by key; an empty one is only the parent of what follows."""
    if isinstance(value, Mapping) and path[0] == "metadata" and len(path) < 3:
        for key, below in value.items():
            yield from _fields([*path, key], below)
    elif value != {}:
        yield _name(path), value if isinstance(value, str) else json.dumps(value)


def _name(path: list[str]) -> str:
    match path:
        case ["metadata", ("labels" | "annotations") as place, key]:
            return f"{place[:-1]} {key}"
        case _:
            return ".".join(path)
