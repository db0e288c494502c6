"""Every hint provider, in the kubelet's order. Whoever folds the log loads this registry: filter, charge, prediction, preemption
and explanation ask the same ones."""

from __future__ import annotations

from functools import lru_cache

from shared.hints.cpu import CpuHints
from shared.hints.devices import DeviceHints
from shared.hints.memory import MemoryHints
from shared.hints.provider import HintProvider

PROVIDERS: tuple[HintProvider, ...] = (
    DeviceHints(),
    CpuHints(),
    MemoryHints(),
)


def owner_of(resource: str) -> int:
    """Position of the provider that hands the resource out, -1 for none; of several the last one registered."""
    return _owner(PROVIDERS, resource)


@lru_cache(maxsize=4096)
def _owner(providers: tuple[HintProvider, ...], resource: str) -> int:
    return max((at for at, provider in enumerate(providers) if provider.owns(resource)), default=-1)
