"""Comparison of predicted zones with those of a report, both by container.

The name `POD_LEVEL` stands for the whole pod: in a prediction for all containers alike, in a report
for the sum of them. This module does not know who predicted or reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.domain.report import POD_LEVEL

Zones = Mapping[str, tuple[int, ...]]


def is_as_predicted(predicted: Zones, actual: Zones) -> bool:
    """Return whether each reported container is in its predicted zones. A pod that is reported as a
    whole must be within the zones of its containers."""
    if POD_LEVEL in actual and POD_LEVEL not in predicted:
        within = {zone for zones in predicted.values() for zone in zones}
        return set(actual[POD_LEVEL]) <= within
    of_pod = tuple(predicted.get(POD_LEVEL, ()))
    return all(tuple(predicted.get(name, of_pod)) == zones for name, zones in actual.items())
