"""The protocols of scoring strategies, and the zone that a strategy looks at.

1. A strategy scores one request on the zones of one node (`Strategy.score`): 0 (worst) to 100. A
   node on which the request fits in no zone that the strategy accepts scores 0. A request that asks
   nothing of any zone leaves nothing to compare and scores 100.
2. Everything else is optional and gives the same answers faster: `score_nodes` for all nodes at
   once, `most_nodes` an upper bound for all nodes, `score_plain` without a view of each zone,
   `landed` if only the zone matters where the request lands.
3. `given` makes a strategy rank by demand (see `score/demand.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from shared.domain.resources import Amounts

BEST, WORST = 100, 0
UNKNOWN_DISTANCE = 255
# The largest amount in a column (70 TB of memory in a zone): up to it, floored float64 percentages
# are exact.
COLUMN_LIMIT = 2**46

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
# (resource, amount) of a request.
Items = tuple[tuple[str, int], ...]
# (zone id, zone id) -> SLIT distance; a missing pair counts as `UNKNOWN_DISTANCE`.
Distances = Mapping[tuple[int, int], int]


class DemandClass(NamedTuple):
    """The amounts that pods request of a zone together, all above zero, and the weight of the room
    for them.
    """

    amounts: Items
    weight: int


class ZoneView(msgspec.Struct, frozen=True):
    """One zone in this decision: `available` after all charges; `used` says whether a pod holds
    anything in it.
    """

    id: int
    available: Amounts
    allocatable: Amounts
    used: bool = False


class Columns(NamedTuple):
    """One request, and the zones of all nodes: R resources, Z zones of a node in ascending order of
    id, N nodes.

    All devices of the zones are among R, with a request of 0 if none is requested. Amounts obey
    0 <= available <= allocatable <= `COLUMN_LIMIT`; available and allocatable may be float64 copies
    of the same integers, which are faster.
    """

    request: Ints  # [R]
    available: Ints  # [R,Z,N]
    allocatable: Ints  # [R,Z,N]
    present: Bools  # [R,Z,N]: whether the zone lists the resource
    fits: Bools  # [Z,N]: whether the request fits the zone, as of `fit.fitting`
    weights: Ints  # [R]
    devices: Bools  # [R]: whether the resource is a device


class Strategy(Protocol):
    """Scores one request on one node.

    `combine` says how the scores of a pod's containers become the pod's: the `mean` of each on
    untouched zones, or the `least` of each on what the containers before it leave
    (`score_containers`).
    """

    @property
    def name(self) -> str:
        """The name in the configuration."""

    @property
    def combine(self) -> Literal["mean", "least"]:
        """The mean, rounded down, or the least."""

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """Return 0..100. A weight below 1, or none, counts as 1; `max_zones` is the node's limit of
        zones (1..64).
        """


@runtime_checkable
class ColumnStrategy(Strategy, Protocol):
    """A strategy that also scores all nodes at once."""

    def score_nodes(self, columns: Columns) -> Ints:
        """Return int64[N] of 0..100."""


@runtime_checkable
class BoundedStrategy(Strategy, Protocol):
    """A strategy that scores node by node, and knows an upper bound for all nodes at once: few
    nodes are then scored.
    """

    def most_nodes(self, request: Ints, available: Ints, limits: Ints) -> Ints:
        """Return int64[N] of 0..100, no less than `score` gives while no more is available.

        The arrays are request[R] above zero, available[R,Z,N] not below zero and limits[N] of
        zones.
        """


@runtime_checkable
class PlainStrategy(Strategy, Protocol):
    """A strategy that also scores straight from a node's amounts."""

    def score_plain(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """Return 0..100 for a request above zero that zones decide on; `zones` are free amounts by
        zone, `sizes` allocatable ones.
        """


class Landed(Protocol):
    """One request prepared to be scored in many zones at once."""

    def scores(
        self, free: Ints, whole: Floats, positions: Ints, lost_besides: Floats | None = None
    ) -> Ints:
        """Return 0..100 of each zone of `positions` from free and whole [resource, position]; whole
        is 0 if a resource is not listed. A position of -1 scores 0.

        The request fits. Free is at most the whole, and may be below 0 if nothing is requested of
        it. Amounts are up to `COLUMN_LIMIT`. `lost_besides` is what `DemandStrategy.lost_by_sets`
        says of these zones' nodes.
        """


@runtime_checkable
class LandingStrategy(Strategy, Protocol):
    """A strategy that looks only at the zone where a request lands: the lowest that fits."""

    def landed(self, items: Items, names: Sequence[str]) -> Landed:
        """Prepare a request above zero for resources among `names`, the order of the columns."""


@runtime_checkable
class DemandStrategy(LandingStrategy, PlainStrategy, Protocol):
    """A strategy that ranks by demand: a pure function of the demand weights, too."""

    def given(self, demand_classes: Sequence[DemandClass]) -> DemandStrategy:
        """Return the strategy under these demand weights."""

    def score_with_sets(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """Return `score_plain` of a node whose kubelet also admits pods in sets of zones."""

    def lost_by_sets(
        self, items: Items, names: Sequence[str], landing: Ints, free: Ints, whole: Floats
    ) -> Floats | None:
        """Return what such nodes' sets of zones lose if the request lands in the zone `landing`
        [node], from free and whole [resource of `names`, zone, node]; None for nothing anywhere.
        """


def weight_of(resource: str, weights: Mapping[str, int]) -> int:
    """Return the configured weight, at least 1."""
    return max(1, weights.get(resource, 1))
