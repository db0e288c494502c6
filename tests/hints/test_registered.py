"""Where a provider is registered: nobody's is forgotten, and one's own is not taken for one of the
kubelet's.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

import shared.hints
from shared.hints import registry
from shared.hints.cpu import CpuHints
from shared.hints.devices import DeviceHints
from shared.hints.memory import MemoryHints
from shared.hints.provider import HintProvider


def test_a_provider_file_that_was_not_registered_is_noticed() -> None:
    """Whatever of `shared/hints` says what it owns is a provider."""
    modules = [
        import_module(f"shared.hints.{each.name}")
        for each in pkgutil.iter_modules(shared.hints.__path__)
    ]
    kinds = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and hasattr(each, "owns")
    }
    assert {type(each) for each in registry.PROVIDERS} == kinds - {HintProvider}


def test_what_is_taken_for_the_kubelets_own_is() -> None:
    """Of nodes where pods ask these alone, preemption asks the kubelet model, which has no
    other.
    """
    assert [type(each) for each in registry.KUBELETS_OWN] == [DeviceHints, CpuHints, MemoryHints]
    assert registry.PROVIDERS[: len(registry.KUBELETS_OWN)] == registry.KUBELETS_OWN
