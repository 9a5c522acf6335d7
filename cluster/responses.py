"""
Responses of the API server as values: one object, or one page of a collection. No I/O.

A response that no API server sends (the page of a proxy, half a body) is a `Retry`: the server may
have carried out the request.
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
    """A part of a collection. `first`: discard the pages before this one."""

    items: list[Obj]
    resource_version: str
    first: bool


def an_object(action: str, body: bytes) -> Obj:
    try:
        obj = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        start = bounded(body[:200].decode("utf-8", "replace"))
        raise Retry(f"{action}: the answer is no JSON: {start!r}") from exc
    if not isinstance(obj, dict):
        raise Retry(f"{action}: the answer is no object but a {type(obj).__name__}")
    return obj


def a_page(action: str, body: bytes, *, first: bool) -> tuple[Page, str | None]:
    """The page, and the continue token of the next one; None after the last."""
    listing = an_object(action, body)
    metadata = listing.get("metadata") or {}
    items = listing.get("items") or []
    # Items of a list come without their kind, those of a watch with it; from here on both have it.
    kind = str(listing.get("kind", "")).removesuffix("List")
    version = listing.get("apiVersion", "")
    for item in items:
        item.setdefault("apiVersion", version)
        item.setdefault("kind", kind)
    token = metadata.get("continue") or None
    return Page(items, metadata.get("resourceVersion", ""), first=first), token
