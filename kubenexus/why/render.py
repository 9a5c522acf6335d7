"""
The explanation as lines of text, the most useful first.

    state of the pod ─▶ reasons ─▶ what would help ─▶ nearest node ─▶ pod group

Pure; parts that the explanation lacks are left out.
"""

from collections.abc import Iterator, Sequence

from policies import duration
from policies.json_fields import Json
from policies.text import counted


def lines(answer: Json) -> Iterator[str]:
    yield _headline(answer)
    if answer.get("message"):
        yield f"  {answer['message']}"
    yield from _block("Reasons", _reasons(answer.get("reasons") or ()))
    yield from _block("Each of these alone would help", answer.get("changes") or ())
    yield from _block("Nearest node", _nearest(answer.get("nearest") or {}))
    yield from _block("Reserved for others", answer.get("reserved") or ())
    yield from _block("Provisioning", answer.get("provisioning") or ())
    yield from _block("Start", _start(answer.get("start") or {}))
    yield from _gang(answer.get("gang") or {})


def _headline(answer: Json) -> str:
    pod = f"pod {answer.get('pod', '?')}"
    if answer.get("node"):
        return f"{pod} is on node {answer['node']}"
    text = f"{pod}: {answer.get('state', 'unknown')}"
    if answer.get("waited") is not None:
        text += f" for {duration.show(float(answer['waited']))}"
    tries = int(answer.get("attempts") or 0)
    return f"{text}, tried {counted(tries, 'time')}" if tries else text


def _reasons(rows: Sequence[Json]) -> Iterator[str]:
    width = max((len(counted(int(row["nodes"]), "node")) for row in rows), default=0)
    for row in rows:
        yield f"{counted(int(row['nodes']), 'node'):<{width}}  {row['reason']}"


def _nearest(nearest: Json) -> Iterator[str]:
    if not nearest:
        return
    short = [
        f"requests {row['requested']} {row['resource']}, free {row['free']}"
        for row in nearest["short"]
    ]
    rules = [text for text in nearest["reasons"] if not text.startswith("Insufficient ")]
    yield f"{nearest['node']}: {'; '.join([*short, *rules]) or 'this pod alone fits'}"


def _start(start: Json) -> Iterator[str]:
    if start.get("expected"):
        yield f"expected by {start['expected']}"
    if start.get("waits_for"):
        yield f"waits for {', '.join(start['waits_for'])} to end"
    if start.get("ahead"):
        yield f"start reserved ahead of it: {', '.join(start['ahead'])}"


def _gang(gang: Json) -> Iterator[str]:
    if not gang:
        return
    yield (
        f"Pod group {gang['name']}: needs {gang['size']} together, {gang['exist']} exist, "
        f"{gang['bound']} have a node"
    )
    for row in gang.get("members") or ():
        place = f"on {row['node']}" if row.get("node") else row["state"]
        yield f"  {row['pod']}: {place}"


def _block(title: str, rows: Iterator[str] | Sequence[str]) -> Iterator[str]:
    lines = list(rows)
    if lines:
        yield title
        yield from (f"  {line}" for line in lines)
