"""The least spread that a prediction may find: a bound from amounts, cheap enough for every node.

1. A part gets at least as many zones as hold it by the amounts that are free at most, and they are
   at least as near as the nearest so many zones.
2. Under policy none more is known of a part without init containers. Its memory comes from the
   lowest zone that has it: that is none below the first with room by the amounts that are free at
   most, and none above the first with room by the guaranteed ones. From the zones that are known,
   devices and CPUs go further as `predicted_spread` has it (`with_further_zones`). More known zones
   lead to more zones, so the fewest over all zones that the memory may have are a bound.
3. There a pod that surely reaches the kubelet before or after makes the spread wider, too.

`LeastSpreads` computes it for many nodes at once: by the kernel, or one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from services.scheduler.filter.topology.bounds import NOTHING, fits, one_zone_each
from services.scheduler.score.ranks import WIDEST
from services.scheduler.score.strategies.strategy import Distances
from services.scheduler.snapshot import kernel
from services.scheduler.snapshot.node_arrays import (
    NO_DISTANCES,
    Ints,
    NodeArrays,
    Slots,
    has_pending_admission,
)
from services.scheduler.snapshot.node_info import MAX_ZONES, NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.zone_distances import FAR, distances_of, nearness
from shared.domain.policies import NONE
from shared.domain.resources import CPU, Amounts, is_device, is_memory, memory_of
from shared.hints.registry import kubelets_own
from shared.kubelet.masks import mask_of
from shared.ledger.state import ZoneAmounts


def running_parts(plan: Plan) -> tuple[Amounts, ...]:
    """Return the amounts of the parts that count, all of them if only init containers request
    zones.
    """
    running = tuple([part.amounts for part in plan.parts if part.kind != "init"])
    return running or tuple([part.amounts for part in plan.parts])


def spread(masks: Sequence[int], distances: Distances) -> int:
    """Return the spread of parts in these zones."""
    further = sum([mask.bit_count() - 1 for mask in masks])
    return min(WIDEST, further * FAR + max([nearness(mask, distances) for mask in masks]))


def with_pending_pods(expected: int) -> int:
    """Return the spread under policy none next to pending pods."""
    return expected + (FAR if expected >= FAR else 1)


def with_further_zones(node_info: NodeInfo, mask: int, amounts: Sequence[tuple[str, int]]) -> int:
    """Return the mask with the further zones of amounts whose zones are not known."""
    for name, amount in amounts:
        free = {zone: node_info.free_max[zone].get(name, 0) for zone in node_info.zone_ids}
        if name == CPU:
            mask |= _packed(free, node_info.sizes, amount)
            continue
        for zone in node_info.zone_ids:
            if amount and free[zone] > 0 and not mask >> zone & 1:
                mask |= 1 << zone
                amount -= 1
    return mask or 1 << node_info.zone_ids[0]


def _packed(free: Mapping[int, int], sizes: ZoneAmounts, amount: int) -> int:
    """Return the zones of CPUs by counts: whole zones first, then those with the fewest free
    (kubelet 1.36, takeByTopologyNUMAPacked).
    """
    mask, rest = 0, dict(free)
    for zone in sorted(rest):
        size = sizes.get(zone, {}).get(CPU, 0)
        if 0 < size <= amount and rest[zone] >= size:
            amount -= rest.pop(zone)
            mask |= 1 << zone
    for zone in sorted(rest, key=lambda number: (rest[number], number)):
        if amount > 0 and rest[zone] > 0:
            amount -= rest[zone]
            mask |= 1 << zone
    return mask


# -- one node


def least_spread(node_info: NodeInfo, plan: Plan) -> int:
    """Return a spread that the prediction is never below, from amounts alone."""
    report = node_info.report
    if report is None or len(node_info.zone_ids) < 2 or not plan.may_spread:
        return 0
    if plan.mode == "owned" or one_zone_each(node_info, plan):
        return 0
    zones, nearest = list(node_info.free_max.values()), node_info.machine.nearest
    if not _is_known_under_none(plan):
        counts = [_fewest_zones(part, plan, zones) for part in running_parts(plan)]
        far = max([nearest[count - 1] for count in counts])
        return min(WIDEST, (sum(counts) - len(counts)) * FAR + far)
    distances, further, far, earlier = distances_of(report), 0, 0, Amounts()
    for part in running_parts(plan):
        fewest = _fewest_zones(part, plan, zones)
        masks = list(_possible_masks(node_info, plan, part, earlier))
        count = min([mask.bit_count() for mask in masks])
        near = nearest[fewest - 1]
        if count >= fewest:
            near = min([nearness(mask, distances) for mask in masks if mask.bit_count() == count])
        further, far = further + max(count, fewest) - 1, max(far, near)
        earlier = _together(part, earlier)
    least = further * FAR + far
    if has_pending_admission(node_info):
        widest = spread([mask_of(node_info.zone_ids)] * len(plan.parts), distances)
        least = min(with_pending_pods(least), widest)
    return min(WIDEST, least)


def _is_known_under_none(plan: Plan) -> bool:
    is_plain = plan.rule.policy == NONE and plan.is_plain
    return is_plain and all(kubelets_own(part.amounts) for part in plan.parts)


def _together(part: Amounts, earlier: Amounts) -> Amounts:
    """Return the memory of a part and of all before it."""
    sums = dict(earlier)
    for name, amount in memory_of(part).items():
        sums[name] = sums.get(name, 0) + amount
    return sums


def _possible_masks(
    node_info: NodeInfo, plan: Plan, part: Amounts, earlier: Amounts
) -> Iterator[int]:
    """Yield masks, one of which the zones of the part contain (paragraph 2)."""
    report, amounts = node_info.report, list[tuple[str, int]]()
    is_counted = report is not None and report.cpus is None
    for name in sorted(part):
        if is_device(name) and name not in plan.placeless and kubelets_own((name,)):
            amounts.append((name, part[name]))
    if CPU in part and is_counted:
        amounts.append((CPU, part[CPU]))
    for first_zones in _first_zones(node_info, part, earlier, CPU in part and not is_counted):
        yield with_further_zones(node_info, first_zones, amounts)


def _first_zones(
    node_info: NodeInfo, part: Amounts, earlier: Amounts, has_known_cpus: bool
) -> Sequence[int]:
    """Return masks of zones, one of which surely is among the part's known zones."""
    every, with_room = [1 << zone for zone in node_info.zone_ids], list[int]()
    memory = memory_of(part)
    if not memory:
        return every if has_known_cpus else [0]
    together = {name: amount + earlier.get(name, 0) for name, amount in memory.items()}
    free_min = node_info.for_single_zones(node_info.free_min)
    for zone, mask in zip(node_info.zone_ids, every, strict=True):
        is_sure = fits(together, free_min[zone])
        if is_sure or fits(memory, node_info.free_max[zone]):
            with_room.append(mask)
        if is_sure:
            return with_room
    return every


