"""Every provider file is registered, and a new provider does not count as one of the kubelet's."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import shared.hints
from shared.hints import registry
from shared.hints.cpu import CpuHints
from shared.hints.devices import DeviceHints
from shared.hints.memory import MemoryHints
from shared.hints.provider import HintProvider


def test_an_unregistered_provider_file_is_reported() -> None:
    """Every class of `shared/hints` with `owns` is a provider."""
    modules = [
        import_module(f"shared.hints.{entry.name}")
        for entry in pkgutil.iter_modules(shared.hints.__path__)
    ]
    kinds = {
        entry
        for module in modules
        for entry in vars(module).values()
        if isinstance(entry, type) and hasattr(entry, "owns")
    }
    assert {type(entry) for entry in registry.PROVIDERS} == kinds - {HintProvider}


def test_the_kubelets_own_providers_are_the_kubelets() -> None:
    """If pods of a node use only these, preemption asks the kubelet model, which has no other."""
    assert [type(entry) for entry in registry.KUBELETS_OWN] == [DeviceHints, CpuHints, MemoryHints]
    assert registry.PROVIDERS[: len(registry.KUBELETS_OWN)] == registry.KUBELETS_OWN
