"""Results of filters and scores that hold while the facts behind them stand still."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler import bounded
from scheduler.columns.node_table import Bools, Ints
from scheduler.model.plan import NoFit
from scheduler.plugins.protocol import Plugin, Rejection

StaticScores = tuple[tuple[Callable[[Ints, Bools], Ints | None], Ints], ...]
"""For each plugin that prefers some nodes: how it normalizes its points, and the points."""


@dataclass(frozen=True, slots=True)
class StaticFilters:
    """The outcome of all filters on the nodes' own facts, for one kind of pod."""

    rows: Bools
    """The rows that none of them rejects; read-only."""
    rejections: dict[Plugin, tuple[Rejection, ...]]


@dataclass(slots=True)
class Memo:
    """Derived facts of one snapshot, by what they were derived from; bounded."""

    static_filters: dict[tuple[object, ...], tuple[int, StaticFilters]] = field(
        default_factory=dict
    )
    static_scores: dict[tuple[object, ...], tuple[tuple[int, int], StaticScores]] = field(
        default_factory=dict
    )
    misfits: dict[object, tuple[tuple[int, ...], NoFit]] = field(default_factory=dict)
    limit: int = 1024

    def for_trial(self) -> "Memo":
        """For planning on a trial of the same snapshot: nodes stay the same, placed pods do not."""
        return Memo(static_filters=self.static_filters, static_scores=self.static_scores)

    def remember(self, results: dict[Any, Any], key: object, value: object) -> None:
        bounded.remember(results, key, value, self.limit)
