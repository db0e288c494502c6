"""Every strategy by its configuration name. A new one is one file and one line here."""

from __future__ import annotations

from services.scheduler.score.strategies.allocation import (
    BalancedAllocation,
    LeastAllocated,
    MostAllocated,
)
from services.scheduler.score.strategies.best_fit import BestFit
from services.scheduler.score.strategies.keep_room import KeepRoom
from services.scheduler.score.strategies.koordinator import (
    KoordinatorLeastAllocated,
    KoordinatorMostAllocated,
)
from services.scheduler.score.strategies.least_numa_nodes import LeastNumaNodes
from services.scheduler.score.strategies.strategy import ColumnStrategy, Strategy

_ALL: tuple[Strategy, ...] = (
    BestFit(),
    KeepRoom(),
    LeastAllocated(),
    MostAllocated(),
    BalancedAllocation(),
    LeastNumaNodes(),
    KoordinatorMostAllocated(),
    KoordinatorLeastAllocated(),
)
STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in _ALL}
COLUMN_STRATEGIES: dict[str, ColumnStrategy] = {
    strategy.name: strategy for strategy in _ALL if isinstance(strategy, ColumnStrategy)
}
