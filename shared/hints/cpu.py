"""The CPU Manager, static policy, by counts: how many exclusive CPUs each zone has left (kubelet
1.36, cpumanager).

Enough where no allocation's CPU ids matter: what is taken of one zone is a number. Where a
container takes of several zones at once, or its pod's init containers left CPUs to reuse, every
split is a successor. `cpu_ids` knows better where the report tells ids. Under Topology Manager
policy none zones do not matter: all CPUs are one zone. Under align-by-socket a zone's CPUs come
from anywhere in its socket, and which zones make one only a layout would tell: whatever comes after
such a pick is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from shared.domain.pod import ContainerKind
from shared.domain.policies import NONE
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU
from shared.hints.cpu_ids import MILLI, by_ids
from shared.hints.provider import NO_OPINION, Observed, RequestedAmounts, Reusable
from shared.hints.splits import TooManyWaysError, ways
from shared.kubelet.cpu_options import ALIGN_BY_SOCKET, FULL_PCPUS_ONLY
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_sizes, mask_sums

WHOLE_CORES, SPREAD = "full cores or sockets", "CPUs spread over zones"
"""What the kubelet takes depends on which CPUs are free, and the report does not tell them."""
Counts = tuple[int, ...]
"""Free CPUs by zone, in the book's order."""


class ReusableCpus(NamedTuple):
    """What this pod's init containers left by zone. `again` is (count, mask) of an init container
    whose very CPUs the next one that asks for as many under that mask gets: it picks from the same
    set."""

    counts: Counts
    again: tuple[int, int] | None = None


