"""The GPUs that NVIDIA's device plugin prefers. The kubelet takes what a plugin prefers.

1. The plugin divides the free GPUs into sets of the requested size so that the scores of their
   pairs add up to most, and prefers the best of these sets. Of equal ones it takes the first, in
   an order that no report shows: `preferred` returns them all.

2. A pair scores 100 for each NVLink between its GPUs, and 50 on one PCIe switch, 20 in one zone, 10
   otherwise. The plugin does not see links through an NVSwitch.

3. The links are known for machines with an NVSwitch, for GPUs without NVLink, and for a DGX-1. GPUs
   that are shared or divided (MIG) are chosen by another rule, which is not known here.

Source: NVIDIA/go-gpuallocator 876e7b76 (gpuallocator/besteffort_policy.go, common_test.go) and
NVIDIA/k8s-device-plugin 1b826acc (internal/rm/nvml_manager.go). The labels are those of its GPU
feature discovery.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations

from shared.kubelet.masks import mask_of, nodes_of

PRODUCT = "nvidia.com/gpu.product"
MACHINE = "nvidia.com/gpu.machine"
REPLICAS = "nvidia.com/gpu.replicas"
# More free GPUs have too many divisions.
MOST_GPUS = 8
ON_SWITCH, IN_ZONE, ELSEWHERE, NVLINK = 50, 20, 10, 100
_NO_LINKS = re.compile(
    r"Tesla-(T4|P4|P40)|NVIDIA-(T4|L4|L40S?|A2|A10|A16|A[18]00-SXM4-.*|H[18]00-80GB-HBM3|H200"
    r"|H20|B200|B300)"
)
_DGX1 = re.compile(r"(NVIDIA )?DGX-1\b.*")

# The NVLinks of pairs of GPUs.
Links = Mapping[tuple[int, int], int]
_DGX1_LINKS: Links = {
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
}
# By GPU, in ascending order of number: its zone and its switch.
Places = tuple[tuple[int, int | None, str], ...]
Scores = tuple[tuple[int, ...], ...]


def scores_of(labels: Mapping[str, str], places: Places) -> Scores | None:
    """Return the scores of pairs of GPUs by number; None if the plugin's rule is not known."""
    product = labels.get(PRODUCT, "").replace(" ", "-")
    if labels.get(REPLICAS, "1") != "1" or len({number for number, _, _ in places}) < len(places):
        return None
    is_dgx1 = product.startswith("Tesla-V100-SXM2") and _DGX1.fullmatch(labels.get(MACHINE, ""))
    if not is_dgx1 and not _NO_LINKS.fullmatch(product):
        return None
    return _scores(places, bool(is_dgx1))


@lru_cache(maxsize=1024)
def _scores(places: Places, is_dgx1: bool) -> Scores:
    links, size = _DGX1_LINKS if is_dgx1 else {}, 1 + max((number for number, _, _ in places))
    scores = [[0] * size for _ in range(size)]
    for (first, zone, switch), (second, zone_of_second, switch_of_second) in combinations(
        places, 2
    ):
        near = ON_SWITCH if switch and switch == switch_of_second else IN_ZONE
        score = near if zone == zone_of_second and zone is not None else ELSEWHERE
        score += NVLINK * links.get((min(first, second), max(first, second)), 0)
        scores[first][second] = scores[second][first] = score
    return tuple(tuple(row) for row in scores)


@lru_cache(maxsize=1 << 14)
def preferred(free: int, count: int, scores: Scores) -> frozenset[int]:
    """Return each set of so many of the free GPUs that the plugin may prefer; empty if there are
    too few or too many.
    """
    if not count <= free.bit_count() <= MOST_GPUS or free.bit_length() > len(scores):
        return frozenset()
    division = _Division(count, scores)
    best = division.best(free, True)
    return frozenset(
        chosen
        for chosen in division.sets(free)
        if division.score(chosen) + division.best(free & ~chosen, True, division.score(chosen))
        == best
    )


class _Division:
    """Divisions of GPUs into sets of `count`, and one of the rest."""

    def __init__(self, count: int, scores: Scores) -> None:
        self._count, self._scores = count, scores
        self._best: dict[tuple[int, bool, int | None], int] = {}

    def sets(self, gpus: int, size: int | None = None) -> Iterator[int]:
        yield from map(mask_of, combinations(nodes_of(gpus), size or self._count))

    def score(self, chosen: int) -> int:
        return sum(self._scores[a][b] for a, b in combinations(nodes_of(chosen), 2))

    def best(self, gpus: int, may_rest: bool, limit: int | None = None) -> int:
        """Return the best score of a division whose sets score at most `limit`; a number below 0
        without one. One set may be the rest.
        """
        if not gpus:
            return 0
        key = gpus, may_rest, limit
        if key not in self._best:
            rest = gpus.bit_count() % self._count
            sizes = {self._count} if gpus.bit_count() >= self._count else set()
            sizes |= {rest} if rest and may_rest else set()
            first = gpus & -gpus
            most = -(1 << 30)
            for size in sizes:
                others = self.sets(gpus & ~first, size - 1) if size > 1 else iter((0,))
                for chosen in (first | more for more in others):
                    score = self.score(chosen)
                    if limit is None or score <= limit:
                        remainder = self.best(
                            gpus & ~chosen, may_rest and size == self._count, limit
                        )
                        most = max(most, score + remainder)
            self._best[key] = most
        return self._best[key]
