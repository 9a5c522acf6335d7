"""
Kubernetes' `url` functions: absolute URLs and absolute paths, as Go's `url.ParseRequestURI` reads
them.

Two URLs are equal when their texts are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus

from policies.cel.functions.overload import Function, FunctionError, Overload, opaque, text_of

TYPE: Final = "kubernetes.URL"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_HOST: Final = re.compile(r"[\s\"<>\\^`{|}#?/]|%(?!25)")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_PATH_SAFE: Final = "/$&+,:;=@!'()*[]%~-._"


@dataclass(frozen=True, slots=True)
class Url:
    """The parts that the functions give."""

    scheme: str = ""
    host: str = ""
    path: str = ""
    query: str = ""

    @property
    def hostname(self) -> str:
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        return (
            self.host[self.host.rindex("]") + 1 :].lstrip(":")
            if "]" in self.host
            else (self.host.partition(":")[2])
        )


def parse(text: str, *, fragment: bool = True) -> Url:
    """The parts of an absolute URL or path; `fragment` says whether `#` ends it."""
    if not text:
        raise FunctionError("empty url")
    if _CONTROL.search(text):
        raise FunctionError("invalid control character in URL")
    if fragment:
        text = text.partition("#")[0]
    scheme, rest = _scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme=scheme, query=query)
        raise FunctionError("invalid URI for request: an absolute URL or path is wanted")
    host, path = "", rest
    if rest.startswith("//") and (scheme or (fragment and not rest.startswith("///"))):
        host, slash, tail = rest[2:].partition("/")
        path = slash + tail
        host = _host(host)
    if _BAD_ESCAPE.search(path):
        raise FunctionError("invalid URL escape in the path")
    return Url(scheme, host, path, query)


def _scheme(text: str) -> tuple[str, str]:
    before, colon, after = text.partition(":")
    if colon and not before:
        raise FunctionError("missing protocol scheme")
    if colon and _SCHEME.fullmatch(before):
        return before.lower(), after
    return "", text


def _host(authority: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and re.search(r"[^A-Za-z0-9\-._:~!$&'()*+,;=%@]", user):
        raise FunctionError("invalid userinfo")
    name, port = _split_port(host)
    if not _PORT.fullmatch(port):
        raise FunctionError(f"invalid port {port!r} after host")
    if _BAD_HOST.search(name):
        raise FunctionError("invalid character in host name")
    return host


def _split_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        if "]" not in host:
            raise FunctionError("missing ']' in host")
        end = host.rindex("]") + 1
        return host[:end], host[end:]
    name, colon, port = host.partition(":")
    return name, colon + port


def valid(text: str) -> bool:
    """Whether `url()` accepts the text."""
    try:
        parse(text, fragment=False)
    except FunctionError:
        return False
    return True


def _new(text: str) -> dict[str, object]:
    try:
        parse(text, fragment=False)
        parse(text)
    except FunctionError as error:
        raise FunctionError(f"URL parse error during conversion from string: {error}") from error
    return opaque(TYPE, text)


def _url(value: object) -> Url:
    return parse(text_of(value, TYPE) or "")


def _query(value: object) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for pair in _url(value).query.split("&"):
        key, _, text = pair.partition("=")
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            values.setdefault(unquote_plus(key), []).append(unquote_plus(text))
    return values


def _member(name: str, call: Callable[[object], object], result: str = "string") -> Function:
    return Function(name, (Overload((TYPE,), result, call, member=True),))


FUNCTIONS: Final = (
    Function("url", (Overload(("string",), TYPE, _new),)),
    Function("isURL", (Overload(("string",), "bool", valid),)),
    _member("getScheme", lambda value: _url(value).scheme),
    _member("getHost", lambda value: _url(value).host),
    _member("getHostname", lambda value: _url(value).hostname),
    _member("getPort", lambda value: _url(value).port),
    _member("getEscapedPath", lambda value: quote(_url(value).path, safe=_PATH_SAFE)),
    _member("getQuery", _query, "map<string,list<string>>"),
)
