"""The Device Manager: extended resources of device plugins, by how many devices of each set of
zones are free (kubelet 1.36, devicemanager).

Which of equally placed devices a container gets does not matter; where the kubelet's random order
or the plugin's GetPreferredAllocation decides between zones, every split is a successor. Under
Topology Manager policy none zones do not matter. Unhealthy devices that nobody lists may lie in any
zone: the kubelet counts them for what it prefers, and gives none away (`View`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

from shared.domain.idlist import parse_ids
from shared.domain.pod import ContainerKind
from shared.domain.policies import NONE
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import is_device
from shared.hints.provider import NO_OPINION, Observed, RequestedAmounts, Reusable
from shared.hints.splits import MOST, TooManyWaysError, ways
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_of, mask_sizes, nodes_of

UNHEALTHY = "unhealthy devices"

Counts = tuple[int, ...]


class View(NamedTuple):
    """A resource as a kubelet may see it that knows of more devices than are listed, or is of
    another version: the zones that its hints run over, and the fewest zones that so many devices
    (amount, zones) touch, as usual where it is empty."""

    zones: tuple[int, ...]
    least: tuple[tuple[int, int], ...]


class Devices(NamedTuple):
    """Free devices, [resource][group] in the book's order. `views` are by resource, empty where
    every device is listed.
    """

    free: tuple[Counts, ...]
    views: tuple[View | None, ...] = ()

    def left(self, row: int, free: Counts) -> Devices:
        """The same with this left of one resource."""
        return Devices((*self.free[:row], free, *self.free[row + 1 :]), self.views)


class Pool(NamedTuple):
    """One resource: the zones that each group of devices lies in, and how many healthy ones it has,
    free or not.
    """

    masks: tuple[int, ...]
    sizes: Counts


class DeviceManager:
    """`pools` by resource, in order of name."""

    def __init__(self, pools: tuple[tuple[str, Pool], ...], pooled: bool) -> None:
        self.pools, self.pooled = pools, pooled
        self._rows = {name: row for row, (name, _) in enumerate(pools)}
        self._least = lru_cache(maxsize=1024)(self._fewest_zones)
        self._single = lru_cache(maxsize=1 << 13)(self._zones_alone)
        self._alone = [
            {mask: at for at, mask in enumerate(pool.masks) if _is_alone(pool.masks, mask)}
            for _, pool in pools
        ]
        self._sizes = [
            [(1 << zone, _touching(pool, zone)) for zone in self._bearing(row)]
            for row, (_, pool) in enumerate(pools)
        ]

    def single(self, state: Devices, own: Reusable, asked: RequestedAmounts) -> int:
        """Zones where, for each resource, enough free and reusable devices lie."""
        if self.pooled:
            return NO_OPINION
        found = NO_OPINION
        for name, amount in asked:
            row = self._rows.get(name, -1)
            if row < 0 or not any(self.pools[row][1].masks):
                continue
            free, view = state.free[row], state.views[row] if state.views else None
            left = _left(own, row, len(free))
            if amount or view is None:
                found &= self._single(row, free, left, amount, _is_strict(own, row))
            else:  # zones without devices are as good
                masks = [
                    hint.mask or 0
                    for hint in self._hints(row, free, left, amount, view, _is_strict(own, row))
                ]
                found &= sum([mask for mask in masks if not mask & (mask - 1)])
        return found

    def _zones_alone(self, row: int, free: Counts, left: Counts, amount: int, strict: bool) -> int:
        masks, found = self.pools[row][1].masks, 0
        if sum(free) + sum(left) < amount:
            return 0
        short, must = _still_to_touch(masks, left, amount, strict)
        for bit, size in self._sizes[row]:
            if size < amount:
                continue
            enough = (
                sum([count for mask, count in zip(masks, free, strict=True) if mask & bit]) >= short
            )
            if enough and all(mask & bit for mask in must):
                found |= bit
        return found

    def hints(self, state: Devices, own: Reusable, asked: RequestedAmounts) -> Hints:
        """By resource; a resource without a zone has no preference."""
        found: dict[str, list[Hint] | None] = {}
        for name, amount in asked:
            row = self._rows.get(name, -1)
            if row < 0 or self.pooled or not any(self.pools[row][1].masks):
                found[name] = None
                continue
            free = state.free[row]
            view = state.views[row] if state.views else None
            found[name] = self._hints(
                row, free, _left(own, row, len(free)), amount, view, _is_strict(own, row)
            )
        return found or None

    def _hints(
        self, row: int, free: Counts, left: Counts, amount: int, view: View | None, strict: bool
    ) -> list[Hint]:
        if sum(free) + sum(left) < amount:
            return []
        masks, zones, least = self.pools[row][1].masks, self._bearing(row), self._least(row, amount)
        if view is not None:
            zones, least = view.zones, dict(view.least).get(amount, least)
        short, must = _still_to_touch(masks, left, amount, strict)
        found = []
        for mask, size in zip(enumerate_masks(zones), mask_sizes(zones), strict=True):
            touching = sum(
                [count for group, count in zip(masks, free, strict=True) if group & mask]
            )
            if touching >= short and all(group & mask for group in must):
                found.append(Hint(mask, size == least))
        return found

    def _bearing(self, row: int) -> tuple[int, ...]:
        every, pool = 0, self.pools[row][1]
        for mask, size in zip(pool.masks, pool.sizes, strict=True):
            every |= mask if size else 0
        return nodes_of(every)

    def _fewest_zones(self, row: int, amount: int) -> int:
        """The fewest zones that this many devices touch, free or not; all zones if there are too
        few.
        """
        pool, zones = self.pools[row][1], self._bearing(row)
        for mask, size in zip(enumerate_masks(zones), mask_sizes(zones), strict=True):
            if (
                sum(
                    [
                        count
                        for group, count in zip(pool.masks, pool.sizes, strict=True)
                        if group & mask
                    ]
                )
                >= amount
            ):
                return size
        return len(zones)

    def views(
        self, resource: str, amounts: Collection[int], zones: Collection[int]
    ) -> list[View | None]:
        """Every way to see the resource for who asks for these amounts, if unhealthy devices may
        lie in these zones beside those that are listed: more of them touch no more zones, and each
        zone has some or none. Raises TooManyWaysError."""
        row = self._rows.get(resource, -1)
        if row < 0 or self.pooled:
            return [None]
        bearing, asked = self._bearing(row), sorted(amounts)
        highest = [self._least(row, amount) for amount in asked]
        least = [
            each
            for each in product(*[range(1, most + 1) for most in highest])
            if list(each) == sorted(each)
        ]
        others = [zone for zone in zones if zone not in bearing]
        if len(least) << len(others) > MOST:
            raise TooManyWaysError
        more = [chosen for size in range(len(others) + 1) for chosen in combinations(others, size)]
        return [
            View(tuple(sorted((*bearing, *some))), tuple(zip(asked, each, strict=True)))
            for each in least
            for some in more
        ]

    def over(self, state: Devices, zones: Collection[int]) -> Devices:
        """The state with hints over these zones where they would run over those alone that bear
        devices.
        """
        views, wide = state.views or (None,) * len(self.pools), tuple(sorted(zones))
        seen = [view or self._over(row, wide) for row, view in enumerate(views)]
        return Devices(state.free, tuple(seen)) if any(seen) else state

    def _over(self, row: int, zones: tuple[int, ...]) -> View | None:
        return None if self.pooled or self._bearing(row) in ((), zones) else View(zones, ())

    def seen(self, state: Devices, views: Mapping[str, View | None]) -> Devices:
        """The state with the resources seen so."""
        return Devices(state.free, tuple([views.get(name) for name, _ in self.pools]))

    def allocate(
        self,
        state: Devices,
        own: Reusable,
        asked: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[Devices, Reusable]]:
        """Each resource in turn: reusable devices, those under the hint, others, those without a
        zone. Raises TooManyWaysError."""
        plain = (
            self._plain(state, asked, hint.mask or 0) if own is None and kind != "init" else None
        )
        if plain is not None:
            return ((plain, None),)
        wanted = [(self._rows.get(name, -1), amount) for name, amount in asked]
        if any(
            row < 0 or sum(state.free[row]) + sum(_left(own, row, 0)) < amount
            for row, amount in wanted
        ):
            return ()
        found: list[tuple[Devices, Reusable]] = [(state, own)]
        for row, amount in wanted:
            found = [
                after
                for each in found
                for after in self._taken(*each, row, amount, kind, hint.mask)
            ]
            if len(found) > MOST:
                raise TooManyWaysError
        return found

    def _plain(self, state: Devices, asked: RequestedAmounts, mask: int) -> Devices | None:
        """Nothing to reuse, and enough in the one group that lies under the hint: the usual case,
        one way only.
        """
        for name, amount in asked:
            row = self._rows.get(name, -1)
            at = self._alone[row].get(mask, -1) if row >= 0 else -1
            if at < 0 or state.free[row][at] < amount:
                return None
            free = state.free[row]
            state = state.left(row, (*free[:at], free[at] - amount, *free[at + 1 :]))
        return state

    def _taken(
        self,
        state: Devices,
        own: Reusable,
        row: int,
        amount: int,
        kind: ContainerKind,
        mask: int | None,
    ) -> list[tuple[Devices, Reusable]]:
        """One resource, of which there are enough."""
        free = state.free[row]
        left = _left(own, row, len(free))
        if sum(left) >= amount:
            return [
                (state, _kept(own, row, left, (0,) * len(free), used, kind))
                for used in ways(amount, left)
            ]
        need = amount - sum(left)
        found = []
        for taken in _picks(self.pools[row][1].masks, free, need, mask):
            after = tuple([count - less for count, less in zip(free, taken, strict=True)])
            kept = _kept(own, row, left, taken, left, kind)
            found += [
                (state.left(row, after), each)
                for each in _read_both_ways(kept, row, self.pools[row][1].masks, kind)
            ]
        return found

    def release(self, state: Devices, held: Sequence[ZonedAmount]) -> Devices:
        """The devices of an ended pod are free."""
        return self._moved(state, held, 1)

    def hold(self, state: Devices, held: Sequence[ZonedAmount]) -> Devices:
        """Fewer free, none less than none."""
        return self._moved(state, held, -1)

    def _moved(self, state: Devices, held: Sequence[ZonedAmount], sign: int) -> Devices:
        for item in held:
            row = self._rows.get(item.resource, -1)
            if row >= 0:
                pool = self.pools[row][1]
                mask = pool.masks[0] if self.pooled else mask_of(item.zones)
                moved = [sign * item.amount if each == mask else 0 for each in pool.masks]
                counts = zip(state.free[row], moved, pool.sizes, strict=True)
                state = state.left(row, tuple([min(max(0, n + m), size) for n, m, size in counts]))
        return state

    def after_admission(self, state: Devices, own: Reusable) -> Devices:
        """What init containers keep stays with the pod."""
        return state

    def taken(self, before: Devices, after: Devices) -> tuple[Counts, ...]:
        """By resource and group, what init containers keep included."""
        rows = zip(before.free, after.free, strict=True)
        return tuple(
            [tuple([one - other for one, other in zip(*each, strict=True)]) for each in rows]
        )

    def given_back(self, state: Devices, taken: tuple[Counts, ...]) -> Devices:
        """As many more are free."""
        return Devices(
            tuple([_plus(free, more) for free, more in zip(state.free, taken, strict=True)]),
            state.views,
        )

    def later(self, state: Devices) -> Sequence[Devices]:
        """Nothing happens by itself."""
        return ()


def _still_to_touch(
    masks: tuple[int, ...], left: Counts, amount: int, strict: bool
) -> tuple[int, list[int]]:
    """How many free devices a set of zones needs beside what init containers left there, and the
    zones of that, each of which the set must touch. Those that they left in no zone count for
    nothing here; a `strict` kubelet has no hint beside them."""
    kept = [
        (mask, count) for mask, count in zip(masks, left, strict=True) if count and (mask or strict)
    ]
    return amount - sum([count for _, count in kept]), [mask for mask, _ in kept]


def _read_both_ways(
    own: Reusable, row: int, masks: tuple[int, ...], kind: ContainerKind
) -> list[Reusable]:
    """Devices without a zone that an init container keeps, of a resource with zones: of those whose
    plugin tells no topology the kubelet takes no notice, those whose topology names no zone touch
    none (1.36, generateDeviceTopologyHints). Nobody tells."""
    kept = dict(own) if isinstance(own, tuple) else {}
    unsure = (
        kind == "init"
        and any(masks)
        and any(n and not mask for mask, n in zip(masks, kept.get(row, ()), strict=False))
    )
    return [own, tuple(sorted((kept | {_strictly(row): (1,)}).items()))] if unsure else [own]


def _strictly(row: int) -> int:
    """Where `own` notes that what it keeps of the row in no zone touches none; below all rows,
    which begin at 0.
    """
    return -1 - row


def _is_strict(own: Reusable, row: int) -> bool:
    return isinstance(own, tuple) and bool(own) and own[0][0] < 0 and _strictly(row) in dict(own)


def _is_alone(masks: Sequence[int], mask: int) -> bool:
    """One zone, and no other group that touches it."""
    return mask > 0 and not mask & (mask - 1) and sum([bool(each & mask) for each in masks]) == 1


def _touching(pool: Pool, zone: int) -> int:
    """Devices, free or not, that lie in the zone."""
    return sum(
        [count for mask, count in zip(pool.masks, pool.sizes, strict=True) if mask >> zone & 1]
    )


def _left(own: Reusable, row: int, groups: int) -> Counts:
    kept: Mapping[int, Counts] = dict(own) if isinstance(own, tuple) else {}
    return kept.get(row, (0,) * groups)


def _kept(
    own: Reusable, row: int, left: Counts, taken: Counts, reused: Counts, kind: ContainerKind
) -> Reusable:
    """What is left to reuse after a container took new devices and reused others."""
    if kind == "init":
        after = tuple([one + other for one, other in zip(left, taken, strict=True)])
    else:
        after = tuple([one - other for one, other in zip(left, reused, strict=True)])
    kept = dict(own) if isinstance(own, tuple) else {}
    kept[row] = after
    return tuple(sorted((each, counts) for each, counts in kept.items() if any(counts))) or None


def _picks(masks: tuple[int, ...], free: Counts, need: int, mask: int | None) -> list[Counts]:
    """Devices under the mask first, then those in other zones, then those without one; by group in
    every way.
    """
    if mask is None:
        return ways(need, free)
    if (
        mask in masks
        and free[at := masks.index(mask)] >= need
        and sum([bool(each & mask) for each in masks]) == 1
    ):
        return [tuple([need if place == at else 0 for place in range(len(free))])]
    found: list[Counts] = [(0,) * len(free)]
    order = [0 if zones & mask else 1 if zones else 2 for zones in masks]
    for turn in range(3):
        rooms = [count if place == turn else 0 for place, count in zip(order, free, strict=True)]
        step = min(need, sum(rooms))
        need -= step
        chosen = ways(step, rooms)
        found = [_plus(one, other) for one, other in product(found, chosen)]
    return found


def _plus(one: Counts, other: Counts) -> Counts:
    return tuple([left + right for left, right in zip(one, other, strict=True)])


@lru_cache(maxsize=1024)
def _book(pools: tuple[tuple[str, Pool], ...], pooled: bool) -> DeviceManager:
    """Nodes of one kind share their book."""
    return DeviceManager(pools, pooled)


class DeviceHints:
    """Hints for each device resource of its own; only zones with devices take part (kubernetes PR
    138244).
    """

    name = "devices"
    by_amounts = True

    def owns(self, resource: str) -> bool:
        """Extended resources."""
        return is_device(resource)

    def zones(self, report: Report, resource: str) -> None:
        """The report's amounts say it."""

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """By device where the report tells them, else by the counts of its zones."""
        pools = _by_device(report, placements) if report.devices is not None else _by_zone(report)
        if policy == NONE:
            pools = {name: {0: _sum(groups.values())} for name, groups in pools.items()}
        sizes = [
            (name, Pool(tuple(groups), tuple([each.size for each in groups.values()])))
            for name, groups in pools.items()
        ]
        manager = _book(tuple(sizes), policy == NONE)
        state = Devices(
            tuple([tuple([each.free for each in groups.values()]) for groups in pools.values()])
        )
        return Observed(
            manager, (state,), frozenset({UNHEALTHY}) if _may_hide(report) else frozenset()
        )