class CpuCountManager:
    """`zones` bear CPUs, ascending; `capacity` counts all of a zone's CPUs, `allocatable` those
    that are not reserved. `pooled`: zones do not matter. `by_socket`: CPUs are picked from all
    zones of a socket."""

    def __init__(
        self,
        zones: tuple[int, ...],
        capacity: Counts,
        allocatable: Counts,
        pooled: bool,
        by_socket: bool = False,
    ) -> None:
        self.zones, self.capacity, self.allocatable, self.pooled, self.by_socket = (
            zones,
            capacity,
            allocatable,
            pooled,
            by_socket,
        )
        self._index = {zone: at for at, zone in enumerate(zones)}
        self._places = lru_cache(maxsize=256)(self._positions)
        self._ascending = sorted(capacity, reverse=True)

    def single(self, state: Counts, own: Reusable, asked: RequestedAmounts) -> int:
        """Zones with enough free beside what must be reused; none when no zone could ever hold it
        alone.
        """
        count = _count(asked)
        if not count or self.pooled:
            return NO_OPINION
        if not self._ascending or self._ascending[0] < count:
            return 0
        left = own.counts if isinstance(own, ReusableCpus) else ()
        short, must = (
            count - sum(left),
            sum(1 << zone for zone, kept in zip(self.zones, left, strict=False) if kept),
        )
        found = 0
        for zone, free in zip(self.zones, state, strict=True):
            if free >= short and not must & ~(1 << zone):
                found |= 1 << zone
        return found

    def hints(self, state: Counts, own: Reusable, asked: RequestedAmounts) -> Hints:
        """Every mask with enough free CPUs that holds all reusable ones; preferred with as few
        zones as could ever do.
        """
        count = _count(asked)
        if not count:
            return None
        left = own.counts if isinstance(own, ReusableCpus) else ()
        short, must = (
            count - sum(left),
            sum(1 << zone for zone, kept in zip(self.zones, left, strict=False) if kept),
        )
        least = self._least(count)
        sized = zip(
            enumerate_masks(self.zones),
            mask_sums(self.zones, state),
            mask_sizes(self.zones),
            strict=True,
        )
        return {
            CPU: [
                Hint(mask, size == least)
                for mask, free, size in sized
                if free >= short and not must & ~mask
            ]
        }

    def _least(self, count: int) -> int:
        held = 0
        for zones, capacity in enumerate(self._ascending, 1):
            held += capacity
            if held >= count:
                return zones
        return len(self.zones)

    def allocate(
        self, state: Counts, own: Reusable, asked: RequestedAmounts, kind: ContainerKind, hint: Hint
    ) -> Sequence[tuple[Counts, Reusable]]:
        """CPUs under the hint first, then any. Raises TooManyWaysError."""
        count = _count(asked)
        if not count:
            return ((state, own),)
        if self.by_socket and sum(state) >= count:
            raise TooManyWaysError
        mask = (
            (1 << len(self.zones)) - 1
            if hint.mask is None or self.pooled
            else self._places(hint.mask)
        )
        left = own if isinstance(own, ReusableCpus) else ReusableCpus((0,) * len(state))
        if kind != "init" and not mask & (mask - 1) and not any(left.counts):
            return self._plain(state, own, count, mask)
        return [
            self._booked(state, left, taken, reused, kind, (count, mask))
            for taken, reused in _picks(state, left, count, mask)
        ]

    def _plain(
        self, state: Counts, own: Reusable, count: int, mask: int
    ) -> Sequence[tuple[Counts, Reusable]]:
        """Nothing to reuse, one zone: the usual case."""
        at = mask.bit_length() - 1
        if at < 0 or state[at] < count:
            return [
                (_minus(state, taken), own)
                for taken, _ in _picks(state, ReusableCpus((0,) * len(state)), count, mask)
            ]
        return (((*state[:at], state[at] - count, *state[at + 1 :]), own),)

    def _positions(self, mask: int) -> int:
        """The mask over zones as a mask over the book's order."""
        return sum(1 << at for zone, at in self._index.items() if mask >> zone & 1)

    def _booked(
        self,
        state: Counts,
        left: ReusableCpus,
        taken: Counts,
        reused: Counts,
        kind: ContainerKind,
        asked: tuple[int, int],
    ) -> tuple[Counts, Reusable]:
        after = _minus(state, taken)
        if kind == "init":
            fresh = not any(left.counts)
            kept = tuple(kept + new for kept, new in zip(left.counts, taken, strict=True))
            return after, ReusableCpus(kept, asked if fresh or left.again == asked else None)
        kept = _minus(left.counts, reused)
        return after, ReusableCpus(kept) if any(kept) else None

    def release(self, state: Counts, held: Sequence[ZonedAmount]) -> Counts:
        """The CPUs of an ended pod are free, as far as they were ever to be given."""
        back = list(state)
        for item in held:
            if item.resource == CPU and item.zones:
                at = 0 if self.pooled else self._index.get(item.zones[0])
                if at is not None:
                    back[at] = max(
                        back[at], min(back[at] + item.amount // MILLI, self.allocatable[at])
                    )
        return tuple(back)

    def hold(self, state: Counts, held: Sequence[ZonedAmount]) -> Counts:
        """Fewer free, none less than none."""
        left = list(state)
        for item in held:
            if item.resource == CPU and item.zones:
                at = 0 if self.pooled else self._index.get(item.zones[0])
                if at is not None:
                    left[at] = max(0, left[at] - item.amount // MILLI)
        return tuple(left)

    def after_admission(self, state: Counts, own: Reusable) -> Counts:
        """What init containers keep stays with the pod."""
        return state

    def taken(self, before: Counts, after: Counts) -> Counts:
        """By zone, what init containers keep included."""
        return _minus(before, after)

    def given_back(self, state: Counts, taken: Counts) -> Counts:
        """As many more are free."""
        return _plus(state, taken)

    def later(self, state: Counts) -> Sequence[Counts]:
        """Nothing happens by itself."""
        return ()


def _count(asked: RequestedAmounts) -> int:
    return asked[0][1] // MILLI if asked else 0


def _minus(counts: Counts, taken: Counts) -> Counts:
    return tuple([held - less for held, less in zip(counts, taken, strict=True)])


def _picks(state: Counts, left: ReusableCpus, count: int, mask: int) -> list[tuple[Counts, Counts]]:
    """(free CPUs taken, reusable CPUs taken) by zone, in every way; under the mask first. Empty
    where too few are there.
    """
    if left.again == (count, mask):
        return [((0,) * len(state), left.counts)]
    rooms = [*state, *left.counts]
    inside = [at % len(state) for at in range(len(rooms))]
    aligned = [room if mask >> at & 1 else 0 for room, at in zip(rooms, inside, strict=True)]
    if sum(rooms) < count:
        return []
    if sum(aligned) >= count:
        found = ways(count, aligned)
    else:
        others = [room - own for room, own in zip(rooms, aligned, strict=True)]
        found = [_plus(aligned, rest) for rest in ways(count - sum(aligned), others)]
    return [(each[: len(state)], each[len(state) :]) for each in found]


def _plus(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(left + right for left, right in zip(one, other, strict=True))


@lru_cache(maxsize=1024)
def _book(
    zones: tuple[int, ...],
    capacity: Counts,
    allocatable: Counts,
    pooled: bool,
    by_socket: bool = False,
) -> CpuCountManager:
    """Nodes of one kind share their book."""
    return CpuCountManager(zones, capacity, allocatable, pooled, by_socket)


def by_counts(report: Report, pooled: bool) -> tuple[CpuCountManager, Counts]:
    """The book and what is free as the report counts it."""
    bearing = [
        zone for zone in sorted(report.zones, key=lambda zone: zone.id) if CPU in zone.resources
    ]
    capacity = tuple([zone.resources[CPU].capacity // MILLI for zone in bearing])
    allocatable = tuple([zone.resources[CPU].allocatable // MILLI for zone in bearing])
    free = tuple([zone.resources[CPU].available // MILLI for zone in bearing])
    if pooled and bearing:
        return _book((bearing[0].id,), (sum(capacity),), (sum(allocatable),), True), (sum(free),)
    return _book(
        tuple([zone.id for zone in bearing]), capacity, allocatable, False, by_socket(report)
    ), free


class CpuHints:
    """Exclusive CPUs."""

    name = "cpu"
    by_amounts = True

    def owns(self, resource: str) -> bool:
        """cpu."""
        return resource == CPU

    def zones(self, report: Report, resource: str) -> None:
        """The report's amounts say it."""

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """By ids where they matter (`fine`) and the report tells them, else by what it counts as
        free.
        """
        pooled = policy == NONE
        known = by_ids(report, placements, pooled) if fine else None
        if known is not None:
            return Observed(known[0], (known[1],))
        manager, free = by_counts(report, pooled)
        return Observed(manager, (free,), _unknown(report, pooled) if fine else frozenset())


def by_socket(report: Report) -> bool:
    """The CPU Manager takes the zones of a socket for one."""
    return report.options.get(ALIGN_BY_SOCKET) == "true"


def _unknown(report: Report, pooled: bool) -> frozenset[str]:
    if report.options.get(FULL_PCPUS_ONLY) == "true" or (by_socket(report) and not pooled):
        return frozenset({WHOLE_CORES})
    return frozenset() if pooled else frozenset({SPREAD})
