"""
The scheduler's answer as lines for people, the most useful first.

    what the pod's state is ─▶ why ─▶ what would help ─▶ the nearest node ─▶ its pod group

Pure; an answer that lacks a part is shown without it.
"""

from collections.abc import Iterator, Sequence

from policies import duration
from policies.json_fields import Json


def lines(answer: Json) -> Iterator[str]:
    yield _headline(answer)
    if answer.get("message"):
        yield f"  {answer['message']}"
    yield from _block("Reasons", _reasons(answer.get("reasons") or ()))
    yield from _block("Each of these alone would help", answer.get("changes") or ())
    yield from _block("Nearest node", _nearest(answer.get("nearest") or {}))
    yield from _block("Kept for others", answer.get("reserved") or ())
    yield from _block("Nodes asked for", answer.get("provisioning") or ())
    yield from _block("Start", _start(answer.get("start") or {}))
    yield from _gang(answer.get("gang") or {})


def _headline(answer: Json) -> str:
    pod = f"pod {answer.get('pod', '?')}"
    if answer.get("node"):
        return f"{pod} is on node {answer['node']}"
    said = f"{pod}: {answer.get('state', 'unknown')}"
    if answer.get("waited") is not None:
        said += f" for {duration.show(float(answer['waited']))}"
    tries = int(answer.get("attempts") or 0)
    return f"{said}, tried {_many(tries, 'time')}" if tries else said


def _reasons(rows: Sequence[Json]) -> Iterator[str]:
    width = max((len(_many(int(row["nodes"]), "node")) for row in rows), default=0)
    for row in rows:
        yield f"{_many(int(row['nodes']), 'node'):<{width}}  {row['reason']}"


def _nearest(found: Json) -> Iterator[str]:
    if not found:
        return
    short = [
        f"asks for {row['asked']} {row['resource']}, has {row['free']}" for row in found["short"]
    ]
    rules = [text for text in found["reasons"] if not text.startswith("Insufficient ")]
    yield f"{found['node']}: {'; '.join([*short, *rules]) or 'takes the pod alone'}"


def _start(found: Json) -> Iterator[str]:
    if found.get("expected"):
        yield f"expected by {found['expected']}"
    if found.get("waits_for"):
        yield f"waits for {', '.join(found['waits_for'])} to end"
    if found.get("ahead"):
        yield f"promised ahead of it: {', '.join(found['ahead'])}"


def _gang(found: Json) -> Iterator[str]:
    if not found:
        return
    yield (
        f"Pod group {found['name']}: needs {found['size']} together, {found['exist']} exist, "
        f"{found['bound']} have a node"
    )
    for row in found.get("members") or ():
        where = f"on {row['node']}" if row.get("node") else row["state"]
        yield f"  {row['pod']}: {where}"


def _block(title: str, rows: Iterator[str] | Sequence[str]) -> Iterator[str]:
    found = list(rows)
    if found:
        yield title
        yield from (f"  {row}" for row in found)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