class _Group(NamedTuple):
    """Devices of one resource in the same zones."""

    size: int
    free: int


_Pools = dict[str, dict[int, _Group]]
"""Resource -> mask of zones -> devices; both ascending."""


def _sum(groups: Iterable[_Group]) -> _Group:
    found = list(groups)
    return _Group(sum([each.size for each in found]), sum([each.free for each in found]))


def _by_device(report: Report, placements: Sequence[Placement]) -> _Pools:
    held: dict[str, set[str]] = {}
    for placement in placements:
        for item in placement.held:
            if is_device(item.resource):
                held.setdefault(item.resource, set()).update(_ids(item.ids))
    found: _Pools = {}
    for group in sorted(
        report.devices or (), key=lambda group: (group.resource, mask_of(group.zones))
    ):
        offered = _ids(group.ids)
        free = len(offered - held.get(group.resource, set()))
        found.setdefault(group.resource, {})[mask_of(group.zones)] = _Group(len(offered), free)
    return found


@lru_cache(maxsize=1 << 14)
def _ids(text: str) -> frozenset[str]:
    return frozenset(parse_ids(text))


def _by_zone(report: Report) -> _Pools:
    found: _Pools = {}
    for zone in sorted(report.zones, key=lambda zone: zone.id):
        for name in zone.resources:
            if is_device(name) and zone.resources[name].capacity:
                found.setdefault(name, {})[1 << zone.id] = _Group(
                    zone.resources[name].capacity, zone.resources[name].available
                )
    return {name: found[name] for name in sorted(found)}


def _may_hide(report: Report) -> bool:
    """Where devices are told by zone alone: some were there that may not be handed out. By device
    the ledger tells.
    """
    if report.devices is not None:
        return False
    held = [
        each for zone in report.zones for name, each in zone.resources.items() if is_device(name)
    ]
    return any(each.capacity != each.allocatable for each in held)
