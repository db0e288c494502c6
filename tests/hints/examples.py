"""What a provider's properties are tried with: which of its resources pods ask for, and what a pod
holds after an allocation.

A registered provider is tried with its resources in `KNOWN`, or with those of its line in
`RESOURCES`. If a pod's holdings do not follow from the zone (CPUs have ids), `HELD` computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.domain.report import ZonedAmount
from shared.hints import registry
from shared.hints.provider import HintProvider, RequestedAmounts
from shared.kubelet.cpuset import format_cpus
from tests.hints.licences import LICENCE, Licences
from tests.kubelet.machines import GPU

TOYS: tuple[HintProvider, ...] = (
    Licences(),
    Licences(home=0, strict=True, open=True),
    Licences(left=(1, 2)),
)
EVERY: tuple[HintProvider, ...] = (*registry.PROVIDERS, *TOYS)

KNOWN = ("cpu", "memory", "hugepages-2Mi", GPU, LICENCE)
# Examples by the provider's name.
RESOURCES: dict[str, tuple[str, ...]] = {"devices": (GPU,)}
# Holdings by the provider's name, then by (state before, state after, request, zone).
HELD: dict[str, Callable[[Any, Any, RequestedAmounts, int], tuple[ZonedAmount, ...]]] = {
    "cpu": lambda before, after, asked, zone: (
        ZonedAmount("cpu", (zone,), asked[0][1], format_cpus(before & ~after)),
    ),
}


def resources(provider: HintProvider) -> tuple[str, ...]:
    """Return the resources that its examples request."""
    names = RESOURCES.get(provider.name) or tuple(name for name in KNOWN if provider.owns(name))
    assert names, (
        f"provider {provider.name} owns none of {', '.join(KNOWN)}: give RESOURCES in "
        "tests/hints/examples.py one of its own"
    )
    return names


def held(
    provider: HintProvider, before: Any, after: Any, asked: RequestedAmounts, zone: int
) -> tuple[ZonedAmount, ...]:
    """Return what a container holds that got its whole request in this zone."""
    if provider.name in HELD:
        return HELD[provider.name](before, after, asked, zone)
    return tuple(ZonedAmount(name, (zone,), amount) for name, amount in asked)
