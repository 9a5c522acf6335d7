"""
Kubernetes' `format` functions: named formats, and `validate`, which gives the faults or nothing.

`validate` and `format.named` give an optional in CEL. Python cannot make one, so the functions
here give a list or map that is empty for "none", and `rewrite` wraps the call in
`optional.ofNonZeroValue`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Final

from policies.cel.functions import url
from policies.cel.functions.overload import Function, FunctionError, Overload, opaque, text_of

TYPE: Final = "kubernetes.NamedFormat"

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE
)
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_CLOCK: Final = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)

Check = Callable[[str], list[str]]


def _shaped(pattern: re.Pattern[str], longest: int, words: str, *, prefix: bool = False) -> Check:
    def check(text: str) -> list[str]:
        if prefix and text.endswith("-"):
            text = text[:-1] + "a" if len(text) > 1 else text
        problems = []
        if len(text.encode()) > longest:
            problems.append(f"must be no more than {longest} characters")
        if not pattern.fullmatch(text):
            problems.append(f"{words} (regex used for validation is '{pattern.pattern}')")
        return problems

    return check


_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_WORDS: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character"
)
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)
_NAME_WORDS: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


def _label_value(text: str) -> list[str]:
    return (
        _shaped(_NAME, 63, _NAME_WORDS.replace("name part", "a valid label"))(text) if text else []
    )


def _qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        return [
            f"a qualified name {_NAME_WORDS[10:]} with an optional DNS subdomain prefix and '/'"
        ]
    problems = []
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            prefix_problems = _shaped(_SUBDOMAIN, 253, _SUBDOMAIN_WORDS)(parts[0])
            problems += [f"prefix part {problem}" for problem in prefix_problems]
    if not parts[-1]:
        problems.append("name part must be non-empty")
    elif len(parts[-1].encode()) > 63:
        problems.append("name part must be no more than 63 characters")
    if not _NAME.fullmatch(parts[-1]):
        problems.append(f"{_NAME_WORDS} (regex used for validation is '{_NAME.pattern}')")
    return problems


def _uri(text: str) -> list[str]:
    try:
        url.parse(text, fragment=False)
    except FunctionError as error:
        return [f'parse "{text}": {error}']
    return []


def _matching(pattern: re.Pattern[str], words: str) -> Check:
    return lambda text: [] if pattern.fullmatch(text) else [words]


def _is_date(text: str) -> bool:
    parts = _DATE.fullmatch(text)
    try:
        return bool(parts and datetime.date(int(parts[1]) or 4, int(parts[2]), int(parts[3])))
    except ValueError:
        return False


def _date(text: str) -> list[str]:
    return [] if _is_date(text) else ["invalid date"]


def _datetime(text: str) -> list[str]:
    day, _, clock = text.lower().partition("t")
    parts = _CLOCK.fullmatch(clock)
    in_range = parts and int(parts[1]) < 24 and int(parts[2]) < 60 and int(parts[3]) < 60
    return [] if _is_date(day) and in_range else ["invalid datetime"]


NAMED: Final[Mapping[str, Check]] = {
    "dns1123Label": _shaped(_LABEL, 63, _LABEL_WORDS),
    "dns1123Subdomain": _shaped(_SUBDOMAIN, 253, _SUBDOMAIN_WORDS),
    "dns1035Label": _shaped(_LABEL_1035, 63, _LABEL_1035_WORDS),
    "qualifiedName": _qualified_name,
    "dns1123LabelPrefix": _shaped(_LABEL, 63, _LABEL_WORDS, prefix=True),
    "dns1123SubdomainPrefix": _shaped(_SUBDOMAIN, 253, _SUBDOMAIN_WORDS, prefix=True),
    "dns1035LabelPrefix": _shaped(_LABEL_1035, 63, _LABEL_1035_WORDS, prefix=True),
    "labelValue": _label_value,
    "uri": _uri,
    "uuid": _matching(_UUID, "does not match the UUID format"),
    "byte": _matching(_BASE64, "invalid base64"),
    "date": _date,
    "datetime": _datetime,
}


def _named(name: str) -> dict[str, object]:
    return opaque(TYPE, name) if name in NAMED else {}


def _validate(value: object, text: str) -> list[str]:
    check = NAMED.get(text_of(value, TYPE) or "")
    if check is None:
        raise FunctionError("not a named format", kind="no-overload")
    return check(text)


def _constant(name: str) -> Function:
    return Function(f"format.{name}", (Overload((), TYPE, lambda: opaque(TYPE, name)),))


OPTIONAL: Final = frozenset({"validate", "format.named"})
"""Functions whose empty result means `optional.none()`."""

FUNCTIONS: Final = (
    Function("format.named", (Overload(("string",), f"optional_type<{TYPE}>", _named),)),
    Function(
        "validate",
        (Overload((TYPE, "string"), "optional_type<list<string>>", _validate, member=True),),
    ),
    *(_constant(name) for name in NAMED),
)
