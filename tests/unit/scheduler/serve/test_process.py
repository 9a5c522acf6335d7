"""What the process does about its own memory."""

import gc
from collections.abc import Iterator

import pytest

from scheduler.serve import process


@pytest.fixture
def collector() -> Iterator[None]:
    thresholds, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("collector")
def test_cycles_among_new_objects_are_freed_and_the_whole_heap_is_not_visited() -> None:
    gc.disable()
    process.collect_young_garbage()
    before = gc.get_stats()
    for _ in range(400_000):
        Cycle()
    after = gc.get_stats()
    collected = [
        new["collected"] - old["collected"] for new, old in zip(after, before, strict=True)
    ]
    whole_heap = after[2]["collections"] - before[2]["collections"]
    assert (sum(collected) > 300_000, whole_heap) == (True, 0)
