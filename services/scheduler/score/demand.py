"""What pods ask for, and how much room for it weighs in a node's score.

1. A demand class is what one pod, or one container, asks of a zone, of a set of zones or of a
   node. The tracker counts the live pods of each class as events are folded; the counts are
   volatile and rebuilt from the ledger.
2. A demand weight says how much the room for a class is worth: the demand divided by the places
   that remain. The last place of a thousand is worth nothing, the only place everything. A waiting
   pod counts many times, because only a waiting pod is sure to need a place.
3. Weights become an event (`DemandWeighed`) when they change. Scores use the event alone, so that
   a replay ranks nodes alike. Weights are powers of two, so that they rarely change.

Exact integers. Must not know the log or a clock: the number of changes decides when to weigh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from services.scheduler.score.strategies.room import Pairs
from services.scheduler.score.strategies.set_room import SetRoomTable
from services.scheduler.score.strategies.strategy import DemandClass, Floats, Ints, Items
from services.scheduler.snapshot.node_info import Profile
from shared.domain.demand import peak
from shared.domain.policies import BEST_EFFORT, NONE
from shared.domain.resources import Amounts
from shared.events.scheduling_events import Wanted
from shared.ledger.alike import Kind, kind_of
from shared.ledger.state import LedgerPod

# Demand classes by which nodes are ranked.
LISTED = 12
# Demand classes, the largest first, for which places are counted.
CANDIDATES = 48
# A waiting pod counts as this many running pods.
WAITING_FACTOR = 16
HEAVIEST = 4096
FINENESS = 1 << 20

# Changes before demand is weighed again, and the same if a class began or ceased to wait.
FEWEST_CHANGES, FEWEST_CHANGES_TURNED = 16, 8
# In a large cluster one change matters less: one change is needed for this many nodes.
NODES_A_CHANGE, NODES_A_CHANGE_TURNED = 2, 16

MOST_FREE = 1 << 40
# No node holds one of the class, even when it is empty.
NOWHERE = -1
# Zones that are counted together: the intermediate arrays stay in the processor's cache.
ZONES_AT_ONCE = 512

# How many more of each class the nodes hold, or NOWHERE: no room is kept for what never has any.
CountPlaces = Callable[[Sequence[Items]], Sequence[int]]


class RankedNodes(Protocol):
    """The questions of the tracker to the nodes."""

    def __len__(self) -> int: ...

    def typical(self) -> Profile | None:
        """Return the profile that says what pods request together, None without such nodes."""

    def places(self, demand_classes: Sequence[Items]) -> Sequence[int]:
        """Return how many more of each class the nodes hold, or NOWHERE."""


class DemandTracker:
    """Live pods by kind, running and waiting apart. Without nodes it counts nothing."""

    def __init__(self, nodes: RankedNodes | None) -> None:
        self._nodes = nodes
        self._counted: dict[str, tuple[Kind, bool]] = {}
        self._running: Counter[Kind] = Counter()
        self._waiting: Counter[Kind] = Counter()
        self._changes, self._turned = 0, False

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """Count the pod as the ledger has it."""
        if self._nodes is None:
            return
        counted = self._counted.get(uid)
        waits = entry is not None and not entry.node
        if entry is None or (waits and not entry.verdict):
            if counted is not None:
                del self._counted[uid]
                self._count(*counted, -1)
        elif counted is None or counted[1] != waits:
            kind = counted[0] if counted is not None else kind_of(entry.pod)
            if counted is not None:
                self._count(*counted, -1)
            self._counted[uid] = kind, waits
            self._count(kind, waits, 1)

    def _count(self, kind: Kind, waits: bool, change: int) -> None:
        counts = self._waiting if waits else self._running
        counts[kind] += change
        if not counts[kind]:
            del counts[kind]
        self._changes += 1
        self._turned = self._turned or (waits and counts[kind] == (change > 0))

    def new_weights(self, current: tuple[Wanted, ...]) -> tuple[Wanted, ...] | None:
        """Return the demand weights if enough changed and they differ from the `current` ones."""
        if self._nodes is None or not self._due(len(self._nodes)):
            return None
        self._changes, self._turned = 0, False
        profile = self._nodes.typical()
        if profile is None:
            return None
        # A kubelet that never refuses a pod for its zones takes the pod as a whole.
        whole_pods = profile.rule.scope == "pod" or profile.rule.policy in (NONE, BEST_EFFORT)
        running = _by_class(self._running, profile, whole_pods)
        waiting = _by_class(self._waiting, profile, whole_pods)
        weights = weighed(running, waiting, self._nodes.places)
        return None if _rank_alike(weights, current) else weights

    def _due(self, nodes: int) -> bool:
        if self._changes >= max(FEWEST_CHANGES, nodes // NODES_A_CHANGE):
            return True
        fewest = max(FEWEST_CHANGES_TURNED, nodes // NODES_A_CHANGE_TURNED)
        return self._turned and self._changes >= fewest


def _by_class(counts: Counter[Kind], profile: Profile, whole_pods: bool) -> Counter[Items]:
    by_class: Counter[Items] = Counter()
    for kind, count in counts.items():
        for amounts in _aligned_together(kind, profile, whole_pods):
            by_class[tuple(sorted(amounts.items()))] += count
    return by_class


def _aligned_together(kind: Kind, profile: Profile, whole_pods: bool) -> Iterator[Amounts]:
    """Init containers are left out: they leave their room to the containers after them. Topolog
    puts whole pods into zones.
    """
    if profile.owners.is_owned:
        listed = {name for _, names in profile.layout for name in names}
        amounts = {n: size for n, size in kind.request.items() if size > 0 and n in listed}
        if amounts:
            yield amounts
        return
    demand = kind.demand(profile.tracked, profile.pod_level_scope)
    if whole_pods and demand:
        yield peak(demand)
    elif not whole_pods:
        yield from (part.amounts for part in demand if part.kind != "init" and part.amounts)


def _rank_alike(weights: tuple[Wanted, ...], others: tuple[Wanted, ...]) -> bool:
    ranking = [(wanted.amounts, wanted.weight) for wanted in weights]
    return ranking == [(wanted.amounts, wanted.weight) for wanted in others]


def weighed(
    running: Mapping[Items, int], waiting: Mapping[Items, int], count_places: CountPlaces
) -> tuple[Wanted, ...]:
    """Return the demand classes with their weights, heaviest first. A class that weighs next to
    nothing compared with the heaviest is left out.
    """
    demand = {
        items: running.get(items, 0) + WAITING_FACTOR * waiting.get(items, 0)
        for items in {*running, *waiting}
    }
    asked = sorted(demand, key=lambda items: (-demand[items], items))[:CANDIDATES]
    counted = zip(asked, count_places(asked), strict=True)
    places = {items: count for items, count in counted if count != NOWHERE}
    raw = {items: demand[items] * FINENESS // (1 + count) for items, count in places.items()}
    heaviest = max(raw.values(), default=0)
    weights = {
        items: _power_of_two(weight * HEAVIEST // heaviest)
        for items, weight in raw.items()
        if weight
    }
    chosen = sorted(
        (items for items in asked if weights.get(items)), key=lambda items: (-weights[items], items)
    )
    return tuple(
        Wanted(
            dict(items), weights[items], running.get(items, 0), waiting.get(items, 0), places[items]
        )
        for items in chosen[:LISTED]
    )


def _power_of_two(weight: int) -> int:
    """The largest power of two that is at most the weight; 0 for 0."""
    return 1 << (weight.bit_length() - 1) if weight else 0


def places_in_zones(
    names: Sequence[str], free: Ints, whole: Floats, demand_classes: Sequence[Items]
) -> list[int]:
    """Return how many more of each class the zones hold, each class for itself; NOWHERE if no zone
    holds one even when it is empty. Free and whole are [resource of `names`, zone].
    """
    countable = _with_rows(names, demand_classes)
    if not countable:
        return [NOWHERE] * len(demand_classes)
    pairs, count = Pairs(countable, names), np.zeros(len(countable), dtype=np.int64)
    ever = np.zeros(len(countable), dtype=np.bool_)
    for first in range(0, free.shape[1], ZONES_AT_ONCE):
        cut = slice(first, first + ZONES_AT_ONCE)
        free_cut = np.minimum(np.maximum(free[:, cut], 0), MOST_FREE).take(pairs.rows, axis=0)
        times = pairs.least(np.floor(free_cut / pairs.amounts))
        count += times.astype(np.int64).sum(axis=1)
        holds = pairs.least(whole[:, cut].take(pairs.rows, axis=0) >= pairs.amounts)
        ever |= holds.any(axis=1)
    places = dict(zip(countable, np.where(ever, count, NOWHERE).tolist(), strict=True))
    return [places.get(items, NOWHERE) for items in demand_classes]


def places_in_sets(
    names: Sequence[str], free: Ints, whole: Floats, demand_classes: Sequence[Items]
) -> list[int]:
    """Return the same for sets of several zones; free and whole are [resource, zone, node]."""
    countable = _with_rows(names, demand_classes)
    table = SetRoomTable([DemandClass(items, 1) for items in countable], names)
    counts, empty = table.places(free, whole)
    places = dict(zip(countable, np.where(empty > 0, counts, NOWHERE).tolist(), strict=True))
    return [places.get(items, NOWHERE) for items in demand_classes]


def _with_rows(names: Sequence[str], demand_classes: Sequence[Items]) -> list[Items]:
    return [
        items
        for items in dict.fromkeys(demand_classes)
        if items and all(name in names for name, _ in items)
    ]
