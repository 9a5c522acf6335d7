"""Small pieces of text that several messages share: counted nouns, bounded lists, timestamps."""

from collections.abc import Sequence
from datetime import UTC, datetime


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 node`, `3 nodes`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def timestamp(at: datetime | float) -> str:
    """RFC 3339 in UTC, whole seconds, as the API server writes it; a number is in seconds of the
    epoch."""
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
