"""Requests in columns of the zones where they land: what each asks for, and how many hundredths of that are left.

Floored one by one, as for one zone at a time. Must not know what a score is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.scheduler.scoring.percent import Floats
from services.scheduler.scoring.strategy import Items


class Requests:
    """`amounts` [resource, request, 1]; `counts` how many resources each asks for [request, 1], at least 1."""

    def __init__(self, requests: Sequence[Items], names: Sequence[str]) -> None:
        many = [dict(items) for items in requests]
        self.amounts = np.array([[[asked.get(name, 0)] for asked in many] for name in names], dtype=np.float64)
        self.counts = np.maximum(np.count_nonzero(self.amounts, axis=0), 1)
        self._asked = np.flatnonzero(self.amounts.any(axis=(1, 2)))
        self._hundreds = 100.0 * (self.amounts.take(self._asked, axis=0) > 0)

    def shares(self, left: Floats, whole: Floats) -> Floats:
        """The sum over what is asked for of whole hundredths `left` of the `whole`, both [resource, request, zone]."""
        shares = left.take(self._asked, axis=0)
        shares *= self._hundreds
        shares /= np.maximum(whole.take(self._asked, axis=0), 1.0)
        total: Floats = np.floor(shares, out=shares).sum(axis=0)
        return total
