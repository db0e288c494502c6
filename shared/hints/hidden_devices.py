"""A node's states where the kubelet may see devices otherwise than they are listed: each as it may
see them.

Unhealthy devices that nobody lists are given to nobody, but decide how few zones are enough and
which zones bear devices, and so what the kubelet prefers. How many there are and where is not
known: every way is tried that makes a difference to who asks. And hints once ran over every zone,
not only over those that bear devices (until kubernetes PR 138244). Must not know the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from math import prod

from shared.hints import registry
from shared.hints.admission import NodeState
from shared.hints.devices import DeviceManager
from shared.hints.provider import RequestedAmounts, ResourceManager
from shared.hints.request import HintRequest
from shared.hints.splits import TooManyChoicesError

Amounts = Mapping[str, frozenset[int]]
"""Resource -> how many devices somebody asks for at once."""


def asked_of(resources: Collection[str], request: HintRequest) -> RequestedAmounts:
    """What a pod asks for of these resources, container by container and as a whole; each amount
    once.
    """
    found: set[tuple[str, int]] = set()
    for name in resources:
        at = registry.owner_of(name)
        if at >= 0:
            found.update(
                each
                for step in (*[s.asked for s in request.steps], request.whole)
                for each in step[at]
                if each[0] == name
            )
    return tuple(sorted(found))


def wanted(
    resources: Collection[str], others: Iterable[HintRequest | None], newcomer: RequestedAmounts
) -> Amounts:
    """By resource the amounts that the newcomer and the others ask for."""
    if not resources:
        return {}
    found: dict[str, set[int]] = {}
    own = [each for each in newcomer if each[0] in resources]
    for name, amount in (
        *own,
        *(each for other in others if other is not None for each in asked_of(resources, other)),
    ):
        found.setdefault(name, set()).add(amount)
    return {name: frozenset(amounts) for name, amounts in sorted(found.items())}


def with_hidden(
    managers: Sequence[ResourceManager],
    bases: Collection[NodeState],
    asked: Amounts,
    zones: Collection[int],
    most: int,
) -> tuple[NodeState, ...] | None:
    """Every base in every way to see these resources; None for more than `most`."""
    at = next(
        (number for number, manager in enumerate(managers) if isinstance(manager, DeviceManager)),
        -1,
    )
    manager = managers[at]
    if at < 0 or not isinstance(manager, DeviceManager):
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
            (*base[:at], manager.seen(base[at], way), *base[at + 1 :])
            for base in bases
            for way in ways
        ]
    )


def also_over_every_zone(
    managers: Sequence[ResourceManager], bases: Collection[NodeState], zones: Collection[int]
) -> tuple[NodeState, ...]:
    """Every base, and as a kubelet sees it whose hints run over every zone. Those that are not
    preferred alone differ.
    """
    at = next(
        (number for number, manager in enumerate(managers) if isinstance(manager, DeviceManager)),
        -1,
    )
    manager = managers[at]
    if at < 0 or not isinstance(manager, DeviceManager):
        return tuple(bases)
    wide = [(*base[:at], manager.over(base[at], zones), *base[at + 1 :]) for base in bases]
    return tuple(dict.fromkeys([*bases, *wide]))
