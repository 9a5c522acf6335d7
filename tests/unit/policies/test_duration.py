import pytest

from policies import duration


@pytest.mark.parametrize(
    ("text", "want"),
    [("30s", 30), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("0s", 0), ("1m1s1ms", 61.001)],
)
def test_durations_are_read_as_go_reads_them(text: str, want: float) -> None:
    assert duration.parse(text) == pytest.approx(want)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "30 s", "1d", "-5s", "1h-5m", "1hx", "x1h", "1e3s"]
)
def test_an_invalid_duration_is_rejected_with_what_is_accepted(text: str) -> None:
    with pytest.raises(duration.DurationError, match="want a duration such as 30s"):
        duration.parse(text)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "0ms"), (0.25, "250ms"), (45, "45s"), (5400, "1h30m"), (3600, "1h"), (61, "1m1s")],
)
def test_durations_are_shown_short(seconds: float, want: str) -> None:
    assert duration.show(seconds) == want


def test_a_long_text_is_rejected_before_it_is_read() -> None:
    with pytest.raises(duration.DurationError, match="of 60000 characters, want a duration"):
        duration.parse("1" * 60_000)
    assert duration.parse("1" * 31 + "h") > 0
    with pytest.raises(duration.DurationError, match="of 33 characters"):
        duration.parse("1" * 32 + "h")
