"""The merge of hints into one mask, by policy.

Koordinator walks through every combination of one hint a resource (topologymanager/policy.go, after
the kubelet). A combination is preferred only if all its hints are and name the same mask, so the
strict policies need no walk: they intersect the sets of preferred masks. Without a preferred mask
only best-effort goes on, with the narrowest mask that a combination has in common.

Among masks of one width the higher score wins, then the lower number. Koordinator compares the
numbers first, so that its choice depends on the order of the walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, Policy
from shared.kubelet.masks import nodes_of
from shared.owned.free import ZoneUse
from shared.owned.hints import Hint, Hints
from shared.owned.values import REQUIRED, ZoneExclusive

_NO_PREFERENCE = [Hint(None, True)]
_IMPOSSIBLE = [Hint(None, False, unsatisfied=True)]


class Merged(msgspec.Struct, frozen=True, gc=False):
    """The merged hint. `mask` is None if no zones are chosen. Only an admitted one counts."""

    mask: int | None
    preferred: bool = False
    unsatisfied: bool = False
    score: int = 0
    is_admitted: bool = False


class Zones(msgspec.Struct, frozen=True):
    """The zones of a node as a mask, and for singleNUMANodeExclusive how they are used.

    Under `Required`, a mask of several zones must not have a zone that some pod has as its only
    one, and a mask of one zone must not be a zone of a pod with several.
    """

    every: int
    use: Mapping[int, ZoneUse] = {}
    exclusive: ZoneExclusive = ""

    def keeps_apart(self, mask: int) -> bool:
        if self.exclusive != REQUIRED:
            return True
        avoided = "single" if mask.bit_count() > 1 else "shared"
        return all(self.use.get(zone) != avoided for zone in nodes_of(mask))


def aligned(policy: Policy, providers: Iterable[Hints | None], zones: Zones) -> Merged | None:
    """Return the preferred hint of all providers under a policy other than none, or None.

    A provider without hints has no preference.
    """
    lists = _for_policy(policy, _lists(providers))
    preferred = [[hint for hint in hints if hint.preferred] for hints in lists]
    if not all(preferred):
        return None
    common = [mask for mask in _common_masks(preferred, zones) if zones.keeps_apart(mask)]
    if not common and any(hints is not _NO_PREFERENCE for hints in lists):
        return None
    best = _best(common or [zones.every], preferred, is_aligned=True)
    if policy == SINGLE_NUMA_NODE and best.mask == zones.every:
        best = Merged(None, preferred=True)  # no resource prefers a zone
    return msgspec.structs.replace(best, is_admitted=True)


def merge(policy: Policy, providers: Iterable[Hints | None], zones: Zones) -> Merged:
    """Return the merged hint of all providers, admitted or not."""
    if policy == NONE:
        return Merged(None, is_admitted=True)
    providers = list(providers)
    best = aligned(policy, providers, zones)
    if best is None:
        best = _unaligned(policy, _lists(providers), zones)
    if policy != BEST_EFFORT:
        return best
    best = Merged(zones.every) if best.unsatisfied else best
    return msgspec.structs.replace(best, is_admitted=True)


def _unaligned(policy: Policy, lists: Sequence[list[Hint]], zones: Zones) -> Merged:
    """Return the best hint that is not preferred; all zones if no combination has a zone in
    common.
    """
    nothing = Merged(None if policy == SINGLE_NUMA_NODE else zones.every)
    if policy != BEST_EFFORT and any(hints is _IMPOSSIBLE for hints in lists):
        return nothing
    lists = _for_policy(policy, lists)
    reached = _reached(lists, zones.every)
    if not reached:
        return nothing
    width = min(mask.bit_count() for mask in reached)
    narrowest = [mask for mask in reached if mask.bit_count() == width]
    best = _best(narrowest, lists, is_aligned=False)
    if best.mask == zones.every and (policy == SINGLE_NUMA_NODE or not best.score):
        return nothing
    return best


def _lists(providers: Iterable[Hints | None]) -> list[list[Hint]]:
    lists = []
    for hints_by_resource in providers:
        for hints in hints_by_resource.values() if hints_by_resource else (None,):
            lists.append(_NO_PREFERENCE if hints is None else hints or _IMPOSSIBLE)
    return lists


def _for_policy(policy: Policy, lists: Sequence[list[Hint]]) -> Sequence[list[Hint]]:
    """Return the lists; under single-numa-node only their preferred hints of one zone."""
    if policy != SINGLE_NUMA_NODE:
        return lists
    return [
        hints
        if hints is _NO_PREFERENCE
        else [h for h in hints if h.preferred and (h.mask is None or h.mask.bit_count() == 1)]
        for hints in lists
    ]


def _common_masks(preferred: Sequence[list[Hint]], zones: Zones) -> set[int]:
    """Return the masks that are in every list, except lists without a preference."""
    by_list = [{hint.mask for hint in hints} for hints in preferred]
    caring = [masks for masks in by_list if None not in masks]
    everywhere: set[int | None] = {zones.every}
    common = caring[0].intersection(*caring[1:]) if caring else everywhere.union(*by_list)
    return {mask for mask in common if mask}


def _reached(lists: Sequence[list[Hint]], every: int) -> set[int]:
    """Return every mask that some combination has in common."""
    reached = {every}
    for hints in lists:
        masks = {every if hint.mask is None else hint.mask for hint in hints}
        reached = {common & mask for common in reached for mask in masks} - {0}
    return reached


def _best(masks: Iterable[int], lists: Sequence[list[Hint]], is_aligned: bool) -> Merged:
    """Return the best of the masks: the narrowest, then by score, then the lowest number."""
    hints = [_combined(mask, lists, is_aligned) for mask in sorted(masks)]
    return min(hints, key=lambda hint: ((hint.mask or 0).bit_count(), -hint.score))


def _combined(mask: int, lists: Sequence[list[Hint]], is_aligned: bool) -> Merged:
    """Return the combination with this mask in common that has the best score: the sum over the
    hints that name the mask itself. All have to name it, or none, if it is aligned.
    """
    score, is_satisfied = 0, True
    for hints in lists:
        chosen = max(
            (
                h
                for h in hints
                if h.mask in (mask, None) or (not is_aligned and h.mask & mask == mask)
            ),
            key=lambda hint: hint.score if hint.mask == mask else 0,
        )
        score += chosen.score if chosen.mask == mask else 0
        is_satisfied &= chosen.mask in (mask, None) and not chosen.unsatisfied
    return Merged(mask, is_aligned, not is_satisfied, score)
