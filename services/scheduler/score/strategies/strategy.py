"""The protocol of a scoring strategy, and the zone that it looks at.

Scores are integers, 0 (worst) to 100. A node on which the request fits in no zone that the strategy
accepts scores 0; a request that asks nothing of any zone gives the strategy nothing to compare and
scores 100.
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
COLUMN_LIMIT = 2**46
"""Largest amount a column may hold (70 TB of memory in a zone): up to it, floored float64 percentages are exact."""

Items = tuple[tuple[str, int], ...]
"""(resource, amount) of a request."""


class DemandClass(NamedTuple):
    """What pods ask of a zone together, all above zero, and how much the room for it weighs."""

    amounts: Items
    weight: int


Distances = Mapping[tuple[int, int], int]
"""(zone id, zone id) -> SLIT distance; a missing pair counts as `UNKNOWN_DISTANCE`."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class ZoneView(msgspec.Struct, frozen=True):
    """One zone as it stands for this decision: `available` after all charges; `used` says whether
    anything is held in it."""

    id: int
    available: Amounts
    allocatable: Amounts
    used: bool = False


class Strategy(Protocol):
    """Scores one request against one node. `combine` says how the scores of a pod's containers
    become the pod's: the `mean` of each on untouched zones (the cycle), or the `least` of each on
    what those before it leave (`containers.score_containers`)."""

    @property
    def name(self) -> str:
        """The name that configuration uses."""

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
        """0..100. A weight below 1, or none, counts as 1; `max_zones` is the node's limit of zones
        (1..64).
        """


@runtime_checkable
class ColumnStrategy(Strategy, Protocol):
    """A strategy that also scores all nodes at once, with the same answers."""

    def score_nodes(
        self,
        request: Ints,
        available: Ints,
        allocatable: Ints,
        present: Bools,
        fits: Bools,
        weights: Ints,
        devices: Bools,
    ) -> Ints:
        """int64[N] of 0..100 from request[R], available, allocatable and present[R,Z,N], fits[Z,N],
        weights[R] and devices[R] (which resources are devices: all of the zones' are among R, with
        a request of 0 where none is asked for).

        Zones of a node lie in ascending order of id. `fits` are those of `fit.fitting`. Amounts
        obey 0 <= available <= allocatable <= `COLUMN_LIMIT`; available and allocatable may be
        float64 mirrors of the same integers, twice as fast.
        """


@runtime_checkable
class BoundedStrategy(Strategy, Protocol):
    """A strategy that scores node by node, and knows for all nodes at once what a score is at most:
    few are then looked at.
    """

    def most_nodes(self, request: Ints, available: Ints, limits: Ints) -> Ints:
        """int64[N] of 0..100 from request[R] above zero, available[R,Z,N] not below zero and
        limits[N] (of zones): no less than `score` gives while no more is available."""


@runtime_checkable
class PlainStrategy(Strategy, Protocol):
    """A strategy that also scores straight from a node's amounts, with the same answers: without a
    view a zone.
    """

    def score_plain(
        self, asked: Items, zones: Mapping[int, Amounts], sizes: Mapping[int, Amounts]
    ) -> int:
        """0..100 for a request above zero that zones decide on; `zones` has what is free by zone,
        `sizes` what is allocatable.
        """


class Landed(Protocol):
    """One request made ready to be scored in many zones at once."""

    def scores(self, free: Ints, whole: Floats, standing: Floats | None = None) -> Ints:
        """0..100 of each zone from free and whole [resource, zone], whole being 0 where a resource
        is not listed. The request fits; free is no more than the whole, and may be below 0 where
        nothing is asked for; amounts are up to `COLUMN_LIMIT`. `standing` is
        `WantStrategy.standing` of these zones, where that is known."""


@runtime_checkable
class LandingStrategy(ColumnStrategy, Protocol):
    """A strategy that looks at nothing but the zone where a request lands: the lowest that fits."""

    def landed(self, items: Items, names: Sequence[str]) -> Landed:
        """A request above zero for resources among `names`, which is the order of the resources in
        columns.
        """


@runtime_checkable
class DemandStrategy(LandingStrategy, Protocol):
    """A strategy that is told what pods ask for: a pure function of that, too."""

    def given(self, wants: Sequence[DemandClass]) -> DemandStrategy:
        """The same strategy under these wants."""

    def zone_values(self, free: Ints, whole: Floats, names: Sequence[str]) -> Floats:
        """What each zone is worth as it stands, whatever is asked of it, from free and whole
        [resource of `names`, zone].
        """


def weight_of(resource: str, weights: Mapping[str, int]) -> int:
    """The configured weight, at least 1."""
    return max(1, weights.get(resource, 1))
