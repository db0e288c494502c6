"""A pod's demand as the hint providers are asked for it: container by container, and as a whole
under scope pod.

What a provider does not own it is not asked for. Must not know states or nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from shared.domain.demand import ContainerDemand, peak
from shared.domain.pod import ContainerKind
from shared.domain.resources import Amounts, is_device, is_memory
from shared.hints import registry
from shared.hints.provider import RequestedAmounts

ManagerRequests = tuple[RequestedAmounts, ...]
"""What each provider of the registry is asked for, in its order."""


class ContainerRequest(msgspec.Struct, frozen=True, gc=False):
    """One container."""

    kind: ContainerKind
    asked: ManagerRequests


class HintRequest(msgspec.Struct, frozen=True, gc=False):
    """`whole` is what scope pod asks for at once. `key` is equal for pods that ask alike. `inits`:
    some init container asks.
    """

    key: tuple[tuple[str, ManagerRequests], ...]
    steps: tuple[ContainerRequest, ...]
    whole: ManagerRequests
    inits: bool


REMEMBERED = 4096
"""Requests that are remembered: pods of one kind share their demand; beyond them all are forgotten and made again."""

_requests: dict[int, tuple[Sequence[ContainerDemand], tuple[object, ...], HintRequest]] = {}


def request_of(demand: tuple[ContainerDemand, ...]) -> HintRequest:
    """The demand's questions, to the providers of the registry as it stands."""
    known = _requests.get(id(demand))
    if known is not None and known[0] is demand and known[1] is registry.PROVIDERS:
        return known[2]
    if len(_requests) >= REMEMBERED:
        _requests.clear()
    request = _made(demand)
    _requests[id(demand)] = demand, registry.PROVIDERS, request
    return request


def _made(demand: tuple[ContainerDemand, ...]) -> HintRequest:
    steps = tuple(
        [ContainerRequest(part.kind, _questions(part.amounts, part.zeros)) for part in demand]
    )
    whole = _questions(_whole(demand), [name for part in demand for name in part.zeros])
    key = (*[(step.kind, step.asked) for step in steps], ("", whole))
    return HintRequest(key, steps, whole, any(part.kind == "init" for part in demand))


def _questions(amounts: Amounts, zeros: Collection[str]) -> ManagerRequests:
    """Of devices 0 is asked for, too: the Device Manager has hints for that."""
    asked: list[list[tuple[str, int]]] = [[] for _ in registry.PROVIDERS]
    hinted = {name: 0 for name in zeros if is_device(name) and registry.kubelets_own((name,))}
    for name, amount in sorted((hinted | amounts).items()):
        at = registry.owner_of(name)
        if at >= 0 and (amount or name in hinted):
            asked[at].append((name, amount))
    return tuple([tuple(each) for each in asked])


def _whole(demand: Sequence[ContainerDemand]) -> Amounts:
    """The kubelet's pod-scope requests: CPUs and devices at their peak, memory only of what app
    containers name.
    """
    apps = {name for part in demand if part.kind == "app" for name in (*part.amounts, *part.zeros)}
    return {
        name: amount for name, amount in peak(demand).items() if not is_memory(name) or name in apps
    }