def _fewest_zones(part: Amounts, plan: Plan, zones: Sequence[Amounts]) -> int:
    """Return how many zones at least hold the part; all of them if that is not enough."""
    placed = [(name, amount) for name, amount in part.items() if name not in plan.placeless]
    fewest = 1
    for name, most in _loose_devices(plan, part):
        fewest = max(fewest, min(most, sum(zone.get(name, 0) > 0 for zone in zones)))
    if any(all(zone.get(name, 0) >= amount for name, amount in placed) for zone in zones):
        return fewest
    fewest = max(fewest, 2)
    for name, amount in placed:
        free = sorted([max(0, zone.get(name, 0)) for zone in zones], reverse=True)
        total, count = free[0], 1
        while total < amount and count < len(free):
            total += free[count]
            count += 1
        fewest = max(fewest, count)
    return fewest


def _loose_devices(plan: Plan, part: Amounts) -> list[tuple[str, int]]:
    """Return the devices that may come from any zone, because no hint binds them (policy none), and
    the most zones that they widen a part to.
    """
    if plan.rule.policy != NONE:
        return []
    pinned = any(amount > 0 and not is_device(name) for name, amount in part.items())
    names = [name for name in part if is_device(name) and kubelets_own((name,))]
    return [(name, part[name] + pinned) for name in names if name not in plan.placeless]


# -- many nodes


class LeastSpreads:
    """`least_spread` of one plan on many nodes, valid as long as the arrays keep their shape. On
    `wide` nodes no plan must put each part into one zone.
    """

    def __init__(
        self, arrays: NodeArrays, nodes: Sequence[NodeInfo | None], plan: Plan, zones: int
    ) -> None:
        self._arrays, self._nodes, self._plan = arrays, nodes, plan
        is_known = kernel.COMPILED is not None and arrays.rows and zones <= MAX_ZONES
        self.compiled: Any = self._compiled(zones) if is_known else None

    def _compiled(self, zones: int) -> Any:
        arrays, plan, rows = self._arrays, self._plan, self._arrays.rows
        parts, is_none = running_parts(plan), _is_known_under_none(plan)
        amounts = np.full((len(parts), len(rows)), NOTHING, dtype=np.int64)
        together, loose = amounts.copy(), np.zeros_like(amounts)
        is_listed, earlier = np.ones(len(parts), dtype=np.bool_), Amounts()
        for number, part in enumerate(parts):
            earlier = _together(part, earlier)
            for name, amount in part.items():
                if name in plan.placeless:
                    continue
                if name not in rows:
                    is_listed[number] = False
                    continue
                amounts[number, rows[name]] = amount
                if is_memory(name):
                    together[number, rows[name]] = earlier[name]
            for name, most in _loose_devices(plan, part):
                if name in rows:
                    loose[number, rows[name]] = most
        memory = [row for name, row in rows.items() if is_memory(name)]
        order = [*memory, *(row for name, row in rows.items() if not is_memory(name))]
        devices = [rows[name] for name in sorted(rows) if is_device(name)]
        return kernel.COMPILED.Spread(
            arrays.free_min, arrays.free_max, arrays.whole, arrays.zone_counts, arrays.nearest,
            arrays.distances, arrays.distances_of, arrays.counts_cpus, arrays.is_open, amounts,
            together, loose, is_listed, np.array(order, dtype=np.int64),
            np.array(devices, dtype=np.int64), zones, len(memory), rows.get(CPU, -1), is_none,
        )  # fmt: skip

    def least(self, slots: Slots) -> Ints:
        """Return the bound of each node."""
        spreads = np.zeros(len(slots), dtype=np.int64)
        if self.compiled is not None and (self._arrays.distances_of[slots] > NO_DISTANCES).all():
            self.compiled.least(slots, spreads)
            return spreads
        for index, slot in enumerate(slots.tolist()):
            node_info = self._nodes[slot]
            assert node_info is not None
            spreads[index] = least_spread(node_info, self._plan)
        return spreads
