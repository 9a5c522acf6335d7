"""Small pieces of text that messages share: counted nouns, bounded lists and values, timestamps."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 node`, `3 nodes`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def moment(at: datetime | float) -> datetime:
    """In UTC; a number is in seconds of the epoch. A time before the year 1 or after the year 9999
    is the nearest one in between, because no clock and no API can say another."""
    try:
        return at.astimezone(UTC) if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        early = at.year == _FIRST.year if isinstance(at, datetime) else at < 0
        return _FIRST if early else _LAST


def timestamp(at: datetime | float) -> str:
    """RFC 3339 in UTC, whole seconds, as the API server writes it; of any time, as `moment`."""
    return f"{moment(at).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def shown(value: object, most: int = 40) -> str:
    """
    A value that a user wrote, in a message: quoted, and cut where it is long.

    A list or a map is named by its type: it may be of any size and depth.
    """
    if isinstance(value, str):
        return f"{value[:most]!r}{'...' if len(value) > most else ''}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return "a list" if isinstance(value, (list, tuple)) else "a map"
