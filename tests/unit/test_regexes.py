"""
No regular expression of the product takes more than linear time, on any text.

Each pattern is attacked with texts made from itself: a text that it almost matches, in which one
character is repeated many times. A pattern that starts anew at every character, or divides a run
between two repeats, needs the square of the length: seconds, where a linear one needs milliseconds.
So the limit of CPU time stands far from both.
"""

import ast
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _constants as codes
from re import _parser as parser
from typing import Any, NamedTuple

import pytest

import scheduler

ROOT = Path(scheduler.__file__).parents[1]  # the tree, or where the wheel is installed

PACKAGES = ("kubenexus", "webhook", "scheduler", "cluster", "policies")
METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "split")
LENGTHS = (24, 2_000, 8_000, 16_000)  # the first one shows exponential time
MOST_SECONDS = 0.2  # of CPU, for the longest text; a linear pattern needs about a millisecond


class Use(NamedTuple):
    """A pattern, and the method that it is used with."""

    where: str
    pattern: re.Pattern[Any]
    method: str


def uses() -> Iterator[Use]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if "re." in text:
                yield from uses_in(path.relative_to(ROOT), ast.parse(text))


def uses_in(path: Path, tree: ast.AST) -> Iterator[Use]:
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    patterns = {name: v for name, v in vars(module).items() if isinstance(v, re.Pattern)}
    for name, pattern in patterns.items():
        yield Use(f"{path}:{name}", pattern, "fullmatch")
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name(name), method)) if name in patterns:
                yield Use(f"{path}:{name}", patterns[name], method)
            case ast.Call(ast.Attribute(ast.Name("re"), method), [ast.Constant(value), *_]) if (
                method in METHODS
            ):
                yield Use(f"{path}:{node.lineno}", re.compile(value), method)


def example(items: Any) -> Iterator[str]:
    """Characters that the parsed pattern takes one after another, each repeat at least once."""
    for code, value in items:
        for character, body in parts(code, value):
            yield from example(body) if body is not None else (character,)


def parts(code: Any, value: Any) -> list[tuple[str, Any]]:
    """What one item of a parsed pattern takes: characters, and items inside it."""
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        return [("", value[2])] * max(value[0], 1)
    if code in (codes.SUBPATTERN, codes.BRANCH, codes.ATOMIC_GROUP):
        inside = {codes.SUBPATTERN: lambda: value[3], codes.BRANCH: lambda: value[1][0]}
        return [("", inside.get(code, lambda: value)())]
    if code in (codes.AT, codes.ASSERT, codes.ASSERT_NOT):
        return []
    return [(one_of(value) if code is codes.IN else single(code, value), None)]


def single(code: Any, value: Any) -> str:
    match code:
        case codes.LITERAL:
            return chr(value)
        case codes.NOT_LITERAL:
            return "a" if value != ord("a") else "b"
        case codes.CATEGORY:
            return category(value)
        case codes.RANGE:
            return chr(value[0])
        case codes.ANY:
            return "a"
        case _:
            assert code is codes.GROUPREF, code
            return "'"


def one_of(items: Any) -> str:
    negated = [v for c, v in items if c is codes.LITERAL] if items[0][0] is codes.NEGATE else None
    if negated is not None:
        return next(c for c in " a0-" if ord(c) not in negated)
    return single(*items[0])


def category(value: Any) -> str:
    name = str(value)
    return "a" if "NOT" in name or "WORD" in name else "0" if "DIGIT" in name else " "


def attacks(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Each character of an example repeated, and an end that the pattern does not take."""
    text = list(example(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)))
    for index in range(len(text)):
        for end in ("", "\x00"):
            yield "".join((*text[:index], text[index] * length, end))
    yield "".join(text) * (length // max(1, len(text))) + "\x00"
    for character in " 0aA.-_,/'\"":
        yield character * length + "\x00"


def seconds(use: Use, text: str) -> float:
    subject: Any = text.encode() if isinstance(use.pattern.pattern, bytes) else text
    began = time.process_time()
    match use.method:
        case "sub":
            use.pattern.sub(subject[:0], subject)
        case "finditer":
            list(use.pattern.finditer(subject))
        case method:
            getattr(use.pattern, method)(subject)
    return time.process_time() - began


USES = sorted({(use.where, use.method): use for use in uses()}.items())


def test_every_pattern_is_found() -> None:
    assert len(USES) > 40
    assert ("policies/duration.py:_PART", "match") in dict(USES)


@pytest.mark.parametrize("use", [pytest.param(use, id="-".join(key)) for key, use in USES])
def test_no_pattern_takes_more_than_linear_time(use: Use) -> None:
    assert slowest(use) is None


def slowest(use: Use) -> tuple[int, str] | None:
    """The length and the start of a text that takes too long."""
    for length in LENGTHS:
        for text in attacks(use.pattern, length):
            if seconds(use, text) > MOST_SECONDS:
                return length, text[:40]
    return None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"([0-9]+)(ms|s|m|h)", "finditer"),
        (r"\s*\[x\]$", "search"),
        (r"a\s*\??\s*b", "match"),
        (r"(a+)+b", "match"),
    ],
)
def test_a_pattern_that_takes_more_is_found(pattern: str, method: str) -> None:
    assert slowest(Use("test", re.compile(pattern), method)) is not None
