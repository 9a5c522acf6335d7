"""
Functions and types as the engine's configuration text, and type names as authors write them.

A function with an optional result is declared for the checker in YAML rather than in code: only
there does the engine know optionals, and one that the checker takes for `dyn` escapes
`optional_guard`. All others are declared in code, as YAML cannot add a signature to a function of
CEL's own (`string`, `indexOf`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from policies.cel.functions.overload import Function

EXTENSIONS: Final = (
    "bindings",
    "encoders",
    "lists",
    "math",
    "optional",
    "regex",
    "sets",
    "strings",
    "two-var-comprehensions",
)
_WORD: Final = re.compile(r"(?<![.\w])[A-Z][A-Z0-9_]*\b(?![.\w])")
_WELL_KNOWN: Final = {
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


def spelled(name: str) -> str:
    """A type as `Environment` takes it, from the engine's own name for it."""
    return _WORD.sub(lambda word: word[0].lower(), name).replace(", ", ",")


def needs_text(function: Function) -> bool:
    """Whether the function must be declared in the configuration."""
    return any(overload.result.startswith("optional_type<") for overload in function.overloads)


def configuration(functions: Iterable[Function] = ()) -> str:
    """An environment's configuration: the extensions, and functions by signature. JSON is YAML."""
    document = {
        "name": "kubenexus",
        "extensions": [{"name": name} for name in EXTENSIONS],
        "functions": [_function(function) for function in functions if needs_text(function)],
    }
    return json.dumps(document)


def _function(function: Function) -> dict[str, object]:
    overloads: list[dict[str, object]] = []
    for number, overload in enumerate(function.overloads):
        types = [_type(parameter) for parameter in overload.parameters]
        made: dict[str, object] = {"id": f"{function.name}_{number}".replace(".", "_")}
        if overload.member:
            made["target"] = types.pop(0)
        overloads.append(made | {"args": types, "return": _type(overload.result)})
    return {"name": function.name, "overloads": overloads}


def _type(name: str) -> dict[str, object]:
    if name.startswith("~"):
        return {"type_name": name[1:], "is_type_param": True}
    head, bracket, rest = name.partition("<")
    if not bracket:
        return {"type_name": _WELL_KNOWN.get(name, name)}
    return {"type_name": head, "params": [_type(part) for part in _split(rest[:-1])]}


def _split(text: str) -> list[str]:
    """The parts between commas that are not inside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
