"""
Faults of a policy document, as its author reads them: one `Fault`, one line, at one place.

    file:line:column: spec.validations[2].action: found 'Block', want one of Deny, Warn, Audit

An `Origin` knows where a document came from. A document of a file has lines and columns, inside the
text of an expression too; an object of the API server has only its name. All faults of a document
are reported at once; the models and the compiler decide what is a fault.
"""

import copy
import difflib
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from policies.cel.protocol import CompileError
from policies.documents import positions, yaml_reader
from policies.documents.yaml_reader import Document, DocumentError, Step

M = TypeVar("M", bound=BaseModel)

_LONGEST_NAME: Final = 64  # characters of a field that are compared with known names
_MOST_ERRORS: Final = 200  # of one document; each is compared with all others
_SALVAGES: Final = 3  # leaving out one detail may bring up another


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing to correct; `picture` shows an expression with a mark under the fault."""

    source: str
    line: int
    column: int
    path: str
    message: str
    picture: str = ""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        text = f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"
        return f"{text}\n{self.picture}" if self.picture else text


def of_document(error: DocumentError) -> Fault:
    return Fault(error.source, error.line, error.column, "", error.message)


@dataclass(frozen=True, slots=True)
class Origin:
    """
    Where a document came from: a file, or the API server, which knows no lines.

    Of a file only the `number` of the document is kept. Positions are wanted for faults alone, and
    a thousand parsed files in memory would slow everything down; so a fault reads its file again.
    """

    source: str
    number: int | None = None

    def fault(self, path: Sequence[Step], message: str) -> Fault:
        document = self._document()
        if document is None:
            return Fault(self.source, 0, 0, dotted(path), message)
        place = document.place(path)
        return Fault(self.source, place.line, place.column, dotted(path), message)

    def compile_fault(self, path: Sequence[Step], source: str, error: CompileError) -> Fault:
        """The fault inside an expression: the file's own line and column, and a picture."""
        plain = self.fault(path, error.message)
        line, column = plain.line, plain.column
        document = self._document()
        node = document.scalar(path) if document is not None else None
        if node is not None:
            line, column = positions.place(node, self._text(), error.line, error.column)
        picture = _indent(error.caret(source))
        return Fault(self.source, line, column, plain.path, error.message, picture)

    def _document(self) -> Document | None:
        """None where the file is gone or changed since it was read: then its name must do."""
        if self.number is None:
            return None
        try:
            documents = _parsed(self._text(), self.source)
        except DocumentError:
            return None
        return documents[self.number] if self.number < len(documents) else None

    def _text(self) -> str:
        try:
            return Path(self.source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""


@lru_cache(maxsize=1)
def _parsed(text: str, source: str) -> list[Document]:
    """The file of the fault before is mostly the file of the next one too."""
    return yaml_reader.parse(text, source)


def _indent(picture: str) -> str:
    return "\n".join(f"    {line}" for line in picture.split("\n"))


def dotted(path: Sequence[Step]) -> str:
    """`spec.validations[2].action`; keys that are no plain word stand in quotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.replace("-", "").replace("_", "").isalnum():
            text += f".{step}" if text else step
        else:
            text += f"['{step}']"
    return text


def read(model: type[M], value: object, origin: Origin) -> M | list[Fault]:
    """The document as a model, or all its faults."""
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        rows = [
            _Row(_written(value, row["loc"]), row["type"], row["msg"], row["input"], row.get("ctx"))
            for row in exc.errors(include_url=False)[:_MOST_ERRORS]
        ]
        faults = [origin.fault(row.path, _message(row, model)) for row in _relevant(rows)]
        return sorted(set(faults))


def salvage(model: type[M], value: object) -> M | None:
    """
    The document without what is wrong in it, so that its expressions are checked as well.

    Only details are left out: without a whole part of the spec, or without variables, sound
    expressions would seem faulty. None where nothing can be told beyond what `read` tells.
    """
    rest = copy.deepcopy(value)
    for _ in range(_SALVAGES):
        try:
            return model.model_validate(rest)
        except ValidationError as exc:
            paths = {_written(rest, row["loc"]) for row in exc.errors(include_url=False)}
        if not all(len(path) > 2 and path[1] != "variables" for path in paths):
            return None
        for path in paths:
            _leave_out(rest, path)
    return None


def _leave_out(value: Any, path: tuple[Step, ...]) -> None:
    """Items of lists stay, as the places of the others count from them."""
    *above, last = path
    for step in above:
        below = _below(value, step)
        if below is None:
            return
        value = below[0]
    if isinstance(value, dict):
        value.pop(last, None)


@dataclass(frozen=True, slots=True)
class _Row:
    path: tuple[Step, ...]
    type: str
    text: str
    found: Any
    context: Mapping[str, Any] | None


def _written(value: object, loc: Sequence[Step]) -> tuple[Step, ...]:
    """The path as the author wrote it: without the names of union members between."""
    path: list[Step] = []
    for index, step in enumerate(loc):
        below = _below(value, step)
        if below is not None:
            value = below[0]
        elif index != len(loc) - 1 or not _is_field(step):
            continue
        path.append(step)
    return tuple(path)


def _below(value: object, step: Step) -> tuple[object] | None:
    """What stands at one step below, in a tuple, as null is a value too."""
    if isinstance(value, Mapping):
        return (value[step],) if step in value else None
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return (value[step],)
    return None


def _is_field(step: Step) -> bool:
    return isinstance(step, str) and step.isidentifier() and step[0].islower() and step != "str"


# Errors of the union members that the author did not mean, beside the real one.
_SHAPES: Final = frozenset({"model_type", "tuple_type", "string_type", "dict_type", "too_short"})


def _relevant(rows: Sequence[_Row]) -> Iterator[_Row]:
    relevant: list[_Row] = []
    for row in rows:
        rivals = [other for other in rows if other.path[: len(row.path)] == row.path]
        if row.type in _SHAPES and any(other.type not in _SHAPES for other in rivals):
            continue
        if any(row.path == other.path and row.type in _SHAPES for other in relevant):
            continue
        relevant.append(row)
    yield from relevant


_WANTS: Final = {
    "string_type": "text; put it in quotes",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "model_type": "a map",
    "dict_type": "a map",
    "tuple_type": "a list",
    "list_type": "a list",
    "timezone_aware": "a time with a zone such as 2027-01-31T00:00:00Z",
    "datetime_from_date_parsing": "a time such as 2027-01-31T00:00:00Z",
    "datetime_parsing": "a time such as 2027-01-31T00:00:00Z",
}


def _message(row: _Row, model: type[BaseModel]) -> str:
    context = row.context or {}
    shown = _shown(row.found)
    if row.type == "missing":
        return "this field is required; add it"
    if row.type == "extra_forbidden":
        return _unknown(row, model)
    if row.type == "value_error":
        return row.text.removeprefix("Value error, ")
    if row.type == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        return f"found {shown}, want {'one of ' if ',' in expected else ''}{expected}"
    if row.type == "string_pattern_mismatch":
        return f"found {shown}, want a text that matches {context['pattern']}"
    if row.type in _WANTS:
        return f"found {shown}, want {_WANTS[row.type]}"
    return f"found {shown}: {row.text[:1].lower()}{row.text[1:]}"


def _unknown(row: _Row, model: type[BaseModel]) -> str:
    fields = sorted(_fields_at(model, row.path[:-1]))
    near = difflib.get_close_matches(str(row.path[-1])[:_LONGEST_NAME], fields, n=1)
    if near:
        return f"unknown field; the nearest known one is {near[0]!r}"
    return f"unknown field; known here: {', '.join(fields)}" if fields else "unknown field"


def _fields_at(model: type[BaseModel], path: Sequence[Step]) -> set[str]:
    """The field names that stand at `path`, looked up in the model's own schema."""
    schema = _schema(model)
    definitions = schema.get("$defs", {})

    def unfold(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if "$ref" in part:
            yield from unfold(definitions[part["$ref"].rpartition("/")[2]])
        for member in part.get("anyOf", ()):
            yield from unfold(member)
        yield part

    parts: list[Mapping[str, Any]] = list(unfold(schema))
    for step in path:
        parts = [deeper for part in parts for item in _items(part, step) for deeper in unfold(item)]
    return {name for part in parts for name in part.get("properties", {})}


@lru_cache(maxsize=64)
def _schema(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema(by_alias=True)


def _items(part: Mapping[str, Any], step: Step) -> list[Mapping[str, Any]]:
    """The schemas that may stand one step below."""
    if isinstance(step, int):
        schemas = [part.get("items")]
    elif step in part.get("properties", {}):
        schemas = [part["properties"][step]]
    else:
        schemas = [part.get("additionalProperties"), *part.get("patternProperties", {}).values()]
    return [item for item in schemas if isinstance(item, Mapping)]


def _shown(value: object) -> str:
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_SHORT: Final = reprlib.Repr()  # of a value of any size and depth only the start is written
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 64
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 8
