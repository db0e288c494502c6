"""LeastAllocated as the plugin computes it: the share of a zone's *available* amount that stays
free.

Quantities are rounded up to whole units first, so 1500m of cpu counts as 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from plugins.upstream_compat.amounts import Quantities
from plugins.upstream_compat.zone_strategies import weighted
from shared.domain.quantity import Quantity


def zone_score(request: Quantities, available: Quantities, weights: Mapping[str, int]) -> int:
    """Return the weighted mean of 100 * (available - request) / available."""
    return weighted(request, available, weights, _resource_score)


def _resource_score(request: Quantity, available: Quantity | None) -> int:
    if available is None or available.nano == 0 or request.nano > available.nano:
        return 0
    return (available.value() - request.value()) * 100 // available.value()
