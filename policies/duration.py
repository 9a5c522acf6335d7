"""
Durations as Kubernetes users write them: `90s`, `1h30m`, `250ms`; seconds as a float within.

Go's grammar, without a sign. `policies.bounds` holds the largest duration of what users write.
"""

import re
from typing import Final

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)

ACCEPTED: Final = "a duration such as 30s, 10m or 1h30m"
LONGEST: Final = 32
"""Characters; a longer text is not read."""


class DurationError(ValueError):
    """The text is not a duration; its message says what was found and what is accepted."""


def parse(text: str) -> float:
    """Seconds. At least one number with a unit; nothing before, between or after."""
    if len(text) > LONGEST:
        raise DurationError(
            f"found {text[:LONGEST]!r}... of {len(text)} characters, want {ACCEPTED}"
            f" of at most {LONGEST} characters"
        )
    total, end = 0.0, 0
    # Each part is matched where the last one ends, so every character is read once.
    while part := _PART.match(text, end):
        total += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    if end == 0 or end != len(text):
        raise DurationError(f"found {text!r}, want {ACCEPTED}")
    return total


def show(seconds: float) -> str:
    """The shortest usual form: `1h30m`, `45s`, `250ms`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if n]
    return "".join(parts) or "0s"
