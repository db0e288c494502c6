"""Parts that no zone holds even when it is empty, under restricted, on many nodes: which have
enough in as few zones as it takes?

Restricted admits no hint that is not preferred, and of a resource so many zones are preferred as
would do if they were empty (kubelet 1.36). What `feasibility.bounds` says of one node. Must not
know scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from services.scheduler.snapshot.columnar import Bools, Selection
from services.scheduler.snapshot.node_arrays import Columns
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.zone_sizes import several_kinds_of_memory

EXACT = 2.0**53
"""Sums of sizes below it are exact in floats."""


def in_as_few_zones(
    columns: Columns, plan: Plan, wide: Bools, selection: Selection, zones: int
) -> Bools:
    """Of the nodes where the plan is `wide`, those that may have enough."""
    enough, overstated = wide.copy(), _overstated(columns, selection, len(wide))
    for part in plan.parts if zones and wide.any() else ():
        several = several_kinds_of_memory(part.amounts)
        for name, amount in part.amounts.items():
            row = columns.rows.get(name)
            if row is not None and name not in plan.placeless:
                free = _freest_first(columns.free_max[row, :zones][:, selection])
                size = _freest_first(columns.whole[row, :zones][:, selection])
                enough &= _within(free, size, amount, overstated | (name in several))
    return enough


def _overstated(columns: Columns, selection: Selection, count: int) -> Bools:
    """Nodes of which it is not known how large their zones are: all may be taken there."""
    if not columns.overstated:
        return np.zeros(count, dtype=np.bool_)
    slots = np.arange(selection.stop) if isinstance(selection, slice) else selection
    return np.isin(slots, list(columns.overstated))


def _within(
    free: npt.NDArray[np.int64], size: npt.NDArray[np.float64], amount: int, all_of_them: Bools
) -> Bools:
    """Of several kinds of memory the kubelet wants one number of zones, which may be more: all may
    be taken.
    """
    last = len(free) - 1
    would_do = (size >= amount) & (size[last] < EXACT) & ~all_of_them
    at = np.where(would_do.any(axis=0), would_do.argmax(axis=0), last)
    return np.asarray(free[at, np.arange(free.shape[1])] >= amount)


def _freest_first(zones: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[n, node]: what the n + 1 largest have together."""
    return np.cumsum(-np.sort(-np.maximum(zones, 0), axis=0), axis=0)
