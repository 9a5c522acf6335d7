"""CEL's string functions in Python, for an engine that lacks them. Offsets count code points."""

from __future__ import annotations

from typing import Final

from policies.cel.functions.overload import Function, FunctionError, Overload

_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_ASCII_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _offset(text: str, offset: int) -> int:
    if not 0 <= offset <= len(text):
        raise FunctionError(f"index out of range: {offset}")
    return offset


def _char_at(text: str, offset: int) -> str:
    return text[_offset(text, offset) : offset + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    return text.find(part, _offset(text, start))


def _last_index_of(text: str, part: str, last: int | None = None) -> int:
    if last is None:
        return text.rfind(part)
    return text.rfind(part, 0, _offset(text, last) + len(part))


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, most)


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not separator:
        parts = list(text)
        return parts if most < 0 else [*parts[: most - 1], "".join(parts[most - 1 :])]
    return text.split(separator, most - 1 if most > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else _offset(text, end)
    if _offset(text, start) > stop:
        raise FunctionError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


def _join(parts: list[object], separator: str = "") -> str:
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) != len(parts):
        raise FunctionError("only strings can be joined", kind="no-overload")
    return separator.join(texts)


def _member(result: str, call: object, *more: str) -> Overload:
    assert callable(call)
    return Overload(("string", *more), result, call, member=True)


FUNCTIONS: Final = (
    Function("charAt", (_member("string", _char_at, "int"),)),
    Function(
        "indexOf", (_member("int", _index_of, "string"), _member("int", _index_of, "string", "int"))
    ),
    Function(
        "lastIndexOf",
        (
            _member("int", _last_index_of, "string"),
            _member("int", _last_index_of, "string", "int"),
        ),
    ),
    Function("lowerAscii", (_member("string", lambda text: text.translate(_ASCII_LOWER)),)),
    Function("upperAscii", (_member("string", lambda text: text.translate(_ASCII_UPPER)),)),
    Function("trim", (_member("string", lambda text: text.strip()),)),
    Function("reverse", (_member("string", lambda text: text[::-1]),)),
    Function(
        "replace",
        (
            _member("string", _replace, "string", "string"),
            _member("string", _replace, "string", "string", "int"),
        ),
    ),
    Function(
        "split",
        (
            _member("list<string>", _split, "string"),
            _member("list<string>", _split, "string", "int"),
        ),
    ),
    Function(
        "substring",
        (_member("string", _substring, "int"), _member("string", _substring, "int", "int")),
    ),
    Function(
        "join",
        (
            Overload(("list<string>",), "string", _join, member=True),
            Overload(("list<string>", "string"), "string", _join, member=True),
        ),
    ),
)
