import pytest

from kubenexus.dev.binaries.progress import BuildProgress, Lines


def a_standing(done: int = 0, *, linked: int = 0, elapsed: float = 0.0) -> BuildProgress:
    # 160 packages and one link that counts as 40: the whole is 200.
    return BuildProgress("kubectl", done, 160, linked=linked, programs=1, elapsed=elapsed)


@pytest.mark.parametrize(
    ("standing", "want"),
    [
        pytest.param(
            a_standing(1, elapsed=1), "kubectl  1/160 packages  0:01 elapsed", id="too early to say"
        ),
        pytest.param(
            a_standing(50, elapsed=130),
            "kubectl  50/160 packages  2:10 elapsed, about 6:30 left",
            id="a quarter of the work took a quarter of the time",
        ),
        pytest.param(
            a_standing(160, elapsed=80),
            "kubectl  160/160 packages  1:20 elapsed, about 0:20 left",
            id="linking is still to come",
        ),
        pytest.param(
            a_standing(160, linked=1, elapsed=100),
            "kubectl  160/160 packages  1:40 elapsed, about 0:00 left",
            id="done",
        ),
        pytest.param(
            BuildProgress("kubectl", 0, 0, linked=0, programs=0, elapsed=9),
            "kubectl  0/0 packages  0:09 elapsed, about 0:00 left",
            id="nothing to do",
        ),
    ],
)
def test_how_far_it_is(standing: BuildProgress, want: str) -> None:
    assert str(standing) == want


def test_a_log_gets_a_line_for_each_program_and_then_one_every_ten_seconds() -> None:
    times = iter([0.0, 0.0, 5.0, 10.0, 10.0, 12.0])
    said: list[str] = []
    lines = Lines(said.append, every=10.0, clock=lambda: next(times))
    for done in (1, 2, 3, 4):
        lines.standing(a_standing(done))
    assert [line.split()[1] for line in said] == ["1/160", "3/160"]
