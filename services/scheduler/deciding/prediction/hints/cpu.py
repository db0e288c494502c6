"""The CPU Manager, static policy: exclusive CPUs. Its narrowest size counts all CPUs of a zone, used and reserved ones too
(kubelet 1.36, policy_static.go)."""

from __future__ import annotations

from services.scheduler.deciding.prediction.hints.masks import hints_for, sums
from services.scheduler.deciding.prediction.hints.provider import ZoneBook
from shared.domain.resources import CPU, Amounts
from shared.kubelet.hint import Hints


class CpuHints:
    """Hints for `cpu`."""

    name = "cpu"

    def owns(self, resource: str) -> bool:
        """Only cpu."""
        return resource == CPU

    def hints(self, asked: Amounts, book: ZoneBook) -> Hints:
        """No mask fits: an empty list, unsatisfiable."""
        amount = asked.get(CPU, 0)
        if not amount:
            return None
        zones = tuple(sorted(zone for zone in book.size if book.size[zone].get(CPU, 0) > 0))
        size, free = sums(zones, CPU, book.size), sums(zones, CPU, book.free)
        return {CPU: hints_for(zones, size, free, amount, book.reuse.get(CPU, 0))}
