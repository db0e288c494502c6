"""The quality-of-service class of a pod, as Kubernetes computes it (ComputePodQOS, Kubernetes
1.35).

Only cpu and memory count. Ephemeral containers do not. This module does not know manifests.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.pod import Container, Qos
from shared.domain.resources import CPU, MEMORY, Amounts, add

_COUNTED = (CPU, MEMORY)


def of_containers(containers: Iterable[Container]) -> Qos:
    """Return the class for the requests and limits of the containers, init containers and sidecars
    included.
    """
    requests: Amounts = {}
    limits: Amounts = {}
    all_limited = True
    for container in containers:
        limited = _counted(container.limits)
        all_limited = all_limited and len(limited) == len(_COUNTED)
        requests, limits = add(requests, _counted(container.requests)), add(limits, limited)
    return _verdict(requests, limits, all_limited)


def of_pod_level(requests: Amounts, limits: Amounts) -> Qos:
    """Return the class of a pod that has `spec.resources`: nothing else counts then (KEP-2837)."""
    limited = _counted(limits)
    return _verdict(_counted(requests), limited, not limits or len(limited) == len(_COUNTED))


def _counted(amounts: Amounts) -> Amounts:
    return {name: amounts[name] for name in _COUNTED if amounts.get(name, 0) > 0}


def _verdict(requests: Amounts, limits: Amounts, all_limited: bool) -> Qos:
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if all_limited and requests == limits else "Burstable"
