"""The Memory Manager, Static policy: memory and hugepages together, in zones that share no blocks with others
(kubelet 1.36, memorymanager/policy_static.go)."""

from __future__ import annotations

from services.scheduler.deciding.prediction.hints.masks import sums
from services.scheduler.deciding.prediction.hints.provider import ZoneBook
from shared.domain.resources import Amounts, is_memory
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, nodes_of


class MemoryHints:
    """Hints for memory and hugepages."""

    name = "memory"

    def owns(self, resource: str) -> bool:
        """memory, hugepages-*."""
        return is_memory(resource)

    def hints(self, asked: Amounts, book: ZoneBook) -> Hints:
        """No mask survives: an empty map, which the Topology Manager reads as no preference."""
        wanted = {name: amount for name, amount in asked.items() if is_memory(name) and amount}
        if not wanted:
            return None
        zones = tuple(sorted(book.size))
        size = {name: sums(zones, name, book.size) for name in wanted}
        free = {name: sums(zones, name, book.free) for name in wanted}
        found, least = [], len(zones)
        for at, mask in enumerate(enumerate_masks(zones)):
            if any(size[name][at] < amount for name, amount in wanted.items()):
                continue
            least = min(least, mask.bit_count())
            if _accepted(mask, book) and all(free[name][at] >= amount for name, amount in wanted.items()):
                found.append(mask)
        hints = [Hint(mask, mask.bit_count() == least) for mask in found]
        return dict.fromkeys(wanted, hints) if hints else {}


def _accepted(mask: int, book: ZoneBook) -> bool:
    zones = nodes_of(mask)
    if len(zones) == 1:
        return book.groups.get(zones[0], mask) == mask
    return all(zone not in book.used or book.groups.get(zone, 1 << zone) == mask for zone in zones)
