"""
Typed access to JSON fields: a field that is missing or of another type counts as absent.

Times are total as well: every text reads as an instant, and a duration beyond ten years counts as
`LONGEST`, which is no end in sight.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from policies import bounds
from policies.json_fields import Json, mapping

LONGEST: Final = bounds.DURATION.clamp(float("inf"))
"""Seconds, ten years: what lasts so long or longer has no end in sight."""


def rows(value: object) -> list[Json]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def words(value: object) -> dict[str, str]:
    return {str(key): str(item) for key, item in mapping(value).items()}


def pairs(value: object) -> tuple[tuple[str, str], ...]:
    """A map of strings as a hashable value, sorted by key."""
    return tuple(sorted(words(value).items()))


def whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def weight(value: object) -> int:
    """Of a preference, from 0 to 100 as the API server accepts it."""
    return min(max(0, whole(value)), 100)


def instant(value: object) -> float:
    """Seconds of the epoch; 0 without a time, so a manifest that was never stored is oldest."""
    if not isinstance(value, str):
        return 0.0
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def lasting(seconds: float) -> float:
    """A duration, in seconds, within the bound; below zero there is none."""
    return float(bounds.DURATION.clamp(max(0, seconds)))
