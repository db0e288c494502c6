"""Scores of single devices, 0 to 100."""

from __future__ import annotations

from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceType
from shared.owned.device_request import CARDS, GPU_MEMORY, GPU_RATIO
from shared.owned.devices import FreeDevices
from shared.owned.scores import score_of_amounts

_WEIGHTS = tuple((name, 1) for name in (GPU_RATIO, GPU_MEMORY, *CARDS.values()))


def device_score(free: FreeDevices, kind: DeviceType, minor: int, asked: Amounts) -> int:
    """Return the score of a device with the request on it, by its strategy."""
    size, free_amounts = free.devices[kind][minor].resources, free.amounts[kind][minor]
    used = {name: amount - free_amounts.get(name, 0) for name, amount in size.items()}
    return score_of_amounts(_WEIGHTS, free.node.strategy, size, used, asked, counts_all=True)
