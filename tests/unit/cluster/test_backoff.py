"""Pauses between attempts, and the loop that repeats a call."""

import asyncio
from collections.abc import Sequence

import pytest

from cluster import backoff, errors
from cluster.backoff import Backoff, MayNotWrite


def test_pauses_double_up_to_the_bound() -> None:
    pauses = [backoff.exponential(failures, first=0.5, most=3.0) for failures in (0, 1, 2, 3, 2000)]
    assert pauses == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_pause_follows_the_previous_one() -> None:
    pauses = [0.0]
    for _ in range(4):
        pauses.append(backoff.doubled(pauses[-1], first=2.0, most=10.0))
    assert pauses[1:] == [2.0, 4.0, 8.0, 10.0]


@pytest.mark.parametrize(
    ("jitter", "random", "pause"),
    [
        pytest.param(backoff.UPPER_HALF, 0.0, 0.5, id="upper half, lowest"),
        pytest.param(backoff.UPPER_HALF, 1.0, 1.0, id="upper half, highest"),
        pytest.param(backoff.AROUND, 0.0, 0.5, id="around, lowest"),
        pytest.param(backoff.AROUND, 1.0, 1.5, id="around, highest"),
    ],
)
def test_jitter_scales_each_pause(jitter: tuple[float, float], random: float, pause: float) -> None:
    assert Backoff(lambda: random, first=1.0, jitter=jitter).next() == pause


def test_a_success_starts_again_from_the_first_pause() -> None:
    pauses = Backoff(first=1.0)
    assert [pauses.next(), pauses.next()] == [1.0, 2.0]
    pauses.reset()
    assert pauses.next() == 1.0


def test_a_pause_is_no_shorter_than_the_server_requests() -> None:
    error = errors.Retry("busy")
    error.retry_after = 7.0
    pauses = Backoff(first=1.0, most=8.0)
    assert [pauses.next(error) for _ in range(4)] == [7.0, 7.0, 7.0, 8.0]
    assert Backoff(first=1.0).next(errors.Refused("no")) == 1.0


class Calls:
    """Answers calls from a list, on a clock that only sleeping moves."""

    def __init__(self, *answers: str | errors.KubeError) -> None:
        self.answers = list(answers)
        self.slept: list[float] = []
        self.leads = True

    async def call(self) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, errors.KubeError):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def retry(self, *, deadline: float = 100.0) -> str:
        return asyncio.run(
            backoff.retry(
                self.call,
                backoff=Backoff(first=1.0),
                sleep=self.sleep,
                now=lambda: sum(self.slept),
                deadline=deadline,
                may_write=lambda: self.leads,
            )
        )


def test_a_call_is_repeated_until_it_succeeds() -> None:
    calls = Calls(errors.Retry("busy"), errors.Retry("busy"), "done")
    assert calls.retry() == "done"
    assert calls.slept == [1.0, 2.0]


@pytest.mark.parametrize(
    ("answers", "slept"),
    [
        pytest.param([errors.Gone("gone")], [], id="an error that no repeat changes"),
        pytest.param([errors.Retry("busy")] * 3, [1.0], id="a pause that reaches the deadline"),
    ],
)
def test_the_last_error_is_raised(answers: Sequence[errors.KubeError], slept: list[float]) -> None:
    calls = Calls(*answers)
    with pytest.raises(type(answers[0])):
        calls.retry(deadline=3.0)
    assert calls.slept == slept


def test_a_call_is_not_made_without_the_lead() -> None:
    calls = Calls("done")
    calls.leads = False
    with pytest.raises(MayNotWrite):
        calls.retry()
    assert calls.answers == ["done"]
