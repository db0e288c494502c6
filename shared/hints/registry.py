"""Every hint provider, in the kubelet's order. Whoever folds the log loads this registry: filter,
charge, prediction, preemption and explanation ask the same ones."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from shared.domain.report import Report
from shared.hints.cpu import CpuHints
from shared.hints.devices import DeviceHints
from shared.hints.memory import MemoryHints
from shared.hints.provider import HintProvider

KUBELETS_OWN: tuple[HintProvider, ...] = (
    DeviceHints(),
    CpuHints(),
    MemoryHints(),
)
"""The managers that the kubelet model has, too: whoever asks only them may ask the model instead."""

PROVIDERS: tuple[HintProvider, ...] = (
    *KUBELETS_OWN,
    # one's own: a line each
)


def owner_of(resource: str) -> int:
    """Position of the provider that hands the resource out, -1 for none; of several the last one
    registered.
    """
    return _owner(PROVIDERS, resource)


@lru_cache(maxsize=4096)
def _owner(providers: tuple[HintProvider, ...], resource: str) -> int:
    return max((at for at, provider in enumerate(providers) if provider.owns(resource)), default=-1)


def kubelets_own(resources: Iterable[str]) -> bool:
    """True where none of these is handed out by a provider that the kubelet model does not have."""
    owners = {owner_of(name) for name in resources}
    return all(any(PROVIDERS[at] is each for each in KUBELETS_OWN) for at in owners if at >= 0)


def amounts_are_all() -> bool:
    """True where zone amounts bound what every provider admits."""
    return _all_by_amounts(PROVIDERS)


@lru_cache(maxsize=64)
def _all_by_amounts(providers: tuple[HintProvider, ...]) -> bool:
    return all(provider.by_amounts for provider in providers)


def beyond_amounts(resource: str) -> bool:
    """True for a resource whose provider is not bound by zone amounts."""
    at = owner_of(resource)
    return at >= 0 and not PROVIDERS[at].by_amounts


def zones_of(report: Report, resource: str) -> frozenset[int] | None:
    """Zones that may ever give the resource, as its provider says; None where the report's amounts
    say it.
    """
    at = owner_of(resource)
    return PROVIDERS[at].zones(report, resource) if at >= 0 else None
