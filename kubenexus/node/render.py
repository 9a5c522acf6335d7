"""
The description of a node as text. Pure.

    NUMA nodes with their GPUs ─▶ fabric ─▶ usage ─▶ contradictions ─▶ problems ─▶ sources

Sources are numbered at the end; each fact carries the number of its source.
"""

from collections.abc import Iterable, Iterator, Sequence

from policies.json_fields import Json
from policies.text import counted

HELP = (
    "Its NUMA nodes and GPUs are unknown. Run `kubenexus labeler` on it (the chart's "
    "labeler.enabled=true does so on every node), or label it by hand."
)


def lines(answer: Json) -> Iterator[str]:
    marks = _Marks()
    yield _headline(answer, marks)
    if not (answer["numa"] or answer["gpus"]):
        yield ""
        yield HELP
    for zone in answer["numa"]:
        yield ""
        yield from _zone(zone, marks)
        yield from _gpus([gpu for gpu in answer["gpus"] if gpu["numa"] == zone["id"]], marks)
    known = {zone["id"] for zone in answer["numa"]}
    if loose := [gpu for gpu in answer["gpus"] if gpu["numa"] not in known]:
        yield ""
        yield "GPUs without a known NUMA node" if known else "GPUs"
        yield from _gpus(loose, marks)
    yield from _block(
        "Fabric",
        (f"{row['fact']} {row['value']} {marks.of(row['source'])}" for row in answer["fabric"]),
    )
    yield from _block("In use", _in_use(answer))
    yield from _block("Reserved", map(_reserved, answer["reserved"]))
    yield from _block(
        "Contradictions (the first is used)", map(_contradiction, answer["contradictions"])
    )
    yield from _block("Problems", answer["problems"])
    yield from _block("Sources", marks.listed())


def _reserved(row: Json) -> str:
    each = ", ".join(f"{name} {amount}" for name, amount in row["each"].items())
    amounts = f"{row['places']} x {each}" if each else "the whole node"
    when = f"from {row['from']} until" if row["from"] else "until"
    return f"{amounts} for {row['for']} {when} {row['until']} ({row['reservation']})"


class _Marks:
    """Numbers of sources, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, source: str | None) -> str:
        if not source:
            return ""
        return f"[{self._numbers.setdefault(source, len(self._numbers) + 1)}]"

    def listed(self) -> Iterator[str]:
        yield from (f"[{number}] {source}" for source, number in self._numbers.items())


def _headline(answer: Json, marks: _Marks) -> str:
    zones, gpus = len(answer["numa"]), len(answer["gpus"]) or answer["gpus_offered"]
    known = counted(zones, "NUMA node") if zones else "no NUMA node known"
    text = f"node {answer['node']}: {known}, {counted(gpus, 'GPU') if gpus else 'no GPU'}"
    manager = answer["manager"]
    if manager is None:
        return text
    how = f"{manager['policy']}, scope {manager['scope']}"
    return f"{text}; Topology Manager {how} {marks.of(manager['source'])}"


def _zone(zone: Json, marks: _Marks) -> Iterator[str]:
    sources, free = zone["sources"], zone["free"]
    closed = ", used by an isolated pod" if zone["isolated"] else ""
    yield (
        f"NUMA node {zone['id']}: {zone['cpu']} CPUs {marks.of(sources.get('cpu'))} "
        f"({free['cpu']} free), memory {zone['memory']} {marks.of(sources.get('memory'))} "
        f"({free['memory']} free){closed}"
    )
    for row in zone["hugepages"]:
        mark = marks.of(sources.get("hugepages"))
        yield f"  {row['name']} {row['size']} {mark} ({row['free']} free)"
    if zone["bandwidth"]:
        yield f"  bandwidth {zone['bandwidth']} MB/s {marks.of(sources.get('bandwidth'))}"
    if zone["distances"]:
        far = ", ".join(f"{value} to {other}" for other, value in zone["distances"].items())
        yield f"  distance {far} {marks.of(sources.get('distances'))}"


def _gpus(gpus: Sequence[Json], marks: _Marks) -> Iterator[str]:
    for gpu in gpus:
        facts = [
            f"{before}{gpu[name]} {marks.of(gpu['sources'].get(source))}".rstrip()
            for name, source, before in (
                ("model", "model", ""),
                ("vram", "vram", ""),
                ("switch", "switch", "switch "),
                ("island", "island", "island "),
            )
            if gpu[name]
        ]
        where = marks.of(gpu["sources"].get("zone")) if gpu["numa"] is not None else ""
        users = f"used by {', '.join(gpu['pods'])}" if gpu["pods"] else ""
        state = users or ("free" if gpu["free"] else "in use")
        yield f"  GPU {gpu['index']} {where}: ".replace(" :", ":") + ", ".join([*facts, state])


def _in_use(answer: Json) -> Iterator[str]:
    for row in answer["pods"]:
        shares = [
            f"NUMA node {share['id']}: {share['cpu']} CPUs, {share['memory']}"
            for share in row["numa"]
        ]
        gpus = [f"{_word(row['gpus'], 'GPU')} {', '.join(map(str, row['gpus']))}"]
        alone = ["isolated"] if row["isolated"] else []
        yield f"{row['pod']}: {'; '.join([*shares, *(gpus if row['gpus'] else []), *alone])}"
    rest = answer["elsewhere"]
    if rest:
        gpus = [f", {counted(rest['gpus'], 'GPU')}"] if rest["gpus"] else []
        yield (
            f"NUMA node unknown, charged to every NUMA node: {rest['cpu']} CPUs, "
            f"{rest['memory']}{''.join(gpus)}"
        )


def _contradiction(row: Json) -> str:
    values = "; ".join(f"{claim['source']}: {claim['value']}" for claim in row["values"])
    return f"{row['subject']}, {row['fact']}: {values}"


def _block(title: str, rows: Iterable[str]) -> Iterator[str]:
    block = list(rows)
    if block:
        yield ""
        yield title
        yield from (f"  {row}" for row in block)


def _word(rows: Sequence[object], noun: str) -> str:
    return noun if len(rows) == 1 else f"{noun}s"
