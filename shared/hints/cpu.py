"""The CPU Manager, static policy, by counts: how many exclusive CPUs each zone has free (kubelet
1.36, cpumanager).

1. Counts are enough if the ids of the CPUs do not matter: what a container takes of one zone is
   then a number. If a container takes CPUs of several zones, or if its pod's init containers left
   CPUs to reuse, every split is a state of its own. `cpu_ids` is exact if the report has ids.

2. Under Topology Manager policy none zones do not matter: all CPUs are pooled in one zone.

3. The kubelet picks whole free cores in one order, then single CPUs. From the same CPUs of one
   zone, an even number is therefore part of any larger number, on machines with at most two threads
   per core: a container gets all the CPUs that such an init container left, and more. Options that
   pick in another order, and processors with more threads, are excluded.

4. Under align-by-socket a container's CPUs come from anywhere in the socket. Only a layout shows
   which zones share a socket, so the states after such an allocation are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple

from shared.domain.pod import ContainerKind
from shared.domain.policies import NONE
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU
from shared.hints.cpu_ids import MILLI, by_ids, cpus_requested
from shared.hints.provider import (
    NO_OPINION,
    AmountsByZone,
    HintProvider,
    Observed,
    PlainAmounts,
    RequestedAmounts,
    ResourceManager,
    Reusable,
)
from shared.hints.splits import TooManyWaysError, ways
from shared.kubelet.cpu_options import (
    ACROSS_CORES,
    ACROSS_NUMA,
    ALIGN_BY_SOCKET,
    ALIGN_UNCORE,
    FULL_PCPUS_ONLY,
)
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_sizes, mask_sums

# Why a state is open: what the kubelet takes depends on which CPUs are free, and the report does
# not say which.
WHOLE_CORES, SPREAD = "full cores or sockets", "CPUs spread over zones"

# Threads per core of x86-64 and Arm servers, at most.
MOST_THREADS = 2
# Options with which the kubelet picks CPUs in another order.
REORDERING = (ACROSS_CORES, ACROSS_NUMA, ALIGN_BY_SOCKET, ALIGN_UNCORE)

# CPUs by zone, in the manager's order of zones.
Counts = tuple[int, ...]


class ReusableCpus(NamedTuple):
    """What the pod's init containers left by zone.

    `again` is (count, mask) of an init container if the next container that asks for as many CPUs
    under that mask gets exactly its CPUs, because it picks from the same set, and all of them and
    more if it asks for more (`is_nested`)."""

    counts: Counts
    again: tuple[int, int] | None = None


class CpuCountManager(ResourceManager):
    """`zones` have CPUs and ascend. `capacity` counts all CPUs of a zone, `allocatable` its
    unreserved ones. `pooled`: zones do not matter. `by_socket`: see paragraph 4 above.
    `is_nested`: smaller picks are part of larger ones (paragraph 3)."""

    def __init__(
        self,
        zones: tuple[int, ...],
        capacity: Counts,
        allocatable: Counts,
        pooled: bool,
        by_socket: bool = False,
        is_nested: bool = False,
    ) -> None:
        self.zones, self.capacity, self.allocatable = zones, capacity, allocatable
        self.pooled, self.by_socket, self.is_nested = pooled, by_socket, is_nested
        self._index = {zone: position for position, zone in enumerate(zones)}
        self._positions_of = lru_cache(maxsize=256)(self._positions)
        self._largest_first = sorted(capacity, reverse=True)

    def single(self, state: Counts, reusable: Reusable, requested: RequestedAmounts) -> int:
        """0 if no zone could ever hold the request alone: wider masks are then preferred."""
        count = cpus_requested(requested)
        if not count or self.pooled:
            return NO_OPINION
        if not self._largest_first or self._largest_first[0] < count:
            return 0
        short, must = self._still_needed(reusable, count)
        preferred = 0
        for zone, free in zip(self.zones, state, strict=True):
            if free >= short and not must & ~(1 << zone):
                preferred |= 1 << zone
        return preferred

    def shows(self, state: Counts, observed: Counts) -> bool:
        return all(free <= shown for free, shown in zip(state, observed, strict=True))

    def exceeds(self, state: Counts, observed: Counts, unlisted: Mapping[str, int]) -> bool:
        more = unlisted.get(CPU, 0) // MILLI
        return any(free + more < shown for free, shown in zip(state, observed, strict=True))

    def plain_amounts(self, state: Counts) -> PlainAmounts | None:
        """None if CPUs of a socket or of the whole machine are taken."""
        if self.pooled or self.by_socket:
            return None
        rows = zip(self.zones, state, self.allocatable, strict=True)
        free: AmountsByZone = {}
        sizes: AmountsByZone = {}
        for zone, count, size in rows:
            free[zone], sizes[zone] = {CPU: count * MILLI}, {CPU: size * MILLI}
        return PlainAmounts(free, sizes)

    def hints(self, state: Counts, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        """Every mask with enough free CPUs that holds all reusable ones; preferred are masks of as
        few zones as could ever do."""
        count = cpus_requested(requested)
        if not count:
            return None
        short, must = self._still_needed(reusable, count)
        least = self._fewest_zones(count)
        hints = []
        masks, sizes = enumerate_masks(self.zones), mask_sizes(self.zones)
        for mask, free, size in zip(masks, mask_sums(self.zones, state), sizes, strict=True):
            if free >= short and not must & ~mask:
                hints.append(Hint(mask, size == least))
        return {CPU: hints}

    def _still_needed(self, reusable: Reusable, count: int) -> tuple[int, int]:
        """Return how many free CPUs a mask needs, and the zones of the reusable ones, which it must
        contain."""
        counts = reusable.counts if isinstance(reusable, ReusableCpus) else ()
        must = sum(1 << zone for zone, kept in zip(self.zones, counts, strict=False) if kept)
        return count - sum(counts), must

    def _fewest_zones(self, count: int) -> int:
        total = 0
        for zones, capacity in enumerate(self._largest_first, 1):
            total += capacity
            if total >= count:
                return zones
        return len(self.zones)

    def allocate(
        self,
        state: Counts,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[Counts, Reusable]]:
        """CPUs under the hint first, then any others. Raises TooManyWaysError."""
        count = cpus_requested(requested)
        if not count:
            return ((state, reusable),)
        if self.by_socket and sum(state) >= count:
            raise TooManyWaysError
        if hint.mask is None or self.pooled:
            mask = (1 << len(self.zones)) - 1
        else:
            mask = self._positions_of(hint.mask)
        nothing = ReusableCpus((0,) * len(state))
        kept = reusable if isinstance(reusable, ReusableCpus) else nothing
        if kind != "init" and not mask & (mask - 1) and not any(kept.counts):
            position = mask.bit_length() - 1  # nothing to reuse, one zone: nearly always
            if position >= 0 and state[position] >= count:
                free = (*state[:position], state[position] - count, *state[position + 1 :])
                return ((free, reusable),)
            picks = self._picks(state, nothing, count, mask)
            return [(_minus(state, taken), reusable) for taken, _ in picks]
        return [
            self._after(state, kept, taken, reused, kind, (count, mask))
            for taken, reused in self._picks(state, kept, count, mask)
        ]

    def _picks(
        self, state: Counts, kept: ReusableCpus, count: int, mask: int
    ) -> list[tuple[Counts, Counts]]:
        """Return (free CPUs taken, reusable CPUs taken) by zone in every way."""
        first, same_mask = kept.again or (0, 0)
        position = mask.bit_length() - 1
        one_zone = same_mask == mask and not mask & (mask - 1)
        if self.is_nested and one_zone and first < count and not first % MOST_THREADS:
            more = count - sum(kept.counts)
            if sum(kept.counts) == kept.counts[position] and state[position] >= more:
                taken = tuple([more if zone == position else 0 for zone in range(len(state))])
                return [(taken, kept.counts)]
        return _picks(state, kept, count, mask)

    def _positions(self, mask: int) -> int:
        """Convert a mask over zone ids into one over positions."""
        return sum(1 << position for zone, position in self._index.items() if mask >> zone & 1)

    def _after(
        self,
        state: Counts,
        kept: ReusableCpus,
        taken: Counts,
        reused: Counts,
        kind: ContainerKind,
        request: tuple[int, int],
    ) -> tuple[Counts, Reusable]:
        free = _minus(state, taken)
        if kind == "init":
            counts = _plus(kept.counts, taken)
            is_first = not any(kept.counts)
            return free, ReusableCpus(
                counts, request if is_first or kept.again == request else None
            )
        counts = _minus(kept.counts, reused)
        return free, ReusableCpus(counts) if any(counts) else None

    def release(self, state: Counts, held: Sequence[ZonedAmount]) -> Counts:
        """Never more than the zone's allocatable CPUs become free."""
        free = list(state)
        for position, count in self._counts_of(held):
            limited = min(free[position] + count, self.allocatable[position])
            free[position] = max(free[position], limited)
        return tuple(free)

    def hold(self, state: Counts, held: Sequence[ZonedAmount]) -> Counts:
        free = list(state)
        for position, count in self._counts_of(held):
            free[position] = max(0, free[position] - count)
        return tuple(free)

    def _counts_of(self, held: Sequence[ZonedAmount]) -> list[tuple[int, int]]:
        """Return (position, CPUs) of the CPUs among `held`, as far as their zone is known."""
        counts = []
        for item in held:
            if item.resource == CPU and item.zones:
                position = 0 if self.pooled else self._index.get(item.zones[0])
                if position is not None:
                    counts.append((position, item.amount // MILLI))
        return counts

    def taken(self, before: Counts, after: Counts) -> Counts:
        """By zone, including what init containers keep for the pod's life."""
        return _minus(before, after)

    def zones_taken(
        self, before: Counts, after: Counts, left: Reusable, left_after: Reusable
    ) -> int | None:
        """None under policy none, because pooled counts have no zones."""
        if self.pooled:
            return None
        nothing = (0,) * len(self.zones)
        kept = left.counts if isinstance(left, ReusableCpus) else nothing
        kept_after = left_after.counts if isinstance(left_after, ReusableCpus) else nothing
        rows = zip(self.zones, before, after, kept, kept_after, strict=True)
        return sum(
            [
                1 << zone
                for zone, free, free_after, reusable, reusable_after in rows
                if free_after < free or reusable_after < reusable
            ]
        )

    def given_back(self, state: Counts, taken: Counts) -> Counts:
        return _plus(state, taken)


def _minus(counts: Sequence[int], others: Sequence[int]) -> Counts:
    return tuple([count - subtrahend for count, subtrahend in zip(counts, others, strict=True)])


def _plus(counts: Sequence[int], others: Sequence[int]) -> Counts:
    return tuple([count + addend for count, addend in zip(counts, others, strict=True)])


def _picks(state: Counts, kept: ReusableCpus, count: int, mask: int) -> list[tuple[Counts, Counts]]:
    """Return (free CPUs taken, reusable CPUs taken) by zone in every way, under the mask first.
    Empty if there are too few."""
    zones = len(state)
    if kept.again == (count, mask):
        return [((0,) * zones, kept.counts)]
    rooms = [*state, *kept.counts]
    if sum(rooms) < count:
        return []
    aligned = [room if mask >> index % zones & 1 else 0 for index, room in enumerate(rooms)]
    if sum(aligned) >= count:
        picks = ways(count, aligned)
    else:
        rest = ways(count - sum(aligned), _minus(rooms, aligned))
        picks = [_plus(aligned, unaligned) for unaligned in rest]
    return [(pick[:zones], pick[zones:]) for pick in picks]


@lru_cache(maxsize=1024)
def _manager(
    zones: tuple[int, ...],
    capacity: Counts,
    allocatable: Counts,
    pooled: bool,
    by_socket: bool = False,
    is_nested: bool = False,
) -> CpuCountManager:
    """Nodes of one kind share their manager."""
    return CpuCountManager(zones, capacity, allocatable, pooled, by_socket, is_nested)


def by_counts(report: Report, pooled: bool) -> tuple[CpuCountManager, Counts]:
    """Return the manager, and the free CPUs as the report counts them."""
    zones = sorted(
        [zone for zone in report.zones if CPU in zone.resources], key=lambda zone: zone.id
    )
    amounts = [zone.resources[CPU] for zone in zones]
    capacity = tuple([amount.capacity // MILLI for amount in amounts])
    allocatable = tuple([amount.allocatable // MILLI for amount in amounts])
    free = tuple([amount.available // MILLI for amount in amounts])
    if pooled and zones:
        return _manager((zones[0].id,), (sum(capacity),), (sum(allocatable),), True), (sum(free),)
    ids = tuple([zone.id for zone in zones])
    is_nested = not any(report.options.get(option) == "true" for option in REORDERING)
    return _manager(ids, capacity, allocatable, False, by_socket(report), is_nested), free


class CpuHints(HintProvider, frozen=True):
    """Exclusive CPUs."""

    name: ClassVar[str] = "cpu"
    by_amounts: ClassVar[bool] = True

    def owns(self, resource: str) -> bool:
        return resource == CPU

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """By ids if they matter (`fine`) and the report has them, else by counts."""
        pooled = policy == NONE
        by_id = by_ids(report, placements, pooled) if fine else None
        if by_id is not None:
            return Observed(by_id[0], (by_id[1],))
        manager, free = by_counts(report, pooled)
        return Observed(manager, (free,), _open(report, pooled) if fine else frozenset())


def by_socket(report: Report) -> bool:
    """Return True if the CPU Manager treats the zones of a socket as one (align-by-socket)."""
    return report.options.get(ALIGN_BY_SOCKET) == "true"


def _open(report: Report, pooled: bool) -> frozenset[str]:
    if report.options.get(FULL_PCPUS_ONLY) == "true" or (by_socket(report) and not pooled):
        return frozenset({WHOLE_CORES})
    return frozenset() if pooled else frozenset({SPREAD})
