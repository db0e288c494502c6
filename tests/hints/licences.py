"""A complete hint provider, for tests: licences that are in one zone, although the report shows
some in each.

Tests register it with several arguments: `home` is the zone, and a `strict` manager hands out no
licence if the hint is not preferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from shared.domain.pod import ContainerKind
from shared.domain.report import Placement, Report, ZonedAmount
from shared.hints.provider import (
    HintProvider,
    Observed,
    RequestedAmounts,
    ResourceManager,
    Reusable,
)
from shared.kubelet.hint import Hint, Hints

LICENCE = "example.com/licence"
HOME = 1


class LicenceManager(ResourceManager, msgspec.Struct, frozen=True):
    """The manager of licences. Its state is the number of free licences."""

    home: int = HOME
    strict: bool = False

    def hints(self, state: int, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        if not requested:
            return None
        enough = state >= requested[0][1]
        return {LICENCE: [Hint(1 << self.home, True)] if enough else []}

    def allocate(
        self,
        state: int,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[int, Reusable]]:
        wanted = requested[0][1] if requested else 0
        if self.strict and wanted and hint.mask is not None and not hint.preferred:
            return ()
        return ((state - wanted, reusable),) if state >= wanted else ()

    def release(self, state: int, held: Sequence[ZonedAmount]) -> int:
        licences = [item for item in held if item.resource == LICENCE and self.home in item.zones]
        return state + sum(item.amount for item in licences)

    # Optional: without these two, a pod that came and went since the report leaves the node
    # undecided.

    def taken(self, before: int, after: int) -> int:
        return before - after

    def given_back(self, state: int, taken: int) -> int:
        return state + taken


class Licences(HintProvider, frozen=True):
    """The provider of licences: as many as the report shows in zone `home`, or one state for each
    number in `left`. With `open` it gives no hints about the zones ahead.
    """

    home: int = HOME
    strict: bool = False
    open: bool = False
    left: tuple[int, ...] = ()

    name: ClassVar[str] = "licences"

    def owns(self, resource: str) -> bool:
        return resource == LICENCE

    def zones(self, report: Report, resource: str) -> frozenset[int] | None:
        return None if self.open else frozenset({self.home})

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        shown = [
            zone.resources[LICENCE].available
            for zone in report.zones
            if zone.id == self.home and LICENCE in zone.resources
        ]
        states = self.left or (sum(shown),)
        bounds = frozenset({self.name} if len(states) > 1 else ())
        return Observed(LicenceManager(self.home, self.strict), states, bounds)
