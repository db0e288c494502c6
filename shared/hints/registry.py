"""Every hint provider, in the kubelet's order.

Filter, charge, prediction, preemption and explanation use the providers of this registry, and every
process that folds the log loads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from shared.domain.report import Report
from shared.hints.cpu import CpuHints
from shared.hints.devices import DeviceHints
from shared.hints.memory import MemoryHints
from shared.hints.provider import HintProvider

# The managers that the kubelet model (`shared.kubelet`) has, too: if a decision depends on these
# alone, the model may answer instead.
KUBELETS_OWN: tuple[HintProvider, ...] = (
    DeviceHints(),
    CpuHints(),
    MemoryHints(),
)

PROVIDERS: tuple[HintProvider, ...] = (
    *KUBELETS_OWN,
    # your own providers, one line each
)


def owner_of(resource: str) -> int:
    """Return the position of the provider that allocates the resource, -1 for none."""
    return _owner(PROVIDERS, resource)


@lru_cache(maxsize=4096)
def _owner(providers: tuple[HintProvider, ...], resource: str) -> int:
    owners = [number for number, provider in enumerate(providers) if provider.owns(resource)]
    return max(owners, default=-1)


def kubelets_own(resources: Iterable[str]) -> bool:
    """Return whether all these resources belong to managers that the kubelet model has."""
    owners = {owner_of(name) for name in resources} - {-1}
    return all(any(PROVIDERS[owner] is provider for provider in KUBELETS_OWN) for owner in owners)


def amounts_are_all() -> bool:
    """Return whether zone amounts alone decide the answers of every provider."""
    return _all_by_amounts(PROVIDERS)


@lru_cache(maxsize=64)
def _all_by_amounts(providers: tuple[HintProvider, ...]) -> bool:
    return all(provider.by_amounts for provider in providers)


def beyond_amounts(resource: str) -> bool:
    """Return whether zone amounts alone do not decide about the resource."""
    owner = owner_of(resource)
    return owner >= 0 and not PROVIDERS[owner].by_amounts


def zones_of(report: Report, resource: str) -> frozenset[int] | None:
    """Return the zones that can ever give the resource, None if the report's amounts show them."""
    owner = owner_of(resource)
    return PROVIDERS[owner].zones(report, resource) if owner >= 0 else None
