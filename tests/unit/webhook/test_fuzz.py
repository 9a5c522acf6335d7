"""A few hundred mutated reviews through the whole application; `tests.fuzz.webhook` runs for longer."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies import duration, quantity
from policies.bounds import Bound
from policies.pods import intent
from tests.builders import a_pod
from tests.cluster import reliability
from tests.fuzz import corpus, coverage_guided, mutation, webhook
from tests.fuzz.target import Broken, Target, check
from tests.unit.webhook.serve.fakes import FakeFactSource, FakePolicies, a_body
from webhook.serve import app
from webhook.serve.app import INTERNAL_FAILURE

SEEDS = corpus.seeds()


@pytest.fixture(scope="module", autouse=True)
def log_level() -> Iterator[None]:
    """A target silences the log of the webhook; other tests read it."""
    logger = logging.getLogger("webhook")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False), path=st.sampled_from(webhook.PATHS))
def test_mutated_reviews_are_answered(target: Target, random: Random, path: str) -> None:
    """`run` raises where the answer is an error, is about another uid, or cannot be read."""
    assert target.run(path, mutation.mutant(random, SEEDS)) in (200, 400, 413)


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=200), path=st.sampled_from(webhook.PATHS))
def test_bytes_that_are_no_review_are_refused(target: Target, body: bytes, path: str) -> None:
    assert target.run(path, body) == 400


@settings(max_examples=100, deadline=None)
@given(uid=st.text(min_size=1, max_size=50), path=st.sampled_from(webhook.PATHS))
def test_the_uid_comes_back_as_it_was(target: Target, uid: str, path: str) -> None:
    review = json.loads(SEEDS[1])
    review["request"]["uid"] = uid
    assert target.run(path, json.dumps(review).encode()) == 200


@pytest.mark.parametrize("path", webhook.PATHS)
def test_every_seed_is_reviewed(target: Target, path: str) -> None:
    assert [target.run(path, seed) for seed in SEEDS] == [200] * len(SEEDS)


def test_the_same_seed_gives_the_same_mutants() -> None:
    runs = [[mutation.mutant(Random(n), SEEDS) for n in range(50)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 40


def test_lengths_are_drawn_on_a_logarithmic_scale() -> None:
    random = Random(1)
    drawn = [mutation.log_scale(random, mutation.LONGEST) for _ in range(600)]
    per_decade = Counter(len(str(length)) for length in drawn)
    assert {digits: count > 50 for digits, count in sorted(per_decade.items())} == dict.fromkeys(
        range(1, 7), True
    )


@pytest.mark.parametrize(
    ("module", "name"),
    [
        pytest.param(duration, "parse", id="durations"),
        pytest.param(quantity, "units", id="quantities"),
        pytest.param(intent, "_whole", id="gang sizes"),
        pytest.param(intent, "_numbers", id="NUMA node ids"),
    ],
)
def test_mutants_bring_long_texts_to_every_parser(
    module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bounds a parser meets them, so that a fuzzer with this source finds a slow one."""
    seen: list[str] = []

    def parser(text: str) -> Any:
        seen.append(str(text))
        raise ValueError("not read")

    monkeypatch.setattr(module, name, parser)
    monkeypatch.setattr(Bound, "holds", lambda self, text: True)
    random = Random(1)
    for _ in range(5_000):
        obj = None
        with suppress(ValueError, KeyError, TypeError):  # a mutant need not be a review
            obj = orjson.loads(mutation.mutant(random, SEEDS[:1]))["request"]["object"]
        intent.read(obj if isinstance(obj, dict) else {})
        if max(map(len, seen), default=0) >= 10_000:
            return
    pytest.fail("no long text reached the parser")


REVIEW = b'{"request": {"uid": "u"}}'
GOOD = {"uid": "u", "allowed": True}


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(GOOD | {"uid": "v"}, id="another uid"),
        pytest.param(GOOD | {"allowed": "true"}, id="a verdict that is a text"),
        pytest.param(GOOD | {"patch": "W10="}, id="a patch without its type"),
        pytest.param(GOOD | {"patch": "W10=", "patchType": "JSONPatch"}, id="an empty patch"),
        pytest.param(
            {"uid": "u", "allowed": False, "status": {"message": ""}}, id="no reason at all"
        ),
        pytest.param(
            {
                "uid": "u",
                "allowed": False,
                "status": {"message": f"kubenexus/internal: {INTERNAL_FAILURE} on this object"},
            },
            id="an exception behind a refusal",
        ),
    ],
)
def test_the_target_sees_what_is_broken(response: dict[str, object]) -> None:
    answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    check(REVIEW, answer | {"response": GOOD})
    with pytest.raises(Broken):
        check(REVIEW, answer | {"response": response})


def test_the_driver_reports_how_many_inputs_it_ran(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "fuzz.json"
    assert webhook.main(["--count", "25", "--seed", "1", "--counts", str(file)]) == 0
    assert json.loads(file.read_text())["inputs"] == 25
    said = capsys.readouterr().out
    assert "seed 1\n25 inputs in " in said
    assert "no contract violated, slowest answer " in said


def test_without_atheris_the_message_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert coverage_guided.main([]) == 2
    assert "atheris is not installed" in capsys.readouterr().err


def test_tables_are_made_from_counts_and_only_they_are_replaced(tmp_path: Path) -> None:
    fault = {"fault": "f", "sent": 1000, "answered": 990, "failed": 10, "no API server": 0}
    reliability.add(
        tmp_path / "webhook.json", fault | {"wrongly refused": 0, "wrongly admitted": 1}
    )
    reliability.add(
        tmp_path / "webhook.json", fault | {"wrongly refused": 0, "wrongly admitted": 0}
    )
    document = tmp_path / "page.md"
    marks = "before\n<!-- faults: begin -->\nold\n<!-- faults: end -->\nafter\n"
    document.write_text(marks)
    assert reliability.main([str(tmp_path), str(document)]) == 0
    assert document.read_text().splitlines() == [
        "before",
        "<!-- faults: begin -->",
        "| Fault | sent | answered | failed | no API server | wrongly refused | wrongly admitted |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| f | 1,000 | 990 | 10 | 0 | 0 | 0 |",
        "<!-- faults: end -->",
        "after",
    ]


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="want the markers"):
        reliability.replaced("nothing here", "faults", "new")


def test_the_target_sees_a_decision_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """End to end: the text of the webhook's own denial is the one that the target searches for."""

    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(cast(dict[str, object], app._DECIDERS), "/validate", broken)
    client = app.create_app(FakeFactSource(), FakePolicies()).test_client()
    body = a_body(a_pod())
    answer = json.loads(client.post("/validate", data=body).data)
    with pytest.raises(Broken, match="without a reason"):
        check(body, answer)
