"""Which pods hold resources exclusively, as the scheduler guesses it. Fingerprints, foreign pods
and preemption depend on it.

The exporter decides the same question from podresources. The two answers differ for some pods,
whose nodes' fingerprints then never match (the "scheduler stall" of numaresources-operator#1254).
This defect of upstream is kept.
"""

from __future__ import annotations

from collections.abc import Collection

from plugins.upstream_compat.pod import Container, Pod, qos_class
from shared.domain.quantity import Quantity
from shared.domain.resources import CPU, MEMORY, is_device, is_hugepages


def is_exclusive(pod: Pod, zone_resources: Collection[str]) -> bool:
    """Return whether an app or sidecar container holds something exclusively. `zone_resources` are
    the names in the node's known zones.
    """
    guaranteed = qos_class(pod) == "Guaranteed"
    return any(
        _container(each, guaranteed, zone_resources)
        for each in pod.containers
        if each.kind != "init"
    )


def _container(container: Container, guaranteed: bool, zone_resources: Collection[str]) -> bool:
    return any(
        name in zone_resources if is_device(name) else guaranteed and _native(name, quantity)
        for name, quantity in container.requests.items()
    )


def _native(name: str, quantity: Quantity) -> bool:
    if name == CPU:
        return quantity.value() > 0 and quantity.value() * 1000 == quantity.milli_value()
    return quantity.nano > 0 and (name == MEMORY or is_hugepages(name))
