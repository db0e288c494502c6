"""A shape on the nodes of one profile: its plan, and the sweep that answers for them, each made
once.

Must not know the table of verdicts, nor which nodes changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from services.scheduler.filter.blocking import blocked, plan_for
from services.scheduler.filter.constraints.columns import ConstraintColumns
from services.scheduler.score.runner import Registered
from services.scheduler.score.scores import Scorer
from services.scheduler.select.landing_sweep import LandingSweep
from services.scheduler.select.standing import Standing
from services.scheduler.select.sweep import Sweep
from services.scheduler.select.verdict_cache import RULED_OUT
from services.scheduler.snapshot.columnar import Selection, Slots
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import Columns
from services.scheduler.snapshot.node_info import NodeInfo, Profile
from services.scheduler.snapshot.pod_class import Planned, Shape

Nodes = Sequence[NodeInfo | None]
Answers = tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]
"""Scores, and whether each is sure."""

RANKS_FROM = 24
"""Nodes that changed since a shape was asked for from which a sweep that leaves none in doubt is cheaper than to judge each."""
RANKS_FROM_BY_WANTS = 3
"""The same where each node is scored by every want."""
RANKS_FROM_BY_SETS = 1
"""The same where sets of zones are compared: a sweep only tells what scores are at most, and few are then looked at."""


class Selected(NamedTuple):
    """Nodes on which a shape has one plan, and how many they are."""

    planned: Planned
    selection: Selection
    size: int


class Sweeping:
    """Reads the cluster's columns, which are up to date; keeps what it made on the shape. `ranks`:
    a sweep knows the scores of nodes that changed, so that they need not be judged one by one to be
    ranked; `singly`: nodes are scored one by one, and a sweep knows at most a bound. `ranks_from`:
    changed nodes from which a sweep is cheaper than to rank each; None where neither is worth it.
    """

    def __init__(
        self,
        columns: Columns,
        constraints: ConstraintColumns,
        config: CycleConfig,
        strategy: Scorer,
    ) -> None:
        self._columns, self._constraints, self._config, self._strategy = (
            columns,
            constraints,
            config,
            strategy,
        )
        registered = strategy if isinstance(strategy, Registered) else None
        self._standing = Standing(columns, registered) if registered is not None else None
        self._by_landing = registered is not None and registered.by_landing
        self.ranks = registered is not None and registered.at_once
        self.singly = registered is not None and not registered.at_once
        self.ranks_from = _ranks_from(registered) if registered is not None else None

    def plan(self, shape: Shape, profile: Profile, number: int) -> Planned:
        """The shape's plan on nodes of the profile of this number."""
        found = shape.planned.get(number)
        if found is None:
            plan = plan_for(shape, profile, self._config)
            barred = blocked(shape, profile, plan, self._config) is not None
            alike = (
                each
                for each in shape.planned.values()
                if each.plan == plan and each.barred == barred
            )
            found = shape.planned[number] = next(alike, None) or Planned(plan, barred)
            found.widen(len(profile[4]))
        return found

    def parted(self, shape: Shape, only: Slots | None) -> Iterator[tuple[Selection, Selected]]:
        """All nodes, or those of the slots in `only`, none of which is empty, parted by the shape's
        plan on them: where in `only` they are, and themselves."""
        columns = self._columns
        profiles = columns.profile[: columns.size] if only is None else columns.profile.take(only)
        numbers = columns.in_use() if only is None else dict.fromkeys(profiles.tolist())
        plans: dict[Planned, list[int]] = {}
        for number in numbers:
            plans.setdefault(self.plan(shape, columns.profiles[number], number), []).append(number)
        if len(plans) == 1 and (only is not None or columns.filled == columns.size):
            yield (
                slice(None),
                Selected(
                    next(iter(plans)),
                    slice(0, columns.size) if only is None else only,
                    len(profiles),
                ),
            )
            return
        for planned, members in plans.items():
            among = np.zeros(
                len(columns.profiles) + 1, dtype=np.bool_
            )  # the last is that of empty slots
            among[members] = True
            here = np.flatnonzero(among.take(profiles))
            yield here, Selected(planned, here if only is None else only[here], len(here))

    def run(self, shape: Shape, selected: Selected, nodes: Nodes) -> Answers:
        """Scores and certainty of the selected nodes, in their order."""
        planned, selection, size = selected
        if planned.barred:
            return np.full(size, RULED_OUT), np.ones(size, dtype=np.bool_)
        unbarred = self._constraints.allowed(shape.pod.constraints, nodes, selection)
        if planned.plan.mode == "aligned" and self._by_landing:
            return self._landing_sweep(shape, planned).run(selection, size, unbarred)
        return Sweep(self._columns, selection, size, planned.zones, self._strategy).run(
            shape, planned.plan, unbarred
        )

    def _landing_sweep(self, shape: Shape, planned: Planned) -> LandingSweep:
        """Kept while the columns have these rows and zones."""
        assert isinstance(self._strategy, Registered)
        assert self._standing is not None
        made_for = self._columns.shape, planned.zones
        if planned.sweep is None or planned.made_for != made_for:
            planned.made_for = made_for
            given = planned.plan, shape.request, planned.zones, self._strategy
            planned.sweep = LandingSweep(self._columns, self._standing, *given)
        found: LandingSweep = planned.sweep
        return found


def _ranks_from(strategy: Registered) -> int | None:
    if strategy.at_once:
        return RANKS_FROM_BY_WANTS if strategy.looks_at_wants else RANKS_FROM
    return RANKS_FROM_BY_SETS if strategy.bounded else None
