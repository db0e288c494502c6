"""What columns of nodes are made of: arrays by slot, what one pod adds to scores, what one
reservation takes, how arrays grow.

Must not know nodes or pods.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Slots = Ints
Selection = slice | Slots
Lifts = npt.NDArray[np.int32]
"""What one pod adds to the scores of its shape by node, or BARRED."""

BARRED = -10_000
"""A lift that keeps a node from one pod, whatever its shape scores there."""
LEAST = 64
PART = 4
"""By how much arrays of nodes grow that are full: at 20,000 nodes doubling would leave 40 % of them unused."""


class Delta(NamedTuple):
    """An own reservation as columns: what it takes of `zones` [resource, zone] and of the `whole`
    node, and the `least` that it takes of each zone by resource, None where it leaves a zone as it
    is."""

    zones: Ints
    whole: Ints
    least: Ints | None


def grown(capacity: int) -> int:
    """The next size of arrays that hold so many nodes: a quarter more."""
    return capacity + max(LEAST, capacity // PART)
