"""A shape on the nodes of one profile: its plan, and the sweep that answers for them, each made once.

Must not know the table of verdicts, nor which nodes changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

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
from shared.domain.pod import Constraints

Slots = Sequence[NodeFacts | None]


class Together(NamedTuple):
    """Shapes that are weighed together on nodes of one profile: their rows, the sweep, their distinct constraints, and which of
    them each shape has."""

    rows: npt.NDArray[np.int64]
    sweep: LandingSweep | None
    constraints: list[Constraints]
    which: npt.NDArray[np.int64]


class Sweeping:
    """Reads the cluster's columns, which are up to date; keeps what it made on the shape."""

    def __init__(self, columns: Columns, constraints: ConstraintColumns, config: CycleConfig, strategy: Scorer) -> None:
        self._columns, self._constraints, self._config, self._strategy = columns, constraints, config, strategy

    @property
    def by_landing(self) -> bool:
        """True where the strategy looks at nothing but the zone where a part lands."""
        return isinstance(self._strategy, Registered) and self._strategy.by_landing

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
            scores, sure = self._landing_sweep(shape, plan, group.number, zones).run(group.slots, gate[None])
            return scores[0], sure[0]
        return Sweep(self._columns, group.selection, group.size, zones, self._strategy).run(shape, plan, gate)

    def _landing_sweep(self, shape: Shape, plan: Plan, number: int, zones: int) -> LandingSweep:
        known, made_for = shape.sweeps.get(number), self.made_for
        if known is None or known[0] != made_for:
            known = shape.sweeps[number] = made_for, self._made([plan], [shape], zones)
        return cast("LandingSweep", known[1])

    @property
    def made_for(self) -> object:
        """What a sweep is kept for: rows of the columns, and wants of the strategy."""
        return self._columns.shape, self._strategy.generation if isinstance(self._strategy, Registered) else 0

    def _made(self, plans: Sequence[Plan], shapes: Sequence[Shape], zones: int) -> LandingSweep:
        assert isinstance(self._strategy, Registered)
        return LandingSweep(self._columns, plans, [shape.request for shape in shapes], zones, self._strategy)

    def together(self, shapes: Sequence[Shape], group: Group) -> Together:
        """Those of the shapes that one sweep answers for."""
        plans = [(shape, *self.plan(shape, group.profile, group.number)) for shape in shapes]
        alike = [(shape, plan) for shape, plan, barred in plans if plan.mode == "aligned" and not barred]
        constraints: list[Constraints] = []
        for shape, _ in alike:
            if shape.pod.constraints not in constraints:
                constraints.append(shape.pod.constraints)
        which = [constraints.index(shape.pod.constraints) for shape, _ in alike]
        found = self._made([plan for _, plan in alike], [shape for shape, _ in alike], len(group.profile[4])) if alike else None
        rows = np.array([shape.row for shape, _ in alike], dtype=np.int64)
        return Together(rows, found, constraints, np.array(which, dtype=np.int64))

    def run_together(self, together: Together, group: Group, slots: Slots) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The same as `run` for each of its shapes [shape, node]."""
        assert together.sweep is not None
        gates = [self._constraints.allowed(each, slots, group.selection) for each in together.constraints]
        return together.sweep.run(
            group.slots, gates[0][None] if len(gates) == 1 else np.stack(gates).take(together.which, axis=0)
        )
