"""A pod's demand in the form in which hint providers are asked: by container, and as a whole.

A provider is asked only for the resources that it owns. Must not know states or nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from shared.domain.demand import ContainerDemand, peak
from shared.domain.pod import ContainerKind
from shared.domain.resources import Amounts, is_device, is_memory
from shared.hints import registry
from shared.hints.provider import RequestedAmounts

# What each provider is asked for, in the order of the registry.
ManagerRequests = tuple[RequestedAmounts, ...]


class ContainerRequest(msgspec.Struct, frozen=True, gc=False):
    kind: ContainerKind
    asked: ManagerRequests


class HintRequest(msgspec.Struct, frozen=True, gc=False):
    """A pod's request. `whole` is the sum that scope pod asks for at once, `key` is equal for pods
    that ask for the same, and `inits` is True if an init container asks for something. `one_zone`
    is what must be in one zone although the kubelet's policy may not require it: "container" for
    each of them, "pod", or ""."""

    key: tuple[tuple[str, ManagerRequests], ...]
    steps: tuple[ContainerRequest, ...]
    whole: ManagerRequests
    inits: bool
    one_zone: str = ""


# Requests that are remembered, because pods of one kind share their demand. If there are more, all
# are forgotten and made again.
REMEMBERED = 4096

_requests: dict[int, tuple[Sequence[ContainerDemand], tuple[object, ...], HintRequest]] = {}


def request_of(demand: tuple[ContainerDemand, ...]) -> HintRequest:
    """Return the request for this demand to the providers of the registry as it is now."""
    remembered = _requests.get(id(demand))
    if remembered is not None and remembered[0] is demand and remembered[1] is registry.PROVIDERS:
        return remembered[2]
    if len(_requests) >= REMEMBERED:
        _requests.clear()
    request = _make_request(demand)
    _requests[id(demand)] = demand, registry.PROVIDERS, request
    return request


def promised(request: HintRequest, one_zone: str) -> HintRequest:
    """Return the request of a pod that must be in one zone."""
    if not one_zone:
        return request
    key = (*request.key, (f"one zone: {one_zone}", ()))
    return msgspec.structs.replace(request, key=key, one_zone=one_zone)


def _make_request(demand: tuple[ContainerDemand, ...]) -> HintRequest:
    steps = tuple(
        [ContainerRequest(part.kind, _by_provider(part.amounts, part.zeros)) for part in demand]
    )
    whole = _by_provider(_pod_amounts(demand), [name for part in demand for name in part.zeros])
    key = (*[(step.kind, step.asked) for step in steps], ("", whole))
    return HintRequest(key, steps, whole, any(part.kind == "init" for part in demand))


def _by_provider(amounts: Amounts, zeros: Collection[str]) -> ManagerRequests:
    """Sort the amounts by owner. The Device Manager has hints for a request of 0 devices, too."""
    requests: list[list[tuple[str, int]]] = [[] for _ in registry.PROVIDERS]
    hinted = {name: 0 for name in zeros if is_device(name) and registry.kubelets_own((name,))}
    for name, amount in sorted((hinted | amounts).items()):
        owner = registry.owner_of(name)
        if owner >= 0 and (amount or name in hinted):
            requests[owner].append((name, amount))
    return tuple([tuple(request) for request in requests])


def _pod_amounts(demand: Sequence[ContainerDemand]) -> Amounts:
    """Return what the kubelet asks for under scope pod: CPUs and devices at their peak, but memory
    only if an app container names it (kubelet 1.36)."""
    apps = {name for part in demand if part.kind == "app" for name in (*part.amounts, *part.zeros)}
    return {
        name: amount for name, amount in peak(demand).items() if not is_memory(name) or name in apps
    }
