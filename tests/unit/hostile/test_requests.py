"""The generator of hostile requests: repeatable, and wide enough to find what once stopped us."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from policies import duration, quantity, vocabulary
from policies.json_fields import mapping
from policies.pods import workloads as table
from tests.hostile import objects, pods, requests, workloads
from tests.hostile.requests import Request, request
from tests.hostile.values import KEYS

Json = dict[str, Any]

SEED: Final = 20
DRAWS: Final = 2_000
SHORT: Final = 400
INT64: Final = 2**63
LAST_SECOND: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
UNITS: Final = "nuµμmsh."


@pytest.fixture(scope="module")
def drawn() -> list[Request]:
    return [request(SEED, index) for index in range(DRAWS)]


def created_pods(drawn: list[Request]) -> Iterator[Json]:
    return (one.body for one in drawn if one.verb == "create" and one.kind == "Pod")


def label(pod: Json, key: str) -> str:
    return str(mapping(pod["metadata"].get("labels")).get(key, ""))


def note(pod: Json, key: str) -> str:
    return str(mapping(pod["metadata"].get("annotations")).get(key, ""))


def is_stored(pod: Json) -> bool:
    """Labels that the API server stores; what else it checks is beside these predicates."""
    return all(
        re.fullmatch(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", value, re.ASCII)
        for value in mapping(pod["metadata"].get("labels")).values()
    )


def size(pod: Json) -> int:
    text = label(pod, vocabulary.GANG_MIN_AVAILABLE_LABEL)
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,30}", text, re.ASCII) else 0


def seconds(text: str) -> float:
    try:
        return duration.parse(text) if len(text) <= 64 else 0.0
    except duration.DurationError:
        return 0.0


def cpu(container: Json) -> int:
    """Thousandths; 0 where none is requested or the text is no quantity."""
    try:
        return quantity.milli(container["resources"]["requests"].get("cpu", "0"))
    except quantity.QuantityError:
        return 0


def runs(pod: Json) -> bool:
    """Its containers fit on a node and request nothing but CPU."""
    own = pod["spec"]["containers"]
    return all(set(one["resources"]["requests"]) == {"cpu"} and cpu(one) < 4000 for one in own)


def leads(pod: Json) -> bool:
    return (
        is_stored(pod)
        and bool(label(pod, vocabulary.GANG_NAME_LABEL))
        and label(pod, vocabulary.GANG_ROLE_LABEL) == "leader"
        and pod["spec"].get("schedulerName") == vocabulary.SCHEDULER_NAME
    )


def has_long_digits(pod: Json) -> bool:
    """A number of that length which no unit follows."""
    keys = (vocabulary.EXPECTED_DURATION_ANNOTATION, vocabulary.GANG_TIMEOUT_ANNOTATION)
    runs_of_digits = (
        (note(pod, key), run) for key in keys for run in DIGITS.finditer(note(pod, key))
    )
    return any(
        len(run[0]) >= 2000 and text[run.end() : run.end() + 1] not in tuple(UNITS)
        for text, run in runs_of_digits
    )


def members_beyond_int64(pod: Json) -> bool:
    try:
        amounts = quantity.amounts(note(pod, vocabulary.GANG_MEMBERS_ANNOTATION))
    except quantity.QuantityError:
        return False
    return any(amount >= INT64 for amount in amounts.values())


CLASSES: Final[dict[str, Callable[[Json], bool]]] = {
    "a duration of thousands of digits without a unit": has_long_digits,
    "a leader whose timeout ends after the last year": lambda pod: (
        leads(pod)
        and size(pod) >= 2
        and runs(pod)
        and seconds(note(pod, vocabulary.GANG_TIMEOUT_ANNOTATION)) > LAST_SECOND
    ),
    "a running pod that is expected to end after the last year": lambda pod: (
        is_stored(pod)
        and runs(pod)
        and seconds(note(pod, vocabulary.EXPECTED_DURATION_ANNOTATION)) > LAST_SECOND
    ),
    "a bound pod of another scheduler with more CPU than an int64 holds": lambda pod: (
        pod["spec"].get("schedulerName") not in (None, vocabulary.SCHEDULER_NAME)
        and pod["spec"].get("nodeName") in pods.NODES
        and any(cpu(one) >= INT64 for one in pod["spec"]["containers"])
    ),
    "a leader whose members request more than an int64 holds": lambda pod: (
        leads(pod) and members_beyond_int64(pod)
    ),
    "a leader that announces a hundred thousand members or more": lambda pod: (
        leads(pod) and 100_000 <= size(pod) <= 999_999
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_the_first_draws_contain(drawn: list[Request], name: str) -> None:
    """Those that the short form sends, so that every test run meets each of these."""
    assert any(CLASSES[name](pod) for pod in created_pods(drawn[:SHORT]))


def test_the_same_seed_and_index_give_the_same_request() -> None:
    indexes = (0, 1, 59, 60, 777, 1_999)
    again = [request(SEED, index) for index in reversed(indexes)][::-1]
    assert again == [request(SEED, index) for index in indexes]
    assert request(SEED, 777) != request(SEED + 1, 777)


def test_every_kind_every_verb_and_every_key_is_drawn(drawn: list[Request]) -> None:
    kinds = {(one.body["apiVersion"], one.body["kind"]) for one in drawn if one.verb == "create"}
    assert kinds == {("v1", "Pod"), *workloads.KINDS, *objects.KINDS}
    assert {one.verb for one in drawn} == {
        *("create", "update", "patch", "delete", "scale"),
        *("ephemeralcontainers", "resize", "status", "eviction", "binding"),
    }
    patches = {one.content_type for one in drawn if one.verb == "patch"}
    assert patches == {requests.MERGE, requests.STRATEGIC, requests.JSON_PATCH, requests.APPLY}
    assert any("dryRun" in one.path for one in drawn)
    text = json.dumps([one.body for one in drawn])
    assert [key for key in KEYS if f'"{key.name}"' not in text] == []


def test_every_workload_that_admission_knows_is_among_the_kinds() -> None:
    drawn = {(version.rpartition("/")[0], kind) for version, kind in workloads.KINDS}
    assert drawn | {("", "Pod")} == set(table.KINDS)


def test_every_key_of_the_vocabulary_for_objects_is_drawn_from() -> None:
    """A key that is added there is attacked without a change here."""
    known = {key.name for key in (*vocabulary.UNCHANGING, *vocabulary.NUMA_POLICY_FAMILIES)}
    known |= {vocabulary.EXPECTED_DURATION_ANNOTATION, vocabulary.BACKFILL_LABEL}
    assert known <= {key.name for key in KEYS}


def test_no_request_is_larger_than_an_api_server_reads(drawn: list[Request]) -> None:
    """Three megabytes are its bound; few may exceed it, because such requests say nothing."""
    large = sum(len(json.dumps(one.body)) > 3 * 2**20 for one in drawn)
    assert large < DRAWS // 100
