"""
Dicts that keep a bounded number of values, the latest ones.

A cache that empties itself at its limit computes everything again at once, and a record of times
that does so forgets pauses that still hold. These drop the oldest value instead.
"""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(kept: dict[K, V], key: K, value: V, limit: int) -> V:
    """Put the value last; the values that were put first make way for it. Returns the value."""
    kept.pop(key, None)
    while len(kept) >= limit:
        del kept[next(iter(kept))]
    kept[key] = value
    return value


def used(kept: dict[K, V], key: K) -> V | None:
    """The value, which counts as put now; None: it is not kept. A value is never None."""
    value = kept.pop(key, None)
    if value is not None:
        kept[key] = value
    return value
