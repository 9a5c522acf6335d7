import io
import json

import pytest
from rich.console import Console

from kubenexus.simulate import render
from kubenexus.simulate.result import (
    ClusterTotals,
    Injected,
    ManifestResult,
    Pod,
    PodOutcome,
    Result,
)

LONG = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, " * 3

RESULT = Result(
    ClusterTotals(2, {"cpu": "20", "memory": "72Gi", "nvidia.com/gpu": "4"}),
    (
        ManifestResult(
            source="dir/train.yaml",
            line=1,
            kind="Job",
            namespace="ns",
            name="train",
            warnings=("careful",),
            injected=(
                Injected("label a", "1", ("train-0", "train-1")),
                Injected("label b", "2", ("train-1",)),
            ),
            pods=(
                Pod("train-0", PodOutcome.PLACED, node="gpu", numa=(0,), gpus=(0, 1)),
                Pod("train-1", PodOutcome.PLACED, node="gpu", numa=(0, 1), gpus=(2, 4)),
            ),
        ),
        ManifestResult(
            source="dir/web.yaml",
            line=1,
            kind="Deployment",
            namespace="ns",
            name="web",
            pods=(
                Pod("web-0", PodOutcome.LEFT, scheduler="default-scheduler"),
                Pod("web-1", PodOutcome.LEFT, scheduler="default-scheduler"),
                Pod("web-2", PodOutcome.PLACED, node="cpu"),
                Pod("web-3", PodOutcome.PENDING, reasons=("insufficient cpu",)),
                Pod("web-4", PodOutcome.PENDING, reasons=("insufficient cpu",)),
                Pod("web-5", PodOutcome.DENIED, reasons=("rule one", "rule two")),
            ),
        ),
        ManifestResult(
            source="dir/bad.yaml",
            line=4,
            kind="Job",
            namespace="ns",
            name="[bold]bad",
            denials=("policy/rule: [red]found 1[/] (metadata.labels['k']): fix it",),
        ),
    ),
)

TEXT = """\
Cluster: 2 nodes, 20 CPUs, 72Gi memory, 4 nvidia.com/gpu

Job ns/train  admitted  (dir/train.yaml)
  warning   careful
  injected  label a = 1
            label b = 2  (on train-1)
  placed    POD       NODE   NUMA   GPUS
            train-0   gpu    0      0, 1
            train-1   gpu    0, 1   2, 4

Deployment ns/web  admitted  (dir/web.yaml)
  placed    POD     NODE
            web-2   cpu
  left      web-0, web-1 to default-scheduler
  pending   web-3, web-4
              insufficient cpu
  denied    web-5
              rule one
              rule two

Job ns/[bold]bad  denied  (dir/bad.yaml)
  because   policy/rule: [red]found 1[/] (metadata.labels['k']): fix it

3 manifests: 2 admitted, 1 denied; pods: 3 placed, 2 pending, 2 left to another scheduler, 1 denied.
"""


def printed(result: Result, *, terminal: bool = False, width: int = render.WIDTH) -> str:
    out = io.StringIO()
    render.as_text(result, render.console(file=out, terminal=terminal, width=width))
    return out.getvalue()


def test_the_text_of_a_result() -> None:
    assert printed(RESULT, width=120) == TEXT


def test_long_lines_are_folded_within_the_width_and_nothing_is_lost() -> None:
    pod = Pod("p", PodOutcome.PENDING, reasons=(LONG,))
    one = ManifestResult("m.yaml", 1, "Pod", "ns", "p", pods=(pod,))
    text = printed(Result(ClusterTotals(1, {}), (one,)))
    assert max(map(len, text.splitlines())) <= render.WIDTH
    assert " ".join(LONG.split()) in " ".join(text.split())


def test_colours_appear_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert ("\x1b[" in printed(RESULT, terminal=True), "\x1b[" in printed(RESULT)) == (True, False)


def test_json_has_the_same_content() -> None:
    body = json.loads(render.as_json(RESULT))
    assert body["cluster"] == {
        "nodes": 2,
        "resources": {"cpu": "20", "memory": "72Gi", "nvidia.com/gpu": "4"},
    }
    assert body["summary"] == {
        "manifests": 3,
        "admitted": 2,
        "denied": 1,
        "placed": 3,
        "pending": 2,
        "left": 2,
        "podsDenied": 1,
    }
    assert body["manifests"][0]["pods"][1] == {
        "name": "train-1",
        "outcome": "placed",
        "scheduler": "",
        "node": "gpu",
        "numa": [0, 1],
        "gpus": [2, 4],
        "reasons": [],
    }
    assert [one["admitted"] for one in body["manifests"]] == [True, True, False]
    assert isinstance(render.console(), Console)
