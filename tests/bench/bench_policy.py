"""
`make bench-policy`: what evaluating policies costs, against the engine alone and against many tenants.

The 16 rules and the pod of `tests/data/pod-rules.json`, in three variants in one process, in turns:

    bare        cel-expr-python by itself: one activation, 16 evaluations, each result checked
    evaluate    the same rules as one TenantPolicy, through `policies.engine.evaluate` as admission does
    crowded     the same request with 1,000 policies of other tenants loaded

Rounds are interleaved so that a busy machine slows all three alike. Figures are means; the spread
is the middle half of the rounds' ratios.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]  # the wheel has no stubs

from policies.cel.engine_cpp import CppEngine
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest
from tests.bench import rows

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS, REPEATS = 30, 40
TENANTS = 1000
LOADS = 3


def main() -> int:
    data = json.loads((ROOT / "tests/data/pod-rules.json").read_text())
    alone, _ = _policies(data, others=0)
    crowd, load_seconds = _policies(data, others=TENANTS)
    namespace = {
        "metadata": {"name": "default", "labels": {"tenant.kubenexus.io/name": "payments"}}
    }
    admission = AdmissionRequest.of(data["pod"], namespace=namespace)
    if (
        not (evaluation := evaluate(admission, alone, now=NOW)).allowed
        or len(evaluation.outcomes) != 16
    ):
        raise SystemExit(f"the pod must pass 16 rules: {evaluation.denials}")
    variants = {
        "bare": _bare(data),
        "evaluate": lambda: evaluate(admission, alone, now=NOW),
        "crowded": lambda: evaluate(admission, crowd, now=NOW),
    }
    return rows.publish("policy", report(_measure(variants), load_seconds))


def report(times: Mapping[str, Sequence[float]], load_seconds: float) -> list[rows.Row]:
    """`times`: seconds per evaluation in each round, by variant."""
    return [
        _ratio("evaluate step / bare cel-expr-python, 16 rules", times, "evaluate", "bare", 2.0),
        _ratio("with 1,000 other tenants / with one policy", times, "crowded", "evaluate", 1.1),
        rows.at_most(
            "seconds to load 1,000 tenant policies",
            load_seconds,
            2.0,
            spread=f"best of {LOADS} loads",
            note="16 rules of its own for every tenant, read from 1,000 files",
        ),
    ]


def _document(tenant: str, rules: list[dict[str, str]]) -> str:
    spec = {"tenant": {"name": tenant, "tier": "gold"}, "validations": rules}
    # JSON is YAML; a tenant's own name in a rule keeps a cache from doing the work once for all.
    own = {"name": "own", "expression": f"object.metadata.namespace != {tenant + '-x'!r}"}
    if tenant != "payments":
        spec["validations"] = [*rules, own]
    return json.dumps(
        {
            "apiVersion": "policy.kubenexus.io/v1alpha1",
            "kind": "TenantPolicy",
            "metadata": {"name": tenant},
            "spec": spec,
        },
        indent=1,
    )


def _policies(data: dict[str, Any], *, others: int) -> tuple[PolicySet, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tenants = ["payments", *(f"tenant-{number}" for number in range(others))]
        for tenant in tenants:
            (folder / f"{tenant}.yaml").write_text(_document(tenant, data["rules"]))
        took = float("inf")
        for _ in range(LOADS):
            start = time.perf_counter()
            result = loader.load_files(folder, compiler=Compiler(CppEngine()))
            took = min(took, time.perf_counter() - start)
    if not result.ok:
        raise SystemExit("\n".join(map(str, result.problems)))
    return result.policies, took


def _bare(data: dict[str, Any]) -> Callable[[], object]:
    env = cel.NewEnv(variables={"object": cel.Type("dyn")})
    programs = [env.compile(rule["expression"]) for rule in data["rules"]]
    pod = data["pod"]

    def run() -> bool:
        activation = env.Activation({"object": pod})
        return all(program.eval(activation).value() is True for program in programs)

    if not run():
        raise SystemExit("the pod must pass the bare rules")
    return run


def _measure(variants: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(ROUNDS + 3):
        for name, run in variants.items():
            start = time.perf_counter()
            for _ in range(REPEATS):
                run()
            if number >= 3:  # the first rounds fill caches
                times[name].append((time.perf_counter() - start) / REPEATS)
    return times


def _ratio(
    figure: str, times: Mapping[str, Sequence[float]], ours: str, baseline: str, reach: float
) -> rows.Row:
    ratios = [a / b for a, b in zip(times[ours], times[baseline], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    measured = statistics.mean(times[ours]) / statistics.mean(times[baseline])
    means = ", ".join(
        f"{name} {statistics.mean(times[name]) * 1e6:.0f} us" for name in (ours, baseline)
    )
    return rows.at_most(figure, measured, reach, spread=f"{low:.3f} to {high:.3f}", note=means)


if __name__ == "__main__":
    sys.exit(main())
