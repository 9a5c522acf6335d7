"""
A list of jobs (CSV), as spreadsheets and accounting tools write one: each line becomes a Job.

    arrives,tenant,pods,gpus,lasts
    0s,vision,4,8,2h
    10m,language,1,1,45m

    arrives, lasts       when the job is created, from the beginning, and how long it runs
    tenant or namespace  a job of a tenant is created in the first namespace of the tenant
    name                 default: job-1, job-2, … by line
    pods                 default 1; several are a gang: all or none
    gpus, cpu, memory    of each pod; default 0, 1 and 1Gi
    states               its expected duration, or `nothing`; default: the real one
    priority, type, preemptible   a PriorityClass, a workload type, true or false; default: none

A line that cannot be read is a `yaml_reader.DocumentError` with its number. A line becomes a Job of
batch/v1, which is then admitted and placed like any other.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from policies import duration as durations
from policies import quantity, vocabulary
from policies.documents.yaml_reader import Document, DocumentError
from policies.json_fields import JsonDict

FILE_NAME: Final = "jobs.csv"  # what a folder calls its list of jobs
NOTHING: Final = "nothing"
MOST_JOBS: Final = 50_000
_NEEDED: Final = ("arrives", "lasts")
_OWNERS: Final = ("tenant", "namespace")
_OTHERS: Final = (
    "name",
    "pods",
    "gpus",
    "cpu",
    "memory",
    "states",
    "priority",
    "type",
    "preemptible",
)
_COLUMNS: Final = (*_NEEDED, *_OWNERS, *_OTHERS)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")


def read(path: Path, namespaces: Iterable[Mapping[str, Any]]) -> list[Document]:
    """One Job for each line; `namespaces` carry the tenants' labels."""
    source = str(path)
    rows = csv.reader(_text(path).splitlines())
    header = [cell.strip() for cell in next(rows, [])]
    _check_header(source, header)
    homes = _homes(namespaces)
    documents: list[Document] = []
    for cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        line = _Line(source, rows.line_num, header, cells)
        value = _job(line, homes, f"job-{len(documents) + 1}")
        mark = yaml.Mark(source, 0, rows.line_num - 1, 0, None, 0)
        documents.append(Document(source, value, yaml.ScalarNode("", "", start_mark=mark)))
        if len(documents) > MOST_JOBS:
            raise line.error("", f"more than {MOST_JOBS} jobs; simulate fewer at a time")
    if not documents:
        raise DocumentError(source, 0, 0, "lists no job; write one line for each")
    return documents


