"""
The result as text of 100 columns, and as JSON.

Both forms have the same content and depend on the result alone. Colours appear on a terminal only,
and repeat what the words say.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import IO, Any, Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kubenexus.simulate.result import (
    ClusterTotals,
    Injected,
    ManifestResult,
    Pod,
    PodOutcome,
    Result,
)
from policies.text import counted

WIDTH: Final = 100
_COLOURS: Final = {
    PodOutcome.PLACED: "green",
    PodOutcome.PENDING: "yellow",
    PodOutcome.LEFT: "cyan",
    PodOutcome.DENIED: "red",
}


def as_json(result: Result) -> str:
    """One JSON document; keys stay, and new ones may come."""
    body: dict[str, Any] = {
        "cluster": asdict(result.cluster),
        "manifests": [
            {**asdict(manifest), "admitted": manifest.admitted} for manifest in result.manifests
        ],
        "summary": _counts(result),
    }
    return json.dumps(body, indent=2, ensure_ascii=False)


def as_text(result: Result, out: Console) -> None:
    """Print the result."""
    parts: list[RenderableType] = [Text(cluster_line(result.cluster), style="bold")]
    for manifest in result.manifests:
        parts += ["", _title(manifest), Padding(_body(manifest), (0, 0, 0, 2))]
    printed(out, [*parts, "", Text(summary(result), style="bold")])


def printed(out: Console, parts: Iterable[RenderableType]) -> None:
    """One after the other."""
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    # Tables pad their lines with blanks, which disturb logs and diffs.
    for line in captured.get().splitlines():
        out.file.write(f"{line.rstrip()}\n")


def summary(result: Result) -> str:
    """The last line: `5 admitted, 2 denied; 7 pods placed, 1 pending, 2 left …`."""
    counts = _counts(result)
    pods = [f"{counts['placed']} placed"]
    for key, word in (
        ("pending", "pending"),
        ("left", "left to another scheduler"),
        ("podsDenied", "denied"),
    ):
        if counts[key]:
            pods.append(f"{counts[key]} {word}")
    verdicts = f"{counts['admitted']} admitted, {counts['denied']} denied"
    return f"{counted(counts['manifests'], 'manifest')}: {verdicts}; pods: {', '.join(pods)}."


def _counts(result: Result) -> dict[str, int]:
    admitted = sum(manifest.admitted for manifest in result.manifests)
    return {
        "manifests": len(result.manifests),
        "admitted": admitted,
        "denied": len(result.manifests) - admitted,
        "placed": result.count(PodOutcome.PLACED),
        "pending": result.count(PodOutcome.PENDING),
        "left": result.count(PodOutcome.LEFT),
        "podsDenied": result.count(PodOutcome.DENIED),
    }


def console(
    *, file: IO[str] | None = None, terminal: bool | None = None, width: int | None = None
) -> Console:
    """A console of at most 100 columns on a terminal, of exactly 100 elsewhere."""
    made = Console(file=file, force_terminal=terminal, highlight=False, markup=False, emoji=False)
    made.width = width or (min(made.width, WIDTH) if made.is_terminal else WIDTH)
    return made


def cluster_line(totals: ClusterTotals) -> str:
    words = {"cpu": "CPUs", "memory": "memory"}
    held = [f"{amount} {words.get(name, name)}" for name, amount in totals.resources.items()]
    return f"Cluster: {', '.join([counted(totals.nodes, 'node'), *held])}"


def _title(manifest: ManifestResult) -> Text:
    verdict, colour = ("admitted", "green") if manifest.admitted else ("denied", "red")
    text = Text.assemble(
        (manifest.title, "bold"), "  ", (verdict, f"bold {colour}"), f"  ({manifest.source})"
    )
    text.overflow = "fold"
    return text


def _body(manifest: ManifestResult) -> RenderableType:
    rows = Table.grid(padding=(0, 2), expand=False)
    rows.add_column(min_width=8, no_wrap=True)
    rows.add_column(overflow="fold")
    for head, cells in _sections(manifest):
        for index, cell in enumerate(cells):
            rows.add_row(Text("" if index else head, style="dim"), cell)
    return rows


def _sections(manifest: ManifestResult) -> Iterable[tuple[str, Sequence[RenderableType]]]:
    yield "because", [Text(line, style="red") for line in manifest.denials]
    yield "warning", [Text(line, style="yellow") for line in manifest.warnings]
    yield "note", [Text(line) for line in manifest.notes]
    yield "injected", _injected(manifest.injected, len(manifest.pods))
    by_outcome = {
        outcome: [pod for pod in manifest.pods if pod.outcome is outcome] for outcome in PodOutcome
    }
    if by_outcome[PodOutcome.PLACED]:
        yield "placed", [_placements(by_outcome[PodOutcome.PLACED])]
    yield "left", _groups(by_outcome[PodOutcome.LEFT])
    yield "pending", _groups(by_outcome[PodOutcome.PENDING])
    yield "denied", _groups(by_outcome[PodOutcome.DENIED])


def _injected(rows: Sequence[Injected], pods: int) -> list[Text]:
    lines = []
    for row in rows:
        some = "" if len(row.pods) == pods else f"  (on {', '.join(row.pods)})"
        lines.append(Text.assemble(row.field, (" = ", "dim"), row.value, (some, "dim")))
    return lines


def _placements(pods: Sequence[Pod]) -> RenderableType:
    table = Table.grid(padding=(0, 3))
    rows = [("POD", "NODE", "NUMA", "GPUS")]
    rows += [(pod.name, pod.node, _ids(pod.numa), _ids(pod.gpus)) for pod in pods]
    shown = [index for index in range(4) if index < 2 or any(row[index] != "-" for row in rows[1:])]
    for _ in shown:
        table.add_column(overflow="fold")
    for number, row in enumerate(rows):
        style = "green" if number else "dim"
        table.add_row(*(Text(row[index], style=style) for index in shown))
    return table


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "-"


def _groups(pods: Sequence[Pod]) -> list[RenderableType]:
    """Pods with the same reasons share one entry."""
    by_reasons: dict[tuple[str, ...], list[Pod]] = {}
    for pod in pods:
        by_reasons.setdefault((*pod.reasons, pod.scheduler), []).append(pod)
    lines: list[RenderableType] = []
    for alike in by_reasons.values():
        names = Text(", ".join(pod.name for pod in alike), style=_COLOURS[alike[0].outcome])
        if alike[0].outcome is PodOutcome.LEFT:
            names.append(f" to {alike[0].scheduler}")
        reasons = [Padding(Text(reason), (0, 0, 0, 2)) for reason in alike[0].reasons]
        lines.append(Group(names, *reasons))
    return lines
