"""What the figures of an attack mean: what must not be, what is too slow, and the page's table."""

import re
from collections import Counter
from typing import Any, Final

Json = dict[str, Any]

CREATE_P99: Final = 1.0  # seconds: what the other tenant may wait for an answer
BOUND_P99: Final = 5.0  # seconds: what its units may wait for their nodes
ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")  # differs between connections, and says nothing


def problems(result: Json) -> list[str]:
    """What must not be, on a machine of any speed."""
    other = result["neighbour"]
    found = [
        f"{end['process']} ended after {end['sent']} objects: {end['said']}"
        for end in result["ends"]
    ]
    before, after = result["lease"]["before"], result["lease"]["after"]
    if list(before) != list(after):
        found.append(f"the lease changed hands: {before}, then {after}")
    failed = Counter(ADDRESS.sub("", said) for said in other["failed_creates"])
    found += [
        f"{count} creations of the neighbour failed: {said}" for said, count in failed.items()
    ]
    if other["pending"]:
        found.append(f"pods of the neighbour are still pending: {other['pending']}")
    if not other["units"]:
        found.append("the neighbour created nothing")
    return found


def slow(result: Json) -> list[str]:
    """What is slower than the page says; on a machine with other work it says little."""
    other = result["neighbour"]
    return [
        f"{name} p99 is {other[name]['p99']} s, want less than {bound:g} s"
        for name, bound in (("create_seconds", CREATE_P99), ("bound_seconds", BOUND_P99))
        if other[name]["p99"] >= bound
    ]


def table(result: Json) -> str:
    """For docs/reliability.md."""
    sent, other = result["attack"], result["neighbour"]
    outcomes = sent["outcomes"]
    rows = [
        ("requests sent", f"{sent['sent']:,}"),
        *((f"… {name}", f"{count:,}") for name, count in outcomes.items()),
        ("processes that ended", len(result["ends"])),
        ("changes of leader", result["lease"]["after"][1] - result["lease"]["before"][1]),
        ("creations of the other tenant", f"{other['creates']:,}"),
        ("… that failed", len(other["failed_creates"])),
        ("… p50, p99, longest", _times(other["create_seconds"])),
        ("units of the other tenant", f"{other['units']:,}"),
        ("… p50, p99, longest until bound", _times(other["bound_seconds"])),
    ]
    lines = ["| Measured | |", "| --- | ---: |"]
    return "\n".join((*lines, *(f"| {name} | {value} |" for name, value in rows)))


def _times(figures: Json) -> str:
    return ", ".join(f"{figures[name]:.2f} s" for name in ("p50", "p99", "longest"))
