"""Raw JSON, read leniently: a field that is missing, null or of another type counts as absent."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from scheduler.errors import ModelError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Json = Mapping[str, Any]


def lenient(read: Callable[[dict[str, Any]], T]) -> Callable[[dict[str, Any]], T | None]:
    """An object that cannot be read is reported and left alone; it must not end the watch."""

    def keep(obj: dict[str, Any]) -> T | None:
        try:
            return read(obj)
        except ModelError as exc:
            logger.error("unreadable object", extra={"error": str(exc)})
            return None

    return keep


def mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def rows(value: object) -> list[Json]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def words(value: object) -> dict[str, str]:
    return {str(key): str(word) for key, word in mapping(value).items()}


def pairs(value: object) -> tuple[tuple[str, str], ...]:
    """A map of words as a value that can be compared and hashed, in the order of its keys."""
    return tuple(sorted(words(value).items()))


def whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def instant(value: object) -> float:
    """Seconds of the epoch; a manifest that was never stored has none and counts as the oldest."""
    if not isinstance(value, str):
        return 0.0
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        return 0.0
