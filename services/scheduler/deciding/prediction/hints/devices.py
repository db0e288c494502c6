"""The Device Manager: every extended resource whose devices name zones (kubelet 1.36, devicemanager/topology_hints.go)."""

from __future__ import annotations

from services.scheduler.deciding.prediction.hints.masks import hints_for, sums
from services.scheduler.deciding.prediction.hints.provider import ZoneBook
from shared.domain.resources import Amounts, is_device
from shared.kubelet.hint import Hint, Hints


class DeviceHints:
    """Hints for each device resource of its own; only zones with devices take part (kubernetes PR 138244)."""

    name = "devices"

    def owns(self, resource: str) -> bool:
        """Extended resources."""
        return is_device(resource)

    def hints(self, asked: Amounts, book: ZoneBook) -> Hints:
        """A resource that no zone has gets no preference."""
        found: dict[str, list[Hint] | None] = {}
        for name, amount in asked.items():
            if is_device(name) and amount:
                zones = tuple(sorted(zone for zone in book.size if book.size[zone].get(name, 0) > 0))
                size, free = sums(zones, name, book.size), sums(zones, name, book.free)
                found[name] = hints_for(zones, size, free, amount, book.reuse.get(name, 0)) if zones else None
        return found or None
