"""Defaults of `spec.resources` of a Pod (KEP-2837): limits of hugepages, and requests, both from
those of the containers.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go (defaultHugePagePodLimits,
defaultPodRequests), held against kube-apiserver 1.36.2. Amounts are canonical quantities here
already. Must not judge.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from operator import add
from typing import Any

from services.simulator.api.core import quantities

Json = dict[str, Any]
Amounts = dict[str, Fraction]


def completed(resources: Json, spec: Json) -> Json:
    """Return `spec.resources` with its defaults. The containers have their defaults already."""
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    if limits or requests:
        together = _together(spec, "limits")
        limits |= {
            name: text
            for name, text in together.items()
            if _is_hugepages(name) and name not in {**limits, **requests}
        }
    if limits:
        from_containers = {
            name: text
            for name, text in _together(spec, "requests").items()
            if name in ("cpu", "memory")
        }
        requests = {**_supported(limits), **from_containers, **requests}
    return {
        **resources,
        **({"limits": limits} if limits else {}),
        **({"requests": requests} if requests else {}),
    }


def _supported(amounts: Json) -> Json:
    return {
        name: text
        for name, text in amounts.items()
        if name in ("cpu", "memory") or _is_hugepages(name)
    }


def _is_hugepages(name: str) -> bool:
    return name.startswith("hugepages-")


def _together(spec: Json, field: str) -> dict[str, str]:
    """Return the peak of the containers by resource: apps and sidecars, or an init container with
    the sidecars before it.
    """
    running, sidecars, peak = Amounts(), Amounts(), Amounts()
    for container in spec.get("initContainers") or []:
        amount = _held(container, field)
        if container.get("restartPolicy") == "Always":
            sidecars = _each(sidecars, amount, add)
            peak = _each(peak, sidecars, max)
        else:
            peak = _each(peak, _each(sidecars, amount, add), max)
    for container in spec.get("containers") or []:
        running = _each(running, _held(container, field), add)
    most = _each(peak, _each(running, sidecars, add), max)
    return {name: quantities.written(amount, binary=name != "cpu") for name, amount in most.items()}


def _held(container: Json, field: str) -> Amounts:
    amounts = (container.get("resources") or {}).get(field) or {}
    return {
        name: amount
        for name, text in amounts.items()
        if (amount := quantities.value_of(text)) is not None
    }


def _each(
    amounts: Amounts, right: Amounts, make: Callable[[Fraction, Fraction], Fraction]
) -> Amounts:
    nothing = Fraction(0)
    return {
        name: make(amounts.get(name, nothing), right.get(name, nothing))
        for name in {**amounts, **right}
    }
