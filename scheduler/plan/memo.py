"""Results of filters and scores that hold while the facts behind them stand still."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from scheduler import bounded
from scheduler.columns.node_table import Bools, Ints
from scheduler.model.plan import NoFit
from scheduler.plugins.protocol import Plugin, Rejection

StaticScores = tuple[tuple[Callable[[Ints, Bools], Ints | None], Ints], ...]
"""For each plugin that prefers some nodes: how it normalizes its points, and the points."""

K = TypeVar("K")
V = TypeVar("V")

_BYTES: Final = 32 * 2**20  # of all values of one dict
_FEWEST: Final = 64
_MOST: Final = 4096


@dataclass(frozen=True, slots=True)
class StaticFilters:
    """The outcome of all filters on the nodes' own facts, for one kind of pod."""

    rows: Bools
    """The rows that none of them rejects; read-only."""
    rejections: dict[Plugin, tuple[Rejection, ...]]


@dataclass(slots=True)
class Memo:
    """
    Derived facts of one snapshot, by what they were derived from.

    Each dict drops the values that were unused for longest when it exceeds its bound, which is in
    bytes for values with one element per row.
    """

    static_filters: dict[tuple[object, ...], tuple[int, StaticFilters]] = field(
        default_factory=dict
    )
    static_scores: dict[tuple[object, ...], tuple[tuple[int, int], StaticScores]] = field(
        default_factory=dict
    )
    misfits: dict[object, tuple[tuple[int, ...], NoFit]] = field(default_factory=dict)

    def for_trial(self) -> "Memo":
        """For planning on a trial of the same snapshot: nodes stay the same, placed pods do not."""
        return Memo(static_filters=self.static_filters, static_scores=self.static_scores)

    @staticmethod
    def kept(values: dict[K, V], key: K) -> V | None:
        """The value, which counts as used now where the dict may be near its bound."""
        return values.get(key) if len(values) < _FEWEST else bounded.used(values, key)

    def remember_filters(
        self, key: tuple[object, ...], version: int, filters: StaticFilters
    ) -> None:
        masks = 1 + sum(map(len, filters.rejections.values()))
        limit = _limit(masks * filters.rows.nbytes)
        bounded.remember(self.static_filters, key, (version, filters), limit)

    def remember_scores(
        self, key: tuple[object, ...], version: tuple[int, int], scores: StaticScores
    ) -> None:
        limit = _limit(sum(points.nbytes for _, points in scores))
        bounded.remember(self.static_scores, key, (version, scores), limit)

    def remember_misfit(self, key: object, version: tuple[int, ...], misfit: NoFit) -> None:
        bounded.remember(self.misfits, key, (version, misfit), _MOST)


def _limit(size: int) -> int:
    """How many values of this size are kept."""
    return min(_MOST, max(_FEWEST, _BYTES // max(1, size)))
