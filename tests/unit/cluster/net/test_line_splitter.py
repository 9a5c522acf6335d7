"""Lines come out whole, wherever the stream was cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.net.line_splitter import LineSplitter


@pytest.mark.parametrize(
    ("chunks", "want", "torn"),
    [
        pytest.param([], [], False, id="nothing"),
        pytest.param([b"a\nb\n"], [[b"a", b"b"]], False, id="two in one"),
        pytest.param([b"a", b"b", b"c\n"], [[], [], [b"abc"]], False, id="one in three"),
        pytest.param([b"a\nb", b"c\nd\n"], [[b"a"], [b"bc", b"d"]], False, id="cut in the second"),
        pytest.param([b"a", b"\n"], [[], [b"a"]], False, id="the end comes by itself"),
        pytest.param([b"\n\r\n \na\n"], [[b"a"]], False, id="empty lines are no lines"),
        pytest.param([b"a\nb"], [[b"a"]], True, id="the last has no end"),
        pytest.param([b"a\n "], [[b"a"]], False, id="space after the end is nothing"),
    ],
)
def test_lines_of_chunks(chunks: list[bytes], want: list[list[bytes]], torn: bool) -> None:
    lines = LineSplitter()
    assert ([lines.feed(chunk) for chunk in chunks], lines.torn) == (want, torn)


def test_a_line_without_end_is_noticed() -> None:
    lines = LineSplitter(limit=4)
    seen = []
    for _ in range(3):
        lines.feed(b"xx")
        seen.append(lines.overlong)
    assert seen == [False, False, True]


@given(
    st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b and b.strip())),
    st.lists(st.integers(min_value=0, max_value=200)),
)
def test_the_cuts_do_not_matter(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(places)]
    splitter = LineSplitter()
    assert [line for piece in pieces for line in splitter.feed(piece)] == lines
    assert not splitter.torn
