"""Every hint provider, in the kubelet's order, and the merge of their hints, which is the kubelet's."""

from __future__ import annotations

from services.scheduler.deciding.prediction.hints.cpu import CpuHints
from services.scheduler.deciding.prediction.hints.devices import DeviceHints
from services.scheduler.deciding.prediction.hints.memory import MemoryHints
from services.scheduler.deciding.prediction.hints.provider import HintProvider, ZoneBook
from shared.domain.resources import Amounts
from shared.kubelet.hint import Hint
from shared.kubelet.topology_manager import TopologyManager, merge

PROVIDERS: tuple[HintProvider, ...] = (
    DeviceHints(),
    CpuHints(),
    MemoryHints(),
)


def best_hint(manager: TopologyManager, asked: Amounts, book: ZoneBook) -> tuple[Hint, bool]:
    """The merged hint for these amounts in this state, and whether the policy admits it."""
    return merge(manager, [provider.hints(asked, book) for provider in PROVIDERS])
