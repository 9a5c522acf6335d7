import math

import pytest

from policies import bounds, duration, quantity, vocabulary
from policies.bounds import Bound
from policies.pods import intent
from policies.vocabulary import annotation, label

JSON_KEYS = {
    annotation(vocabulary.NUMA_ASSIGNED_ANNOTATION),
    annotation(vocabulary.PROFILE_ANNOTATION),
    annotation(vocabulary.NUMA_TOPOLOGY_ANNOTATION),
}


def test_every_key_that_is_parsed_has_one_bound() -> None:
    listed = [key for row in bounds.ROWS for key in row.keys]
    assert sorted(listed) == sorted({*intent.KEYS, *JSON_KEYS})


def test_the_bounds_of_each_row() -> None:
    assert {row.name: (row.longest, row.largest) for row in bounds.ROWS} == {
        "duration": (32, 87_600 * 3600),
        "gang size": (9, 100_000),
        "quantity": (64, 2**53),
        "amounts by resource": (1024, 64),
        "list of NUMA node ids or resource names": (256, 64),
        "percentage": (3, 100),
        "name of a gang": (63, None),
        "name of a PodGroup object": (253, None),
        "word of a fixed list": (128, None),
        "JSON that the webhook, the scheduler or the labeler writes": (65536, None),
        "CPU list of a NUMA node": (32768, 4096),
        "pod templates of a workload": (0, 256),
    }
    assert bounds.DEFAULT_GANG_SIZE == 10_000


def test_the_parsers_and_the_table_agree_on_the_longest_text() -> None:
    assert (bounds.DURATION.longest, bounds.QUANTITY.longest) == (
        duration.LONGEST,
        quantity.LONGEST,
    )
    assert duration.parse(bounds.DURATION.limit) == bounds.DURATION.largest


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (0.0, 0.0),
        (87_600 * 3600.0, 87_600 * 3600.0),
        (1e30, 87_600 * 3600.0),
        (math.inf, 87_600 * 3600.0),
        (math.nan, 87_600 * 3600.0),
        (-1.0, -1.0),
    ],
)
def test_a_duration_above_ten_years_counts_as_ten_years(value: float, want: float) -> None:
    got = bounds.DURATION.clamp(value)
    assert (got, type(got)) == (want, float)


def test_a_whole_number_stays_one() -> None:
    got = bounds.GANG_SIZE.clamp(2**31 - 1)
    assert (got, type(got)) == (100_000, int)


def test_a_value_without_a_magnitude_is_not_changed() -> None:
    assert bounds.JSON.clamp(10**30) == 10**30


def test_amounts_above_what_a_node_can_have_count_as_that() -> None:
    amounts = {"cpu": 9 * 10**21, "memory": 2**30, "nvidia.com/gpu": 2**53 + 1}
    assert bounds.clamp_amounts(amounts) == {
        "cpu": 2**53,
        "memory": 2**30,
        "nvidia.com/gpu": 2**53,
    }


@pytest.mark.parametrize("row", bounds.ROWS, ids=lambda row: row.name)
def test_only_a_text_within_the_bound_is_read(row: Bound) -> None:
    short, long = "x" * row.longest, "x" * (row.longest + 1)
    assert (row.text(short), row.text(long)) == (short, None)
    assert [row.text(value) for value in (None, 7, ["x"], {"x": 1})] == [None] * 4


def test_a_message_names_what_was_found_and_what_is_accepted() -> None:
    row = bounds.of(annotation(vocabulary.EXPECTED_DURATION_ANNOTATION))
    assert row.too_long("1" * 60_000) == (
        f"found '{'1' * 40}'... of 60000 characters, want at most 32 characters"
    )
    assert row.too_large("99999999999h") == "found '99999999999h', want at most 87600h"
    assert bounds.of(label(vocabulary.GANG_ROLE_LABEL)) is bounds.WORD
