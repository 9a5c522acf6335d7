"""Speculative retries: a few at a time, by rank and by age, and none starves."""

from scheduler.queueing.entry import Rank, Signature
from scheduler.queueing.retry_line import AT_ONCE, EVERY, RetryLine


def rank(priority: int = 0, age: float = 0.0) -> Rank:
    return (1, -priority, 1, age, "uid")


def named(name: object) -> Signature:
    return (name,)


def names(signatures: list[Signature]) -> list[object]:
    return [name for (name,) in signatures]


def test_few_retries_are_made_at_once() -> None:
    line = RetryLine()
    for name in "abc":
        line.join(named(name), rank(), ready_at=0.0)
    due = line.next_at()
    assert (due is not None and due <= 10.0, sorted(names(line.take(10.0)), key=str)) == (
        True,
        ["a", "b", "c"],
    )
    assert (len(line), line.next_at(), line.take(10.0)) == (0, None, [])


def test_many_retries_are_made_a_few_at_a_time() -> None:
    line, now = RetryLine(), 10.0
    for i in range(100):
        line.join(named(i), rank(age=i), ready_at=0.0)
    turns = []
    while line:
        due = line.next_at()
        assert due is not None
        now = max(now, due)
        turns.append(len(line.take(now)))
        assert line.take(now) == []
    assert (turns, now - 10.0 <= 100 * EVERY * 2 / AT_ONCE) == ([AT_ONCE] * 12 + [4], True)


def test_half_of_them_go_by_rank_and_half_by_age() -> None:
    line = RetryLine()
    for i in range(10):
        line.join(named(f"old-{i}"), rank(0), ready_at=0.0)
    for i in range(10):
        line.join(named(f"high-{i}"), rank(5, i), ready_at=0.0)
    assert names(line.take(10.0)) == [
        *(f"high-{i}" for i in range(AT_ONCE // 2)),
        *(f"old-{i}" for i in range(AT_ONCE // 2)),
    ]


def test_a_low_rank_does_not_starve_while_higher_ones_keep_joining() -> None:
    line, now, turns = RetryLine(), 10.0, 0
    for i in range(40):
        line.join(named(i), rank(5), ready_at=0.0)
    line.join(named("low"), rank(0), ready_at=0.0)
    while named("low") in line:
        for signature in line.take(now):
            if signature != named("low"):
                line.join(signature, rank(5), ready_at=0.0)
        now += EVERY
        turns += 1
    assert turns <= 41 * 2 / AT_ONCE + 1


def test_a_signature_waits_for_the_end_of_its_backoff() -> None:
    line = RetryLine()
    line.join(named("a"), rank(), ready_at=20.0)
    early = line.take(10.0), line.next_at()
    assert (early, names(line.take(20.0))) == (([], 20.0), ["a"])


def test_a_signature_is_in_the_line_once_and_may_leave() -> None:
    line = RetryLine()
    for _ in range(2):
        line.join(named("a"), rank(), ready_at=0.0)
        line.join(named("b"), rank(), ready_at=0.0)
    line.leave(named("a"))
    assert (named("a") in line, len(line), names(line.take(10.0)), line.take(20.0)) == (
        False,
        1,
        ["b"],
        [],
    )


def test_items_of_signatures_that_left_do_not_pile_up() -> None:
    line = RetryLine()
    line.join(named("stays"), rank(), ready_at=1e9)
    for i in range(5000):
        line.join(named(i), rank(), ready_at=1e9 if i % 2 else 0.0)
        line.take(float(i))
        line.leave(named(i))
    heaps = [
        heap for name, heap in vars(line).items() if name in ("_backoff", "_by_rank", "_by_age")
    ]
    assert (len(line), len(heaps), max(map(len, heaps)) <= 70) == (1, 3, True)
