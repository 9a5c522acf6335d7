"""Kubernetes' list functions and `find`/`findAll`, and `jsonpatch.escapeKey`."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import re2  # type: ignore[import-untyped]  # no stubs exist

from policies.cel.functions.overload import Function, FunctionError, Overload

_SUMMABLE: Final = ("int", "uint", "double", "duration")
_COMPARABLE: Final = (*_SUMMABLE, "bool", "timestamp", "string", "bytes")
_INT64: Final = 2**63
_SHORT: Final = 256  # characters of a text and a pattern that are worth caching

MAX_STEPS: Final = 10_000
"""What one evaluation may visit; fixed in the engine."""


def _family(value: object) -> str:
    """Values of one family can be compared; `int`, `uint` and `double` are one."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    for kind in (str, bytes, bytearray, datetime.datetime, datetime.timedelta):
        if isinstance(value, kind):
            return kind.__name__.replace("bytearray", "bytes")
    return ""


def _comparable(values: Sequence[object]) -> list[Any]:
    families = {_family(value) for value in values}
    if len(families) > 1 or "" in families:
        raise FunctionError("the elements cannot be compared with each other", kind="no-overload")
    return list(values)


def _is_sorted(values: Sequence[object]) -> bool:
    items = _comparable(values)
    return all(not items[i] > items[i + 1] for i in range(len(items) - 1))


def _best(name: str, better: Callable[[Any, Any], bool]) -> Callable[[Sequence[object]], object]:
    def best(values: Sequence[object]) -> object:
        items = _comparable(values)
        if not items:
            raise FunctionError(f"{name} called on empty list")
        best_item = items[0]
        for item in items[1:]:
            if better(item, best_item):
                best_item = item
        return best_item

    return best


def _sum(values: Sequence[object]) -> object:
    families = {_family(value) for value in values}
    if families == {"timedelta"}:
        return sum((v for v in values if isinstance(v, datetime.timedelta)), datetime.timedelta())
    if not families <= {"number"}:
        raise FunctionError("the elements cannot be added", kind="no-overload")
    numbers = [v for v in values if isinstance(v, int | float)]
    if len({type(number) for number in numbers}) > 1:
        raise FunctionError("int and double cannot be added", kind="no-overload")
    total = sum(numbers)
    if isinstance(total, int) and not -_INT64 <= total < 2 * _INT64:
        raise FunctionError("integer overflow")
    return total


def equal(left: object, right: object) -> bool:
    """CEL's equality: numbers by value, `true` is no number, NaN equals nothing."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, float) and math.isnan(left):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    return bool(left == right)


def _index_of(values: Sequence[object], item: object) -> int:
    return next((i for i, value in enumerate(values) if equal(value, item)), -1)


def _last_index_of(values: Sequence[object], item: object) -> int:
    return next((i for i in reversed(range(len(values))) if equal(values[i], item)), -1)


def _includes(target: object, item: object) -> bool:
    if isinstance(target, list):
        return _index_of(target, item) >= 0
    return equal(target, item)


@functools.lru_cache(maxsize=512)
def _pattern(text: str) -> Any:
    try:
        return re2.compile(text, _options())
    except re2.error as error:
        raise FunctionError(f"illegal regex {text!r}: {error}") from error


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


def bounded_range(length: int) -> list[int]:
    """CEL's `lists.range`, for as many numbers as a program can visit."""
    if length > MAX_STEPS:
        raise FunctionError(
            f"iteration budget exceeded: a range of {length}, at most {MAX_STEPS}", kind="budget"
        )
    return list(range(length))


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with a regular expression, or None."""
    try:
        _pattern(pattern)
    except FunctionError as error:
        return str(error)
    return None


def matches(text: str, pattern: str) -> bool:
    """CEL's own `matches`, with the pattern compiled once rather than at each call."""
    if len(text) + len(pattern) <= _SHORT:
        return _matches_short(text, pattern)
    return _pattern(pattern).search(text) is not None


@functools.lru_cache(maxsize=4096)
def _matches_short(text: str, pattern: str) -> bool:
    """The same, cached: labels and names have few distinct values."""
    return _pattern(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    match = _pattern(pattern).search(text)
    return str(match.group()) if match else ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    matches: list[str] = []
    for match in _pattern(pattern).finditer(text):
        if 0 <= most <= len(matches):
            break
        if len(matches) >= MAX_STEPS:
            raise FunctionError(f"more than {MAX_STEPS:,} matches", kind="budget")
        matches.append(match.group())
    return matches


def _escape_key(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def _over_lists(
    name: str, elements: Sequence[str], call: Callable[..., object], result: str | None = None
) -> Function:
    overloads = (
        Overload((f"list<{element}>",), result or element, call, member=True)
        for element in elements
    )
    return Function(name, tuple(overloads))


FUNCTIONS: Final = (
    _over_lists("isSorted", _COMPARABLE, _is_sorted, "bool"),
    _over_lists("sum", _SUMMABLE, _sum),
    _over_lists("min", _COMPARABLE, _best("min", lambda a, b: a < b)),
    _over_lists("max", _COMPARABLE, _best("max", lambda a, b: a > b)),
    Function("indexOf", (Overload(("list<~A>", "~A"), "int", _index_of, member=True),)),
    Function("lastIndexOf", (Overload(("list<~A>", "~A"), "int", _last_index_of, member=True),)),
    Function("includes", (Overload(("dyn", "dyn"), "bool", _includes, member=True),)),
    Function("find", (Overload(("string", "string"), "string", _find, member=True),)),
    Function(
        "findAll",
        (
            Overload(("string", "string"), "list<string>", _find_all, member=True),
            Overload(("string", "string", "int"), "list<string>", _find_all, member=True),
        ),
    ),
    Function("jsonpatch.escapeKey", (Overload(("string",), "string", _escape_key),)),
)
