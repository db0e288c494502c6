"""A shape on the nodes of one profile: its plan, and the sweep that answers for them, each made once.

Must not know the table of verdicts, nor which nodes changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from services.scheduler.deciding.blocking import blocked, plan_for
from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.constraints.columns import ConstraintColumns
from services.scheduler.deciding.node_facts import NodeFacts, Profile
from services.scheduler.deciding.registered import Registered
from services.scheduler.deciding.scores import Scorer
from services.scheduler.deciding.shape import Plan, Shape
from services.scheduler.deciding.verdicts.columns import Columns, Group
from services.scheduler.deciding.verdicts.landing_sweep import LandingSweep
from services.scheduler.deciding.verdicts.sweep import Sweep
from services.scheduler.deciding.verdicts.table import RULED_OUT

Slots = Sequence[NodeFacts | None]

RANKS_FROM = 24
"""Nodes that changed since a shape was asked for from which a sweep that leaves none in doubt is cheaper than to judge each."""
RANKS_FROM_BY_WANTS = 3
"""The same where each node is scored by every want."""
RANKS_FROM_BY_SETS = 1
"""The same where sets of zones are compared: a sweep only tells what scores are at most, and few are then looked at."""


class Sweeping:
    """Reads the cluster's columns, which are up to date; keeps what it made on the shape."""

    def __init__(self, columns: Columns, constraints: ConstraintColumns, config: CycleConfig, strategy: Scorer) -> None:
        self._columns, self._constraints, self._config, self._strategy = columns, constraints, config, strategy

    @property
    def by_landing(self) -> bool:
        """True where the strategy looks at nothing but the zone where a part lands."""
        return isinstance(self._strategy, Registered) and self._strategy.by_landing

    @property
    def ranks(self) -> bool:
        """True where a sweep knows the scores of nodes that changed, so that they need not be judged one by one to be ranked."""
        return isinstance(self._strategy, Registered) and self._strategy.at_once

    @property
    def singly(self) -> bool:
        """True where nodes are scored one by one, and a sweep knows at most a bound."""
        return isinstance(self._strategy, Registered) and not self._strategy.at_once

    @property
    def ranks_from(self) -> int | None:
        """Changed nodes from which a sweep is cheaper than to rank each; None where neither is worth it."""
        if not isinstance(self._strategy, Registered):
            return None
        if self._strategy.at_once:
            return RANKS_FROM_BY_WANTS if self._strategy.looks_at_wants else RANKS_FROM
        return RANKS_FROM_BY_SETS if self._strategy.bounded else None

    def plan(self, shape: Shape, profile: Profile, number: int) -> tuple[Plan, bool]:
        """The shape's plan on nodes of the profile of this number, and whether they are barred whatever they have free."""
        found = shape.verdicts.get(number)
        if found is None:
            plan = plan_for(shape, profile, self._config)
            found = shape.verdicts[number] = plan, blocked(shape, profile, plan, self._config) is not None
        return found

    def run(self, shape: Shape, group: Group, slots: Slots) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Scores and certainty of the group's nodes, in their order."""
        plan, barred = self.plan(shape, group.profile, group.number)
        if barred:
            return np.full(group.size, RULED_OUT), np.ones(group.size, dtype=np.bool_)
        gate, zones = self._constraints.allowed(shape.pod.constraints, slots, group.selection), len(group.profile[4])
        if plan.mode == "aligned" and self.by_landing:
            return self._landing_sweep(shape, plan, group.number, zones).run(group.slots, gate)
        return Sweep(self._columns, group.selection, group.size, zones, self._strategy).run(shape, plan, gate)

    def _landing_sweep(self, shape: Shape, plan: Plan, number: int, zones: int) -> LandingSweep:
        """Kept while the columns have these rows and the strategy its wants."""
        assert isinstance(self._strategy, Registered)
        made_for = self._columns.shape, self._strategy.generation
        known = shape.sweeps.get(number)
        if known is None or known[0] != made_for:
            found = LandingSweep(self._columns, plan, shape.request, zones, self._strategy)
            known = shape.sweeps[number] = made_for, found
        return cast("LandingSweep", known[1])
