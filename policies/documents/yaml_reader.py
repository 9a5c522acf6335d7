"""
YAML files that people write, read with the position of every value and without surprises.

    file --read--> text --compose--> nodes with marks --build--> plain values
              |              |                            |
           too large      tabs, syntax        duplicate keys, alias bombs, odd keys

Every refusal is a `DocumentError` that prints as `file:line:column: what, and what to do`.
Values are JSON values: a date stays the text it was written as, as the API server sees it.
What the values mean is the reader's business; it asks `Document.place(path)` to point at one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

LARGEST: Final = 3 * 1024 * 1024  # bytes; the API server takes no larger request either
_MOST_NODES: Final = 250_000  # values in one document, each use of an alias counted
_DEEPEST: Final = 64

Step = str | int


class DocumentError(ValueError):
    """A file cannot be read; prints as `file:line:column: message`."""

    def __init__(self, source: str, line: int, column: int, message: str) -> None:
        super().__init__(f"{source}:{line}:{column}: {message}" if line else f"{source}: {message}")
        self.source, self.line, self.column, self.message = source, line, column, message


@dataclass(frozen=True, slots=True)
class Position:
    """Where a value stands in its file; lines and columns count from one."""

    source: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its value, and where each part of the value was written."""

    source: str
    value: Any
    node: yaml.Node

    def place(self, path: Sequence[Step] = ()) -> Position:
        """The place of the value at `path`, or of the nearest parent that is written down."""
        node = self.node
        for step in path:
            below = _child(node, step)
            if below is None:
                break
            node = below
        mark = node.start_mark
        return Position(self.source, mark.line + 1, mark.column + 1)

    def scalar(self, path: Sequence[Step]) -> yaml.ScalarNode | None:
        """The scalar at `path` with its style and marks, for positions inside its text."""
        node: yaml.Node | None = self.node
        for step in path:
            node = _child(node, step) if node is not None else None
        return node if isinstance(node, yaml.ScalarNode) else None

    def error(self, path: Sequence[Step], message: str) -> DocumentError:
        place = self.place(path)
        return DocumentError(self.source, place.line, place.column, message)


def read(path: Path) -> list[Document]:
    """All documents of a file; empty ones are left out."""
    source = str(path)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise DocumentError(
                source, 0, 0, f"the file has {size} bytes, at most {LARGEST} are read; split it"
            )
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise DocumentError(source, 0, 0, "no such file; check the path") from None
    except IsADirectoryError:
        raise DocumentError(source, 0, 0, "this is a folder, want a YAML file") from None
    except UnicodeDecodeError as exc:
        raise DocumentError(
            source, 0, 0, f"byte {exc.start} is not UTF-8; save the file as UTF-8"
        ) from exc
    except OSError as exc:
        raise DocumentError(source, 0, 0, f"cannot be read: {exc.strerror}") from exc
    return parse(text, source)


def parse(text: str, source: str) -> list[Document]:
    """All documents of a text; empty ones are left out."""
    if len(text) > LARGEST:
        raise DocumentError(
            source, 0, 0, f"the text has {len(text)} characters, at most {LARGEST} are read"
        )
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
    except yaml.MarkedYAMLError as exc:
        raise _broken(exc, text, source) from exc
    except yaml.YAMLError as exc:
        raise DocumentError(source, 0, 0, f"not YAML: {_one_line(str(exc))}") from exc
    except RecursionError:
        raise DocumentError(source, 0, 0, f"nested deeper than {_DEEPEST} levels") from None
    documents = []
    for node in nodes:
        value = _Builder(source).build(node, 0)
        if value is not None:
            documents.append(Document(source, value, node))
    return documents


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_constructor: Any = yaml.constructor.SafeConstructor  # its stubs leave the methods untyped
_values: Final = _constructor()
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"
_SCALARS: Final = {
    f"{_TAG}null": lambda node: None,
    f"{_TAG}bool": _values.construct_yaml_bool,
    f"{_TAG}int": _values.construct_yaml_int,
    f"{_TAG}float": _values.construct_yaml_float,
    f"{_TAG}str": lambda node: node.value,
    f"{_TAG}timestamp": lambda node: node.value,
    f"{_TAG}value": lambda node: node.value,
}


class _Builder:
    """Turns composed nodes into values, counting every use of an alias as what it unfolds to."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._count = 0

    def build(self, node: yaml.Node, depth: int) -> Any:
        self._count += 1
        if self._count > _MOST_NODES:
            raise self._error(
                node,
                f"unfolds to more than {_MOST_NODES} values; write fewer aliases or split the file",
            )
        if depth > _DEEPEST:
            raise self._error(node, f"nested deeper than {_DEEPEST} levels")
        if isinstance(node, yaml.MappingNode):
            return self._map(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, depth + 1) for item in node.value]
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> Any:
        make = _SCALARS.get(node.tag)
        if make is None:
            raise self._error(node, f"tag {node.tag!r} is not understood; write a plain value")
        try:
            return make(node)
        except (ValueError, OverflowError) as exc:
            raise self._error(node, f"{node.value!r} is no value: {exc}") from exc

    def _map(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for more in self._merges(value_node, depth):
                    merged = more | merged
                continue
            key = self._key(key_node)
            if key in own:
                raise self._error(key_node, f"key {key!r} stands twice in one map; remove one")
            own[key] = self.build(value_node, depth + 1)
        return merged | own

    def _merges(self, node: yaml.Node, depth: int) -> Iterator[dict[str, Any]]:
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(part, yaml.MappingNode):
                raise self._error(part, "a merge key `<<` takes a map or a list of maps")
            yield self.build(part, depth + 1)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == f"{_TAG}null":
            raise self._error(node, "a key must be a plain word")
        return str(node.value)

    def _error(self, node: yaml.Node, message: str) -> DocumentError:
        mark = node.start_mark
        return DocumentError(self._source, mark.line + 1, mark.column + 1, message)


def _child(node: yaml.Node, step: Step) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode) and isinstance(step, str):
        values = [value for key, value in node.value if key.value == step]
        return values[0] if values else None
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item: yaml.Node = node.value[step]
        return item
    return None


def _broken(exc: yaml.MarkedYAMLError, text: str, source: str) -> DocumentError:
    mark = exc.problem_mark or exc.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    problem = _one_line(exc.problem or exc.context or "syntax error")
    if mark and _is_tab(text, mark):
        problem = "a tab stands where spaces belong; indent with spaces"
    return DocumentError(source, line, column, f"not YAML: {problem}")


def _is_tab(text: str, mark: yaml.Mark) -> bool:
    line = text.splitlines()[mark.line : mark.line + 1]
    return bool(line) and line[0][mark.column : mark.column + 1] == "\t"


def _one_line(text: str) -> str:
    return " ".join(text.split())
