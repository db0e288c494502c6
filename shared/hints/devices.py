"""The Device Manager: extended resources of device plugins (kubelet 1.36, devicemanager).

1. Devices of one resource that lie in the same zones are a group, and only the number of free
   devices of each group counts: which of them a container gets does not matter.

2. Between zones, the kubelet's random order or the plugin's GetPreferredAllocation decides, so
   every split over groups is a state of its own.

3. Under Topology Manager policy none zones do not matter: a resource is one group.

4. Unhealthy devices that no report lists may lie in any zone. The kubelet gives none of them
   away, but counts them when it decides how few zones are enough, and so which zones it prefers.
   A `View` is one way to see them (`shared.hints.hidden_devices`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import ClassVar, NamedTuple

from shared.domain.idlist import parse_ids
from shared.domain.pod import ContainerKind
from shared.domain.policies import NONE
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import is_device
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
from shared.hints.splits import MOST, TooManyWaysError, ways
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_of, mask_sizes, nodes_of

# Why a state is open: see paragraph 4 above.
UNHEALTHY = "unhealthy devices"

# Devices by group, in the order of `Pool.masks`.
Counts = tuple[int, ...]


class View(NamedTuple):
    """A resource as the kubelet may see it, because it knows more devices than the report lists, or
    is of another version: the zones that its hints run over, and `least`, the fewest zones that
    this many devices touch, as (amount, zones). An empty `least` is computed from the listed
    devices."""

    zones: tuple[int, ...]
    least: tuple[tuple[int, int], ...]


class Devices(NamedTuple):
    """The state: free devices by resource and group. `views` has one entry by resource, and is
    empty if every device is listed."""

    free: tuple[Counts, ...]
    views: tuple[View | None, ...] = ()

    def with_free(self, row: int, free: Counts) -> Devices:
        return Devices((*self.free[:row], free, *self.free[row + 1 :]), self.views)

    def view(self, row: int) -> View | None:
        return self.views[row] if self.views else None


class Pool(NamedTuple):
    """One resource: the zone mask of each group, and its number of healthy devices, free or not."""

    masks: tuple[int, ...]
    sizes: Counts

    def touching(self, counts: Counts, mask: int) -> int:
        """Return how many of the counted devices touch a zone of the mask."""
        pairs = zip(self.masks, counts, strict=True)
        return sum([count for group, count in pairs if group & mask])


class DeviceCountManager(ResourceManager):
    """`pools` are by resource, in order of name; a row is a resource's position there."""

    def __init__(self, pools: tuple[tuple[str, Pool], ...], pooled: bool) -> None:
        self.pools, self.pooled = pools, pooled
        self._rows = {name: row for row, (name, _) in enumerate(pools)}
        self._least = lru_cache(maxsize=1024)(self._fewest_zones)
        self._single = lru_cache(maxsize=1 << 13)(self._zones_alone)
        # By row: mask of a zone -> its group, if no other group touches the zone.
        self._alone = [
            {mask: group for group, mask in enumerate(pool.masks) if _is_alone(pool.masks, mask)}
            for _, pool in pools
        ]
        # By row: (bit of a zone, devices that touch it).
        self._sizes: list[list[tuple[int, int]]] = []
        for row, (_, pool) in enumerate(pools):
            bits = [1 << zone for zone in self._zones_with_devices(row)]
            self._sizes.append([(bit, pool.touching(pool.sizes, bit)) for bit in bits])

    def single(self, state: Devices, reusable: Reusable, requested: RequestedAmounts) -> int:
        if self.pooled:
            return NO_OPINION
        preferred = NO_OPINION
        for name, amount in requested:
            row = self._rows.get(name, -1)
            if row < 0 or not any(self.pools[row][1].masks):
                continue
            free, view = state.free[row], state.view(row)
            kept, strict = _kept(reusable, row, len(free)), _is_strict(reusable, row)
            if amount or view is None:
                preferred &= self._single(row, free, kept, amount, strict)
            else:  # a request of 0: zones without devices are equally good
                hints = self._hints(row, free, kept, amount, view, strict)
                masks = [hint.mask or 0 for hint in hints]
                preferred &= sum([mask for mask in masks if not mask & (mask - 1)])
        return preferred

    def shows(self, state: Devices, observed: Devices) -> bool:
        return all(
            free <= shown
            for counts, others in zip(state.free, observed.free, strict=True)
            for free, shown in zip(counts, others, strict=True)
        )

    def exceeds(self, state: Devices, observed: Devices, unlisted: Mapping[str, int]) -> bool:
        return any(
            free + unlisted.get(name, 0) < shown
            for (name, _), counts, others in zip(self.pools, state.free, observed.free, strict=True)
            for free, shown in zip(counts, others, strict=True)
        )

    def plain_amounts(self, state: Devices) -> PlainAmounts | None:
        """Without resources of which a device lies in several zones or in none; None if a kubelet
        may know devices that are not listed."""
        if self.pooled or state.views:
            return None
        free: AmountsByZone = {}
        sizes: AmountsByZone = {}
        for row, (name, pool) in enumerate(self.pools):
            if len(self._alone[row]) < len(pool.masks):
                continue
            for mask, count, size in zip(pool.masks, state.free[row], pool.sizes, strict=True):
                zone = mask.bit_length() - 1
                free.setdefault(zone, {})[name] = count
                sizes.setdefault(zone, {})[name] = size
        return PlainAmounts(free, sizes)

    def _zones_alone(self, row: int, free: Counts, kept: Counts, amount: int, strict: bool) -> int:
        pool, zones = self.pools[row][1], 0
        if sum(free) + sum(kept) < amount:
            return 0
        short, must = _still_to_touch(pool.masks, kept, amount, strict)
        for bit, size in self._sizes[row]:
            if size < amount or pool.touching(free, bit) < short:
                continue
            if all(mask & bit for mask in must):
                zones |= bit
        return zones

    def hints(self, state: Devices, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        """A resource without a zone has no preference."""
        by_resource: dict[str, list[Hint] | None] = {}
        for name, amount in requested:
            row = self._rows.get(name, -1)
            if row < 0 or self.pooled or not any(self.pools[row][1].masks):
                by_resource[name] = None
                continue
            free = state.free[row]
            kept, strict = _kept(reusable, row, len(free)), _is_strict(reusable, row)
            by_resource[name] = self._hints(row, free, kept, amount, state.view(row), strict)
        return by_resource or None

    def _hints(
        self, row: int, free: Counts, kept: Counts, amount: int, view: View | None, strict: bool
    ) -> list[Hint]:
        if sum(free) + sum(kept) < amount:
            return []
        pool, zones = self.pools[row][1], self._zones_with_devices(row)
        least = self._least(row, amount)
        if view is not None:
            zones, least = view.zones, dict(view.least).get(amount, least)
        short, must = _still_to_touch(pool.masks, kept, amount, strict)
        hints = []
        for mask, size in zip(enumerate_masks(zones), mask_sizes(zones), strict=True):
            if pool.touching(free, mask) >= short and all(group & mask for group in must):
                hints.append(Hint(mask, size == least))
        return hints

    def _zones_with_devices(self, row: int) -> tuple[int, ...]:
        """Only these take part in hints (kubernetes PR 138244)."""
        mask, pool = 0, self.pools[row][1]
        for group, size in zip(pool.masks, pool.sizes, strict=True):
            mask |= group if size else 0
        return nodes_of(mask)

    def _fewest_zones(self, row: int, amount: int) -> int:
        """Return the fewest zones that this many devices touch, free or not; all zones if there are
        too few devices."""
        pool, zones = self.pools[row][1], self._zones_with_devices(row)
        for mask, size in zip(enumerate_masks(zones), mask_sizes(zones), strict=True):
            if pool.touching(pool.sizes, mask) >= amount:
                return size
        return len(zones)

    def views(
        self, resource: str, amounts: Collection[int], zones: Collection[int]
    ) -> list[View | None]:
        """Return the views of the resource that differ for pods that request these amounts, if
        these zones may have unhealthy devices in addition to the listed ones.

        More devices touch no more zones, and each further zone has some or none. Raises
        TooManyWaysError."""
        row = self._rows.get(resource, -1)
        if row < 0 or self.pooled:
            return [None]
        listed, asked = self._zones_with_devices(row), sorted(amounts)
        highest = [self._least(row, amount) for amount in asked]
        least = [
            fewest
            for fewest in product(*[range(1, most + 1) for most in highest])
            if list(fewest) == sorted(fewest)
        ]
        others = [zone for zone in zones if zone not in listed]
        if len(least) << len(others) > MOST:
            raise TooManyWaysError
        views: list[View | None] = []
        for fewest in least:
            by_amount = tuple(zip(asked, fewest, strict=True))
            for size in range(len(others) + 1):
                for chosen in combinations(others, size):
                    views.append(View(tuple(sorted((*listed, *chosen))), by_amount))
        return views

    def over(self, state: Devices, zones: Collection[int]) -> Devices:
        """Return the state for a kubelet with hints over all these zones."""
        views, all_zones = state.views or (None,) * len(self.pools), tuple(sorted(zones))
        seen = [view or self._view_over(row, all_zones) for row, view in enumerate(views)]
        return Devices(state.free, tuple(seen)) if any(seen) else state

    def _view_over(self, row: int, zones: tuple[int, ...]) -> View | None:
        is_same = self.pooled or self._zones_with_devices(row) in ((), zones)
        return None if is_same else View(zones, ())

    def seen(self, state: Devices, views: Mapping[str, View | None]) -> Devices:
        """Return the state with these views of its resources."""
        return Devices(state.free, tuple([views.get(name) for name, _ in self.pools]))

    def allocate(
        self,
        state: Devices,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[Devices, Reusable]]:
        """Allocate each resource in turn: first reusable devices, then devices under the hint, then
        others, then devices without a zone. Raises TooManyWaysError."""
        if reusable is None and kind != "init":
            free = self._from_one_group(state, requested, hint.mask or 0)
            if free is not None:
                return ((free, None),)
        rows = [(self._rows.get(name, -1), amount) for name, amount in requested]
        for row, amount in rows:
            if row < 0 or sum(state.free[row]) + sum(_kept(reusable, row, 0)) < amount:
                return ()
        allocations: list[tuple[Devices, Reusable]] = [(state, reusable)]
        for row, amount in rows:
            longer: list[tuple[Devices, Reusable]] = []
            for devices, reused in allocations:
                longer += self._allocate_row(devices, reused, row, amount, kind, hint.mask)
            if len(longer) > MOST:
                raise TooManyWaysError
            allocations = longer
        return allocations

    def _from_one_group(
        self, state: Devices, requested: RequestedAmounts, mask: int
    ) -> Devices | None:
        """Allocate in the usual case: one group lies under the hint and has enough, so there is one
        way."""
        for name, amount in requested:
            row = self._rows.get(name, -1)
            group = self._alone[row].get(mask, -1) if row >= 0 else -1
            if group < 0 or state.free[row][group] < amount:
                return None
            free = state.free[row]
            state = state.with_free(row, (*free[:group], free[group] - amount, *free[group + 1 :]))
        return state

    def _allocate_row(
        self,
        state: Devices,
        reusable: Reusable,
        row: int,
        amount: int,
        kind: ContainerKind,
        mask: int | None,
    ) -> list[tuple[Devices, Reusable]]:
        """Allocate devices of one resource, of which there are enough."""
        free, masks = state.free[row], self.pools[row][1].masks
        kept, nothing = _kept(reusable, row, len(free)), (0,) * len(free)
        if sum(kept) >= amount:
            return [
                (state, _keep(reusable, row, kept, nothing, used, kind))
                for used in ways(amount, kept)
            ]
        allocations: list[tuple[Devices, Reusable]] = []
        for taken in _picks(masks, free, amount - sum(kept), mask):
            devices = state.with_free(row, _minus(free, taken))
            reused = _keep(reusable, row, kept, taken, kept, kind)
            allocations += [(devices, way) for way in _read_both_ways(reused, row, masks, kind)]
        return allocations

    def release(self, state: Devices, held: Sequence[ZonedAmount]) -> Devices:
        """Return the state after the end of a pod that held these devices. A group has at most as
        many free devices as it has healthy ones."""
        for item in held:
            row = self._rows.get(item.resource, -1)
            if row < 0:
                continue
            pool = self.pools[row][1]
            mask = pool.masks[0] if self.pooled else mask_of(item.zones)
            counts = []
            for group, free, size in zip(pool.masks, state.free[row], pool.sizes, strict=True):
                change = item.amount if group == mask else 0
                counts.append(min(max(0, free + change), size))
            state = state.with_free(row, tuple(counts))
        return state

    def taken(self, before: Devices, after: Devices) -> tuple[Counts, ...]:
        """Return the devices taken by resource and group, including those that init containers keep
        for the pod's life."""
        rows = zip(before.free, after.free, strict=True)
        return tuple([_minus(free, remaining) for free, remaining in rows])

    def zones_taken(
        self, before: Devices, after: Devices, left: Reusable, left_after: Reusable
    ) -> int | None:
        """Return the zones of the taken devices, None under policy none, because pooled counts have
        no zones. A device in several zones counts in the lowest of them, unless another device lies
        in one of them."""
        if self.pooled:
            return None
        masks: list[int] = []
        rows = zip(self.pools, before.free, after.free, strict=True)
        for row, ((_, pool), free, free_after) in enumerate(rows):
            had = _plus(free, _kept(left, row, len(free)))
            has = _plus(free_after, _kept(left_after, row, len(free)))
            for group, count, remaining in zip(pool.masks, had, has, strict=True):
                if remaining < count:
                    masks.append(group)
        zones = 0
        for group in sorted(masks, key=int.bit_count):
            zones |= 0 if group & zones else group & -group
        return zones

    def given_back(self, state: Devices, taken: tuple[Counts, ...]) -> Devices:
        rows = zip(state.free, taken, strict=True)
        return Devices(tuple([_plus(free, more) for free, more in rows]), state.views)


# `Reusable` of this manager is a sorted tuple of (row, devices by group), without empty entries. A
# negative row is a mark, see `_read_both_ways`.


def _kept(reusable: Reusable, row: int, groups: int) -> Counts:
    counts: Mapping[int, Counts] = dict(reusable) if isinstance(reusable, tuple) else {}
    return counts.get(row, (0,) * groups)


def _keep(
    reusable: Reusable, row: int, kept: Counts, taken: Counts, reused: Counts, kind: ContainerKind
) -> Reusable:
    """Return the reusable devices after a container took new devices and reused others."""
    now_kept = _plus(kept, taken) if kind == "init" else _minus(kept, reused)
    counts = dict(reusable) if isinstance(reusable, tuple) else {}
    counts[row] = now_kept
    return (
        tuple(
            sorted(
                (row_number, group_counts)
                for row_number, group_counts in counts.items()
                if any(group_counts)
            )
        )
        or None
    )


def _still_to_touch(
    masks: tuple[int, ...], kept: Counts, amount: int, strict: bool
) -> tuple[int, list[int]]:
    """Return how many free devices a set of zones needs in addition to the devices that init
    containers left there, and the zone masks of those, each of which the set must touch.

    Devices without a zone that they left do not count; a `strict` kubelet has no hint then.
    """
    kept_groups = [
        (mask, count) for mask, count in zip(masks, kept, strict=True) if count and (mask or strict)
    ]
    return amount - sum([count for _, count in kept_groups]), [mask for mask, _ in kept_groups]


def _read_both_ways(
    reusable: Reusable, row: int, masks: tuple[int, ...], kind: ContainerKind
) -> list[Reusable]:
    """Return the ways to read devices without a zone that an init container keeps, of a resource
    that has zones.

    The kubelet ignores devices whose plugin sends no topology. Devices whose topology is empty
    touch no zone, and no hint can contain them (1.36, generateDeviceTopologyHints). A report does
    not say which of the two applies, so the second way has a mark."""
    kept = dict(reusable) if isinstance(reusable, tuple) else {}
    counts = zip(masks, kept.get(row, ()), strict=False)
    if kind != "init" or not any(masks) or not any(count and not mask for mask, count in counts):
        return [reusable]
    return [reusable, tuple(sorted((kept | {_strict_mark(row): (1,)}).items()))]


def _strict_mark(row: int) -> int:
    """Below all rows, which begin at 0."""
    return -1 - row


def _is_strict(reusable: Reusable, row: int) -> bool:
    if not isinstance(reusable, tuple) or not reusable or reusable[0][0] >= 0:
        return False
    return _strict_mark(row) in dict(reusable)


def _is_alone(masks: Sequence[int], mask: int) -> bool:
    """Return True for the mask of one zone that no other group touches."""
    return mask > 0 and not mask & (mask - 1) and _touches_one(masks, mask)


def _picks(masks: tuple[int, ...], free: Counts, need: int, mask: int | None) -> list[Counts]:
    """Return every way to take devices by group: under the mask first, then in other zones, then
    without a zone."""
    if mask is None:
        return ways(need, free)
    if mask in masks and free[group := masks.index(mask)] >= need and _touches_one(masks, mask):
        return [tuple([need if position == group else 0 for position in range(len(free))])]
    picks: list[Counts] = [(0,) * len(free)]
    turns = [_turn(zones, mask) for zones in masks]
    for turn in range(3):
        rooms = [
            count if position == turn else 0 for position, count in zip(turns, free, strict=True)
        ]
        step = min(need, sum(rooms))
        need -= step
        chosen = ways(step, rooms)
        picks = [_plus(pick, more) for pick, more in product(picks, chosen)]
    return picks


def _turn(zones: int, mask: int) -> int:
    if not zones:
        return 2
    return 0 if zones & mask else 1


def _touches_one(masks: Sequence[int], mask: int) -> bool:
    return sum([bool(group & mask) for group in masks]) == 1


def _plus(counts: Counts, others: Counts) -> Counts:
    return tuple([count + addend for count, addend in zip(counts, others, strict=True)])


def _minus(counts: Counts, others: Counts) -> Counts:
    return tuple([count - subtrahend for count, subtrahend in zip(counts, others, strict=True)])


class DeviceHints(HintProvider, frozen=True):
    """Extended resources of device plugins."""

    name: ClassVar[str] = "devices"
    by_amounts: ClassVar[bool] = True

    def owns(self, resource: str) -> bool:
        return is_device(resource)

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """Observe single devices if the report has them, else the counts of its zones."""
        pools = _by_device(report, placements) if report.devices is not None else _by_zone(report)
        if policy == NONE:
            pools = {name: {0: _sum(groups.values())} for name, groups in pools.items()}
        sizes, free = [], []
        for name, groups in pools.items():
            sizes.append((name, Pool(tuple(groups), tuple([g.size for g in groups.values()]))))
            free.append(tuple([group.free for group in groups.values()]))
        bounds = frozenset({UNHEALTHY}) if _may_hide(report) else frozenset[str]()
        return Observed(_manager(tuple(sizes), policy == NONE), (Devices(tuple(free)),), bounds)


@lru_cache(maxsize=1024)
def _manager(pools: tuple[tuple[str, Pool], ...], pooled: bool) -> DeviceCountManager:
    """Nodes of one kind share their manager."""
    return DeviceCountManager(pools, pooled)


class _Group(NamedTuple):
    """Devices of one resource in the same zones."""

    size: int
    free: int


# Resource -> mask of zones -> devices; both ascending.
_Pools = dict[str, dict[int, _Group]]


def _sum(groups: Iterable[_Group]) -> _Group:
    sizes, free = zip(*groups, strict=True)
    return _Group(sum(sizes), sum(free))


def _by_device(report: Report, placements: Sequence[Placement]) -> _Pools:
    held_ids: dict[str, set[str]] = {}
    for placement in placements:
        for item in placement.held:
            if is_device(item.resource):
                held_ids.setdefault(item.resource, set()).update(_ids(item.ids))
    pools: _Pools = {}
    groups = sorted(report.devices or (), key=lambda group: (group.resource, mask_of(group.zones)))
    for group in groups:
        healthy = _ids(group.ids)
        free = len(healthy - held_ids.get(group.resource, set()))
        pools.setdefault(group.resource, {})[mask_of(group.zones)] = _Group(len(healthy), free)
    return pools


@lru_cache(maxsize=1 << 14)
def _ids(text: str) -> frozenset[str]:
    return frozenset(parse_ids(text))


def _by_zone(report: Report) -> _Pools:
    pools: _Pools = {}
    for zone in sorted(report.zones, key=lambda zone: zone.id):
        for name, amounts in zone.resources.items():
            if is_device(name) and amounts.capacity:
                group = _Group(amounts.capacity, amounts.available)
                pools.setdefault(name, {})[1 << zone.id] = group
    return {name: pools[name] for name in sorted(pools)}


def _may_hide(report: Report) -> bool:
    """Return whether a report without devices may count devices that the kubelet does not hand out.
    With devices, `shared.ledger.unhealthy` decides it."""
    if report.devices is not None:
        return False
    for zone in report.zones:
        for name, amounts in zone.resources.items():
            if is_device(name) and amounts.capacity != amounts.allocatable:
                return True
    return False
