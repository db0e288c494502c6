"""Masks with their sums: what the providers share. Must not know resources."""

from __future__ import annotations

from collections.abc import Mapping

from shared.domain.resources import Amounts
from shared.kubelet.hint import Hint
from shared.kubelet.masks import enumerate_masks, mask_sums


def sums(zones: tuple[int, ...], name: str, amounts: Mapping[int, Amounts]) -> list[int]:
    """The sum of a resource over every mask, in the kubelet's order."""
    return mask_sums(zones, [max(0, amounts.get(zone, {}).get(name, 0)) for zone in zones])


def hints_for(zones: tuple[int, ...], size: list[int], free: list[int], asked: int, must: int) -> list[Hint]:
    """Every mask with enough free that contains `must`; preferred where it is as small as one that could ever hold it."""
    masks = enumerate_masks(zones)
    least = min((mask.bit_count() for mask, held in zip(masks, size, strict=True) if held >= asked), default=len(zones))
    return [
        Hint(mask, mask.bit_count() == least)
        for mask, held in zip(masks, free, strict=True)
        if held >= asked and mask & must == must
    ]
