"""
Builds a JSON Patch: only changed fields, parents created where they are missing.

A `Patch` takes one change at a time, applies it to a copy of the touched containers and records the
operation: a later change sees the earlier ones, and the given object stays unchanged. It appends to
lists and never replaces them. A change without effect records nothing, so a decision on the patched
object gives an empty patch.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]


class Patch:
    """Changes to one object, in order."""

    def __init__(self, obj: Json) -> None:
        self._result = dict(obj)
        # id -> container that is a copy; the reference keeps its id from being reused
        self._owned: dict[int, Any] = {id(self._result): self._result}
        self._operations: list[Json] = []

    @property
    def result(self) -> Json:
        """The patched object."""
        return self._result

    @property
    def operations(self) -> tuple[Json, ...]:
        """RFC 6902 operations that turn the given object into `result`."""
        return tuple(self._operations)

    def set(self, path: Sequence[str | int], value: Any) -> None:
        """Put `value` at `path`, in place of any other."""
        parent = self._parent(path)
        last = path[-1]
        if isinstance(parent, list):
            index = int(last)
            if parent[index] != value:
                parent[index] = value
                self._record("replace", path, value)
        elif last not in parent or parent[last] != value:
            operation = "replace" if last in parent else "add"
            parent[last] = value
            self._record(operation, path, value)

    def append(self, path: Sequence[str | int], value: Any) -> None:
        """Add `value` to the list at `path` unless it is in it."""
        parent = self._parent(path)
        existing = _step(parent, path[-1])
        if existing is None:
            self.set(path, [value])
        elif value not in existing:
            self._own(parent, path[-1], existing).append(value)
            self._record("add", [*path, "-"], value)

    def drop(self, path: Sequence[str]) -> None:
        """Remove a field of a map, where it exists."""
        here: Any = self._result
        for step in path[:-1]:
            here = here.get(step) if isinstance(here, dict) else None
        if isinstance(here, dict) and path[-1] in here:
            del self._parent(path)[path[-1]]
            self._operations.append({"op": "remove", "path": pointer(path)})

    def _parent(self, path: Sequence[str | int]) -> Any:
        """The container of the last step; missing or null maps on the way are created."""
        here: Any = self._result
        for index, step in enumerate(path[:-1]):
            below = _step(here, step)
            if below is None:
                below = {}
                exists = not isinstance(here, list) and step in here
                self._record("replace" if exists else "add", path[: index + 1], {})
            here = self._own(here, step, below)
        return here

    def _own(self, parent: Any, step: str | int, child: Any) -> Any:
        """The child as a copy; its parent is a copy already."""
        if id(child) not in self._owned:
            child = copy.copy(child)
            self._owned[id(child)] = child
        parent[step] = child
        return child

    def _record(self, operation: str, path: Iterable[str | int], value: Any) -> None:
        self._operations.append(
            {"op": operation, "path": pointer(path), "value": copy.deepcopy(value)}
        )


def _step(here: Any, step: str | int) -> Any:
    """The child at one step; None where a map has no such key."""
    return here[int(step)] if isinstance(here, list) else here.get(step)


def pointer(path: Iterable[str | int]) -> str:
    """The JSON pointer of a path: `~` and `/` inside a step are escaped."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def apply(obj: Mapping[str, Any], operations: Iterable[Mapping[str, Any]]) -> Json:
    """The object after the operations that a `Patch` records."""
    result = copy.deepcopy(dict(obj))
    for operation in operations:
        steps = [
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        ]
        here: Any = result
        for step in steps[:-1]:
            here = here[int(step)] if isinstance(here, list) else here[step]
        last = steps[-1]
        if operation["op"] == "remove":
            del here[last]
            continue
        value = copy.deepcopy(operation["value"])
        if not isinstance(here, list):
            here[last] = value
        elif last == "-":
            here.append(value)
        elif operation["op"] == "add":
            here.insert(int(last), value)
        else:
            here[int(last)] = value
    return result
