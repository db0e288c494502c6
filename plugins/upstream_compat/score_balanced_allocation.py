"""BalancedAllocation as the plugin computes it: 100 less the sample variance of the requested
fractions, weights ignored.

A zone that lacks a resource counts as full in it. Floats and the order of their sums are gonum's
(`stat.Variance`, unweighted), because truncation makes them visible. For a single requested
resource the original takes 0/0 for the variance and scores about -9.2e18; here one fraction is
balanced: 100 if it fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plugins.upstream_compat.amounts import Quantities
from shared.domain.quantity import Quantity


def zone_score(request: Quantities, available: Quantities, weights: Mapping[str, int]) -> int:
    """Return trunc(100 * (1 - variance)), or 0 if a fraction is above 1."""
    fractions = [
        _fraction(quantity, available.get(name)) for name, quantity in sorted(request.items())
    ]
    if any(fraction > 1 for fraction in fractions):
        return 0
    return int((1 - _variance(fractions)) * 100.0)


def _fraction(request: Quantity, available: Quantity | None) -> float:
    capacity = available.value() if available is not None else 0
    return float(request.value()) / float(capacity) if capacity else 1.0


def _variance(fractions: Sequence[float]) -> float:
    """Return the unbiased variance by the corrected two-pass algorithm."""
    count = len(fractions)
    if count < 2:
        return 0.0
    total = squares = compensation = 0.0
    for fraction in fractions:  # not sum(): from Python 3.12 on it compensates, and gonum does not
        total += fraction
    mean = total / count
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
        compensation += fraction - mean
    return (squares - compensation * compensation / count) / (count - 1)
