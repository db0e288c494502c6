"""A node's states in every way in which the kubelet may see devices that no report lists.

The kubelet gives unhealthy devices to no pod, but they decide how few zones are enough, and which
zones have devices, and so what the kubelet prefers. Neither their number nor their zones are known,
so every way is tried that makes a difference to a pod that asks.

Must not know the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from math import prod

from shared.hints import registry
from shared.hints.admission import NodeState
from shared.hints.devices import DeviceCountManager
from shared.hints.provider import RequestedAmounts, ResourceManager
from shared.hints.request import HintRequest
from shared.hints.splits import TooManyChoicesError

# Resource -> how many devices some pod asks for at once.
Amounts = Mapping[str, frozenset[int]]


def asked_of(resources: Collection[str], request: HintRequest) -> RequestedAmounts:
    """Return what a pod requests of these resources, by container and as a whole, each amount
    once."""
    requested: set[tuple[str, int]] = set()
    for resource in resources:
        owner = registry.owner_of(resource)
        if owner < 0:
            continue
        for by_provider in (*[step.asked for step in request.steps], request.whole):
            requested.update(amount for amount in by_provider[owner] if amount[0] == resource)
    return tuple(sorted(requested))


def wanted(
    resources: Collection[str], others: Iterable[HintRequest | None], newcomer: RequestedAmounts
) -> Amounts:
    """Return by resource the amounts that the new pod and the others request."""
    if not resources:
        return {}
    requested = [item for item in newcomer if item[0] in resources]
    for request in others:
        requested += asked_of(resources, request) if request is not None else ()
    amounts: dict[str, set[int]] = {}
    for name, amount in requested:
        amounts.setdefault(name, set()).add(amount)
    return {name: frozenset(amounts[name]) for name in sorted(amounts)}


def with_hidden(
    managers: Sequence[ResourceManager],
    bases: Collection[NodeState],
    asked: Amounts,
    zones: Collection[int],
    most: int,
) -> tuple[NodeState, ...] | None:
    """Return every base in every way to see these resources, None for more than `most` states."""
    row, manager = _device_manager(managers)
    if manager is None:
        return tuple(bases)
    try:
        views = [manager.views(name, amounts, zones) for name, amounts in asked.items()]
    except TooManyChoicesError:
        return None
    if len(bases) * prod(map(len, views)) > most:
        return None
    ways = [dict(zip(asked, chosen, strict=True)) for chosen in product(*views)]
    return tuple(
        [
            (*base[:row], manager.seen(base[row], way), *base[row + 1 :])
            for base in bases
            for way in ways
        ]
    )


def _device_manager(
    managers: Sequence[ResourceManager],
) -> tuple[int, DeviceCountManager | None]:
    for row, manager in enumerate(managers):
        if isinstance(manager, DeviceCountManager):
            return row, manager
    return -1, None
