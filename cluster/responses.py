"""
Answers of the API server as values: one object, or one page of a collection. No I/O.

What is no answer of an API server (a proxy's page, half a body) is a `Retry`: the request may well
have been carried out, and nobody knows.
"""

from dataclasses import dataclass

import orjson

from cluster.errors import Retry, bounded
from cluster.resources import Obj


@dataclass(frozen=True, slots=True)
class Listing:
    """A whole collection at one instant of its history."""

    items: list[Obj]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a collection. `first` means: what earlier pages said no longer holds."""

    items: list[Obj]
    resource_version: str
    first: bool


def an_object(action: str, answer: bytes) -> Obj:
    try:
        obj = orjson.loads(answer)
    except orjson.JSONDecodeError as exc:
        said = bounded(answer[:200].decode("utf-8", "replace"))
        raise Retry(f"{action}: the answer is no JSON: {said!r}") from exc
    if not isinstance(obj, dict):
        raise Retry(f"{action}: the answer is no object but a {type(obj).__name__}")
    return obj


def a_page(action: str, answer: bytes, *, first: bool) -> tuple[Page, str | None]:
    """The page, and the token that asks for the next one; None after the last."""
    body = an_object(action, answer)
    about = body.get("metadata") or {}
    items = body.get("items") or []
    # Items of a list come without their kind; a watch sends it, so both look alike from here on.
    kind = str(body.get("kind", "")).removesuffix("List")
    version = body.get("apiVersion", "")
    for item in items:
        item.setdefault("apiVersion", version)
        item.setdefault("kind", kind)
    more = about.get("continue") or None
    return Page(items, about.get("resourceVersion", ""), first=first), more
