"""
An engine's error text as an error kind.

Every pattern is anchored at the start, since the rest of a text may quote the evaluated object.
Errors of our own functions start with their kind in brackets (`tagged`), and so keep it.
"""

from __future__ import annotations

import re
from typing import Final, get_args

from policies.cel.protocol import ErrorKind, EvaluationError

_PATTERNS: Final[tuple[tuple[ErrorKind, str], ...]] = (
    ("budget", r"iteration budget exceeded|.{0,40}recursion"),
    ("divide", r"(?:modulus or )?divi(?:de|sion) by zero|modul(?:us|o) by zero"),
    (
        "missing-key",
        r"key not found|no such key|no such member|no value with name|undeclared reference",
    ),
    ("no-overload", r"(?:found )?no (?:matching |such )?overload|unbound function"),
    ("type", r"non-cel value|applying select|unimplemented type|.{0,200}support field selection"),
)
_COMPILED: Final = tuple((kind, re.compile(text, re.IGNORECASE)) for kind, text in _PATTERNS)
_STATUS: Final = re.compile(r"^[A-Z_]+: |(?<!\s)\s*\[[A-Z_]+\]$")
_TAG: Final = re.compile(r"^\[([a-z-]+)\] ")


def tagged(kind: ErrorKind, message: str) -> str:
    """A text that `evaluation_error` reads back as this kind and message."""
    return f"[{kind}] {message}"


def evaluation_error(text: str) -> EvaluationError:
    """The EvaluationError for an engine's text."""
    cleaned = _STATUS.sub("", text.strip()).replace("cel.@", "")
    tag = _TAG.match(cleaned)
    if tag:
        for kind in get_args(ErrorKind):
            if kind == tag[1]:
                return EvaluationError(kind, cleaned[tag.end() :])
    for kind, pattern in _COMPILED:
        if pattern.match(cleaned):
            return EvaluationError(kind, cleaned)
    return EvaluationError("other", cleaned)
