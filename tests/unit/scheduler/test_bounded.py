"""The latest values are kept, and as many as the limit says."""

from scheduler import bounded


def test_the_value_that_was_put_first_makes_way() -> None:
    kept: dict[str, int] = {}
    for number, name in enumerate("abcad"):
        bounded.remember(kept, name, number, 3)
    assert kept == {"c": 2, "a": 3, "d": 4}


def test_a_value_that_is_used_stays_longer() -> None:
    kept = {"a": 1, "b": 2}
    found = (bounded.used(kept, "a"), bounded.used(kept, "x"))
    bounded.remember(kept, "c", 3, 2)
    assert (found, kept) == ((1, None), {"a": 1, "c": 3})


def test_a_smaller_limit_drops_as_many_as_needed() -> None:
    kept = dict.fromkeys(range(10), 0)
    assert (bounded.remember(kept, 10, 1, 2), kept) == (1, {9: 0, 10: 1})
