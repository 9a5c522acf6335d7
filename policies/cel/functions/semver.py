"""
Kubernetes' `semver` functions: semantic versions 2.0.0, build metadata kept out of every
comparison.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from policies.cel.functions.overload import Function, FunctionError, Overload, opaque, text_of

TYPE: Final = "kubernetes.Semver"
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_SHAPE: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    rf"(?:-((?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
    rf"(?:\.(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_LARGEST: Final = 2**64 - 1

Order = tuple[int, int, int, tuple[object, ...]]


def _parse(text: str, normalize: bool = False) -> dict[str, object]:
    shape = _SHAPE.fullmatch(_normalized(text) if normalize else text)
    if shape is None or any(int(part) > _LARGEST for part in shape.groups()[:3]):
        raise FunctionError(f"{text!r} is not a semantic version such as 1.2.3 or 1.2.3-rc.1")
    release = ".".join(shape.groups()[:3])
    return opaque(TYPE, f"{release}-{shape[4]}" if shape[4] else release)


def _normalized(text: str) -> str:
    """Without a leading `v` and leading zeros, and with the parts that are missing."""
    parts = text.removeprefix("v").split(".", 2)
    for position, part in enumerate(parts):
        if len(part) > 1:
            cut = part.lstrip("0")
            parts[position] = cut if cut[:1].isdigit() else f"0{cut}"
    if len(parts) < 3 and not re.search(r"[+-]", parts[-1]):
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _parse(text, normalize)
    except FunctionError:
        return False
    return True


def _order(value: object) -> Order:
    """Sorts as the specification orders: a pre-release first, numbers before words."""
    text = text_of(value, TYPE) or ""
    release, _, pre = text.partition("-")
    major, minor, patch = (int(part) for part in release.split("."))
    return (major, minor, patch, _pre_release(pre))


def _pre_release(text: str) -> tuple[object, ...]:
    if not text:
        return ((2,),)
    parts = [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in text.split(".")]
    return tuple(parts)


def _compare(left: object, right: object) -> int:
    first, second = _order(left), _order(right)
    return (first > second) - (first < second)


def _member(
    name: str, call: Callable[..., object], *, others: int = 0, result: str = "int"
) -> Function:
    return Function(name, (Overload((TYPE,) * (1 + others), result, call, member=True),))


FUNCTIONS: Final = (
    Function(
        "semver",
        (Overload(("string",), TYPE, _parse), Overload(("string", "bool"), TYPE, _parse)),
    ),
    Function(
        "isSemver",
        (
            Overload(("string",), "bool", _is_semver),
            Overload(("string", "bool"), "bool", _is_semver),
        ),
    ),
    _member("major", lambda value: _order(value)[0]),
    _member("minor", lambda value: _order(value)[1]),
    _member("patch", lambda value: _order(value)[2]),
    _member("compareTo", _compare, others=1),
    _member("isGreaterThan", lambda a, b: _compare(a, b) > 0, others=1, result="bool"),
    _member("isLessThan", lambda a, b: _compare(a, b) < 0, others=1, result="bool"),
)
