"""Plain reference of the choice of zones: it tries every combination of hints and every mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE, Policy
from shared.domain.refusal import Refusal
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.admit import exclusive_of
from shared.owned.allocate import allocate, trial_of
from shared.owned.free import Free
from shared.owned.hints import Hint, Hints, OfferedMask, hints_of, offered
from shared.owned.merge import Merged, Zones
from shared.owned.policy import combined_policy
from shared.owned.values import REQUIRED, Holding, OwnedNode, OwnedRequest


def merged_by_product(policy: Policy, providers: Sequence[Hints | None], zones: Zones) -> Merged:
    """Return the merged hint by trying every combination of one hint for each resource."""
    lists = list(_lists(providers))
    if policy == SINGLE_NUMA_NODE:
        lists = [
            [h for h in hints if h.preferred and (h.mask is None or h.mask.bit_count() == 1)]
            for hints in lists
        ]
    best = Merged(zones.every)
    for combination in product(*lists):
        candidate = _combined(combination, zones)
        if candidate.mask and _order(candidate) < _order(best):
            best = candidate
    if policy == BEST_EFFORT:
        return Merged(zones.every) if best.unsatisfied else best
    return best


def _lists(providers: Sequence[Hints | None]) -> Iterator[list[Hint]]:
    for provider in providers:
        for hints in provider.values() if provider else (None,):
            if hints is None:
                yield [Hint(None, True)]
            else:
                yield hints or [Hint(None, False, unsatisfied=True)]


def _combined(hints: Sequence[Hint], zones: Zones) -> Merged:
    masks = [hint.mask for hint in hints if hint.mask is not None]
    mask = zones.every
    for hint_mask in masks:
        mask &= hint_mask
    preferred = all(hint.preferred for hint in hints) and len(set(masks)) <= 1
    widest = max((hint_mask.bit_count() for hint_mask in masks), default=mask.bit_count())
    unsatisfied = widest != mask.bit_count() or any(hint.unsatisfied for hint in hints)
    score = sum(hint.score for hint in hints if hint.mask == mask)
    is_kept = not masks or not mask or _keeps_apart(mask, zones)
    return Merged(mask, preferred and is_kept, unsatisfied, score)


def _keeps_apart(mask: int, zones: Zones) -> bool:
    if zones.exclusive != REQUIRED:
        return True
    uses = [zones.use[zone] for zone in nodes_of(mask)]
    return "single" not in uses if len(uses) > 1 else uses != ["shared"]


def _order(merged: Merged) -> tuple[bool, int, int]:
    """Return the sort key of a combination; of equal ones the first wins."""
    return not merged.preferred, (merged.mask or 0).bit_count(), -merged.score


def masks_that_fit(node: OwnedNode, free: Free, request: OwnedRequest) -> dict[int, Holding]:
    """Return every mask of the node under which the pod can be allocated."""
    trial = trial_of(node, free, request)
    if isinstance(trial, Refusal):
        return {}
    fitting = {}
    for width in range(1, len(free.zones) + 1):
        for chosen in combinations(free.zones, width):
            holding = allocate(trial, mask_of(chosen))
            if isinstance(holding, Holding):
                fitting[mask_of(chosen)] = holding
    return fitting


def chosen_mask(node: OwnedNode, free: Free, request: OwnedRequest) -> int | None:
    """Return the mask of the pod under the node's policy by the plain merge, None if a strict
    policy refuses it.
    """
    policy = combined_policy(node.policy, request.policy)
    trial = trial_of(node, free, request)
    assert policy not in (None, NONE)
    assert not isinstance(trial, Refusal)
    masks: list[OfferedMask] = offered(trial, masks_that_fit(node, free, request))
    zones = Zones(mask_of(free.zones), free.use, exclusive_of(request))
    best = merged_by_product(policy, [hints_of(trial, masks, policy)], zones)
    return None if policy in (RESTRICTED, SINGLE_NUMA_NODE) and not best.preferred else best.mask