def _text(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise DocumentError(str(path), 0, 0, "no such file; check the path") from None
    except UnicodeDecodeError as exc:
        raise DocumentError(
            str(path), 0, 0, f"byte {exc.start} is not UTF-8; save the file as UTF-8"
        ) from exc
    except OSError as exc:
        raise DocumentError(str(path), 0, 0, f"cannot be read: {exc.strerror}") from exc
    return text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")  # as spreadsheets begin a file


def _check_header(source: str, header: list[str]) -> None:
    def wrong(message: str) -> DocumentError:
        return DocumentError(source, 1, 1, message)

    for name in header:
        if name not in _COLUMNS:
            raise wrong(f"found column {name!r}, want some of {', '.join(_COLUMNS)}")
        if header.count(name) > 1:
            raise wrong(f"column {name!r} is listed twice; remove one")
    for name in _NEEDED:
        if name not in header:
            raise wrong(f"no column {name!r}; the first line names the columns")
    if not any(name in header for name in _OWNERS):
        raise wrong("no column 'tenant' and none 'namespace'; add one of them")


def _homes(namespaces: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The first namespace of each tenant."""
    homes: dict[str, str] = {}
    for namespace in namespaces:
        tenant = (namespace["metadata"].get("labels") or {}).get(vocabulary.TENANT_LABEL)
        if tenant:
            homes.setdefault(tenant, str(namespace["metadata"]["name"]))
    return homes


class _Line:
    """One line by its columns; a missing or empty cell means the default."""

    def __init__(self, source: str, number: int, header: list[str], cells: list[str]) -> None:
        self._source, self._number = source, number
        if len(cells) > len(header):
            raise self.error("", f"found {len(cells)} values for {len(header)} columns")
        self._cells = {
            name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()
        }

    def error(self, column: str, message: str) -> DocumentError:
        text = f"{column}: {message}" if column else message
        return DocumentError(self._source, self._number, 1, text)

    def text(self, column: str, default: str = "") -> str:
        return self._cells.get(column, default)

    def duration(self, column: str, *, least: float = 0.0) -> str:
        text = self.text(column)
        if not text:
            raise self.error(column, f"is missing; write {durations.ACCEPTED}")
        try:
            seconds = durations.parse(text)
        except durations.DurationError as exc:
            raise self.error(column, str(exc)) from exc
        if seconds < least:
            raise self.error(column, f"found {text!r}, want {durations.show(least)} or more")
        return text

    def count(self, column: str, default: int, *, least: int) -> int:
        text = self.text(column, str(default))
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise self.error(column, f"found {text!r}, want a whole number, {least} or more")
        return int(text)

    def quantity(self, column: str, default: str) -> str:
        text = self.text(column, default)
        try:
            quantity.parse(text)
        except quantity.QuantityError as exc:
            raise self.error(column, str(exc)) from exc
        return text

    def one_of(self, column: str, accepted: Iterable[str]) -> str:
        text, known = self.text(column), tuple(accepted)
        if text and text not in known:
            raise self.error(column, f"found {text!r}, want one of {', '.join(known)}")
        return text


def _job(line: _Line, homes: Mapping[str, str], usual: str) -> JsonDict:
    name = line.text("name", usual)
    if not _NAME.fullmatch(name):
        raise line.error(
            "name", f"found {name!r}, want at most 52 small letters, digits and hyphens"
        )
    pods = line.count("pods", 1, least=1)
    metadata = {
        "name": name,
        "namespace": _namespace(line, homes),
        "annotations": {vocabulary.DEV_ARRIVES_ANNOTATION: line.duration("arrives")},
    }
    template = {"metadata": _marks(line, name, pods), "spec": _spec(line)}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _namespace(line: _Line, homes: Mapping[str, str]) -> str:
    if namespace := line.text("namespace"):
        return namespace
    tenant = line.text("tenant")
    if not tenant:
        raise line.error("tenant", "is missing; write the tenant of the job")
    if tenant not in homes:
        known = ", ".join(sorted(homes)) or "none"
        raise line.error(
            "tenant",
            f"no namespace belongs to {tenant!r}; tenants of the cluster file are: {known}",
        )
    return homes[tenant]


def _marks(line: _Line, name: str, pods: int) -> JsonDict:
    lasts = line.duration("lasts", least=1.0)
    states = line.text("states", lasts)
    annotations = {vocabulary.DEV_RUN_FOR_ANNOTATION: lasts}
    if states != NOTHING:
        stated = line.duration("states", least=1.0) if line.text("states") else lasts
        annotations[vocabulary.EXPECTED_DURATION_ANNOTATION] = stated
    labels = {}
    if pods > 1:
        labels[vocabulary.GANG_NAME_LABEL] = name
        labels[vocabulary.GANG_MIN_AVAILABLE_LABEL] = str(pods)
    if kind := line.one_of("type", vocabulary.WORKLOAD_TYPES):
        labels[vocabulary.WORKLOAD_TYPE_LABEL] = kind
    if preemptible := line.one_of("preemptible", ("true", "false")):
        labels[vocabulary.PREEMPTIBLE_LABEL] = preemptible
    return {"labels": labels, "annotations": annotations}


def _spec(line: _Line) -> JsonDict:
    amounts = {"cpu": line.quantity("cpu", "1"), "memory": line.quantity("memory", "1Gi")}
    if gpus := line.count("gpus", 0, least=0):
        amounts[vocabulary.GPU_RESOURCES[0]] = str(gpus)
    spec: JsonDict = {
        "schedulerName": vocabulary.SCHEDULER_NAME,
        "restartPolicy": "Never",
        "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
    }
    if priority := line.text("priority"):
        spec["priorityClassName"] = priority
    return spec
