"""
Runs the vectors of the CEL conformance suite that need no protobuf messages, on each engine.

    python -m tests.conformance.cel_spec --write build/bench/cel-conformance.json

A value counts when its type and content are those of the specification. An error counts when it is
of the right kind: a missing key where a missing key is meant, in any words. An engine that
finds the error when it compiles rather than when it evaluates has found it.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policies.cel import engines, protocol

ROOT: Final = Path(__file__).resolve().parents[2]
VECTORS: Final = ROOT.parent / "shared" / "data" / "cel-spec-vectors.json"
REACH: Final = {"cel-expr-python": 1700}
"""Engine -> the number of vectors it must pass."""

Vector = Mapping[str, Any]

# What the specification says of an error -> what must be found in ours.
_KINDS: Final[Sequence[tuple[str, str]]] = (
    (r"divi(de|sion) by zero|modulus by zero", r"^divide:"),
    (r"no such key", r"^missing-key:"),
    (r"undeclared reference|unknown variable", r"undeclared reference|^missing-key:"),
    (r"unbound function", r"undeclared reference|^no-overload:"),
    (r"does not support field selection", r"[Ss]elect|SELECT"),
    (r"no.(such|matching).overload", r"^no-overload:|no matching overload|^type:"),
    (r"unsupported key type", r"key type|invalid map key|^no-overload:|unsupported.*key"),
    (r"[Rr]epeated key|already exists", r"duplicate|repeated|already"),
    (r"overflow", r"overflow|out of.*range"),
    (
        r"index out of range|index \d+ out of range",
        r"out of.*range|Index error|less than|greater than",
    ),
    (r"invalid substring range|negative offset", r"range|offset|negative|less than"),
    (r"range", r"range|overflow|minimum|maximum"),
    (r"UTF-8", r"UTF-8"),
    (r"conversion error", r"[Cc]onver|parse|invalid"),
    (r"formatting", r"format|clause|expected a"),
    (r"IP|CIDR|network", r"^function:.*(IP|CIDR|network)|no matching overload"),
    (r"invalid_argument", r"Index error|invalid_argument|_\[_\]"),
    (r"^foo$", r"."),
)
# The words of these vectors are not about their expressions, which all divide by zero.
_MISNAMED: Final = frozenset(
    {"AND/error_left", "AND/error_right", "OR/error_left", "OR/error_right"}
)
_TYPE_NAMES: Final = {
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
    "null_type": "null",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one vector on one engine; `why` is empty when it passed."""

    file: str
    name: str
    why: str

    @property
    def passed(self) -> bool:
        return not self.why


def load(path: Path = VECTORS) -> list[Vector]:
    """The vectors, in their own order."""
    found: list[Vector] = json.loads(path.read_text("utf-8"))
    return found


def run(engine: protocol.Engine, vectors: Sequence[Vector]) -> Iterator[Outcome]:
    """The outcome of each vector."""
    for vector in vectors:
        yield Outcome(
            vector["file"], f"{vector['section']}/{vector['name']}", judge(engine, vector)
        )


def judge(engine: protocol.Engine, vector: Vector) -> str:
    """Why the vector fails, or nothing."""
    env = _environment(vector)
    try:
        if vector.get("check_only"):
            return _same_type(engine.check(vector["expr"], env), vector["want_type"])
        program = engine.compile(vector["expr"], env, result_type="any")
        if "want_type" in vector:
            why = _same_type(program.result_type, vector["want_type"])
            if why:
                return why
        values = {k: _plain(v) for k, v in vector.get("bindings", {}).items()}
        kind, value = program.evaluate_tagged(protocol.Activation(values))
    except protocol.CompileError as error:
        return _same_error(f"compile: {error.message}", vector)
    except protocol.EvaluationError as error:
        return _same_error(f"{error.kind}: {error.message}", vector)
    if "want_error" in vector:
        return f"got {kind} {value!r}, want the error {vector['want_error'][0]!r}"
    return _same_value(kind, value, vector["want"])


def _environment(vector: Vector) -> protocol.Environment:
    types = dict.fromkeys(vector.get("bindings", {}), "dyn")
    types |= {name: _type(kind) for name, kind in vector.get("types", {}).items()}
    made = protocol.Environment.of(types, container=vector.get("container", ""))
    return dataclasses.replace(made, checked=not vector.get("disable_check", False))


