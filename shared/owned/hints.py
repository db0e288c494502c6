"""Hints: the masks of zones under which a pod can be allocated, each tried before it is offered.

1. A mask is offered for a resource if the whole pod can be allocated under it and none of its zones
   lacks the resource.

2. The narrowest masks are preferred. By what is free: as narrow as the narrowest mask that is
   offered now, and every mask under restricted, as in Koordinator. By capacity: as narrow as empty
   zones would allow, which is the kubelet's rule.

Source: Koordinator a7a1b76b, plugins/nodenumaresource (generateResourceHints).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.domain.policies import RESTRICTED, Policy
from shared.domain.refusal import Refusal
from shared.domain.resources import Amounts
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.allocate import Trial, allocate
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


class OfferedMask(msgspec.Struct, frozen=True, gc=False):
    """A mask under which the pod can be allocated."""

    mask: int
    score: int


def offered(trial: Trial, masks: Iterable[int]) -> list[OfferedMask]:
    """Return the masks under which the pod can be allocated, with their scores."""
    free, request = trial.free, trial.request
    strategy = trial.node.zone_strategy
    return [
        OfferedMask(
            mask,
            score_of_zones(
                trial.node, nodes_of(mask), free.capacity, trial.amounts, request, strategy
            ),
        )
        for mask in masks
        if not isinstance(allocate(trial, mask), Refusal)
    ]


def hints_of(trial: Trial, masks: Iterable[OfferedMask], policy: Policy) -> dict[str, list[Hint]]:
    """Return the hints of every requested resource that some zone has, in the order of `masks`."""
    masks = list(masks)
    hints: dict[str, list[Hint]] = {}
    for resource in trial.request.amounts:
        if not any(resource in size for size in trial.free.capacity.values()):
            continue
        lacking = mask_of(z for z in trial.free.zones if not trial.amounts[z].get(resource))
        fitting = [offer for offer in masks if not offer.mask & lacking]
        width = _preferred_width(trial, resource, fitting)
        is_any = policy == RESTRICTED and trial.node.preferred == "free"
        hints[resource] = [
            Hint(offer.mask, is_any or offer.mask.bit_count() == width, offer.score)
            for offer in fitting
        ]
    return hints


def _preferred_width(trial: Trial, resource: str, fitting: list[OfferedMask]) -> int:
    if trial.node.preferred == "capacity":
        return _width_by_capacity(
            trial.free.capacity, resource, trial.request.amounts.get(resource, 0)
        )
    return min((offer.mask.bit_count() for offer in fitting), default=0)


def _width_by_capacity(capacity: Mapping[int, Amounts], resource: str, asked: int) -> int:
    """Return how many zones the amount needs if they are empty."""
    sizes = sorted((size.get(resource, 0) for size in capacity.values()), reverse=True)
    width = 0
    for size in sizes:
        width += 1
        asked -= size
        if asked <= 0:
            break
    return width
