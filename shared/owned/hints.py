"""Hints: the masks of zones under which a pod can be allocated, each tried before it is offered.

1. A mask is offered for a resource if the whole pod can be allocated under it and none of its zones
   lacks the resource.

2. The narrowest masks are preferred. By what is free: as narrow as the narrowest mask that is
   offered now, and every mask under restricted, as in Koordinator. By capacity: as narrow as empty
   zones would allow, which is the kubelet's rule.

Source: Koordinator a7a1b76b, plugins/nodenumaresource (generateResourceHints).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import comb

import msgspec

from shared.domain.policies import RESTRICTED, Policy
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.allocate import Trial, is_possible
from shared.owned.scores import score_of_zones


class Hint(msgspec.Struct, frozen=True, gc=False):
    """A mask for one resource; None is no preference. `score` ranks masks of one width. An
    unsatisfied hint is of a resource that no mask can give.
    """

    mask: int | None
    preferred: bool
    score: int = 0
    unsatisfied: bool = False


# Resource -> hints. None means "no preference", [] means "cannot be satisfied".
Hints = Mapping[str, list[Hint] | None]


# The most masks of one width that are tried. 13 zones stay below it at every width.
MAX_MASKS = 2000


def masks_of_width(zones: tuple[int, ...], width: int) -> Iterator[int]:
    """Yield the masks of this width; on machines with very many zones only neighbouring ones."""
    if comb(len(zones), width) <= MAX_MASKS:
        yield from map(mask_of, combinations(zones, width))
    else:
        yield from (mask_of(zones[i : i + width]) for i in range(len(zones) - width + 1))


class OfferedMask(msgspec.Struct, frozen=True, gc=False):
    """A mask under which the pod can be allocated."""

    mask: int
    score: int


def offered(trial: Trial, masks: Iterable[int]) -> list[OfferedMask]:
    """Return the masks under which the pod can be allocated, with their scores."""
    return [
        OfferedMask(mask, score_of_mask(trial, mask)) for mask in masks if is_possible(trial, mask)
    ]


def score_of_mask(trial: Trial, mask: int) -> int:
    """Return the score of the mask by the node's strategy."""
    zones, free, node = nodes_of(mask), trial.free, trial.node
    strategy = node.zone_strategy
    return score_of_zones(node, zones, free.capacity, trial.amounts, trial.request, strategy)


def hints_of(trial: Trial, masks: Iterable[OfferedMask], policy: Policy) -> dict[str, list[Hint]]:
    """Return the hints of every requested resource that some zone has, in the order of `masks`."""
    masks = list(masks)
    is_by_capacity = trial.node.preferred == "capacity"
    hints: dict[str, list[Hint]] = {}
    for resource in trial.request.amounts:
        width = zoned_width(trial, resource)
        if not width:
            continue
        lacking = mask_of(z for z in trial.free.zones if not trial.amounts[z].get(resource))
        fitting = [offer for offer in masks if not offer.mask & lacking]
        if not is_by_capacity:
            width = min((offer.mask.bit_count() for offer in fitting), default=0)
        is_any = policy == RESTRICTED and not is_by_capacity
        hints[resource] = [
            Hint(offer.mask, is_any or offer.mask.bit_count() == width, offer.score)
            for offer in fitting
        ]
    return hints


def zoned_width(trial: Trial, resource: str) -> int:
    """Return how many zones the pod may take for a resource: all of them, or as many as it needs
    if they are empty (preferred by capacity). 0 if no zone has the resource.
    """
    if resource not in trial.free.listed:
        return 0
    zones = trial.free.capacity.values()
    if trial.node.preferred == "free":
        return len(zones)
    missing, width = trial.request.amounts[resource], 0
    for size in sorted((size.get(resource, 0) for size in zones), reverse=True):
        missing, width = missing - size, width + 1
        if missing <= 0:
            break
    return width