def _type(kind: Any) -> str:
    if isinstance(kind, str):
        return {"null": "null", "abstract_type": "optional_type"}.get(kind, kind)
    ((name, inner),) = kind.items()
    parts = inner if isinstance(inner, list) else [inner]
    return f"{name}<{','.join(_type(part) for part in parts)}>"


def _same_type(found: str, want: Any) -> str:
    expected = _type(want)
    plain = re.sub(r"optional_type<.*?>+", lambda m: "optional_type" + ">" * _spare(m[0]), found)
    return "" if plain == expected else f"got the type {found}, want {expected}"


def _spare(text: str) -> int:
    """Closing brackets that belong to what is around an optional."""
    return text.count(">") - text.count("<")


def _same_error(found: str, vector: Vector) -> str:
    if "want_error" not in vector:
        return f"got the error {found!r}"
    misnamed = vector["file"] == "logic" and f"{vector['section']}/{vector['name']}" in _MISNAMED
    want = "divide by zero" if misnamed else vector["want_error"][0]
    for meant, pattern in _KINDS:
        if re.search(meant, want):
            return "" if re.search(pattern, found) else f"got {found!r}, want the error {want!r}"
    return f"no rule for the error {want!r}"


def _same_value(kind: str, value: object, want: Mapping[str, Any]) -> str:
    ((tag, _),) = want.items()
    expected = _plain(want)
    if kind == tag and _equal(value, expected):
        return ""
    return f"got {kind} {value!r}, want {tag} {expected!r}"


def _plain(tagged: Mapping[str, Any]) -> Any:
    ((tag, value),) = tagged.items()
    match tag:
        case "int" | "uint" | "enum":
            return int(value)
        case "double":
            return float(value)
        case "bytes":
            return base64.b64decode(value)
        case "null":
            return None
        case "list":
            return [_plain(item) for item in value]
        case "map":
            return {_plain(key): _plain(item) for key, item in value}
        case "type":
            return _TYPE_NAMES.get(value, value)
        case _:
            return value


def _equal(found: object, want: object) -> bool:
    if type(found) is not type(want):
        return False
    if isinstance(found, float) and isinstance(want, float):
        both_nan = math.isnan(found) and math.isnan(want)
        return both_nan or (found == want and math.copysign(1, found) == math.copysign(1, want))
    if isinstance(found, list) and isinstance(want, list):
        return len(found) == len(want) and all(map(_equal, found, want))
    if isinstance(found, dict) and isinstance(want, dict):
        return found.keys() == want.keys() and all(_equal(found[k], want[k]) for k in want)
    return found == want


def rows(engines: Sequence[protocol.Engine], vectors: Sequence[Vector]) -> list[dict[str, Any]]:
    """One row a figure: each engine's total, then each of its files."""
    found: list[dict[str, Any]] = []
    for engine in engines:
        outcomes = list(run(engine, vectors))
        passed = sum(outcome.passed for outcome in outcomes)
        reach = REACH.get(engine.name)
        found.append(
            _row(
                f"{engine.name}: vectors passed",
                passed,
                reach,
                f"of {len(outcomes)}, {engine.version}",
            )
        )
        total = Counter(outcome.file for outcome in outcomes)
        good = Counter(outcome.file for outcome in outcomes if outcome.passed)
        found += [
            _row(f"{engine.name}: {file}", good[file], None, f"of {count}")
            for file, count in sorted(total.items())
        ]
    return found


def _row(figure: str, measured: int, reach: int | None, note: str) -> dict[str, Any]:
    holds = reach is None or measured >= reach
    return {
        "figure": figure,
        "measured": measured,
        "reach": reach,
        "holds": holds,
        "spread": 0,
        "note": note,
    }


def main(arguments: Sequence[str]) -> int:
    """Write the rows, print the failures on `--failures`, and fail when a reach is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.cel_spec")
    parser.add_argument("--write", type=Path, help="file for the rows")
    parser.add_argument("--failures", action="store_true", help="print each failed vector")
    options = parser.parse_args(arguments)
    if not VECTORS.exists():
        print(f"cel-conformance: {VECTORS.name} is not here; nothing was run", file=sys.stderr)
        return 2
    vectors = load()
    known = [engines.engine(name) for name in engines.ENGINES]
    if options.failures:
        for engine in known:
            for outcome in run(engine, vectors):
                if not outcome.passed:
                    print(engine.name, outcome.file, outcome.name, outcome.why)
    found = rows(known, vectors)
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    for row in found:
        if row["figure"].endswith("vectors passed"):
            print(f"{row['figure']}: {row['measured']} {row['note']}")
    return 0 if all(row["holds"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
