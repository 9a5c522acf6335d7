"""
The chart's values.yaml as a table and as a JSON Schema, read from its keys, defaults and comments.

    # What the key does, in one or more lines.
    # @enum Fail Ignore          only these
    # @type string integer       these types instead of the default's
    # @open                      any further keys below this one
    key: default

A map with keys allows no others; an empty map or list is open, because Kubernetes defines its
contents. Every key needs a comment: `read` rejects one without.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

_KEY: Final = re.compile(r"^( *)([A-Za-z][\w-]*):(?: |$)")


class Undescribed(Exception):
    """A key without a comment, or a comment with an unknown tag."""


@dataclass(frozen=True, slots=True)
class Key:
    path: tuple[str, ...]
    default: Any
    text: str
    kinds: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    is_open: bool = False
    below: tuple["Key", ...] = field(default=())


def read(text: str) -> tuple[Key, ...]:
    """The keys of the document, nested as they are, in its order."""
    comments = dict(_comments(text.splitlines()))
    return _below((), yaml.safe_load(text), comments)


def _comments(lines: Sequence[str]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Path of a key -> the comment lines right above it."""
    open_keys: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
            continue
        match = _KEY.match(line)
        if match:
            depth = len(match[1])
            open_keys = [pair for pair in open_keys if pair[0] < depth] + [(depth, match[2])]
            yield tuple(name for _, name in open_keys), comment
        comment = []


def _below(
    path: tuple[str, ...], values: dict[str, Any], comments: dict[tuple[str, ...], list[str]]
) -> tuple[Key, ...]:
    return tuple(_key((*path, name), value, comments) for name, value in values.items())


def _key(path: tuple[str, ...], value: Any, comments: dict[tuple[str, ...], list[str]]) -> Key:
    lines = comments.get(path, [])
    tags = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("@")}
    words = [line for line in lines if line and not line.startswith("@")]
    if not words or set(tags) - {"@enum", "@type", "@open"}:
        raise Undescribed(
            f"{'.'.join(path)}: want a comment above it that describes it; found {lines or 'none'}"
        )
    is_open = "@open" in tags
    return Key(
        path,
        value,
        " ".join(words),
        kinds=tuple(tags.get("@type", ())),
        allowed=tuple(tags.get("@enum", ())),
        is_open=is_open,
        below=_below(path, value, comments)
        if isinstance(value, dict) and value and not is_open
        else (),
    )


def schema(keys: Sequence[Key]) -> dict[str, Any]:
    """A schema that allows these keys and no others."""
    # Helm passes the values under `global` to every subchart.
    top = {**_object(keys), "title": "Values of the kubenexus chart"}
    top["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **top}


def _object(keys: Sequence[Key]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.path[-1]: _property(key) for key in keys},
    }


def _property(key: Key) -> dict[str, Any]:
    about = {"description": key.text}
    if key.below:
        return {**about, **_object(key.below)}
    if key.allowed:
        return {**about, "enum": list(key.allowed)}
    kinds = list(key.kinds) or [_kind(key.default)]
    return {**about, "type": kinds[0] if len(kinds) == 1 else kinds}


def _kind(value: object) -> str:
    # bool before int: a bool is an int in Python.
    for python, name in ((bool, "boolean"), (int, "integer"), (str, "string"), (list, "array")):
        if isinstance(value, python):
            return name
    return "object" if isinstance(value, dict) else "null"


def table(keys: Sequence[Key]) -> str:
    """Every value that can be set, as Markdown."""
    rows = [
        f"| `{'.'.join(key.path)}` | {_default(key.default)} | {_text(key)} |"
        for key in _leaves(keys)
    ]
    return "\n".join(["| Value | Default | What it does |", "| --- | --- | --- |", *rows]) + "\n"


def _leaves(keys: Sequence[Key]) -> Iterator[Key]:
    for key in keys:
        if key.below:
            yield from _leaves(key.below)
        else:
            yield key


def _default(value: object) -> str:
    return f"`{json_of(value)}`"


def json_of(value: object) -> str:
    """On one line, and short enough for a table."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    text = text.removesuffix("...\n").strip().replace("|", "\\|")
    return text or '""'


def _text(key: Key) -> str:
    choice = f" One of {', '.join(f'`{value}`' for value in key.allowed)}." if key.allowed else ""
    return key.text.replace("|", "\\|") + choice
